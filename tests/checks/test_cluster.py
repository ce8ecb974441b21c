"""The comparison of `make cluster` with an undisturbed paper."""

import json
import shutil
from pathlib import Path

import pytest

from checks.cluster import differences
from runner.records.disk import write_record


@pytest.mark.parametrize("fault", ["nothing", "missing", "damaged", "another number", "one too many"])
def test_a_difference_from_an_undisturbed_paper_is_listed(fault: str, tmp_path: Path, fabricate, jobs) -> None:
    for job in jobs("fig_3", "mnist_tanh", "smoke"):
        fabricate(job, [50.0])
    shutil.copytree(tmp_path / "smoke", tmp_path / "other" / "smoke")
    record = sorted((tmp_path / "smoke" / "runs").iterdir())[0]
    if fault == "damaged":
        record.write_text(record.read_text()[:200])
        with pytest.raises(ValueError, match=record.name):
            differences(tmp_path, tmp_path / "other")
        return
    if fault == "missing":
        record.unlink()
    elif fault == "one too many":
        (tmp_path / "other" / "smoke" / "runs" / record.name).unlink()
    elif fault == "another number":
        content = json.loads(record.read_text())
        content["final"]["test_accuracy"] = content["history"]["test_accuracy"][-1] = 51.0
        write_record(record, content, replace=True)
    assert differences(tmp_path, tmp_path / "other") == [f"{record.stem}: another record"] * (fault != "nothing")
