"""Engines compute per-example gradients; clipping strategies say what to do with them."""

from collections.abc import Callable

from runner.gradients.interface import Engine, GradientSum
from runner.gradients.one_pass import OnePassEngine
from runner.gradients.opacus import OpacusEngine
from runner.gradients.vmap import VmapEngine
from runner.networks.objective import Objective

ENGINES: dict[str, Callable[[Objective], Engine]] = {
    "one_pass": OnePassEngine,
    "vmap": VmapEngine,
    "opacus": OpacusEngine,
}

__all__ = ["ENGINES", "Engine", "GradientSum", "Objective", "OnePassEngine", "OpacusEngine", "VmapEngine"]
