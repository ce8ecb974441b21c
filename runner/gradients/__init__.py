"""Engines, which compute per-example gradients; clipping strategies choose the factors."""

from collections.abc import Callable

from runner.gradients.interface import Engine, GradientSum
from runner.gradients.isolated import IsolatedEngine, IsolatedPrediction, Mapped, NotMappableError, private_copy
from runner.gradients.known import is_known, unknown
from runner.gradients.one_pass import OnePassEngine
from runner.gradients.undisturbed import undisturbed
from runner.networks.objective import Objective


def _one_pass_or_isolated(objective: Objective) -> Engine:
    """Return the one-pass engine for an objective that consists of known modules, else the isolated one."""
    return IsolatedEngine(objective) if unknown(objective) else OnePassEngine(objective)


ENGINES: dict[str, Callable[[Objective], Engine]] = {"one_pass": _one_pass_or_isolated, "isolated": IsolatedEngine}

__all__ = [
    "ENGINES",
    "Engine",
    "GradientSum",
    "IsolatedEngine",
    "IsolatedPrediction",
    "Mapped",
    "NotMappableError",
    "Objective",
    "OnePassEngine",
    "is_known",
    "private_copy",
    "undisturbed",
    "unknown",
]
