"""The figure of the front page agrees with the leaderboard and with the claims."""

from __future__ import annotations

import numpy as np
import pytest

from runner.config import RESULTS
from runner.report import front_figure
from runner.report.leaderboard.comparison import standing
from runner.report.leaderboard.methods import FRONT
from runner.study.board import board_of


def test_lines_end_at_the_accuracies_of_the_leaderboard() -> None:
    """At each bound, a line has the mean of the row that stands on the page, and no line is without a row."""
    entries, runs = board_of(RESULTS)
    settings = front_figure._settings(entries)
    histories = front_figure._histories(runs, {setting for of in settings.values() for setting in of.values()})
    compared = 0
    for (dataset, method), of in settings.items():
        line = front_figure._line(method, of, histories)
        assert line is not None
        for bound in of:
            entry = standing(entries, dataset, bound)[method]
            assert entry.mean == pytest.approx(front_figure._within_line(line, bound), abs=0.01)
            compared += 1
    assert compared > 60


def test_between_two_bounds_the_better_setting_counts() -> None:
    """One run each: the setting for 1 has 80 from 0.5 on, that for 3 has 70 from 1.5 and 90 from 2.9."""
    histories = {"a": [([0.5, 1.0], [79.0, 80.0])], "b": [([1.5, 2.9, 3.0], [70.0, 90.0, 91.0])]}
    line = front_figure._line("tanh", {1.0: "a", 3.0: "b"}, histories)
    assert line is not None
    at = dict(zip(np.round(line.epsilons, 6), line.mean, strict=True))
    assert (at[0.5], at[1.0], at[2.0], at[3.0]) == (79.0, 80.0, 80.0, 91.0)
    assert np.isnan(line.half).all()
    assert line.runs == 1


def test_stars_are_what_the_papers_claim() -> None:
    stars = {(star.method, star.epsilon, star.accuracy) for star in front_figure._stars(RESULTS, "FashionMNIST")}
    assert ("Noise screening (2022)", 3.0, 87.41) in stars
    assert ("Backpropagation clipping (2022)", 0.87, 88.6) in stars
    assert ("Tempered sigmoid, tanh (2021)", 2.7, 86.1) in stars
    assert all(front["colour"] for front in FRONT.values())


def test_text_is_light_where_the_system_is_dark(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(front_figure, "FILE", tmp_path / front_figure.FILE)
    text = front_figure.write(RESULTS, *board_of(RESULTS)).read_text(encoding="utf-8")
    assert text.index("prefers-color-scheme: dark") < text.index("<path")
    assert "fill: #ffffff" not in text.partition("</style>")[2].partition("</defs>")[0], "no background"
    for label in (front["label"] for front in FRONT.values()):
        assert label in text
