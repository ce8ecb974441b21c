"""Engines, which compute per-example gradients; clipping strategies choose the factors."""

from collections.abc import Callable

from runner.gradients.interface import Engine, GradientSum, MappedEngine, unknown, unknown_module
from runner.gradients.one_pass import OnePassEngine
from runner.networks.objective import Objective, fresh_copy

ENGINES: dict[str, Callable[[Objective], Engine]] = {
    "one_pass": lambda objective: MappedEngine(objective) if unknown(objective) else OnePassEngine(objective),
    "isolated": MappedEngine,
}

__all__ = [
    "ENGINES", "Engine", "GradientSum", "MappedEngine", "Objective", "OnePassEngine", "fresh_copy", "unknown",
    "unknown_module",
]  # fmt: skip
