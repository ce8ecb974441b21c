"""How long a run takes on one core, by the records of runs like it. Nothing is timed: the answer is one on any machine.

A run is first compared with those of its own setting, then with those that cost the same time an example (see
`runner.config.fields.Cost`) in batches of one size, then with those of the same network on the same features: at first
with those that a budget may end early as well, or neither, then with any, as if all its epochs were trained.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from runner.config import FIELDS
from runner.config.fields import Cost
from runner.training.targets import bare_name

_ROUGHLY = ("dataset", "features", "architecture")


def likenesses(setting_id: str, config: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Four keys of a run, by the config that its record keeps: what runs have in common that take like time, the
    closest first.
    """
    screening = {"screening": class_of(config.get("screening"))}
    ends = screening | {"by_budget": config.get("max_epsilon") is not None}
    close = {
        name: config.get(name) or None if of.cost is Cost.all else class_of(config.get(name))
        for name, of in FIELDS.items()
        if of.names_class and of.cost is not Cost.nothing
    }
    close |= ends | {"batch_size": config["batch_size"], "hessian": "hessian" in config["diagnostics"]}
    network = {name: config.get(name) for name in _ROUGHLY}
    return setting_id, digest(close), digest(network | ends), digest(network | screening)


def seconds_by_likeness(records: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds of one core for each epoch that a config asks for: the median over the records of each likeness.

    Runs on a GPU (whose step is a graph), of several threads, trained in lockstep, or that were stopped and went on do
    not say how long one takes on a core, and are left out.
    """
    found: dict[str, list[float]] = {}
    for record in records:
        config, of = record["config"], record["provenance"]
        alone = of.get("threads") == 1 and of.get("lockstep", 1) == 1 and of.get("step", "eager") == "eager"
        if alone and "resumed_after" not in of and record["status"] == "finished":
            for key in likenesses(record["setting_id"], config):
                found.setdefault(key, []).append(float(of["wall_seconds"]) / config["epochs"])
    return {key: median(seconds) for key, seconds in found.items()}


def estimated(likeness: Iterable[str], epochs: int, seconds: Mapping[str, float]) -> float | None:
    """Seconds of one core that a run of so many epochs takes, by the closest likeness with a record; None without."""
    return next((epochs * seconds[key] for key in likeness if key in seconds), None)


def class_of(group: Mapping[str, Any] | None) -> str | None:
    """The bare name of a group's class; None where the group is left out."""
    return bare_name(group["_target_"]) if group and "_target_" in group else None


def digest(content: Mapping[str, Any]) -> str:
    """Twelve hex digits of what is alike, classes by their bare names, numbers as floats."""
    return hashlib.sha256(json.dumps(_comparable(content), sort_keys=True).encode()).hexdigest()[:12]


def _comparable(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {name: _comparable(v) for name, v in value.items() if name != "_partial_" and v is not None}
        return kept | {"_target_": bare_name(kept["_target_"])} if "_target_" in kept else kept
    if isinstance(value, list):
        return [_comparable(v) for v in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
