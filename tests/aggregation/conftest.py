"""Records as a run writes them, fabricated for the real jobs of the real sweeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.aggregation.evidence import folder_of
from runner.identity import recorded_config
from runner.jobs import Job, sweep_jobs
from runner.records import record_path, write_record

Fabricate = Callable[..., Path]


@pytest.fixture
def fabricate(tmp_path: Path) -> Fabricate:
    """`fabricate(job, [97.0, 98.0])`: write a record with these accuracies by epoch; returns its path."""

    def write(
        job: Job,
        accuracy: Sequence[float],
        epsilon: float | Sequence[float] = 2.9,
        sound: float = 2.3,
        status: str = "finished",
        diagnostics: dict[str, Any] | None = None,
    ) -> Path:
        epochs = len(accuracy)
        best = max(range(epochs), key=lambda e: accuracy[e])
        spent = list(epsilon) if isinstance(epsilon, Sequence) else [epsilon] * epochs
        history = {
            "epoch": list(range(1, epochs + 1)),
            "steps": [234 * e for e in range(1, epochs + 1)],
            "epsilon": spent,
            "epsilon_sound": [sound] * epochs,
            "train_loss": [0.5] * epochs,
            "test_loss": [math.nan if status == "diverged" else 0.25] * epochs,
            "test_accuracy": list(accuracy),
        }
        final = {name: values[-1] for name, values in history.items()}
        final |= {"best_test_accuracy": accuracy[best], "best_epoch": best + 1, "parameters": 26010}
        record = {
            "run_id": job.run_id,
            "setting_id": job.setting_id,
            "status": status,
            "config": recorded_config(job.config),
            "history": history,
            "final": {**final, "noise_multiplier": 1.1, "sampling_rate": 256 / 60000},
            "diagnostics": diagnostics or {"per_class_accuracy": [[a] * 10 for a in accuracy]},
            "provenance": {
                "git_revision": "0" * 40,
                "wall_seconds": 12.0,
                "examples_per_second": 9.0,
                "device": "none",
            },
        }
        path = record_path(folder_of(job.config.scale.name, tmp_path), job.run_id)
        assert write_record(path, record)
        return path

    return write


@pytest.fixture
def jobs() -> Callable[..., list[Job]]:
    """`jobs("fig_3", "mnist_tanh")`: the planned jobs of one experiment, in order."""

    def of(sweep: str, experiment: str, scale: str = "paper") -> list[Job]:
        listed = sweep_jobs(f"tempered_sigmoid/{sweep}", (f"scale={scale}",))
        return [job for job in listed if job.experiment == f"tempered_sigmoid/{experiment}"]

    return of
