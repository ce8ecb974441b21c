"""A run that a search stopped: its epochs stay, and the whole run can still be made."""

from __future__ import annotations

from pathlib import Path

from runner.records.files import read_record, record_path, recorded, stopped_path
from runner.records.identity import identify
from runner.runs.execute import execute
from tests.conftest import quietly


def test_a_stopped_run_leaves_its_epochs_and_can_still_be_made(smoke) -> None:
    """Another search may let it go further. The longer record has all that the shorter had."""
    config = smoke("experiment=lipschitz/mnist_drawn", "diagnostics=[]")
    folder, (run_id, _) = Path(config.runtime.results_root) / "smoke", identify(config)
    path = stopped_path(folder, run_id)
    assert execute(config, quietly, goes_on=lambda rows: len(rows) < 1) == "stopped"
    shorter = read_record(path)
    assert execute(config, quietly, goes_on=lambda rows: rows[-1]["epoch"] < 2) == "stopped"
    stopped = read_record(path)
    assert (shorter["status"], stopped["status"]) == ("stopped", "stopped")
    assert (shorter["history"]["epoch"], stopped["history"]["epoch"]) == ([1], [1, 2])
    assert stopped["history"]["test_accuracy"][:1] == shorter["history"]["test_accuracy"]
    assert not recorded(config)
    written = path.read_bytes()
    assert execute(config, quietly, goes_on=lambda rows: len(rows) < 1) == "stopped"
    assert path.read_bytes() == written, "what was measured stays"
    assert execute(config, quietly, goes_on=lambda rows: True) == "finished"
    complete = read_record(record_path(folder, run_id))
    assert complete["history"]["test_accuracy"][:2] == stopped["history"]["test_accuracy"]
    assert path.read_bytes() == written
    path.replace(record_path(folder, run_id))
    assert not recorded(config), "epochs of a run are no run"
