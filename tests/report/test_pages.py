"""Pages: digits that the spread supports, bounds that stay bounds, titles in words, cells that stay cells."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.claims.claim import Printed
from runner.claims.evidence import PlannedRun, Runs
from runner.claims.verdicts import NULL, WIDE, ClaimRow
from runner.config import REPOSITORY, ConfigError
from runner.config.yaml_file import read_yaml
from runner.records.disk import read_record
from runner.records.jobs import sweep_jobs
from runner.report import pages
from runner.report.claim_rows import cells_of, claims_text, epsilon_text, words_text
from runner.report.figures import _part
from runner.report.formats import Table, markdown, plus_minus, write_csv, write_table_csv
from runner.report.papers import Unplanned, _unplanned, load
from runner.report.tables import runs_table, setting_cells, settings_table
from tests.claims.made_up import claim
from tests.tracked import tracked

CLAIM = claim(item="fig-3", dataset="MNIST", claimed="2.5", unit="epsilon", quantity="epsilon at 94% accuracy")
ROW = ClaimRow(
    CLAIM, "paper", "not contradicted", "not guaranteed", measured=2.6478, mean=2.6478, std=0.2384, n=5, n_planned=8,
    difference=0.1478, interval_low=-0.2713, interval_high=0.5669, epsilon=2.8, epsilon_sound=8.7111,
)  # fmt: skip


def test_bounds_are_rounded_so_that_they_stay_bounds() -> None:
    assert plus_minus(2.99901, 0.0104, "epsilon", places=3) == "3.000 ± 0.010"
    assert plus_minus(2.99901, None, "epsilon", at_least=True) == "≥ 2.999"
    assert plus_minus(97.8512, None, "%") == "97.85"
    cells = cells_of(replace(ROW, epsilon=2.99901, epsilon_sound=2.99901))
    assert (cells.epsilon, cells.sound) == ("3", "3")
    for sound, text in ((8.7111, "8.72"), (2033.21, "2034"), (268_904.2, "269,000")):
        assert epsilon_text(replace(ROW, epsilon_sound=sound)) == f"2.5 → {text} ✗"
    assert epsilon_text(ClaimRow(replace(CLAIM, at_epsilon=Printed("3")), "paper", "open")) == "3"
    assert cells_of(replace(ROW, at_least=True)).measured == "≥ 2.64"


def test_a_cell_of_a_markdown_table_is_text() -> None:
    text = markdown(Table(["a", "b|c"], [["<b>x</b> | y", "one\n| two"], ["<3", "x < y"]]))
    header = "| a | b\\|c |\n| --- | --- |"
    assert text == f"{header}\n| &lt;b>x&lt;/b> \\| y | one \\| two |\n| <3 | x < y |\n"


def test_people_see_the_shown_columns_and_the_csv_has_all_once(tmp_path: Path) -> None:
    table = Table(["a", "b", "c"], [[1, 2, 3]], shown=["c", "a"])
    assert markdown(table) == "| c | a |\n| --- | --- |\n| 3 | 1 |\n"
    assert markdown(Table(["a", "a"], [[1, 2]])).endswith("| 1 | 2 |\n")
    assert write_table_csv(tmp_path / "table.csv", table).read_text() == "a,b,c\n1,2,3\n"
    with pytest.raises(ValueError, match="two columns have one name, of epochs, seed, epochs"):
        write_csv(tmp_path / "runs.csv", ["epochs", "seed", "epochs"], [])


def test_no_committed_table_is_wider_than_a_page() -> None:
    for path in (path for path in tracked("results/*/**/*.md") if path.name != "matrix.md"):
        headers = [line for line in path.read_text().splitlines() if line.startswith("| --- |")]
        assert all(header.count("|") <= 8 for header in headers), path


@pytest.mark.parametrize(("status", "text"), [("finished", "60, ended by its ε after 2"), ("diverged", "60")])
def test_a_setting_says_that_its_budget_ended_it(fabricate, jobs, tmp_path, status: str, text: str) -> None:
    """Only of a run that has a budget and that nothing else ended."""
    job = jobs("fig_3", "mnist_tanh")[0]
    path = fabricate(job, [97.0, 98.0], status=status)
    cells = setting_cells(job) | pages._epochs(job, path.parent.parent)
    assert cells["epochs"] == text


def test_an_unguaranteed_epsilon_is_marked_in_page_and_figures() -> None:
    for row, words in (
        (ROW, "not contradicted, **ε not guaranteed**"),
        (replace(ROW, verdict="holds", guarantee="refuted"), "holds, **ε refuted**"),
        (replace(ROW, guarantee="guaranteed"), "not contradicted"),
        (replace(ROW, verdict="open"), "open"),
    ):
        assert f" | {words} | " in claims_text([row])
        assert _part(row) == (row.verdict, "ε" in words)


def test_a_setting_in_two_sweeps_has_one_row_with_all_runs(jobs) -> None:
    five, ten = (jobs(sweep, "mnist_relu") for sweep in ("table_3", "table_3_chosen"))
    _, (row,) = settings_table(Runs(PlannedRun(job, None) for job in (*five, *ten)))
    assert (len(five), len(ten), row["n_planned"]) == (5, 10, 10)
    assert row["sweep"] == "tempered_sigmoid/table_3, tempered_sigmoid/table_3_chosen"


def test_an_item_needs_the_runs_of_its_claims() -> None:
    paper = load("losing_less")
    both = {"losing_less/cifar10_ce", "losing_less/cifar10_ours"}
    assert paper.needs(paper.item("fig-6")) == {"losing_less/fig_1": both, "losing_less/fig_3": both}
    assert paper.needs(paper.item("table-5")) == {}, "its claims are computed from settings"


def test_a_run_that_decides_nothing_is_left_out_of_plans() -> None:
    """Not if it is recorded, nor if another item plans it."""
    entry = Unplanned(("p/s",), "It decides nothing.", ("p/b",))
    paper = replace(load("losing_less"), unplanned=(entry,))

    def job(run_id: str, sweep: str = "p/s", experiment: str = "p/b") -> Any:
        return SimpleNamespace(run_id=run_id, sweep=sweep, experiment=experiment)

    jobs = {
        "first": [job("done"), job("shared"), job("left"), job("a", experiment="p/a")],
        "second": [job("shared", "p/t")],
    }
    kept, left_out = paper.split(jobs, lambda job: job.run_id == "done")
    assert {item: [job.run_id for job in planned] for item, planned in kept.items()} == {
        "first": ["done", "a"], "second": ["shared"],
    }  # fmt: skip
    assert {reason: [job.run_id for job in runs] for reason, runs in left_out.items()} == {entry.reason: ["left"]}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ("sweeps: [fig_33], reason: Long.", "there is no sweep losing_less/fig_33"),
        ("sweeps: [fig_3], reason: Long., experiments: [losing_less/mnist_our]", "Did you mean losing_less/mnist_ours"),
        ("sweeps: [fig_3]", "reason"),
    ],
)
def test_runs_left_out_are_named_as_they_are(fields: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "paper.yaml").write_text(f"unplanned:\n  - {{{fields}}}\n")
    (entry,) = read_yaml(tmp_path / "paper.yaml").entries["unplanned"].listed
    with pytest.raises(ConfigError, match=rf"paper\.yaml, line 2: .*{sentence}"):
        _unplanned("losing_less", entry)


def test_open_claims_that_show_no_difference_are_counted_apart() -> None:
    rows = [replace(ROW, verdict="open", rule=rule.text) for rule in (NULL, WIDE, NULL)]
    assert words_text([ROW, *rows]) == (
        "of 4 claims, 1 is not contradicted and 3 are open, 2 of them with no difference beyond the margin"
    )


def test_a_claim_by_formula_has_one_line_with_its_guarantee() -> None:
    theorem = replace(CLAIM, method="By theorem 1", quantity="epsilon", claimed=Printed("0.07"))
    row = ClaimRow(
        theorem, "paper", "holds", "refuted", measured=0.068, measured_is="by formula", computed=True,
        epsilon_sound=2034.0, epsilon_least=0.0888,
    )  # fmt: skip
    line = "| By theorem 1: ε | 0.07 | 0.068 (by formula) | holds (by formula), **ε {} | – | 1 |"
    assert line.format("refuted** | 0.07 → ≥ 0.0888, ≤ 2034 ✗") in claims_text([row]).splitlines()
    unknown = replace(row, guarantee="not guaranteed", epsilon_least=None)
    assert line.format("not guaranteed** | 0.07 → 2034 ✗") in claims_text([unknown]).splitlines()


def test_the_sound_epsilon_of_a_screened_run_covers_all_attempts() -> None:
    """The run made 6,800 attempts and could have made 51,678: 2.8969 guarantees nothing."""
    (job,) = [job for job in sweep_jobs("noise_screening/table_1_kept") if job.run_id == "e97f9cfebd15"]
    runs = Runs([PlannedRun(job, read_record(REPOSITORY / "results" / "runs" / f"{job.run_id}.json"))])
    for _, (row,) in (runs_table(runs), settings_table(runs)):
        assert (row["epsilon"], row["epsilon_sound"], row["epsilon_spent"]) == (2.9998, 9.3155, 2.8969)
