"""What is said of a run under way."""

import io

import pytest

from runner.terminal import Line, epoch_text, part_done

ROW = {"epoch": 2, "test_accuracy": 91.234, "epsilon": 1.0, "epsilon_sound": 0.875, "accepted": 30}


def test_a_run_is_measured_by_its_epochs():
    assert part_done({"epoch": 2}, 8, None) == 0.25
    assert epoch_text(ROW, 8) == "epoch 2/8 · accuracy 91.23% · ε 1.00 (sound 0.88)"


@pytest.mark.parametrize(("most_kept", "done"), [(40, 0.75), (1000, 0.25)])
def test_a_screened_run_by_what_ends_it_first(most_kept, done):
    assert part_done(ROW, 8, most_kept) == done
    assert f"epoch 2, 30 of {most_kept} updates · " in epoch_text(ROW, 8, most_kept)


def test_a_run_without_noise_is_called_not_private():
    assert epoch_text(ROW | {"epsilon": float("inf"), "epsilon_sound": float("inf")}, 8).endswith("not private")


def test_a_line_knows_how_long_it_has_been_silent(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("runner.terminal.time.monotonic", lambda: now[0])
    line = Line(io.StringIO())
    now[0] += 40
    assert line.silent == 40
    line.show("first")
    assert line.silent == 0
    now[0] += 5
    line.show("too soon for a log file")
    assert line.silent == 5
    line.keep("kept")
    assert line.silent == 0
