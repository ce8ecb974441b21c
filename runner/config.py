"""The typed schema of a run, and the resolvers that configs may use.

Hydra checks names and types of the fields below while it composes. Groups whose options are classes of their own
(`_target_`) are checked by `runner.build.prepare`, which every run passes before any data is read.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, Container, Node, OmegaConf

REPOSITORY = Path(__file__).resolve().parent.parent


class ConfigError(ValueError):
    """The configuration asks for something that cannot be run. The message is one sentence for the user."""


class Sampling(Enum):
    poisson = "poisson"
    shuffled = "shuffled"


class Evaluation(Enum):
    test = "test"
    holdout = "holdout"


class Engine(Enum):
    one_pass = "one_pass"
    vmap = "vmap"
    opacus = "opacus"


class Step(Enum):
    auto = "auto"
    eager = "eager"
    graph = "graph"


class TrackingMode(Enum):
    offline = "offline"
    online = "online"
    disabled = "disabled"


@dataclass
class Runtime:
    """Where and how fast a run is computed: no part of its identity.

    On one type of device nothing here changes a result beyond float rounding. CPU and CUDA draw other batches and other
    noise from the same seed, so a run repeated on the other is another draw of the same distribution; the record says
    which device it was.
    """

    device: str = "auto"
    threads: int | None = None
    physical_batch: int | None = None
    engine: Engine = Engine.one_pass
    step: Step = Step.auto
    guard_every: int | None = None
    lockstep: int | None = None
    data_root: str = MISSING
    results_root: str = MISSING


@dataclass
class Tracking:
    """What is sent to Weights & Biases."""

    mode: TrackingMode = TrackingMode.offline
    project: str = MISSING
    entity: str | None = None
    directory: str = MISSING
    group: str | None = None
    job_type: str | None = None
    tags: list[str] = field(default_factory=list)


@dataclass
class Scale:
    """Limits that shrink any experiment; null leaves the experiment's own value.

    `bundled_data` trains on scikit-learn's handwritten digits, resized to the data set's shape.
    `seeds` folds the seeds of a sweep (seed modulo seeds), `runs_per_sweep` keeps the first runs of one.
    """

    name: str = MISSING
    bundled_data: bool = False
    epochs: int | None = None
    batch_size: int | None = None
    seeds: int | None = None
    runs_per_sweep: int | None = None


@dataclass
class Config:
    """One run. The comments beside the defaults in conf/config.yaml explain the fields."""

    dataset: Any = MISSING
    features: Any = MISSING
    normalization: Any = None
    architecture: Any = MISSING
    activation: Any = MISSING
    loss: Any = MISSING
    clipping: Any = MISSING
    accountant: Any = MISSING
    mechanism: Any = None
    optimizer: Any = MISSING
    screening: Any = None
    runtime: Runtime = MISSING
    tracking: Tracking = MISSING
    scale: Scale = MISSING
    seed: int = MISSING
    epochs: int = MISSING
    batch_size: int = MISSING
    sampling: Sampling = MISSING
    noise_multiplier: float | None = None
    target_epsilon: float | None = None
    max_epsilon: float | None = None
    delta: float = MISSING
    evaluation: Evaluation = MISSING
    diagnostics: list[str] = field(default_factory=list)
    diagnostics_every: int = 10
    confusion_epochs: list[int] = field(default_factory=list)
    draw: int = 0


def _random_of(node: Node, root: Container) -> Random:
    """A generator of its own for every (field, draw): adding a field to a search leaves the other draws alone."""
    key = f"{node._get_full_key('')}:{OmegaConf.select(root, 'draw')}"
    return Random(hashlib.sha256(key.encode()).digest())


def uniform(low: float, high: float, *, _node_: Node, _root_: Container) -> float:
    """`${uniform:low,high}`: draw number `draw` of this field, three significant digits."""
    return float(f"{_random_of(_node_, _root_).uniform(low, high):.3g}")


def log_uniform(low: float, high: float, *, _node_: Node, _root_: Container) -> float:
    """`${log_uniform:low,high}`: the same, uniform in the logarithm."""
    return float(f"{math.exp(_random_of(_node_, _root_).uniform(math.log(low), math.log(high))):.3g}")


def sweep_groups() -> str:
    """`${sweep_groups:}`: the sweeps as `--help` lists groups (Hydra lists no folder that a search path adds)."""
    papers = sorted(path for path in (REPOSITORY / "sweeps").iterdir() if path.is_dir())
    return "\n".join(
        f"sweeps/{paper.name}: {', '.join(sorted(sweep.stem for sweep in paper.glob('*.yaml')))}" for paper in papers
    )


def register() -> None:
    """Make the schema and the resolvers known to Hydra. Safe to call again."""
    ConfigStore.instance().store(name="config_schema", node=Config)
    OmegaConf.register_new_resolver("repository", lambda: str(REPOSITORY), replace=True)
    OmegaConf.register_new_resolver("sweep_groups", sweep_groups, replace=True)
    OmegaConf.register_new_resolver("uniform", uniform, replace=True)
    OmegaConf.register_new_resolver("log_uniform", log_uniform, replace=True)
