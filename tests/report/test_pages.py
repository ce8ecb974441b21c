"""Pages: digits that the spread supports, bounds that stay bounds, titles in words, cells that stay cells."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from runner.claims.claim import Claim, Printed
from runner.claims.runs import PlannedRun, Runs
from runner.claims.verdicts import ClaimRow, counted
from runner.config import REPOSITORY
from runner.records.files import read_record
from runner.records.jobs import sweep_jobs
from runner.report import pages, statements
from runner.report.claim_rows import cells_of, claims_text, epsilon_text, open_settings, signed
from runner.report.figures import _part
from runner.report.files import Table, markdown, plus_minus, read_csv, write_csv, write_table_csv
from runner.report.leaderboard.entries import titles_of
from runner.report.pages import totals
from runner.report.papers import load
from runner.report.statements import noise_text
from runner.report.tables import runs_table, setting_cells, settings_table
from tests.claims.made_up import claim
from tests.tracked import tracked

CLAIM = claim(item="fig-3", dataset="MNIST", claimed="2.5", unit="epsilon", quantity="epsilon at 94% accuracy")
ROW = ClaimRow(
    CLAIM, "paper", "not contradicted", "not guaranteed", measured=2.6478, mean=2.6478, std=0.2384, n=5, n_planned=8,
    difference=0.1478, interval_low=-0.2713, interval_high=0.5669, epsilon=2.8, epsilon_sound=8.7111,
)  # fmt: skip


def test_a_number_near_zero_keeps_its_sign_and_a_digit() -> None:
    shown = ["−0.004", "−0.01", "+0.00", "+1.50"]
    assert [signed(value, "%", None) for value in (-0.004, -0.006, 0.0, 1.5)] == shown


@pytest.mark.parametrize(
    ("std", "measured", "difference"),
    [
        (0.2384, "2.65 ± 0.24", "+0.15 [−0.27, +0.57]"),
        (4.06, "2.7 ± 4.1", "+0.1 [−0.3, +0.6]"),
        (0.0241, "2.648 ± 0.024", "+0.148 [−0.271, +0.567]"),
    ],
)
def test_a_number_has_the_digits_that_its_spread_supports(std: float, measured: str, difference: str) -> None:
    cells = cells_of(replace(ROW, std=std))
    assert (cells.measured, cells.difference) == (measured, difference)


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


def test_every_setting_on_the_leaderboard_has_its_own_title() -> None:
    """On one data set and at one bound, next to the kind of its epsilon."""
    rows = read_csv(REPOSITORY / "results" / "leaderboard" / "leaderboard.csv")
    settings = {(row["dataset"], row["title"]): row["setting_id"] for row in rows}
    assert [row for row in rows if settings[row["dataset"], row["title"]] != row["setting_id"]] == []
    assert len(settings) == len({(row["dataset"], row["setting_id"]) for row in rows}) > 100
    assert not [title for _, title in settings if "_" in title or "=" in title]


def test_what_a_sweep_varies_is_in_words(jobs) -> None:
    budgets = jobs("fig_5", "mnist_printed", paper="backprop_clipping")
    assert titles_of({"": budgets[0]})[""] == "Backpropagation clipping, as printed, ε 0.05"
    table = jobs("table_1", "mnist_printed", paper="backprop_clipping")[0]
    assert titles_of({"": table})[""] == "Backpropagation clipping, as printed"
    both = titles_of({"figure": budgets[0], "table": table})
    assert both["table"] == "Backpropagation clipping, as printed, ε 0.07", "its own, as others of it are named"


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


def test_an_order_has_the_numbers_of_both_settings() -> None:
    order = replace(ROW, claim=replace(CLAIM, direction="above_other"), measured=97.9, mean=97.9, difference=1.6)
    assert cells_of(order).measured == "97.90 ± 0.24 against 96.30"
    assert cells_of(replace(order, difference=97.9)).measured == "97.90 ± 0.24"  # the difference itself is measured


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


def test_a_table_has_true_minus_signs_and_the_runs_needed() -> None:
    below = replace(CLAIM, claimed=Printed("-0.2"), level=-1.0, direction="above", unit="points")
    row = replace(ROW, claim=below, verdict="open", runs_have=5, runs_needed=45, interval_low=-0.5, std=None)
    cells = cells_of(row)
    assert cells.claimed == "−0.2"
    assert cells.difference == "[−1.50, −0.43], threshold −1"
    assert cells.verdict == "open (about 45 runs needed)"


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


def test_another_reading_is_marked_and_never_bold() -> None:
    failing = replace(ROW, verdict="fails", guarantee="")
    reading = replace(failing, claim=replace(CLAIM, reading="as printed", counted="no, another reading"))
    context = replace(failing, verdict="", claim=replace(CLAIM, direction="none", counted="no, for context"))
    text = claims_text([failing, reading, context])
    assert "| **fails** |" in text
    assert "| fails (another reading, not counted) |" in text
    assert "| for context |" in text


def test_a_best_has_its_mean_next_to_it_and_says_of_what() -> None:
    best = replace(CLAIM, statistic="best", unit="%")
    row = replace(ROW, claim=best, measured=64.31, mean=62.91, std=0.86, n=5, measured_is="best of 5")
    assert cells_of(row).measured_of == "64.31 (best of 5, mean 62.91 ± 0.86, 5 of 8 planned)"
    assert cells_of(replace(row, n=8)).measured_of == "64.31 (best of 5, mean 62.91 ± 0.86)"
    shown = {"max of 5": "2.5 (best of 5)", "max of 5 (not said)": "2.5 (best of 5, not said)", "mean of 5": "2.5"}
    claims = {text: replace(CLAIM, of=text) for text in shown}
    assert {text: cells_of(replace(ROW, claim=claim)).claimed for text, claim in claims.items()} == shown


def test_the_difference_of_a_computed_epsilon_is_that_shown() -> None:
    three = replace(CLAIM, claimed=Printed("3"))
    row = replace(ROW, claim=three, computed=True, measured=3.59302, difference=0.59302, interval_low=None, std=None)
    assert (cells_of(row).measured, cells_of(row).difference) == ("3.594", "+0.594")
    below = cells_of(replace(row, measured=2.99379, difference=-0.00621))
    assert (below.measured, below.difference) == ("2.994", "−0.006")


def test_no_sentence_of_notes_or_of_open_settings_stands_twice() -> None:
    notes = ("All A. One b", "All A", "All A. One b")
    rows = [replace(ROW, claim=replace(CLAIM, method=f"m{place}", note=note)) for place, note in enumerate(notes)]
    lines = [line for line in claims_text(rows).splitlines() if line.startswith("- ")]
    assert lines == ["- All A.", "- m0; m2: One b."]
    texts = {"a": "noise, δ. Not said", "b": "noise"}
    rows = [replace(ROW, claim=replace(CLAIM, method=method, open=text)) for method, text in texts.items()]
    assert open_settings(rows).splitlines() == ["noise; in some rows δ.", "", "- a: Not said."]
    assert open_settings([ROW]) == ""


def test_the_counts_of_a_paper_are_a_row_of_the_tables_of_all() -> None:
    formula = replace(ROW, claim=replace(CLAIM, method="n"), verdict="holds", guarantee="guaranteed", computed=True)
    context = replace(ROW, claim=replace(CLAIM, direction="none", counted="no, for context"), verdict="")
    reading = replace(ROW, claim=replace(CLAIM, reading="b", counted="no, another reading"), verdict="differs")
    rows = [ROW, formula, context, reading, replace(ROW, verdict="", scale="smoke")]
    assert counted(rows) == [ROW, formula]
    of_all = totals({"a-paper": rows})
    assert "not counted: 1 of other readings (1 *differs*) and 1 for context." in of_all
    for cells in ("1 (1 by formula) | 1 | 0 | 0 | 0 | 2", "1 | 1 | 0 | 1"):
        assert all(f"\n| {name} | {cells} |\n" in of_all for name in ("a-paper", "**all**"))


def test_the_sound_epsilon_of_a_screened_run_covers_all_attempts() -> None:
    """The run made 6,800 attempts and could have made 51,678: 2.8969 guarantees nothing."""
    (job,) = [job for job in sweep_jobs("noise_screening/table_1_kept") if job.run_id == "e97f9cfebd15"]
    runs = Runs([PlannedRun(job, read_record(REPOSITORY / "results" / "runs" / f"{job.run_id}.json"))])
    for _, (row,) in (runs_table(runs), settings_table(runs)):
        assert (row["epsilon"], row["epsilon_sound"], row["epsilon_spent"]) == (2.9998, 9.3155, 2.8969)


def test_guaranteed_claims_are_counted_by_their_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of runs in float64, of one in float32 among others, and by formula. Other claims count nowhere."""
    claims = {name: replace(CLAIM, pairs=((name,),)) for name in ("once", "new", "mixed", "none", "unsure")}
    rows = [replace(ROW, claim=claim, guarantee="guaranteed") for claim in claims.values()]
    rows.insert(0, replace(rows[1], computed=True))
    rows[-1] = replace(rows[-1], guarantee="not guaranteed")
    once = "float64, rounded once"
    runs = [("once", once), ("new", "float64"), ("new", once), ("mixed", once), ("mixed", None), ("unsure", None)]

    def records(folder: Path, scale: str, paper: str, claim: Claim) -> list[bytes]:
        noises = [noise for name, noise in runs if name in claim.experiments]
        return [json.dumps({"provenance": {"noise": noise} if noise else {}}).encode() for noise in noises]

    monkeypatch.setattr(statements, "_records", records)
    text = noise_text(tmp_path, "paper", {"a_paper": rows}, "limits.md")
    assert "(limits.md). Of the 5 claims with a guaranteed ε, 1 rest on runs" in text
    assert "drawn in float64 is behind 2 of them, and a formula" in text
    assert "without runs behind 2." in text
    assert noise_text(tmp_path, "paper", {"a_paper": rows[-1:]}, "") == ""
