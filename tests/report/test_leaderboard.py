"""The leaderboard on fabricated records of real jobs: which epoch counts, which setting stands. The front figure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from runner.claims.evidence import PlannedRun, decides
from runner.cli import compare
from runner.config import REPOSITORY, ConfigError
from runner.records.disk import read_record
from runner.records.jobs import Job
from runner.report.figures import _line, draw_front, lines_of, mean_within, stars
from runner.report.formats import write_csv
from runner.report.leaderboard.entries import COLUMNS, DELTA, Entry, comparisons, csv_rows, entries, standing
from runner.report.leaderboard.methods import ADDED, COMBINED, FRONT, METHODS, method_of
from runner.report.leaderboard.page import Published, best_published, matrix_page, page, read_published, settings_page
from runner.study import board as boards
from runner.study.definition import read
from runner.study.progress import jobs_of
from tests.tracked import tracked

SOUND = [0.4, 0.9, 1.1]
PLAIN, TANH, LOSS = "Plain DP-SGD (ReLU, cross-entropy)", "Tempered sigmoid, tanh (2021)", "Losing-less loss (2023)"


@pytest.fixture
def recorded(fabricate) -> Callable[..., PlannedRun]:
    """`recorded(job)`: a job with a record of these accuracies and sound epsilons by epoch."""

    def record(job: Job, accuracy: Sequence[float] = (90.0, 95.0, 96.0), sound: Sequence[float] = SOUND) -> PlannedRun:
        return PlannedRun(job, read_record(fabricate(job, list(accuracy), sound=list(sound))))

    return record


@pytest.fixture
def planned(recorded, jobs) -> Callable[..., list[PlannedRun]]:
    """`planned("mnist_tanh", [[90, 95, 96], [91, 96, 95]])`: the first runs of an experiment with these accuracies."""

    def plan(experiment: str, accuracies: list[list[float]], sound: list[float] = SOUND) -> list[PlannedRun]:
        listed = jobs("fig_3", experiment)
        runs = [recorded(job, accuracy, sound) for job, accuracy in zip(listed, accuracies, strict=False)]
        return runs + [PlannedRun(job, None) for job in listed[len(runs) :]]

    return plan


def test_the_last_epoch_within_the_bound_counts_not_the_best(planned) -> None:
    """Mean of 95 and 97 at 1: 96, t(1) = 12.706205 times sqrt(2)/sqrt(2) = 12.706205 on either side, up to 100%."""
    board = entries(planned("mnist_tanh", [[99.0, 95.0, 96.0], [98.0, 97.0, 95.0]]), [0.3, 1.0, 3.0])
    assert [(e.epsilon, e.accuracies, e.sound) for e in board] == [(1.0, (95.0, 97.0), 0.9), (3.0, (96.0, 95.0), 1.1)]
    interval = board[0].interval
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((96 - 12.706205, 100.0), abs=1e-5)
    assert board[0].planned == 10


def test_runs_that_differ_in_what_is_measured_of_them_are_one(jobs, recorded) -> None:
    """Figures 3 and 4 train the same networks: so seed 0 counts once, next to seed 1."""
    first, second, *further = jobs("fig_3", "mnist_tanh")
    runs = [recorded(jobs("fig_4", "mnist_tanh_norms")[0]), recorded(second, [91.0, 94.0, 96.0])]
    (entry,) = entries([*runs, *(PlannedRun(job, None) for job in (first, *further))], [1.0])
    assert (entry.accuracies, entry.planned) == ((95.0, 94.0), 10)


@pytest.fixture
def board(planned) -> list[Entry]:
    """Plain DP-SGD with 94 and 95, tanh with 96 and 97, both searched, at a bound of 1."""
    listed = entries(planned("mnist_relu", [[90.0, 94.0, 95.0], [90.0, 95.0, 95.0]]), [1.0])
    listed += entries(planned("mnist_tanh", [[92.0, 96.0, 97.0], [92.0, 97.0, 97.0]]), [1.0])
    marks: dict[str, Any] = {"held_out": True, "made_for_it": True, "chosen": "searched on held-out images"}
    return [replace(entry, **marks) for entry in listed]


def _page(entries: list[Entry], numbers: list[Published] | None = None) -> str:
    return page(entries, comparisons(entries), numbers or [], 12)


def test_a_gain_over_plain_has_welchs_interval(board) -> None:
    """2 points; both variances are 1/2, so t(2) = 4.302653 times sqrt(1/4 + 1/4) = 3.042435 on either side."""
    (compared,) = comparisons(board)
    gain = compared.gain(TANH, 1.0)
    assert gain is not None
    assert gain.interval is not None
    assert (gain.points, gain.alike) == (2.0, True)
    assert (gain.interval.low, gain.interval.high) == pytest.approx((2 - 3.042435, 2 + 3.042435), abs=1e-5)
    text = _page([replace(entry, epsilon=3.0) for entry in board])
    assert f"On MNIST at ε ≤ 3, *{TANH}* has 96.5% ◐, +2.0 [−1.0, +5.0] over plain DP-SGD." in text


@pytest.mark.parametrize(("of_plain", "of_tanh", "said"), [(1, 2, "which has one run"), (2, 1, "by one run")])
def test_a_gain_without_interval_says_whose_run_is_single(board, of_plain: int, of_tanh: int, said: str) -> None:
    plain, tanh = board
    few = (replace(e, epsilon=3.0, accuracies=e.accuracies[:n]) for e, n in ((plain, of_plain), (tanh, of_tanh)))
    assert f"over plain DP-SGD, {said}." in _page([*few])


def test_which_setting_of_a_method_stands_on_the_page(board) -> None:
    """Those whose updates the test images chose are last, then few runs, further ideas, and what was not searched."""
    plain, tanh = board
    higher = replace(tanh, setting="b", title="b", accuracies=(99.0, 99.0), held_out=False)
    flattered = replace(higher, setting="c", title="c", accuracies=(99.5, 99.5), by_test_images=True)
    lower = replace(tanh, setting="d", title="d", accuracies=(90.0, 90.0))
    elsewhere = replace(tanh, setting="f", title="f", accuracies=(98.0, 98.0), made_for_it=False)
    other = replace(tanh, setting="e", title="e", accuracies=(99.9, 99.9), neighbours="zero-out")
    combined = replace(tanh, setting="g", title="g", accuracies=(99.8, 99.8, 99.8), ideas=("tanh", "AUTO-S"))
    several = replace(higher, setting="h", title="h", accuracies=(60.0, 60.0, 60.0))

    def shown(*candidates: Entry) -> str:
        (compared,) = comparisons([plain, *candidates])
        return compared.settings[TANH][1.0].setting

    assert shown(other, flattered, higher, elsewhere, lower, tanh) == tanh.setting
    assert shown(other, flattered, higher, elsewhere) == "b"
    assert shown(other, flattered) == "c"
    assert shown(lower, combined) == "g"
    assert shown(combined, several) == "h"
    text = _page([plain, other, flattered, higher, tanh])
    assert "In 1 of 2 cells another setting did better than that shown, by up to 3.0 points" in " ".join(text.split())


@pytest.mark.parametrize("mark", ["by_test_images", "on_a_part"])
def test_what_the_test_images_flatter_is_never_called_best(board, mark: str) -> None:
    plain, tanh = board
    text = _page([plain, replace(tanh, **{mark: True})])
    assert f"| **{PLAIN}** | **94.5 ± 0.7 (2)** ◐ | – |" in text
    assert "| 96.5 ± 0.7 (2) ◐☒ | – |" in text


def test_methods_that_welch_does_not_tell_apart_are_all_bold(board) -> None:
    """Means 96.5 and 96.3 of three runs each, and 90.5, with standard deviations of 0.5."""
    plain, tanh = (replace(entry, accuracies=(90.0, 90.5, 91.0)) for entry in board)
    best, close = (replace(tanh, accuracies=(a, a + 0.5, a + 1)) for a in (96.0, 95.8))
    three = [plain, best, replace(close, method=LOSS)]
    text = _page(three)
    for cell in ("**96.5 ± 0.5 (3)**", "**96.3 ± 0.5 (3)**", "| 90.5 ± 0.5 (3) |"):
        assert cell in text
    matrix = matrix_page(comparisons(three))
    assert "| tanh | – | +0.2 | **+6.0** |" in matrix
    assert "| plain DP-SGD | **−6.0** | **−5.8** | – |" in matrix


@cache
def arms(study: str) -> list[Job]:
    """Return a run of each arm of a committed study, without a search, on MNIST at ε = 3."""
    whole = replace(read(REPOSITORY / "studies" / f"{study}.yaml"), datasets=("mnist",), epsilons=(3.0,))
    return jobs_of(replace(whole, arms=tuple(replace(arm, search={}) for arm in whole.arms), seeds=(0,)))


def test_an_arm_belongs_to_the_method_of_its_only_idea() -> None:
    """An arm of `optimizer` drops a field. EMA or views alone, and additions to the combined ideas, are no method.

    Nor is screening that keeps every update.
    """
    studies = ("optimizer", "screening", "screening_equal", "modern")
    methods = {study: [method_of(job) for job in arms(study)] for study in studies}
    assert methods["optimizer"] == [TANH, COMBINED, COMBINED]
    assert methods["screening"] == ["", ""]
    assert methods["screening_equal"] == ["", "Noise screening (2022)"]
    assert [methods["modern"].count(name) for name in (PLAIN, TANH, LOSS, COMBINED, "")] == [1, 1, 1, 11, 2]
    composed = {}
    for job in arms("composition"):
        options = tuple(job.overrides[name] for name in ("activation", "loss", "clipping"))
        composed[(job.overrides["experiment"].rpartition("/")[2], *options)] = method_of(job)
    assert len(composed) == 16
    assert composed["pixels", "relu", "cross_entropy", "flat"] == PLAIN
    assert composed["pixels", "relu", "losing_less", "flat"] == LOSS
    assert composed["scatternet", "relu", "cross_entropy", "flat"] == "ScatterNet features (2021)"
    assert list(composed.values()).count(COMBINED) == 11


def test_every_experiment_that_a_method_lists_exists() -> None:
    listed = [name for method in METHODS for name in method["experiments"]]
    assert [name for name in listed if not any((REPOSITORY / "conf" / "experiment").glob(f"{name}.yaml"))] == []


def test_delta_times_n_is_the_largest_of_the_data_sets(board) -> None:
    names = {entry.dataset for entry in board}
    options = [OmegaConf.load(path) for path in tracked("conf/dataset/*.yaml")]
    most = max(option.train_examples for option in options if option.get("name") in names)
    assert f"δ·N is at most {DELTA * most:g} for N" in _page(board)


def test_the_best_published_number_is_in_budget_and_undisputed(board) -> None:
    numbers = read_published()
    best = best_published(numbers, "FashionMNIST", 3.0)
    assert best is not None
    assert (best.accuracy, best.epsilon, best.method) == (89.7, 3, "ScatterNet with a linear model")
    assert best_published(numbers, "FashionMNIST", 1.0) is None
    better = Published("MNIST", "x", 97.0, 1.0, 1e-5, "a source", "https://a.b", accountant="RDP")
    page = _page(board, [better])
    assert "| *Published, from scratch* | *97* | *97* |" in page
    doubted = _page(board, [replace(better, disputed="https://c.d")])
    assert "[Its ε is disputed](https://c.d)" in doubted
    assert "*Published, from scratch*" not in doubted
    assert "| *Published, public data* | – | *97* |" in _page(board, [replace(better, epsilon=1.1, kind="public data")])


def test_settings_have_distinct_titles_and_marks_of_any_search(jobs, recorded) -> None:
    """Figure 3 has the rate 0.25, which the search chose for ReLU, too: such a setting is marked once."""
    firsts = [jobs(sweep, f"mnist_{name}")[0] for name in ("tanh", "relu") for sweep in ("fig_3", "table_3_chosen")]
    records = {run_id: recorded(job).record for run_id, job in {job.run_id: job for job in firsts}.items()}
    runs = [PlannedRun(job, records[job.run_id]) for job in firsts]
    marked = {entry.title: entry.held_out for entry in entries(runs, [1.0])}
    rates = {f"DP-SGD, tanh, learning rate {rate}": rate == 0.15 for rate in (0.25, 0.15)}
    assert marked == rates | {"DP-SGD, ReLU": True}


def test_whose_epsilon_has_other_neighbours_is_in_the_csv_only(jobs, recorded, planned) -> None:
    runs = planned("fashion_mnist_tanh", [[90.0, 95.0, 96.0]])
    for name in ("fashion_mnist_printed", "fashion_mnist_printed_replace_one"):
        runs.append(recorded(jobs("table_1", name, paper="backprop_clipping")[0], [80.0, 85.0, 86.0]))
    board = entries(runs, [1.0])
    assert [entry.neighbours for entry in board] == ["add-or-remove-one", "zero-out", "replace-one"]
    assert "Backpropagation clipping (2022)" not in _page(board)
    assert [row["neighbours"] for row in csv_rows(board)] == [entry.neighbours for entry in board]


def test_a_run_that_decides_its_steps_costs_all_it_may_try(jobs, recorded) -> None:
    """At a bound above what is guaranteed it is that, and at one below, the bound, by which the run is stopped.

    Nothing that the arm sees ends it, unless it diverges, so that it costs what it tried. A rule may end a run, too.
    """

    def costs(run: PlannedRun) -> list[float]:
        return [entry.sound for entry in entries([run], [1.0, 8.0])]

    most = {"epsilon_sound": 6.5, "epsilon_spent": SOUND[-1], "max_tries": 51_678}
    run = recorded(jobs("table_1", "mnist_screened_momentum", paper="noise_screening")[0])
    run.record["final"] |= most
    run.record["history"]["epsilon_spent"] = run.record["history"].pop("epsilon_sound")
    assert costs(run) == [1.0, 6.5]
    assert not any(entry.made_for_it for entry in entries([run], [1.0, 8.0]))
    arm = recorded(arms("screening")[1])
    assert arm.job.config.max_epsilon is None
    assert costs(arm) == [SOUND[1], SOUND[-1]]
    arm.record["final"] |= most
    assert costs(arm) == [1.0, 6.5]
    ended = recorded(jobs("fig_3", "mnist_tanh")[0])
    assert not decides(ended)
    ended.record["final"] |= most
    assert decides(ended)
    assert costs(ended) == [1.0, 6.5]


@pytest.mark.parametrize(("end", "ends_there"), [(2.9, True), (2.0, False), (3.1, False)])
def test_which_runs_were_made_for_a_budget(planned, end: float, ends_there: bool) -> None:
    """Those that end at it: not those that stop far below, nor those that go on."""
    (entry,) = entries(planned("mnist_tanh", [[90.0, 95.0]], [2.86, end] if end > 2.5 else [1.0, end]), [3.0])
    assert entry.made_for_it is ends_there


def test_settings_say_which_runs_a_budget_ended(planned) -> None:
    """The run ends at the bound after 3 of its 60 epochs, by the paper's own count."""
    (entry,) = entries(planned("mnist_tanh", [[90.0, 95.0, 96.0]], [1.0, 2.0, 2.95]), [3.0])
    assert (entry.made_for_it, entry.to_the_end) == (True, False)
    assert "| 60, up to ε | – |" in settings_page(comparisons([entry]))
    assert "| 60 | – |" in settings_page(comparisons([replace(entry, to_the_end=True)]))


def test_searches_and_runs_without_privacy_are_no_methods(jobs, recorded) -> None:
    """A search varies more than seeds; a run without noise has no epsilon within any bound."""
    search, plain = recorded(jobs("fig_2", "mnist_triple")[0]), jobs("fig_4", "mnist_sgd_tanh_norms")[0]
    assert entries([search, recorded(plain, [99.0], [math.inf])]) == []


def test_two_methods_are_compared_by_welchs_interval(tmp_path, monkeypatch, capsys) -> None:
    """Variances of 1/4 of five runs each: t(8) = 2.306004 times sqrt(1/20 + 1/20) = 0.729223."""
    row = dict.fromkeys(COLUMNS, "no") | {"dataset": "MNIST", "sound_epsilon_at_most": "1", "neighbours": ADDED}
    row |= {"n": "5", "std": "0.5", "sound_epsilon": "0.99", "held_out": "yes", "settings_chosen": "searched"}
    row |= {"stands_for_its_method": "yes"}
    lines = [{**row, "ideas": "", "method": name, "mean": mean} for name, mean in ((TANH, "96"), (LOSS, "97"))]
    write_csv(tmp_path / "leaderboard" / "leaderboard.csv", COLUMNS, lines)
    monkeypatch.setattr(compare, "RESULTS", tmp_path)
    assert compare.main(["tanh", "losing_less", "--dataset", "mnist", "--epsilon", "1"]) == 0
    assert (
        f"{LOSS} over {TANH}: +1.00 [+0.27, +1.73] points (Welch, 95%): the two are told apart."
        in capsys.readouterr().out
    )
    refusals = {
        ("tanh", "x"): "no method 'x'",
        ("tanh", "l"): "could be",
        ("tanh", "tempered"): "the same method",
        ("tanh", "plain", "--epsilon=4"): "no bound",
    }
    for words, sentence in refusals.items():
        with pytest.raises(ConfigError, match=sentence):
            compare.main(words)


def test_lines_end_at_the_accuracies_of_the_leaderboard(planned, tmp_path, monkeypatch) -> None:
    """At each bound, a line has the mean of the row that stands on the page."""
    runs = planned("mnist_relu", [[90.0, 94.0, 95.0]]) + planned("mnist_tanh", [[92.0, 96.0, 97.0], [92.0, 95.0, 97.0]])
    monkeypatch.setattr(boards, "planned_jobs", lambda: [run.job for run in runs])
    monkeypatch.setattr(boards, "study_files", lambda: [])
    monkeypatch.setattr(boards, "entered_folders", lambda: [])
    entries, recorded = boards.board_of(tmp_path)
    lines = lines_of(entries, recorded)
    assert lines.keys() == {("MNIST", PLAIN), ("MNIST", TANH)}
    for (dataset, method), line in lines.items():
        for bound in (0.5, 1.0, 2.0):
            entry = standing(entries, dataset, bound)[method]
            assert entry.mean == pytest.approx(mean_within(line, bound), abs=0.01)
    mnist = draw_front(REPOSITORY / "results", entries, recorded).axes[0]
    shown = [text.get_text() for text in mnist.texts if text.get_text()]
    assert shown == [f"{FRONT[TANH]['label']}  97.0", f"{FRONT[PLAIN]['label']}  95.0 (1 run)"]


def test_between_two_bounds_the_better_setting_counts() -> None:
    """One run each: the setting for 1 has 80 from 0.5 on, that for 3 has 70 from 1.5 and 90 from 2.9."""
    histories = {"a": [([0.5, 1.0], [79.0, 80.0])], "b": [([1.5, 2.9, 3.0], [70.0, 90.0, 91.0])]}
    line = _line("tanh", {1.0: "a", 3.0: "b"}, histories)
    assert line is not None
    means = dict(zip(np.round(line.epsilons, 6), line.mean, strict=True))
    assert (means[0.5], means[1.0], means[2.0], means[3.0]) == (79.0, 80.0, 80.0, 91.0)
    assert np.isnan(line.half).all()
    assert line.runs == 1


def test_stars_are_what_the_papers_claim() -> None:
    claims = stars(REPOSITORY / "results", "FashionMNIST")
    assert claims["Noise screening (2022)"] == (3.0, 87.41)
    assert claims["Backpropagation clipping (2022)"] == (0.87, 88.6)
    assert claims["Tempered sigmoid, tanh (2021)"] == (2.7, 86.1)
    assert all(front["colour"] for front in FRONT.values())
