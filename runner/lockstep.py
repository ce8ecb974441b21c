"""Which runs of a sweep can be trained together: those that differ only in seed and in numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from runner.identity import plain
from runner.jobs import Job

# What may differ without a word: seeds, noise and its price, and where the run is tracked.
_FREE = ("seed", "draw", "noise_multiplier", "target_epsilon", "max_epsilon", "delta", "accountant", "tracking")
_NUMBERS = ("activation", "loss", "clipping", "optimizer")  # groups whose numbers may differ


def grouped(jobs: Sequence[Job]) -> list[tuple[Job, ...]]:
    """The jobs in groups of at most their `runtime.lockstep` each, the first jobs of the groups in order.

    Whether a group's networks really can be stacked shows when they are built: see `runner.life.live_together`.
    """
    groups: list[list[Job]] = []
    filling: dict[str, list[Job]] = {}
    for job in jobs:
        kind, most = _kind(job.config), job.config.runtime.lockstep or 1
        if kind not in filling or len(filling[kind]) >= most:
            filling[kind] = []
            groups.append(filling[kind])
        filling[kind].append(job)
    return [tuple(group) for group in groups]


def _kind(config: DictConfig) -> str:
    """Everything that runs trained together have in common."""
    content = {name: value for name, value in plain(config).items() if name not in _FREE}
    for group in _NUMBERS:
        content[group] = {name: value for name, value in content[group].items() if not _is_number(value)}
    return json.dumps(content, sort_keys=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
