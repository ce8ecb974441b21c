"""Engines compute per-example gradients; clipping strategies say what to do with them."""

from collections.abc import Callable

from runner.engines.interface import Engine, GradientSum
from runner.engines.objective import Objective
from runner.engines.one_pass import OnePassEngine
from runner.engines.opacus import OpacusEngine
from runner.engines.vmap import VmapEngine

ENGINES: dict[str, Callable[[Objective], Engine]] = {
    "one_pass": OnePassEngine,
    "vmap": VmapEngine,
    "opacus": OpacusEngine,
}

__all__ = ["ENGINES", "Engine", "GradientSum", "Objective", "OnePassEngine", "OpacusEngine", "VmapEngine"]
