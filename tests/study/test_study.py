"""A study from its file to its page, on fabricated records: what is run, what counts, what a reader is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cli import study as command
from runner.config import REPOSITORY
from runner.launch import Work
from runner.launch.processes import Tally
from runner.records.files import dumps, read_record, record_path, results_folder
from runner.records.jobs import Job, sweep_jobs
from runner.report.files import read_csv, write_csv
from runner.report.markdown import difference_text
from runner.runs.durations import Durations
from runner.study import board
from runner.study.file import read
from runner.study.outcome import effects
from runner.study.plan import settings_of
from runner.study.progress import progress_of

FILE = """
base: experiment=tempered_sigmoid/mnist_tanh
arms:
  flat clipping: clipping=flat
  AUTO-S: clipping=automatic
  AUTO-S, wide: clipping=automatic clipping.norm=2
epsilon: 3
seeds: 2
search: {optimizer.lr: [0.5, 1, 2]}
"""
BEST = {"flat clipping": 1.2, "AUTO-S": 9.0, "AUTO-S, wide": 1.2}  # the rate at which an arm is best
METHOD = ("method", "mean", "held_out", "chosen_by_test_images")
METHODS = (  # of a leaderboard
    ("tanh", 97, "no", "no"),
    ("tanh", 96, "yes", "no"),
    ("tanh", 99, "yes", "yes"),
    ("Plain", 80, "yes", "no"),
    ("", 98, "yes", "no"),
)
OLD = {
    "tanh": "ReLU",
    "losing-less loss": "cross-entropy",
    "automatic clipping": "flat clipping",
    "ScatterNet": "pixels",
}
Carried = Callable[..., list[list[Job]]]


def accuracy(job: Job) -> float:
    """90 less the distance from the best rate; on test images 1 more for AUTO-S, and half a point more for seed 1."""
    arm, rate = job.overrides["arm"], float(job.field("optimizer.lr"))
    own = 90 - abs(math.log(rate / BEST[arm]))
    if job.field("evaluation") == "holdout":
        return own
    return own + (arm == "AUTO-S") + 0.5 * job.field("seed") * (2 if arm == "AUTO-S, wide" else 1)


@pytest.fixture
def carried(tmp_path: Path, fabricate: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Carried:
    """`carried(FILE, "--scale", "smoke")`: carry out a study with made-up runs; returns the jobs of each round."""
    monkeypatch.setattr(command, "_check", lambda *_: None)
    monkeypatch.setattr(command, "check_data", lambda _: None)
    monkeypatch.setattr(command.durations, "recorded", lambda _: Durations([]))

    columns = ("dataset", "sound_epsilon_at_most", "std", "n", "neighbours", *METHOD)
    fixed = ("MNIST", 3, 0.1, 5, "add-or-remove-one")
    rows = [dict(zip(columns, (*fixed, *row), strict=True)) for row in METHODS]
    monkeypatch.setattr(board, "_CSV", write_csv(tmp_path / "board.csv", columns, rows))

    def carry_out(text: str, *arguments: str, failing: str = "", most: int = 99, code: int = 0) -> list[list[Job]]:
        rounds: list[list[Job]] = []

        def run_jobs(_: object, work: Work, __: object) -> Tally:
            rounds.append(list(work.jobs))
            failed = [(job, "it failed") for job in work.jobs if job.overrides["arm"] == failing or len(rounds) > most]
            for job in work.jobs:
                if job not in [job for job, _ in failed]:
                    fabricate(job, [80.0, accuracy(job), 99.0], sound=[1.0, 2.9, 3.1])
            return Tally(recorded=[], failed=failed)

        monkeypatch.setattr(command, "run_jobs", run_jobs)
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        assert command.main([str(path), *arguments, f"runtime.results_root={tmp_path}"]) == code
        return rounds

    return carry_out


def page(folder: Path) -> str:
    return (folder / "studies" / "mine" / "README.md").read_text(encoding="utf-8")


def test_the_search_the_choice_the_finals_and_the_page(carried: Carried, tmp_path: Path) -> None:
    """AUTO-S is best at the edge, so all arms get three more trials: 4, 8 and 16 of AUTO-S, which chooses 8."""
    rounds = carried(FILE)
    assert [len(jobs) for jobs in rounds] == [9, 3, 3, 3, 6]
    *searched, finals = rounds
    assert {(j.field("evaluation"), j.field("seed")) for jobs in searched for j in jobs} == {("holdout", 0)}
    assert [[j.field("optimizer.lr") for j in jobs if j.overrides["arm"] == "AUTO-S"] for jobs in searched] == [
        [0.5, 1.0, 2.0], [4.0], [8.0], [16.0],
    ]  # fmt: skip
    assert {(j.field("evaluation"), j.field("seed")) for j in finals} == {("test", 1), ("test", 2)}
    chosen = {j.overrides["arm"]: j.field("optimizer.lr") for j in finals}
    assert chosen["AUTO-S"] == 8.0
    assert chosen["flat clipping"] == pytest.approx(1.2, rel=0.05)
    for job in finals:
        assert (job.field("target_epsilon"), job.field("accountant._target_")) == (3.0, "runner.accounting.Pld")
        assert job.field("noise_multiplier") is None
        assert job.field("max_epsilon") is None  # the experiment has one, which is no part of the comparison
        assert "held-out" in job.field("tracking.tags")
    text = page(tmp_path)
    assert "| MNIST | 3 | flat clipping | 90.74 ± 0.35 (2) |  |  | 6 |" in text  # its epoch within ε, not the last
    assert "*Better* and *worse*: the p-value is at most 5% after Holm's correction for all 2 gains" in text
    assert "Each arm had 6 trials." in text
    assert "**ε excludes the search.**" in text
    assert "**Stopped.** *AUTO-S* on MNIST at ε = 3 counts with epoch 2, the last one within ε." in text
    ranked = [row for row in text.split("## On the leaderboard")[1].splitlines() if row.startswith("| MNIST")]
    assert [row.split(" | ")[2] for row in ranked] == [  # searched before higher; not chosen by test images
        "tanh", "**AUTO-S** (*yours*)", "**AUTO-S, wide** (*yours*)", "**flat clipping** (*yours*)", "Plain",
    ]  # fmt: skip
    assert "18 trials and 6 final runs took" in text
    rows = read_csv(tmp_path / "studies" / "mine" / "table.csv")
    gain = next(row for row in rows if row["arm"] == "AUTO-S")
    assert gain["gain over flat clipping [95%]"].startswith("+0.8")  # 1, less the distances from the best rates
    assert gain["answer"] == "not decided"  # equal under both seeds: nothing is known of the spread
    wide = next(row for row in rows if row["arm"] == "AUTO-S, wide")
    assert wide["gain over flat clipping [95%]"] == "+0.75 [−2.43, +3.93]"  # 0.5 and 1: t(1) = 12.706 times 0.25
    assert len(read_csv(tmp_path / "studies" / "mine" / "runs.csv")) == 24
    assert (tmp_path / "studies" / "mine" / "figure.svg").exists()


def test_a_study_goes_on_where_it_was_stopped(carried: Carried, tmp_path: Path) -> None:
    before = carried(FILE, most=2, code=1)
    assert [len(jobs) for jobs in before] == [9, 3, 3]
    assert "| AUTO-S | – |  |  | 4 |" in page(tmp_path)  # nothing is chosen, and no number is shown
    assert [len(jobs) for jobs in carried(FILE)] == [3, 3, 6]
    assert carried(FILE) == []


def test_an_arm_whose_updates_the_test_images_chose_is_named(carried: Carried, tmp_path: Path) -> None:
    (*_, finals) = carried(FILE)
    assert "Chosen by test images" not in page(tmp_path)
    for job in (job for job in finals if job.overrides["arm"] == "AUTO-S"):
        path = record_path(results_folder(job.config), job.run_id)
        record = read_record(path)
        record["history"]["unscreened_accuracy"], record["final"]["unscreened_accuracy"] = [math.nan] * 3, math.nan
        path.write_text(dumps(record))
    assert carried(FILE) == []
    (line,) = (line for line in page(tmp_path).splitlines() if line.startswith("- **Chosen by test images.**"))
    assert "*AUTO-S* on MNIST at ε = 3:" in line


def test_a_failed_run_stops_the_study_and_is_named(carried: Carried, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(carried(FILE, failing="AUTO-S", code=1)) == 1
    assert "AUTO-S dataset=MNIST ε=3 optimizer.lr=0.5 seed=0: it failed" in capsys.readouterr().err


def test_a_plan_runs_nothing(carried: Carried, capsys: pytest.CaptureFixture[str]) -> None:
    assert carried(FILE, "--plan", "--jobs", "4") == []
    said = capsys.readouterr().out
    assert "3 arms, 1 pairs of data set and ε, 9 trials and 6 final runs, 0 of them recorded." in said
    assert "with --jobs 4" in said


def test_a_smoke_study_is_marked(carried: Carried, tmp_path: Path) -> None:
    jobs = carried(FILE, "--scale", "smoke")[-1]
    assert {job.field("seed") for job in jobs} == {0, 1}
    text = page(tmp_path / "smoke")
    assert "> **SMOKE: no result.**" in text
    assert "yours" not in text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("clipping=flat", "clipping=flatt"), "line 4: arms.flat clipping: clipping has no option 'flatt'"),
        (("clipping=flat", "clipping.nrm=2"), "line 4: arms.flat clipping: clipping.nrm: there is no field 'nrm'"),
        (("optimizer.lr", "optimizer.rate"), "line 4: arms.flat clipping: optimizer.rate: there is no field 'rate'"),
        (("clipping=flat", "clipping=none"), "line 4: arms.flat clipping: "),
        (("clipping=flat", "mechanism=original_bug"), "line 4: arms.flat clipping: "),
        (("clipping=flat", "target_epsilon=null noise_multiplier=0.3"), "one epoch costs more than a sound ε of 3."),
    ],
)
def test_an_arm_that_cannot_be_compared_is_refused_before_any_work(
    change: tuple[str, str],
    sentence: str,
    tmp_path: Path,
    refusal: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "run_jobs", lambda *_: pytest.fail("a run was started"))
    monkeypatch.setattr(command.durations, "recorded", lambda _: Durations([]))
    assert change[0] in FILE
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.replace(*change), encoding="utf-8")
    said = refusal(command.main, [str(path), "--scale", "smoke", f"runtime.results_root={tmp_path}"])
    assert said.startswith(f"study: {path}, ")
    assert sentence in said


def own_option(folder: Path) -> Path:
    """Write an option of your own whose experiment sets the group, too; returns its folder."""
    (folder / "options" / "clipping").mkdir(parents=True)
    (folder / "options" / "clipping" / "gentle.yaml").write_text("_target_: runner.clipping.Flat\nnorm: 0.3\n")
    return folder / "options"


def test_an_own_option_has_the_values_of_its_file(carried: Carried, tmp_path: Path) -> None:
    text = FILE.replace("clipping=flat", "clipping=gentle").replace("flat clipping", "AUTO-S, wide", 1)
    text = text.replace("  AUTO-S, wide: clipping=automatic clipping.norm=2\n", "")
    jobs = carried(text, "--config-dir", str(own_option(tmp_path)))[0]
    assert {job.field("clipping.norm") for job in jobs if job.overrides["arm"] == "AUTO-S, wide"} == {0.3}
    assert all("hydra.searchpath=" in job.field("tracking.command") for job in jobs)


@pytest.mark.slow
def test_the_composition_as_a_study_has_the_same_runs_choices_and_effects() -> None:
    """On MNIST at ε = 3, where three ranges were widened: the records of the sweeps, and the committed numbers."""
    whole = read(REPOSITORY / "studies" / "composition.yaml")
    study = replace(whole, datasets=("mnist",), epsilons=(3.0,))
    progress = progress_of(study, settings_of(study))
    assert [job.label for arm in progress for job in arm.next] == []
    searches = ("cross_entropy", "losing_less", "cross_entropy_below", "losing_less_below")
    planned = ids(sweep_jobs(f"composition/mnist_search_3_{name}") for name in searches)
    assert {run.job.run_id for arm in progress for run in arm.searched} == planned
    finals = ids([[job for job in sweep_jobs("composition/mnist") if job.field("target_epsilon") == 3]])
    assert {run.job.run_id for arm in progress for run in arm.finals} == finals
    committed = {
        r["parts"]: r["target ε 3"] for r in read_csv(REPOSITORY / "results/composition/mnist-effects/table.csv")
    }
    found = {
        " × ".join(f"{part} for {OLD[part]}" for part in one.parts): difference_text(
            one.found.value, "%", one.found.interval
        )
        for one in effects(study, progress)
        if one.found
    }
    assert found == committed


def ids(sweeps: Sequence[Sequence[Job]]) -> set[str]:
    return {job.run_id for jobs in sweeps for job in jobs}
