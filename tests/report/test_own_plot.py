"""The plot of a multirun: its content, and the cases without a plot."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.records.files import read_record
from runner.report import own_plot
from runner.report.own_plot import drawn, figure_of


@pytest.fixture
def paths(fabricate, jobs) -> list[Path]:
    """Record two seeds of tanh and one of ReLU."""
    spent = {"epsilon": [1.0, 2.9], "sound": [0.5, 2.3]}
    tanh = [fabricate(job, [90.0, 97.0 + seed], **spent) for seed, job in enumerate(jobs("fig_3", "mnist_tanh")[:2])]
    return [*tanh, fabricate(jobs("fig_3", "mnist_relu")[0], [80.0, 95.0], **spent)]


def test_a_line_is_a_setting_against_its_sound_epsilon_with_the_range_of_its_seeds(paths) -> None:
    (axes,) = figure_of([read_record(path) for path in paths]).axes
    shown = {line.get_label(): [list(values) for values in line.get_data()] for line in axes.lines}
    assert shown == {
        "activation Tanh, n = 2": [[0.5, 2.3], [90.0, 97.5]],
        "activation ReLU, n = 1": [[0.5, 2.3], [80.0, 95.0]],
    }
    tanh = axes.collections[0].get_datalim(axes.transData).extents
    assert (tanh[1], tanh[3]) == (90.0, 98.0)
    assert "sound ε" in axes.get_xlabel()


def test_there_is_none_of_one_run_nor_of_shrunk_ones_nor_without_matplotlib(
    paths, fabricate, jobs, monkeypatch
) -> None:
    small = [fabricate(job, [90.0]) for job in jobs("fig_3", "mnist_tanh", "smoke")[:2]]
    assert drawn(paths[:1]) is drawn(paths[:1] * 2) is drawn(small) is None
    monkeypatch.setattr(own_plot, "find_spec", lambda _: None)
    assert drawn(paths) is None
