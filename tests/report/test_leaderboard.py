"""The leaderboard on fabricated records of real jobs: which epoch counts, which runs, and what is marked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runner.claims.runs import PlannedRun
from runner.records.files import read_record
from runner.records.jobs import Job
from runner.report.leaderboard.entries import entries
from runner.report.leaderboard.figure import draw
from runner.report.leaderboard.tables import board, row

Fabricate = Callable[..., Path]
SOUND = [0.4, 0.9, 1.1]


@pytest.fixture
def planned(fabricate: Fabricate, jobs: Callable[..., list[Job]]) -> Callable[..., list[PlannedRun]]:
    """`planned("mnist_tanh", [[90, 95, 96], [91, 96, 95]])`: the first runs of an experiment with these accuracies."""

    def of(experiment: str, accuracies: list[list[float]], sound: list[float] = SOUND) -> list[PlannedRun]:
        listed = jobs("fig_3", experiment)
        found = [PlannedRun(job, None) for job in listed]
        for place, accuracy in enumerate(accuracies):
            path = fabricate(listed[place], accuracy, sound=sound)
            found[place] = PlannedRun(listed[place], read_record(path))
        return found

    return of


def test_the_last_epoch_within_the_bound_counts_not_the_best(planned: Callable[..., list[PlannedRun]]) -> None:
    """Mean of 95 and 97 at 1: 96, t(1) = 12.706205 times sqrt(2)/sqrt(2) = 12.706205 on either side, up to 100%."""
    found = entries(planned("mnist_tanh", [[99.0, 95.0, 96.0], [98.0, 97.0, 95.0]]), [0.3, 1.0, 3.0])
    assert [(e.epsilon, e.accuracies, e.sound) for e in found] == [(1.0, (95.0, 97.0), 0.9), (3.0, (96.0, 95.0), 1.1)]
    interval = found[0].interval
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((96 - 12.706205, 100.0), abs=1e-5)
    assert found[0].planned == 10


def test_runs_that_differ_in_what_is_measured_of_them_are_one(
    jobs: Callable[..., list[Job]], fabricate: Fabricate
) -> None:
    """Figures 3 and 4 train the same networks: seed 0 counts once, and seed 1 beside it."""
    with_norms = jobs("fig_4", "mnist_tanh_norms")[0]
    runs = [PlannedRun(with_norms, read_record(fabricate(with_norms, [90.0, 95.0, 96.0], sound=SOUND)))]
    runs += [PlannedRun(job, None) for job in jobs("fig_3", "mnist_tanh")]
    runs[2] = PlannedRun(runs[2].job, read_record(fabricate(runs[2].job, [91.0, 94.0, 96.0], sound=SOUND)))
    (entry,) = entries(runs, [1.0])
    assert (entry.accuracies, entry.planned) == ((95.0, 94.0), 10)


def test_the_highest_mean_is_first_and_bold(planned: Callable[..., list[PlannedRun]]) -> None:
    tanh, relu = [[92.0, 96.0, 97.0], [92.0, 96.5, 97.0]], [[90.0, 94.0, 95.0], [90.0, 94.0, 95.0]]
    found = entries(planned("mnist_relu", relu) + planned("mnist_tanh", tanh), [1.0])
    assert [entry.title for entry in found] == ["DP-SGD, tanh", "DP-SGD, ReLU"]
    text = board(found, "Title")
    assert "**96.25** ± 0.35 (2)" in text
    assert "| 94.00 ± 0.00 (2)" in text


def test_accuracies_of_a_part_of_the_test_images_are_never_bold(planned: Callable[..., list[PlannedRun]]) -> None:
    """They use other images than the accuracies below them."""
    tanh, relu = [[92.0, 96.0, 97.0], [92.0, 96.5, 97.0]], [[90.0, 94.0, 95.0], [90.0, 94.0, 95.0]]
    first, second = entries(planned("mnist_relu", relu) + planned("mnist_tanh", tanh), [1.0])
    text = board([replace(first, on_a_part=True), second], "Title")
    assert "| 96.25 ± 0.35 (2)" in text
    assert "**94.00** ± 0.00 (2)" in text


def test_the_figure_shows_two_methods_of_a_paper_at_most(planned: Callable[..., list[PlannedRun]]) -> None:
    (one,) = entries(planned("mnist_relu", [[90.0, 94.0, 95.0], [90.0, 94.5, 95.0]]), [1.0])
    named = {f"{paper}/{name}": mean for paper, name, mean in (("a", 1, 95), ("a", 2, 94), ("a", 3, 93), ("b", 1, 90))}
    found = [
        replace(one, title=name, experiment=name, setting=name, accuracies=(mean, mean)) for name, mean in named.items()
    ]
    (axes,) = draw(found).axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a/1", "a/2", "b/1"]


def test_a_single_run_is_never_bold(planned: Callable[..., list[PlannedRun]]) -> None:
    """Not above several, and not where there are none."""
    relu = planned("mnist_relu", [[90.0, 94.0, 95.0], [90.0, 94.5, 95.0]])
    tanh = planned("mnist_tanh", [[92.0, 96.0, 97.0]])
    text = board(entries(relu + tanh, [1.0]), "Title")
    assert "| 96.00 (1)" in text
    assert "**94.25** ± 0.35 (2)" in text
    assert "**" not in board(entries(relu[:1] + tanh, [1.0]), "Title")


def test_settings_of_one_experiment_are_told_apart_and_marked_by_any_sweep_that_chose_them(
    jobs: Callable[..., list[Job]], fabricate: Fabricate
) -> None:
    """Figure 3 has the rate 0.25, which the search chose for ReLU, too: such a setting is marked once."""
    firsts = [jobs(sweep, f"mnist_{name}")[0] for name in ("tanh", "relu") for sweep in ("fig_3", "table_3_chosen")]
    paths = {
        job.run_id: fabricate(job, [90.0, 95.0, 96.0], sound=SOUND) for job in {j.run_id: j for j in firsts}.values()
    }
    runs = [PlannedRun(job, read_record(paths[job.run_id])) for job in firsts]
    found = {entry.title: entry.held_out for entry in entries(runs, [1.0])}
    assert found == {
        "DP-SGD, tanh, learning rate 0.25": False,
        "DP-SGD, tanh, learning rate 0.15": True,
        "DP-SGD, ReLU": True,
    }


def test_whose_epsilon_is_of_other_neighbours_is_marked(
    jobs: Callable[..., list[Job]], fabricate: Fabricate, planned: Callable[..., list[PlannedRun]]
) -> None:
    runs = planned("mnist_tanh", [[90.0, 95.0, 96.0]])
    for name in ("mnist_printed", "mnist_printed_replace_one"):
        job = jobs("table_1", name, paper="backprop_clipping")[0]
        runs.append(PlannedRun(job, read_record(fabricate(job, [80.0, 85.0, 86.0], sound=SOUND))))
    found = entries(runs, [1.0])
    assert [entry.neighbours for entry in found] == ["add-or-remove-one", "zero-out", "replace-one"]
    text = board(found, "Title")
    assert "| Backpropagation clipping, as printed ⁰ |" in text
    assert "| Backpropagation clipping, noise for a replaced example ² |" in text


def test_a_screened_run_costs_no_more_than_all_it_may_try(jobs: Callable[..., list[Job]], fabricate: Fabricate) -> None:
    """At a bound above what is guaranteed it is that, and at one below, the bound, by which the run is stopped."""
    job = jobs("table_1", "mnist_screened_momentum", paper="noise_screening")[0]
    extra = {"epsilon_sound_at_max_tries": 6.5}
    record = read_record(fabricate(job, [90.0, 95.0, 96.0], sound=SOUND))
    record["final"] |= extra
    found = entries([PlannedRun(job, record)], [1.0, 8.0])
    assert [(entry.epsilon, entry.sound, entry.made_for_it) for entry in found] == [
        (1.0, 1.0, False),
        (8.0, 6.5, False),
    ]


def test_a_screened_run_that_makes_all_its_tries_costs_what_they_do(
    jobs: Callable[..., list[Job]], fabricate: Fabricate
) -> None:
    """Nothing that it sees ends it, so that after an epoch there are as many tries as beforehand were to be."""
    job = jobs("best_mnist", "best_screened", paper="composition")[0]
    assert job.config.max_epsilon is None
    record = read_record(fabricate(job, [90.0, 95.0, 96.0], sound=SOUND))
    record["final"]["epsilon_sound_at_max_tries"] = SOUND[-1]
    found = entries([PlannedRun(job, record)], [1.0, 8.0])
    assert [entry.sound for entry in found] == [max(s for s in SOUND if s <= 1.0), SOUND[-1]]
    record["status"] = "diverged"
    record["final"]["epsilon_sound_at_max_tries"] = 6.5
    assert [entry.sound for entry in entries([PlannedRun(job, record)], [1.0, 8.0])] == [1.0, 6.5]


@pytest.mark.parametrize(("end", "made"), [(2.9, True), (2.0, False), (3.1, False)])
def test_which_runs_were_made_for_a_budget(planned: Callable[..., list[PlannedRun]], end: float, made: bool) -> None:
    """Those that end at it: not those that stop far below, nor those that go on."""
    (entry,) = entries(planned("mnist_tanh", [[90.0, 95.0]], [2.86, end] if end > 2.5 else [1.0, end]), [3.0])
    assert entry.made_for_it is made


@pytest.mark.slow
def test_searches_and_runs_without_privacy_are_no_methods(jobs: Callable[..., list[Job]], fabricate: Fabricate) -> None:
    """A search varies more than seeds; a run without noise has no epsilon within any bound."""
    search = jobs("fig_2", "mnist_triple")[0]
    plain = jobs("fig_4", "mnist_sgd_tanh_norms")[0]
    records = [
        PlannedRun(search, read_record(fabricate(search, [90.0, 95.0, 96.0], sound=SOUND))),
        PlannedRun(plain, read_record(fabricate(plain, [99.0], epsilon=float("inf"), sound=float("inf")))),
    ]
    assert entries(records) == []


def test_a_row_has_a_cell_for_each_number(planned: Callable[..., list[PlannedRun]]) -> None:
    (entry,) = entries(planned("mnist_tanh", [[90.0, 95.0, 96.0]]), [1.0])
    cells = row(entry)
    assert (cells["mean"], cells["std"], cells["low"], cells["n"], cells["planned"]) == (95.0, None, None, 1, 10)
    assert cells["sound_epsilon"] == 0.9
