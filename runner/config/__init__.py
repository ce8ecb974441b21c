"""The typed schema of a run, and the resolvers that configs may use.

Hydra checks names and types of the fields below while it composes. Some groups have options that are classes
(`_target_`). `runner.build.prepare.prepare` checks these for every run, before any data is read. Each field also
states its other properties, for example if it is part of a run's id: see `runner.config.fields`.
"""

import csv
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, Container, DictConfig, Node, OmegaConf

from runner.config.checkout import scan
from runner.config.fields import Part, Properties, Range, class_group, ranges_of, stated

PACKAGE = Path(__file__).resolve().parents[1]  # runner/
_CHECKOUT = (PACKAGE.parent / "pyproject.toml").is_file()
REPOSITORY = PACKAGE.parent if _CHECKOUT else PACKAGE / "checkout"  # has conf/ and sweeps/
PLACE = REPOSITORY if _CHECKOUT else Path.cwd()  # that results/ and wandb/ go into by default
RESULTS = PLACE / "results"
YOURS, FRESH = RESULTS / "yours", RESULTS / "fresh"  # of a user, ignored by git: see `runner.records.disk.find_record`

COUNT = Range("a whole number from 1 up", lambda value: 1 <= value < math.inf)
THREADS = Range("a whole number from 1 to 1024", lambda value: 1 <= value <= 1024)
COUNTS = Range("whole numbers from 1 up", lambda values: all(isinstance(value, int) and value >= 1 for value in values))
NOT_NEGATIVE = Range("0 or greater", lambda value: value >= 0)
NOISE = Range("0, or from 1e-6 up and finite", lambda value: value == 0 or 1e-6 <= value < math.inf)
POSITIVE = Range("greater than 0 and finite", lambda value: 0 < value < math.inf)
DELTA = Range("greater than 0 and less than 0.5", lambda value: 0 < value < 0.5)
_LARGEST = (2 - 2.0**-23) * 2.0**127  # of 32 bits
PAPER = "paper"  # the scale that limits nothing
BUDGETS = ("noise_multiplier", "target_epsilon", "max_epsilon")  # fields that `sound_epsilon` takes the place of


def defined_in(kind: Callable[..., Any], *packages: str) -> bool:
    """Return True if one of these packages, by dotted name, defines a class or a function."""
    return f"{kind.__module__}.".startswith(tuple(f"{package}." for package in packages))


def is_own(part: object) -> bool:
    """Return True if an object's class is the user's, so neither this package nor PyTorch defines it."""
    return not defined_in(type(part), PACKAGE.name, "torch")


class ConfigError(ValueError):
    """The configuration asks for something that cannot be run. The message is one sentence for the user."""


class Sampling(Enum):
    """The way in which batches are drawn."""

    poisson = "poisson"
    shuffled = "shuffled"


class Precision(Enum):
    """The arithmetic of a step's passes, up to the gradients: see `runner.gradients.precision`."""

    tf32 = "tf32"
    bf16 = "bf16"


class EvaluationSplit(Enum):
    """The images on which accuracy is measured."""

    test = "test"
    holdout = "holdout"


class EngineName(Enum):
    """An engine of per-example gradients."""

    one_pass = "one_pass"
    isolated = "isolated"


class StepMode(Enum):
    """The way in which a training step is executed: see `runner.training.graph`."""

    auto = "auto"
    eager = "eager"
    graph = "graph"
    compiled = "compiled"


class TrackingMode(Enum):
    """A mode of Weights & Biases."""

    offline = "offline"
    online = "online"
    disabled = "disabled"


@dataclass
class Runtime:
    """The place and the speed of a computation, which are no part of a run's identity.

    On one type of device nothing here changes a result beyond float rounding. CPU and CUDA draw different batches and
    noise from the same seed. A run repeated on the other device is another draw of the same distribution. The record
    states the device.
    """

    device: str = "auto"
    threads: int | None = stated(None, within=THREADS)
    physical_batch: int | None = stated(None, within=COUNT)
    engine: EngineName = EngineName.one_pass
    step: StepMode = StepMode.auto
    checkpoint_above: float | None = stated(600.0, within=NOT_NEGATIVE)
    data_root: str = MISSING
    results_root: str = MISSING


@dataclass
class Tracking:
    """The data sent to Weights & Biases. Commands set the last field."""

    mode: TrackingMode = TrackingMode.offline
    project: str = MISSING
    entity: str | None = None
    directory: str = MISSING
    group: str | None = None
    job_type: str | None = None
    tags: list[str] = field(default_factory=list)
    command: str | None = None  # repeats the run


@dataclass
class Scale:
    """Limits that shrink any experiment. Null keeps the experiment's value.

    `bundled_data` trains on scikit-learn's handwritten digits, resized to the data set's shape. For a user's data set
    it takes as many of the data set's images instead.
    """

    name: str = MISSING
    bundled_data: bool = False
    epochs: int | None = stated(None, within=COUNT)
    batch_size: int | None = stated(None, within=COUNT)
    seeds: int | None = stated(None, within=COUNT)  # seeds are folded: seed modulo seeds
    runs_per_sweep: int | None = stated(None, within=COUNT)  # the first ones


@dataclass
class Config:
    """One run. The comments next to the defaults in conf/config.yaml explain the fields."""

    dataset: Any = class_group("runner.data.datasets.ImageDataset")
    features: Any = class_group("runner.data.features.Features")
    augmentation: Any = class_group("runner.data.augmentation.Augmentation", optional=True)
    normalization: Any = class_group("runner.mechanism.dp_sgd.Normalization", optional=True)
    architecture: Any = class_group("torch.nn.Module")
    activation: Any = class_group("torch.nn.Module")
    init: Any = class_group("runner.networks.initial.Initialization", optional=True)
    loss: Any = class_group("torch.nn.Module")
    clipping: Any = class_group("runner.clipping.Clipping")
    accountant: Any = class_group("runner.accounting.calibration.Accountant")
    mechanism: Any = class_group("runner.mechanism.dp_sgd.Mechanism", optional=True)
    optimizer: Any = class_group("torch.optim.Optimizer")
    schedule: Any = class_group("torch.optim.lr_scheduler.LRScheduler", optional=True)
    averaging: Any = class_group("runner.training.averaging.Averaging", optional=True)
    constraint: Any = class_group("runner.networks.objective.Constraint", optional=True)
    screening: Any = class_group("runner.training.updates.UpdateRule", optional=True)
    runtime: Runtime = stated(part=Part.machine)
    tracking: Tracking = stated(part=Part.machine)
    scale: Scale = stated(part=Part.setting)
    seed: int = stated(part=Part.run, within=NOT_NEGATIVE)
    epochs: int = stated(part=Part.setting, within=COUNT)
    batch_size: int = stated(part=Part.setting, within=COUNT)
    sampling: Sampling = stated(part=Part.setting)
    precision: Precision | None = stated(None, part=Part.setting)
    noise_multiplier: float | None = stated(None, part=Part.setting, within=NOISE)
    target_epsilon: float | None = stated(None, part=Part.setting, within=POSITIVE)
    sound_epsilon: float | None = stated(None, part=Part.setting, within=POSITIVE)
    max_epsilon: float | None = stated(None, part=Part.setting, within=POSITIVE)
    delta: float = stated(part=Part.setting, within=DELTA)
    evaluation: EvaluationSplit = stated(part=Part.setting)
    diagnostics: list[str] = stated([], part=Part.observed)
    diagnostics_every: int = stated(10, part=Part.observed, unhashed_at=10, within=COUNT)
    confusion_epochs: list[int] = stated([], part=Part.observed, within=COUNTS)
    sources: dict[str, str] = stated({}, part=Part.setting)
    examples: str | None = stated(None, part=Part.setting)
    title: str = stated("", part=Part.machine)
    save_model: bool = stated(False, part=Part.machine)
    draw: int = stated(0, part=Part.record)


FIELDS: dict[str, Properties] = {name: f.metadata["properties"] for name, f in Config.__dataclass_fields__.items()}
RANGES = tuple(ranges_of(Config))


@cache
def options_of(group: str) -> list[str]:
    """List the options of a config group by name, those in its subfolders left out."""
    return sorted(path.stem for path in scan(REPOSITORY / "conf" / group, "*.yaml"))


def check_ranges(config: DictConfig) -> None:
    """Check numbers of the schema, and the scale, whose name becomes a folder.

    Raises:
        ConfigError: a number is out of range, the scale is unknown, or bundled data is used at the paper's scale.
    """
    if config.scale.name not in (scales := options_of("scale")):
        raise ConfigError(f"scale.name={config.scale.name} is no scale: choose scale={' or scale='.join(scales)}.")
    bundled = config.scale.bundled_data or OmegaConf.select(config, "dataset.bundled")
    if bundled and config.scale.name == PAPER:
        raise ConfigError("Bundled data is not for results at the paper's scale: choose scale=smoke.")
    for name, range_ in RANGES:
        value: Any = OmegaConf.select(config, name)
        if value is not None and not range_.holds(value):
            raise ConfigError(f"{name}={value} is out of range: it has to be {range_.words}.")


def check_values(value: Any, name: str = "") -> None:
    """Check that a record can hold a config's plain values, and that its numbers fit into 32 bits, as tensors do.

    Raises:
        ConfigError: a value is no text, number, truth value, null, list or mapping of them, a number is not finite or
            too large, or a name is no text.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ConfigError(f"{name} has the name {key!r}, and names are texts in a record: write it in quotes.")
            check_values(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for inner in value:
            check_values(inner, name)
    elif value is not None and not isinstance(value, (str, int, float)):
        raise ConfigError(
            f"{name}={value} is a {type(value).__name__}, which no record can hold: write it as a text or a number."
        )
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name}={value} is out of range: it has to be a finite number.")
    elif isinstance(value, (int, float)) and abs(value) > _LARGEST:
        raise ConfigError(f"{name} is larger than any 32-bit number.")


def _random_of(node: Node, root: Container) -> Random:
    """Return a separate generator for each (field, draw), so a new field in a search leaves the other draws alone."""
    key = f"{node._get_full_key('')}:{OmegaConf.select(root, 'draw')}"
    return Random(hashlib.sha256(key.encode()).digest())


def uniform(low: float, high: float, *, _node_: Node, _root_: Container) -> float:
    """Return `${uniform:low,high}`: draw number `draw` of this field, to three significant digits."""
    return float(f"{_random_of(_node_, _root_).uniform(low, high):.3g}")


def log_uniform(low: float, high: float, *, _node_: Node, _root_: Container) -> float:
    """Return `${log_uniform:low,high}`: draw number `draw` of this field, uniform in the logarithm, to three digits."""
    return float(f"{math.exp(_random_of(_node_, _root_).uniform(math.log(low), math.log(high))):.3g}")


def chosen(table: str, otherwise: float, *, _node_: Node, _root_: Container) -> float:
    """Return `${chosen:sweeps/tempered_sigmoid/table_4_chosen.csv,-1}`: the number that a search chose for this field.

    A column of the table is a field of the config ("optimizer.lr", "activation._target_"). A row is one setting and the
    values chosen for it. All other columns of a row have to equal the config, numbers as numbers. An empty cell stands
    for a field that is null or missing. Without such a row it is `otherwise`. The table is a part of the configuration,
    like a YAML file. The resolved config still defines a run.

    Raises:
        FileNotFoundError: the table does not exist.
        ValueError: two rows match this config, or the field has no column or no number.
    """
    field = _node_._get_full_key("")
    with (REPOSITORY / table).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    config = {name: OmegaConf.select(_root_, name) for name in dict.fromkeys(chain(*rows)) if name != field}
    matches = [row for row in rows if all(_equals(value, row[name]) for name, value in config.items())]
    if len(matches) > 1 or any(field not in row for row in matches):
        raise ValueError(f"{table} has {len(matches)} rows for one setting, or no column {field}.")
    return float(matches[0][field]) if matches else float(otherwise)


def _equals(value: Any, text: str) -> bool:
    if value is None or not text:
        return value is None and not text
    try:
        return float(value) == float(text)
    except ValueError:
        return str(value) == text


@cache
def register() -> None:
    """Make the schema, the resolvers and the way to read YAML known to Hydra, once in a process."""
    from runner.config.yaml_file import read_as_typed

    read_as_typed()
    ConfigStore.instance().store(name="config_schema", node=Config)
    OmegaConf.register_new_resolver("repository", lambda: str(REPOSITORY), replace=True)
    OmegaConf.register_new_resolver("place", lambda: str(PLACE), replace=True)
    OmegaConf.register_new_resolver("uniform", uniform, replace=True)
    OmegaConf.register_new_resolver("log_uniform", log_uniform, replace=True)
    OmegaConf.register_new_resolver("chosen", chosen, replace=True)
