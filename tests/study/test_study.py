"""A study from its file to its page, on fabricated records: what is run, what counts, what a reader is told."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from matplotlib.figure import Figure

from runner.claims.intervals import summarise
from runner.cli import aggregate
from runner.cli import study as command
from runner.config import REPOSITORY, ConfigError
from runner.launch import Work
from runner.launch.processes import Tally
from runner.records.disk import dumps, read_record, record_path, results_folder, stopped_path, write_stopped
from runner.records.jobs import Job
from runner.report.formats import cell, read_csv
from runner.runs.durations import Durations
from runner.study import board
from runner.study.definition import read
from runner.study.outcome import Compared, compared
from runner.study.progress import progress_of, settings_of
from tests.claims.made_up import entry
from tests.tracked import tracked

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


def unnamed() -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """A user's data set without a name."""
    splits = [(torch.rand(number, 1, 28, 28), torch.arange(number) % 10) for number in (1438, 359)]
    return tuple(splits)


class Centred(torch.nn.Module):
    """A loss with one number for a whole batch."""

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits, targets)


BEST = {"flat clipping": 1.2, "AUTO-S": 9.0, "AUTO-S, wide": 1.2}  # the rate at which an arm is best
METHODS = (  # of a leaderboard: mean accuracy, searched on held-out images, chosen by test images
    ("tanh", 97, False, False),
    ("tanh", 96, True, False),
    ("tanh", 99, True, True),
    ("Plain", 80, True, False),
    ("", 98, True, False),
)
Carried = Callable[..., list[list[Job]]]
ACCURACY = f"{__name__}.accuracy"


def accuracy(job: Job) -> float:
    """90 less the distance from the best rate; on test images 1 more for AUTO-S, and half a point more for seed 1."""
    arm, rate = job.overrides["arm"], float(job.field("optimizer.lr"))
    level = 90 - abs(math.log(rate / BEST[arm]))
    if job.field("evaluation") == "holdout":
        return level
    return level + (arm == "AUTO-S") + 0.5 * job.field("seed") * (2 if arm == "AUTO-S, wide" else 1)


@pytest.fixture
def carried(tmp_path: Path, fabricate: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Carried:
    """`carried(FILE, "--scale", "smoke")`: carry out a study with made-up runs; returns the jobs of each round."""
    monkeypatch.setattr(command, "_check", lambda *_: None)
    monkeypatch.setattr(command, "check_data", lambda _: None)
    monkeypatch.setattr(command.durations, "recorded", lambda _: Durations([]))

    monkeypatch.setattr(board, "board_of", lambda _: ([entry(*row) for row in METHODS], ()))

    def train(job: Job, accuracies: list[float], sound: tuple[float, ...] = (1.0, 2.9, 3.1)) -> None:
        rows = [{"epsilon_sound": e, "test_accuracy": a} for e, a in zip(sound, accuracies, strict=True)]
        ends = (epoch for epoch in (1, 2, 3) if job.goes_on and not job.goes_on(rows[:epoch]))
        end = next(ends, None)
        path = fabricate(job, accuracies[:end], sound=sound[:end])
        if end is not None:
            write_stopped(stopped_path(path.parents[1], job.run_id), read_record(path) | {"status": "stopped"})
            path.unlink()

    savefig = Figure.savefig

    def carry_out(
        text: str,
        *arguments: str,
        failing: str = "",
        most: int = 99,
        waits: bool = True,
        code: int = 0,
        drawn: bool = False,
    ) -> list[list[Job]]:
        rounds: list[list[Job]] = []
        monkeypatch.setattr(Figure, "savefig", savefig if drawn else lambda *_, **__: None)  # it takes a second

        def run_jobs(_: object, work: Work, __: object) -> Tally:
            rounds.append(list(work.jobs))
            if not waits:
                assert len(rounds) == 1
                return Tally(under_way=rounds[0])
            failed = [(job, "it failed") for job in work.jobs if job.overrides["arm"] == failing or len(rounds) > most]
            for job in work.jobs:
                if job not in [job for job, _ in failed]:
                    train(job, [accuracy(job) - 10, accuracy(job), 99.0])
            return Tally(recorded=[], failed=failed)

        monkeypatch.setattr(command, "run_jobs", run_jobs)
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        assert command.main([str(path), *arguments, f"runtime.results_root={tmp_path}"]) == code
        return rounds

    return carry_out


def page(folder: Path) -> str:
    return (folder / "studies" / "mine" / "README.md").read_text(encoding="utf-8")


def test_a_study_without_waiting_ends_after_its_first_submission(carried: Carried) -> None:
    (trials,) = carried(FILE, waits=False)
    assert len(trials) == 9


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
    assert "for one final run, at δ = 1e-5 (δ·N is at most 0.6 for N training examples)." in text
    assert "Each arm had 6 trials." in text
    assert "**ε excludes the search.**" in text
    assert "- *AUTO-S*: `clipping=automatic`, norm 1, stability 0.01\n" in text
    assert "**Stopped.** *AUTO-S* on MNIST at ε = 3 counts with epoch 2, the last one within ε." in text
    ranked = [row for row in text.split("## On the leaderboard")[1].splitlines() if row.startswith("| MNIST")]
    assert [row.split(" | ")[2] for row in ranked] == [  # searched before higher; not chosen by test images
        "tanh", "**AUTO-S** (*yours*)", "**AUTO-S, wide** (*yours*)", "**flat clipping** (*yours*)", "Plain",
    ]  # fmt: skip
    assert "18 trials and 6 final runs took" in text
    rows = read_csv(tmp_path / "studies" / "mine" / "table.csv")
    gain = next(row for row in rows if row["arm"] == "AUTO-S")
    assert gain["gain"].startswith("0.8")  # 1, less the distances from the best rates
    assert (gain["low"], gain["answer"]) == ("", "not decided")  # equal under both seeds: no spread is known
    wide = next(row for row in rows if row["arm"] == "AUTO-S, wide")  # 0.25 and 0.75: t(1) = 12.706205 times 0.25
    assert [wide[name] for name in ("gain", "low", "high", "seeds")] == ["0.75", "-2.42655", "3.92655", "2"]
    assert "| AUTO-S, wide | 91.49 ± 0.71 (2) | +0.75 [−2.43, +3.93] |" in text
    assert len(read_csv(tmp_path / "studies" / "mine" / "runs.csv")) == 24
    assert (tmp_path / "studies" / "mine" / "figure.svg").exists()


def test_a_study_goes_on_where_it_was_stopped(carried: Carried, tmp_path: Path, capsys) -> None:
    before = carried(FILE, most=2, code=1)
    assert [len(jobs) for jobs in before] == [9, 3, 3]
    assert "| AUTO-S | – |  |  | 4 |" in page(tmp_path)  # nothing is chosen, and no number is shown
    assert [len(jobs) for jobs in carried(FILE)] == [3, 3, 6]
    assert carried(FILE) == []
    capsys.readouterr()
    carried(FILE, "--plan")
    assert "18 trials and 6 final runs, 24 of them recorded.\nLeft: nothing.\n" in capsys.readouterr().out


def test_a_page_names_odd_arms_and_machines(carried: Carried, tmp_path: Path) -> None:
    """Updates that the test images chose, other numbers of updates, and another machine."""
    (*_, finals) = carried(FILE)
    before = page(tmp_path)
    assert not any(text in before for text in ("Chosen by test images", " updates", "of different machines"))
    for job in (job for job in finals if job.overrides["arm"] == "AUTO-S"):
        path = record_path(results_folder(job.config), job.run_id)
        record = read_record(path)
        record["history"]["unscreened_accuracy"], record["final"]["unscreened_accuracy"] = [math.nan] * 3, math.nan
        record["history"]["steps"][-1] = record["final"]["steps"] = 1120 + job.field("seed")
        record["provenance"]["device"] = "another"
        path.write_text(dumps(record))
    assert carried(FILE) == []
    (line,) = (line for line in page(tmp_path).splitlines() if line.startswith("- **Chosen by test images.**"))
    assert "*AUTO-S* on MNIST at ε = 3:" in line
    assert "- *AUTO-S*: `clipping=automatic`, norm 1, stability 0.01, 1,121 to 1,122 updates\n" in page(tmp_path)
    assert "which round differently: 2 on another with PyTorch None, 4 on none with PyTorch None." in page(tmp_path)


def test_a_study_named_like_one_of_the_package_is_refused(tmp_path: Path) -> None:
    """Its page would replace the page of the package."""
    (tmp_path / "clipping.yaml").write_text(FILE, encoding="utf-8")
    with pytest.raises(ConfigError, match="a study of this package has this name"):
        command.main([str(tmp_path / "clipping.yaml"), "--plan"])


def test_a_failed_run_stops_the_study_and_is_named(carried: Carried, capsys: pytest.CaptureFixture[str]) -> None:
    assert carried(FILE, "--plan", "--jobs", "4") == []
    text = capsys.readouterr().out
    assert "3 arms, 1 data set, 1 ε: 9 trials and 6 final runs, 0 of them recorded." in text
    assert "Left: 15 runs of unknown time." in text
    assert len(carried(FILE, failing="AUTO-S", code=1)) == 1
    assert "AUTO-S dataset=MNIST ε=3 optimizer.lr=0.5 seed=0: it failed" in capsys.readouterr().err
    carried(FILE, "--plan")
    text = capsys.readouterr().out
    assert "9 trials and 6 final runs, 6 of them recorded." in text
    assert "Left: 9 runs of unknown time." in text


def test_a_page_says_of_how_many_seeds_gains_are_means(carried: Carried, tmp_path: Path) -> None:
    text = FILE.replace("seeds: 2", "seeds: 3")
    finals = carried(text)[-1]
    assert "points: the mean of 3 seeds, with" in page(tmp_path)
    lost = next(job for job in finals if job.overrides["arm"] == "AUTO-S" and job.field("seed") == 3)
    next(tmp_path.rglob(f"{lost.run_id}.json")).unlink()
    carried(text, failing="AUTO-S", code=1)
    assert "points: the mean of 2 to 3 seeds, with" in page(tmp_path)


def test_a_smoke_study_is_marked(carried: Carried, tmp_path: Path) -> None:
    jobs = carried(FILE, "--scale", "smoke")[-1]
    assert {job.field("seed") for job in jobs} == {0, 1}
    text = page(tmp_path / "smoke")
    assert "Each arm had 2 trials." in text
    assert "> **SMOKE: no result.**" in text
    assert "yours" not in text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("clipping=flat", "clipping=flatt"), "line 4: arms.flat clipping: clipping has no option 'flatt'"),
        (("clipping=flat", "clipping.nrm=2"), "line 4: arms.flat clipping: clipping.nrm: there is no field 'nrm'"),
        (("optimizer.lr:", "optimizer.lrr:"), "line 9: search.optimizer.lrr: optimizer.lrr: there is no field 'lrr'"),
        (("clipping=flat", "clipping._target_=runner.clipping.Falt"), "runner.clipping has no Falt. Did you mean Flat"),
        (("epsilon: 3", "epsilon: 3\ndatasets: mnits"), "datasets: dataset has no option 'mnits'"),
        (("[0.5, 1, 2]", "[0.5, -2, 1]"), "search: optimizer.lr=-2.0: optimizer: Invalid learning rate: -2.0"),
        (("clipping=automatic\n", "activation=tanh\n"), "line 5: arms.AUTO-S: it is the same as flat clipping."),
        (
            ("clipping=automatic\n", f"loss._target_={__name__}.Centred ~loss.reduction\n"),
            "arms.AUTO-S: architecture or",
        ),
        (("clipping=flat", "mechanism=original_bug"), "line 4: arms.flat clipping: "),
        (("clipping=flat", "clipping=flat delta=1e-3"), "that of the arm before is 0.001: arms are compared"),
        (("clipping=flat", "target_epsilon=null noise_multiplier=0.3"), "one epoch costs more than a sound ε of 3."),
    ],
)
def test_an_arm_without_comparison_is_refused_before_any_work(
    change: tuple[str, str], sentence: str, tmp_path: Path, refusal: Callable[..., str], monkeypatch, coarse
) -> None:
    monkeypatch.setattr(command, "run_jobs", lambda *_: pytest.fail("a run was started"))
    monkeypatch.setattr(command.durations, "recorded", lambda _: Durations([]))
    assert change[0] in FILE
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.replace(*change), encoding="utf-8")
    text = refusal(command.main, [str(path), "--scale", "smoke", f"runtime.results_root={tmp_path}"])
    assert text.startswith(f"study: {path}")
    assert sentence in text


def test_the_pages_are_not_written_if_a_study_is_wrong(tmp_path: Path, refusal, monkeypatch) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.replace("clipping=flat", "clipping=flatt"), encoding="utf-8")
    monkeypatch.setattr(aggregate, "study_files", lambda: [REPOSITORY / "studies" / "corners.yaml", path])
    monkeypatch.setattr(aggregate, "write", lambda *_: pytest.fail("a page was written"))
    assert f"{path}, line 4: arms.flat clipping: clipping has no option" in refusal(aggregate.main, ["studies"])


def test_own_options_have_the_values_of_their_files(carried: Carried, tmp_path: Path) -> None:
    """An option of a group that the experiment sets, too, and a data set without a name, which has its option's."""
    for group, name, text in (
        ("clipping", "gentle", "_target_: runner.clipping.Flat\nnorm: 0.3\n"),
        ("dataset", "noisy", "_target_: tests.study.test_study.unnamed\n"),
    ):
        (tmp_path / "options" / group).mkdir(parents=True)
        (tmp_path / "options" / group / f"{name}.yaml").write_text(text)
    text = FILE.replace("clipping=flat", "clipping=gentle").replace("flat clipping", "AUTO-S, wide", 1)
    text = text.replace("  AUTO-S, wide: clipping=automatic clipping.norm=2\n", "") + "datasets: [noisy]\n"
    jobs = carried(text, "--config-dir", str(tmp_path / "options"))[0]
    assert {job.field("clipping.norm") for job in jobs if job.overrides["arm"] == "AUTO-S, wide"} == {0.3}
    assert all(" --config-dir " in job.field("tracking.command") for job in jobs)
    assert {job.overrides["dataset"] for job in jobs} == {"noisy"}
    assert "| noisy | 3 | AUTO-S |" in page(tmp_path)


def outcomes(*seeds: tuple[float, ...], over: str = "") -> list[Compared]:
    """Compare arms 0, 1, ... that have these accuracies under the seeds 0, 1, 2. The last arm may name its baseline."""
    arms = []
    for name, accuracies in enumerate(seeds):
        arm = SimpleNamespace(over=over if name == len(seeds) - 1 else "")
        setting = SimpleNamespace(pair=("mnist", 3.0), arm=arm)
        arms.append(SimpleNamespace(setting=setting, name=str(name), accuracies=dict(enumerate(accuracies)).copy))
    return compared(arms)  # type: ignore[arg-type]


def answered(*seeds: tuple[float, ...]) -> list[str]:
    return [outcome.word for outcome in outcomes(*seeds)]


def test_an_arm_is_compared_with_the_one_it_names() -> None:
    first, second, third = outcomes((90, 90.2), (91, 91.1), (93, 93.4), over="1")
    assert [first.baseline, second.baseline, third.baseline] == ["0", "0", "1"]
    assert first.gain is None
    assert [arm.gain and arm.gain.by_seed for arm in (second, third)] == [
        pytest.approx((1.0, 0.9)),
        pytest.approx((2.0, 2.3)),
    ]


def test_an_answer_states_single_seeds_and_corrected_gains() -> None:
    assert answered((90,), (99,)) == ["", "one seed cannot tell"]
    beyond = (91.0, 91.4, 92.0)  # p = 0.037: below 5%, and above 2.5%
    assert answered((90, 90, 90), beyond) == ["", "better"]
    assert answered((90, 90, 90), beyond, (90, 90.1, 89.9)) == ["", "not decided after correction", "not decided"]
    assert answered((90, 90, 90), beyond, (99,)) == ["", "better", "one seed cannot tell"]


def test_arms_with_the_same_weights_are_named(carried: Carried, tmp_path: Path, monkeypatch) -> None:
    lost = {"flat clipping": 0, "AUTO-S": 0, "AUTO-S, wide": 1}
    monkeypatch.setattr(ACCURACY, lambda job: 80 - lost[job.overrides["arm"]] + job.field("seed"))
    carried(FILE.replace("[0.5, 1, 2]", "[1]"))
    text = page(tmp_path)
    assert "*flat clipping* and *AUTO-S* have the same accuracy after every epoch under each seed" in text
    assert text.count("as if they had the same weights") == 1


def test_a_gain_far_from_the_others_is_an_arrow_with_its_numbers(carried: Carried, tmp_path: Path, monkeypatch) -> None:
    lost = {"flat clipping": 0, "AUTO-S": 20, "AUTO-S, wide": -0.5}
    monkeypatch.setattr(ACCURACY, lambda job: 80 - lost[job.overrides["arm"]] * job.field("seed"))
    carried(FILE.replace("[0.5, 1, 2]", "[1]"), drawn=True)
    svg = (tmp_path / "studies" / "mine" / "figure.svg").read_text(encoding="utf-8")
    assert "−30.00 [−157.06, +97.06]" in svg  # t(1) = 12.706205 times 10
    assert "seeds −40.00 to −20.00" in svg
    assert ">−20<" not in svg  # no tick so far from the other gain


FRONT = FILE.replace("search: {", "search: {objective: front, prune: hyperband, sampler: random, ").replace(
    "[0.5, 1, 2]}", "{from: 0.1, to: 10}}\ntrials: 6"
)
FRONT = FRONT.replace("mnist_tanh", "mnist_tanh noise_multiplier=1.1").replace("epsilon: 3", "epsilon: [1, 3]")


def test_a_front_has_one_search_for_all_epsilons_and_is_pruned(carried: Carried, tmp_path: Path) -> None:
    """Four trials of each arm, of which none is behind yet, then two, which have to be the best to go on."""
    *searched, finals = carried(FRONT)
    assert [len(jobs) for jobs in searched] == [12, 6]
    for job in (*searched[0], *searched[1], *finals):
        fields = [job.field(name) for name in ("target_epsilon", "max_epsilon", "noise_multiplier")]
        assert fields == [None, None, 1.1]
    assert {job.field("evaluation") for job in finals} == {"test"}
    assert all(job.goes_on for job in searched[0])
    epochs = {path.stem: len(read_record(path)["history"]["epoch"]) for path in (tmp_path / "stopped").iterdir()}
    assert {epochs[job.run_id] for job in searched[0]} == {3}, "until the first epoch beyond ε = 3"
    behind = [job for job in searched[1] if epochs[job.run_id] == 1]
    assert 3 <= len(behind) < 6 + 1
    assert f"Hyperband stopped {len(behind)} of 18 trials that fell behind." in page(tmp_path)
    assert "choice of the best among 18 trials" in page(tmp_path)
    assert carried(FRONT, drawn=True) == []
    rows = read_csv(tmp_path / "studies" / "mine" / "front.csv")
    best = max(accuracy(job) for jobs in searched for job in jobs if job.overrides["arm"] == "AUTO-S")
    last = [row for row in rows if row["arm"] == "AUTO-S"][-1]
    assert (float(last["accuracy"]), float(last["epsilon_sound"])) == (pytest.approx(best, abs=1e-3), 2.9)
    assert "AUTO-S, test images" in (tmp_path / "studies/mine/front/figure.svg").read_text(encoding="utf-8")


def test_a_trial_that_another_search_stopped_is_completed(carried: Carried, tmp_path: Path) -> None:
    """Its record ends before this study would stop it. One that goes on too long counts until it would be stopped."""
    (first, *_), *_ = carried(FRONT)
    path = stopped_path(tmp_path, first.run_id)
    record = read_record(path)
    shorter = {name: values[:1] for name, values in record["history"].items()}
    final = record["final"] | {name: values[0] for name, values in shorter.items()}
    best = {"best_test_accuracy": shorter["test_accuracy"][0], "best_epoch": 1}
    path.write_text(dumps(record | {"history": shorter, "final": final | best}))
    assert [[job.run_id for job in jobs] for jobs in carried(FRONT)] == [[first.run_id]]
    assert len(read_record(path)["history"]["epoch"]) == 3


def test_arms_with_hyperband_keep_their_calibrated_noise(carried: Carried, tmp_path: Path) -> None:
    """Batch size and epochs are searched, and each trial's noise is calibrated to the same sound ε."""
    text = FRONT.replace("objective: front, ", "epochs: [20, 40], batch_size: {from: 128, to: 1024, integer: true}, ")
    text = text.replace(" noise_multiplier=1.1", "").replace("trials: 6", "trials: 4\nwiden: false")
    *searched, finals = carried(text)
    for job in (*(job for jobs in searched for job in jobs), *finals):
        assert job.field("noise_multiplier") is None
        assert job.field("target_epsilon") in (1.0, 3.0)
        assert isinstance(job.field("batch_size"), int)
    assert {job.field("epochs") for job in searched[0]} == {20, 40}


PARTS = """
base: experiment=tempered_sigmoid/mnist_tanh
factorial: true
arms: {AUTO-S: clipping=automatic, large batches: batch_size=2048}
finding: {text: "Together {all} {all:interval}.", numbers: {all: {parts: all together}}}
remarks: [A remark.]
seeds: 2
search: {}
"""


def test_a_factorial_has_a_finding_and_a_sum_of_gains(carried: Carried, tmp_path: Path, monkeypatch) -> None:
    """Gains of 2 and 3 alone, and of 4 under the one seed and 4.2 under the other together: 0.9 less than their sum."""
    together = [4.0, 4.2]
    gains = {"none of them": [0, 0], "AUTO-S": [2, 2], "large batches": [3, 3], "AUTO-S + large batches": together}
    monkeypatch.setattr(ACCURACY, lambda job: 80 + gains[job.overrides["arm"]][job.field("seed") - 1])
    (finals,) = carried(PARTS)
    assert not any("held-out" in job.field("tracking.tags") for job in finals)  # nothing was chosen
    text = page(tmp_path)
    first, _ = text.split("- **MNIST, ε = 3**")
    assert first.endswith("\n\nTogether 4.1 [+2.8, +5.4].\n\n")  # t(1) = 12.706205 times 0.1
    assert "\n- A remark.\n" in text
    row = next(line for line in text.split("## Do the gains add up?")[1].splitlines() if line.startswith("| MNIST"))
    assert row.startswith("| MNIST | 3 | +5.00 | +4.10 [+2.83, +5.37] | −0.90 [−2.17, +0.37] | yes, as far as these")
    additions = text.split("## What does each part add to another?")[1]
    assert "\n| MNIST at ε = 3 | AUTO-S | +2.00 | – | +1.10 [−0.17, +2.37] |\n" in additions
    rows = {row["parts"]: row for row in read_csv(tmp_path / "studies" / "mine" / "effects.csv")}
    sizes = [float(rows[name]["effect"]) for name in ("AUTO-S", "AUTO-S × large batches")]
    assert sizes == pytest.approx([1.55, -0.45])
    left = "errors left, over those of independent shares"  # 15.9 of 20, over 18 / 20 times 17 / 20 of 20
    assert float(rows[left]["effect"]) == pytest.approx(20 * (16 * 15.8) ** 0.5 / (18 * 17), rel=1e-5)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with the project's own records, as a user may go on with one of its studies."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "runs").mkdir()
    for path in tracked("results/runs/*.json"):
        (folder / "runs" / path.name).symlink_to(path)
    return folder


@pytest.mark.parametrize("study_name", ["best", "clipping"])
def test_the_committed_studies_need_the_records_that_they_list(study_name: str, committed: Path, monkeypatch) -> None:
    """A change of the code that gives a run another id would make its record useless.

    One is a factorial, and both have a search. `make current` makes the pages of all studies again.
    """
    monkeypatch.setattr("runner.study.progress.folder_of", lambda settings: committed)
    study = read(REPOSITORY / "studies" / f"{study_name}.yaml")
    place = REPOSITORY / "results" / "studies" / study_name
    part = replace(study, datasets=study.datasets[:1], epsilons=study.epsilons if study.front else study.epsilons[:1])
    progress = progress_of(part, settings_of(part))
    ids = {run.job.run_id for arm in progress for run in (*arm.searched, *arm.finals.recorded)}
    places = {arm.setting.labels[:2] for arm in progress}
    runs, table = (read_csv(place / f"{name}.csv") for name in ("runs", "table"))
    assert ids == {row["run_id"] for row in runs if (row["dataset"], row["epsilon"]) in places}
    means = [row["accuracy"] for row in table if (row["dataset"], row["epsilon"]) in places]
    assert means == [cell(mean) for mean in (summarise([*arm.accuracies().values()])["mean"] for arm in progress)]
