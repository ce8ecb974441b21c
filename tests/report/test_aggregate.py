"""From records to files, on fabricated records of real jobs."""

import copy
import re
import statistics
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from runner.claims.claim import Call
from runner.claims.evidence import Evidence, collect
from runner.claims.measure import measure
from runner.claims.verdicts import judge
from runner.cli.aggregate import aggregate
from runner.cli.reproduce import _conclude
from runner.config import RESULTS
from runner.launch.processes import Tally
from runner.records.jobs import Job
from runner.report.figures import DISTANCES, PRICE
from runner.report.formats import read_csv
from runner.report.pages import headline, write_report
from runner.report.papers import load
from runner.report.statements import Sources

PAPER = "tempered_sigmoid"


@pytest.fixture(autouse=True)
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures' files empty: rendering takes a second each, and the tests here read text."""
    monkeypatch.setattr(Figure, "savefig", lambda _, file, **__: None)


def setting(folder: Path, experiment: str) -> dict[str, str]:
    rows = read_csv(folder / PAPER / "fig-3" / "settings.csv")
    rows = [row for row in rows if row["experiment"] == f"{PAPER}/{experiment}"]
    return max(rows, key=lambda row: int(row["n_recorded"]))


def claim(folder: Path, item: str, method: str, dataset: str = "MNIST") -> dict[str, str]:
    rows = read_csv(folder / PAPER / item / "claims.csv")
    rows = [row for row in rows if row["method"] == method and row["dataset"] == dataset]
    return max(rows, key=lambda row: int(row["n"] or 0))  # of several readings, the first with most runs


def test_numbers_are_those_computed_by_hand(tmp_path, fabricate, jobs):
    # Last epochs 97, 98, 98.6: mean 97.8667, variance ((0.8667)^2 + 0.1333^2 + 0.7333^2) / 2 = 0.65333
    for job, accuracy in zip(jobs("fig_3_public", "mnist_tanh"), ([99, 97], [90, 98], [98.6]), strict=False):
        fabricate(job, [float(a) for a in accuracy])
    aggregate(PAPER, items=["fig-3"], results_root=tmp_path)
    assert len(read_csv(tmp_path / PAPER / "fig-3" / "settings.csv")) == 14
    tanh = setting(tmp_path, "mnist_tanh")
    assert (tanh["n_planned"], tanh["n_recorded"], tanh["n_diverged"]) == ("5", "3", "0")
    assert tanh["accuracy_mean"] == "97.8667"
    assert tanh["accuracy_std"] == "0.80829"
    assert (tanh["accuracy_min"], tanh["accuracy_median"], tanh["accuracy_max"]) == ("97", "98", "98.6")
    assert tanh["best_epoch_accuracy_mean"] == "98.5333"  # of 99, 98 and 98.6
    judged = claim(tmp_path, "fig-3", "DP-SGD, tanh, same settings as ReLU")
    assert (judged["measured"], judged["n"], judged["n_planned"]) == ("97.8667", "3", "5")
    assert judged["difference"] == "-0.1333"
    # t(2) s sqrt(1/3 + 1/10) = 4.302653 * 0.808290 * 0.658281 = 2.289374, the tolerance is 0.5
    assert (judged["interval_low"], judged["interval_high"]) == ("-2.4227", "2.156")
    assert (judged["verdict"], judged["guarantee"]) == ("open", "guaranteed")
    assert judged["best_epoch_mean"] == "98.5333"


def test_an_item_alone_has_the_numbers_of_all_items_together(tmp_path: Path) -> None:
    """The interval of a single run has the spread of all settings of its data set, also of other items."""
    (tmp_path / "runs").symlink_to(RESULTS / "runs")
    aggregate("losing_less", items=["fig-4"], results_root=tmp_path)
    alone, together = (folder / "losing_less" / "fig-4" / "claims.csv" for folder in (tmp_path, RESULTS))
    assert alone.read_text(encoding="utf-8") == together.read_text(encoding="utf-8")
    assert any(row["n"] == "1" and row["interval_low"] for row in read_csv(alone))


def test_a_diverged_run_counts_as_it_ended(tmp_path, fabricate, jobs):
    first, second = jobs("fig_3_public", "mnist_relu")[:2]
    fabricate(first, [96.0, 96.4, 97.0])
    fabricate(second, [50.0, 9.8], status="diverged")
    aggregate(PAPER, items=["fig-3"], results_root=tmp_path)
    judged = claim(tmp_path, "fig-3", "DP-SGD, ReLU")
    assert (judged["n"], judged["n_diverged"], judged["mean"]) == ("2", "1", "53.4")
    statuses = {row["run_id"]: row["status"] for row in read_csv(tmp_path / PAPER / "fig-3" / "runs.csv")}
    assert statuses == {first.run_id: "finished", second.run_id: "diverged"}


def test_a_claim_has_the_largest_epsilon_over_its_runs(tmp_path, fabricate, jobs):
    """It is infinite where no sound one is known of a run."""
    for job, sound in zip(jobs("fig_3_public", "mnist_tanh"), (2.3, None), strict=False):
        fabricate(job, [98.0], sound=sound)
    spent = ((2.5, 2.1), (2.9, 2.8), (2.7, 2.4))
    for job, (epsilon, sound) in zip(jobs("fig_3_public", "mnist_relu"), spent, strict=False):
        fabricate(job, [96.0], epsilon=epsilon, sound=sound)
    aggregate(PAPER, items=["fig-3"], results_root=tmp_path)
    tanh, relu = (claim(tmp_path, "fig-3", f"DP-SGD, {name}") for name in ("tanh, same settings as ReLU", "ReLU"))
    assert (tanh["epsilon_sound"], tanh["guarantee"]) == ("inf", "not guaranteed")
    assert (relu["epsilon"], relu["epsilon_sound"], relu["guarantee"]) == ("2.9", "2.8", "guaranteed")
    shown = setting(tmp_path, "mnist_relu")
    assert (shown["epsilon"], shown["epsilon_sound"]) == ("2.9", "2.8")


def test_an_item_with_too_few_runs_states_the_count_not_a_figure(tmp_path, fabricate, jobs):
    fabricate(jobs("fig_10_gamma", "mnist_ours", paper="losing_less")[0], [98.0])
    folder = tmp_path / "losing_less" / "fig-10"
    folder.mkdir(parents=True)
    (folder / "figure.svg").touch()
    aggregate("losing_less", items=["fig-10"], results_root=tmp_path)
    assert not (folder / "figure.svg").exists(), "an old one is removed"
    write_report("paper", Sources(tmp_path))
    page = (tmp_path / "losing_less" / "README.md").read_text()
    assert "(fig-10/README.md) · 1 of 200 runs, no figure, because 107 of 108 settings have no run\n" in page


def test_the_delta_of_the_runs_is_that_of_their_config(tmp_path, fabricate, jobs):
    fabricate(jobs("fig_3", "mnist_tanh")[0], [98.0])
    aggregate(PAPER, items=["fig-3"], results_root=tmp_path)
    for name in ("runs.csv", "settings.csv"):
        assert {row["delta"] for row in read_csv(tmp_path / PAPER / "fig-3" / name)} == {"1e-05"}
    sweep = f"{PAPER}/fig_3"
    (run,) = collect([sweep], results_root=tmp_path).recorded(sweep, f"{PAPER}/mnist_tanh")
    config = copy.deepcopy(run.job.config)
    config.delta = 1e-4
    lax = replace(run, job=Job.of(run.job.sweep, run.job.overrides, config))
    claimed = next(c for c in load(PAPER).claims if (c.item, c.alone) == ("fig-3", run.job.experiment))
    for form in (claimed, replace(claimed, at=Call("below"))):
        for planned, guarantee in ((run, "guaranteed"), (lax, "not guaranteed")):
            evidence = Evidence("paper", {claimed.sweep: [planned]})
            assert judge(form, measure(form, evidence, {}), "paper").guarantee == guarantee
        two = Evidence("paper", {claimed.sweep: [lax, run]})
        assert measure(form, two, {}).delta == 1e-4  # the largest


def test_a_stale_record_is_ignored_and_its_figure_removed(tmp_path, fabricate, jobs):
    path = fabricate(jobs("fig_3", "mnist_tanh")[0], [98.0])
    aggregate(PAPER, items=["fig-3"], results_root=tmp_path)
    figure = tmp_path / PAPER / "fig-3" / "figure.svg"
    assert figure.exists()
    stale = path.with_name("0123456789ab.json")
    stale.write_text(path.read_text().replace(path.stem, stale.stem))
    path.unlink()
    aggregate(PAPER, items=["fig-3"], results_root=tmp_path)
    assert not figure.exists()
    assert not read_csv(tmp_path / PAPER / "fig-3" / "runs.csv")
    claims = read_csv(tmp_path / PAPER / "fig-3" / "claims.csv")
    outcomes = {(row["counted"], row["verdict"], row["rule"]) for row in claims}
    reading = ("no, another reading", "open", "no run")
    assert outcomes == {("yes", "open", "no run"), ("no, for context", "", ""), reading}


def test_smoke_is_apart_labelled_and_not_judged(tmp_path, fabricate, jobs):
    for experiment in ("mnist_tanh", "mnist_relu"):
        fabricate(jobs("fig_3", experiment, "smoke")[0], [80.0, 98.0])
    written = aggregate(PAPER, "smoke", ["fig-3"], tmp_path)
    write_report("smoke", Sources(tmp_path / "smoke"))
    assert all(path.is_relative_to(tmp_path / "smoke") for path in written)
    assert not (tmp_path / PAPER).exists()
    assert not (tmp_path / "README.md").exists()
    index = (tmp_path / "smoke" / "README.md").read_text()
    assert "NOT A REPRODUCTION" in index
    linked = re.findall(r"\]\((\w+/README\.md)\)", index)
    assert set(linked) == {f"{PAPER}/README.md"}, "the other papers have no page here"
    for row in read_csv(tmp_path / "smoke" / PAPER / "fig-3" / "claims.csv"):
        assert row["scale"] == "smoke"
        assert (row["verdict"], row["difference"]) in {("", ""), ("open", "")}
    assert {row["scale"] for row in read_csv(tmp_path / "smoke" / PAPER / "fig-3" / "runs.csv")} == {"smoke"}
    assert headline(PAPER, "smoke", tmp_path / "smoke").startswith("SMOKE")
    aggregate(PAPER, items=["fig-3"], results_root=tmp_path)  # the paper's scale does not see them
    assert not read_csv(tmp_path / PAPER / "fig-3" / "runs.csv")


def test_every_claim_has_one_row_in_the_report(tmp_path, listed_runs):
    written = {path: path.read_bytes() for path in aggregate(PAPER, results_root=tmp_path)}
    again = {path: path.read_bytes() for path in aggregate(PAPER, results_root=tmp_path, pages_too=False)}
    assert written.items() > again.items()
    pages = {path.relative_to(tmp_path).as_posix() for path in written.keys() - again.keys()}
    assert pages >= {"README.md", f"{PAPER}/README.md"}
    assert not any("fig-" in page for page in pages)
    claims = load(PAPER).claims
    assert f"- [{load(PAPER).title}]({PAPER}/README.md) (" in (tmp_path / "README.md").read_text()
    for item in load(PAPER).items:
        page = (tmp_path / PAPER / item.name / "README.md").read_text().partition("\n## Claims")[2]
        cells = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
        rows = [texts for texts in cells if len(texts) == 7 and texts[0] not in ("| claim", "| ---")]
        measured = [texts[2] for texts in rows if texts[2]]
        assert len(measured) == sum(claim.item == item.name for claim in claims), item.name
        assert all(text.startswith("– (0 of ") or text.endswith("(by formula)") for text in measured)


def test_only_all_items_together_make_the_report(tmp_path, fabricate, jobs, monkeypatch, capsys):
    fabricate(jobs("fig_3_stax_mnist", "mnist_tanh")[0], [98.0])
    folder = tmp_path / PAPER / "fig-3"
    written = aggregate(PAPER, items=["fig-3"], results_root=tmp_path)
    assert {path.parent for path in written} == {folder}
    assert not (tmp_path / "README.md").exists()
    assert [path.name for path in (tmp_path / PAPER).iterdir()] == ["fig-3"]
    monkeypatch.chdir(folder)
    paper = load(PAPER)
    options = Namespace(scale="paper", items=None)
    _conclude(paper, options, (paper.item("fig-3"), paper.item("table-1")), Tally(), tmp_path)
    printed = capsys.readouterr().out
    report = (tmp_path / "README.md").read_text()
    # Theorem 1 and equations 4 and 5 hold by formula, and one run of MNIST with tanh decides no claim.
    counted = next(line for line in report.splitlines() if line.startswith("| tempered-sigmoid |"))
    claims = sum(claim.counts for claim in paper.claims)
    assert counted == f"| tempered-sigmoid | 3 (3 by formula) | 0 | 0 | 0 | {claims - 3} | {claims} |"
    names = {"README.md", DISTANCES, PRICE, *(item.name for item in paper.items)}
    assert {path.name for path in (tmp_path / PAPER).iterdir()} == names
    assert "open (not run)" in printed
    first, second = printed.splitlines()[-2:]  # below the headline of figure 3
    assert first.startswith(".: runs.csv, settings.csv, ")
    assert second.startswith(f"{tmp_path / PAPER / 'table-1'}: ")
    assert second.endswith("table.csv, README.md")


def test_the_best_tenth_of_the_triples_needs_half_the_sweep(tmp_path, fabricate, jobs):
    """After the last epoch: the later a triple, the better it ends here, and the worse its best epoch is."""
    triples = jobs("fig_2", "mnist_triple")[:30]

    def means() -> list[dict[str, str]]:
        aggregate(PAPER, items=["fig-2"], results_root=tmp_path)
        rows = read_csv(tmp_path / PAPER / "fig-2" / "claims.csv")
        return [row for row in rows if row["dataset"] == "MNIST" and row["quantity"].startswith("mean of")]

    for place, job in enumerate(triples[:29]):
        fabricate(job, [99.5 - place / 10, 90.0 + place / 10])
    assert {(row["verdict"], row["measured"]) for row in means()} == {("open", "")}
    fabricate(triples[29], [96.6, 92.9])
    by_quantity = {row["quantity"]: row for row in means()}
    for quantity, name in (("mean of s", "scale"), ("mean of T", "inverse_temperature"), ("mean of o", "offset")):
        top = [float(job.config.activation[name]) for job in triples[27:]]
        assert float(by_quantity[quantity]["measured"]) == pytest.approx(sum(top) / 3, rel=1e-5)
        assert float(by_quantity[quantity]["std"]) == pytest.approx(statistics.stdev(top), rel=1e-5)
