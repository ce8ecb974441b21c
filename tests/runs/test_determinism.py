"""A config and seed determine the record, up to rounding with any number of threads."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from runner.runs.execute import execute
from tests.conftest import quietly, record_of


def test_threads_change_a_record_by_rounding_only(smoke, tmp_path: Path) -> None:
    found = []
    for threads in (1, 2):
        config = copy.deepcopy(smoke("scale.epochs=1", "scale.batch_size=143", f"runtime.threads={threads}"))
        config.runtime.results_root = f"{tmp_path}/{threads}"
        assert execute(config, quietly) == "finished"
        found.append(record_of(config))
    torch.set_num_threads(1)
    one, two = found
    assert one["run_id"] == two["run_id"]
    assert one["history"]["epsilon_sound"] == two["history"]["epsilon_sound"]
    assert one["history"]["test_loss"] == pytest.approx(two["history"]["test_loss"], rel=1e-3)
