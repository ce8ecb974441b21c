"""Runs without a known sound ε: their records, and every reader of these."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.claims.evidence import PlannedRun, Runs
from runner.cli.show import explain
from runner.cli.show import main as show
from runner.records.disk import read_record, write_record
from runner.records.jobs import Job
from runner.records.verify import verify
from runner.report import figures
from runner.report.leaderboard.entries import entries
from runner.report.listing import own_records, records_table, result_text
from runner.report.tables import runs_table, settings_table
from runner.runs.execute import execute
from runner.terminal import epoch_text
from runner.tracking import writer as tracking

REASON = "Telescopes overrides release, so its noise or charges are not known."


@pytest.fixture
def written(smoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Carry out a whole run with its own noise, and return its record."""
    config = smoke(
        "experiment=tempered_sigmoid/mnist_tanh",
        "+mechanism._target_=tests.choosing.Telescopes",
        "+mechanism._partial_=true",
        "architecture.units=4",
        "architecture.filters=[2,2]",
        "scale.epochs=2",
    )
    shown: list[str] = []
    assert execute(config, lambda row, run: shown.append(epoch_text(row, 2))) == "finished"
    assert [text.rpartition("% · ")[2] for text in shown] == [f"ε {e} as stated by its class" for e in (1.75, 1.99)]
    (path,) = tmp_path.rglob("runs/*.json")
    return path


@pytest.fixture
def planned(fabricate, jobs: Callable[..., list[Job]]) -> Callable[..., Runs]:
    """Return `planned(sound)`, which records two seeds with this sound ε or none."""

    def record_runs(sound: float | None) -> Runs:
        paths = [(job, fabricate(job, [95.0, 96.0], sound=sound)) for job in jobs("fig_3", "mnist_tanh")[:2]]
        return Runs(PlannedRun(job, read_record(path)) for job, path in paths)

    return record_runs


def test_a_whole_run_says_null_and_why(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its class states the ε of 44 steps an epoch, which its prefix sums far exceed."""
    record = read_record(written)
    assert record["history"]["epsilon_sound"] == [None, None]
    assert record["final"]["epsilon_sound"] is None
    assert record["history"]["epsilon"] == pytest.approx([1.746, 1.9811], abs=1e-3)
    assert record["provenance"]["epsilon_unsound"] == REASON
    assert result_text(record).endswith("· ε 1.982 as stated by its class, sound none")
    assert verify(record) == []
    results = written.parent.parent
    assert explain([written.stem, "--results", str(results)]) == 0
    text = capsys.readouterr().out
    assert f"no sound ε is known: {REASON}" in text
    assert "stated by its class: 88 steps, Poisson" in text
    assert "pld" not in text, "no accountant's bound of charges that need not hold"
    assert show(["--results", str(results.parent), "--scale", "smoke"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(written.stem)]
    assert "1.982, stated by its class  none" in row
    # A bound in the place of null is noticed, even in a consistent record without the reason.
    del record["provenance"]["epsilon_unsound"]
    record["history"]["epsilon_sound"], record["final"]["epsilon_sound"] = [1.0, 1.4], 1.4
    write_record(written, record, replace=True)
    problems = verify(read_record(written))
    assert {"epsilon_unsound", "epsilon_sound after epoch 1"} <= {text.partition(" is ")[0] for text in problems}


def test_no_reader_takes_it_for_a_bound(tmp_path: Path, planned: Callable[..., Runs]) -> None:
    runs = planned(None)
    assert entries(runs, [3.0, 1e9]) == [], "no leaderboard has it"
    assert tracking._finite({"epsilon": 1.0, "epsilon_sound": None, "loss": 0.5}) == {"epsilon": 1.0, "loss": 0.5}
    assert len(own_records(tmp_path)) == 2
    assert [row["epsilon_sound"] for row in runs_table(runs)[1]] == [float("inf")] * 2
    assert [row["epsilon_sound"] for row in settings_table(runs)[1]] == [float("inf")]
    assert runs.finals("epsilon_sound") == [float("inf")] * 2
    records = [run.record for run in runs if run.record is not None]
    rows = records_table([[record] for record in records]).rows
    assert [row[4:6] for row in rows] == [["2.9, stated by its class", "none"]] * 2
    fig = figures.draw_price(runs)
    assert fig is not None
    (axes,) = fig.axes
    assert len(axes.lines) > 0
    assert {line.get_markerfacecolor() for line in axes.lines} == {"none"}, "filled points stand at the sound one"
