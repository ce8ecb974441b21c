"""The runs of a sweep, listed without running them: what Hydra's multirun would launch, and in its order."""

import json
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import create_config_search_path
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from hydra.version import VersionBase, setbase
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from runner.config import FIELDS, PAPER, REPOSITORY, Config, ConfigError, check_ranges, register
from runner.config.fields import Part
from runner.config.loader import Loader, cached, check_groups, note_file
from runner.records.identity import identify_recorded, limit, plain
from runner.terminal import command

_PAPER_SCALE = f"scale={PAPER}"
_OF_SEED = re.compile(r"\$\{[^}]*(\bseed\b|\bchosen:)")
_SEARCH_PATH = "hydra.searchpath="  # which `runner.config.options.search_path` writes


@dataclass(frozen=True)
class Job:
    """One run of a sweep: what it varies (`overrides`, by name), its ids, its resolved config as JSON values.

    `Job.of` makes one of a config. The process that trains calls `goes_on` after each epoch with the rows of its
    history until then, and stops the run if it returns False.
    """

    sweep: str
    overrides: dict[str, str]
    run_id: str
    setting_id: str
    values: dict[str, Any]
    goes_on: Callable[[Sequence[Mapping[str, Any]]], bool] | None = None

    @classmethod
    def of(cls, sweep: str, overrides: dict[str, str], config: DictConfig) -> "Job":
        """Return the run of a config to which the limits of its scale are applied."""
        values = plain(config)
        return cls(sweep, overrides, *identify_recorded(values), values)

    def with_seed(self, seed: int) -> "Job":
        """Return the run with another seed that is in range, if no other field follows from it (`may_follow_seed`)."""
        seeds = self.values["scale"]["seeds"]
        values = self.values | {"seed": seed % seeds if seeds else seed}
        return Job(self.sweep, self.overrides, *identify_recorded(values), values)

    @cached_property
    def config(self) -> DictConfig:
        """The resolved config, typed by its schema, which is built when it is asked for."""
        return restored(self.values)

    @property
    def experiment(self) -> str:
        """The experiment overlay, "" where the sweep names none."""
        return self.overrides.get("experiment", "")

    @property
    def label(self) -> str:
        """For people: `mnist_tanh seed=0`."""
        varied = [f"{name}={value}" for name, value in self.overrides.items() if name != "experiment"]
        return " ".join([self.experiment.rpartition("/")[2], *varied]).strip()

    def field(self, name: str, otherwise: Any = None) -> Any:
        """Return a field of the resolved config ("optimizer.lr") as a JSON value; `otherwise` if there is none."""
        value: Any = self.values
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return otherwise
            value = value[part]
        return value


def sweep_jobs(sweep: str, extra: Sequence[str] = (_PAPER_SCALE,)) -> list[Job]:
    """Every run of sweeps/<sweep>.yaml under further overrides (`scale=smoke`), runs that coincide once.

    Runs are composed where the cache of configs does not know them. At a scale that limits it, only the first
    `runs_per_sweep` are listed, first seeds and draws first.

    Raises:
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: where the sweep or an override is wrong.
        ConfigError: a number is not in its range, or a class may not be named.
    """
    # The data's folder is of the machine, too, but a user's data set is read from it to list its runs.
    fields = (text for text in split(extra)[1] if not text.startswith("runtime.data_root="))
    machine = [text for text in fields if _is_machine(text)]
    return _set_machine(_listed(sweep, tuple(text for text in extra if text not in machine)), machine)


def composed(overrides: Sequence[str]) -> DictConfig:
    """Compose a config of overrides by Hydra, or take it from the cache of configs. Nothing in it is resolved.

    Raises:
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: where an override is wrong.
    """
    return restored(composed_values(overrides))


def composed_values(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the JSON values of `composed`, which take no time to build, or raise as it does."""

    def compose_values() -> Any:
        for text in (text for text in overrides if _parsed(text).is_sweep_override()):
            raise ConfigError(f"{text} has several values: make each value an arm, or list the values below search.")
        options, fields = split(overrides)
        if fields:  # the same options are composed once
            config = composed(options)
            set_fields(config, fields)
        else:
            config = _by_hydra(overrides)
        return OmegaConf.to_container(config, resolve=False, enum_to_str=True)

    register()  # what it interpolates
    values: dict[str, Any] = cached(["composed", *overrides], compose_values)
    return values


def split(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the overrides that choose options, or are Hydra's own, and those that set fields of a config.

    >>> split(["optimizer=adam", "optimizer.lr=0.1", "~normalization", "seed=1", "hydra.searchpath=[]"])
    (['optimizer=adam', '~normalization', 'hydra.searchpath=[]'], ['optimizer.lr=0.1', 'seed=1'])
    """
    fields = []
    for text in overrides:
        name = text.partition("=")[0]
        group, *names = name.lstrip("+~").split(".")
        plain_field = name in FIELDS and not _is_group(name)
        if plain_field or (names and group != "hydra"):
            fields.append(text)
    return [text for text in overrides if text not in fields], fields


def set_fields(config: DictConfig, overrides: Sequence[str]) -> None:
    """Set fields of a config in place, as Hydra sets them."""
    ConfigLoaderImpl._apply_overrides_to_config([_parsed(text) for text in overrides], config)


def restored(values: Mapping[str, Any]) -> DictConfig:
    """Build a config with the types of the schema from JSON values."""
    config = OmegaConf.unsafe_merge(pickle.loads(_schema()), dict(values))  # two thirds of the time of a merge
    assert isinstance(config, DictConfig)
    OmegaConf.set_struct(config, True)
    return config


@cache
def _schema() -> bytes:
    return pickle.dumps(OmegaConf.structured(Config))


def command_of(overrides: Sequence[str]) -> str:
    """Return the command that repeats the run of some overrides, without those that speak of a machine.

    A folder of the user's options is named as it is seen from the current folder, or by its last name.

    >>> command_of(["hydra.searchpath=['file:///package','file:///home/me/options']", "clipping=mine"])
    'python -m runner --config-dir options clipping=mine'
    """
    folders = [text for text in overrides if text.startswith(_SEARCH_PATH)]
    options = []
    if folders:
        folder = Path(folders[-1].rpartition("file://")[2].rstrip("']"))
        here = folder.is_relative_to(Path.cwd())
        options = ["--config-dir", str(folder.relative_to(Path.cwd())) if here else folder.name]
    typed = (text for text in overrides if text != _PAPER_SCALE and not text.startswith(_SEARCH_PATH))
    return command(*options, *(text for text in typed if not _is_machine(text.lstrip("+~"))))


@cache
def _listed(sweep: str, extra: tuple[str, ...]) -> tuple[Job, ...]:
    return tuple(cached_jobs(["jobs", sweep, *extra], lambda: _list_by_hydra(sweep, extra)))


def cached_jobs(key: Sequence[str], make: Callable[[], Sequence[Job]]) -> list[Job]:
    """Return what `make` makes of composed configs, from the cache of configs if it is there."""
    names = ("sweep", "overrides", "run_id", "setting_id", "values")
    jobs = cached(
        key,
        lambda: [{name: getattr(job, name) for name in names} for job in make()],
        # Files that Hydra does not read.
        keep=lambda jobs: not any(job["values"].get(name) for job in jobs for name in ("sources", "examples")),
    )
    return [Job(**job) for job in jobs]


def _list_by_hydra(sweep: str, extra: Sequence[str]) -> list[Job]:
    base, own = [f"sweeps={sweep}", *extra], _content_of(sweep, extra)
    overlay = _by_hydra(base, return_hydra_config=True) if own is None else own
    varied = OmegaConf.select(overlay, "hydra.sweeper.params") or {}
    parameters = [f"{name}={value}" for name, value in varied.items()]
    # The very splitting that Hydra's own sweeper does.
    batches = BasicSweeper.split_arguments([_parsed(text) for text in parameters], None)
    jobs: dict[str, Job] = {}
    by_choices: dict[tuple[str, ...], DictConfig] = {}
    by_setting: dict[tuple[str, ...], Job] = {}  # by all overrides but the seed
    for arguments in (job for batch in batches for job in batch):
        parsed = {override.key_or_group: override for override in map(_parsed, arguments)}
        overrides = {name: str(override.input_line).partition("=")[2] for name, override in parsed.items()}
        # Composing takes 50 ms and more, so it is done once per choice of groups; a value is set as Hydra sets it.
        # Every job of a sweep sets the same fields, so that none keeps a value of the job before it.
        choices = tuple(str(override.input_line) for name, override in parsed.items() if _is_group(name))
        if choices not in by_choices:
            by_choices[choices] = _with_choices(sweep, own, extra, choices)
        config = by_choices[choices]
        seed = parsed["seed"].value() if "seed" in parsed else None
        setting = tuple(text for name, text in zip(parsed, arguments, strict=True) if name != "seed")
        if setting in by_setting and isinstance(seed, int) and 0 <= seed < 1 << 31:
            job = by_setting[setting].with_seed(seed)
        else:
            for name, override in parsed.items():
                if not _is_group(name):
                    OmegaConf.update(config, name, override.value())
            config.tracking.job_type = overrides.get("experiment")
            limit(config)
            job = Job.of(sweep, overrides, config)
            if not may_follow_seed(OmegaConf.to_container(config, enum_to_str=True)):
                by_setting[setting] = job
            config.sources, config.examples = {}, None  # of the next job
        if "seed" in overrides:
            overrides["seed"] = str(job.values["seed"])
        command = command_of([*base, *(f"{name}={value}" for name, value in overrides.items())])
        tracking = job.values["tracking"] | {"command": command}
        jobs.setdefault(job.run_id, replace(job, overrides=overrides, values=job.values | {"tracking": tracking}))
    ordered = sorted(jobs.values(), key=lambda job: (job.values["seed"], job.values["draw"]))
    return ordered[: ordered[0].values["scale"]["runs_per_sweep"]]


def may_follow_seed(values: Any) -> bool:
    """Return True if a field of a config that is not resolved may follow from the seed, as far as its texts tell.

    >>> may_follow_seed({"optimizer": {"lr": "${chosen:table.csv,1}"}}), may_follow_seed({"epochs": "${batch_size}"})
    (True, False)
    """
    return bool(_OF_SEED.search(json.dumps(values)))


def _content_of(sweep: str, extra: Sequence[str]) -> DictConfig | None:
    """Load the file of a sweep. None if it is left to Hydra: it has defaults, is wrong, or `extra` sets what it sweeps.

    Sweeps come last among the defaults, so their fields are merged into a config that sweeps and studies share.
    """
    path = REPOSITORY / "sweeps" / f"{sweep}.yaml"
    with suppress(OSError, ValueError, YAMLError):
        content, text = cast(DictConfig, OmegaConf.load(path)), path.read_text(encoding="utf-8")
        plain_file = text.startswith("# @package _global_\n") and "defaults" not in content
        if plain_file and not any(override.lstrip("+~").startswith("hydra.") for override in extra):
            note_file(str(path))
            check_groups(path, content)
            return content
    return None


def _with_choices(sweep: str, own: DictConfig | None, extra: Sequence[str], choices: Sequence[str]) -> DictConfig:
    """Compose a sweep with some options: their config, then the fields of the sweep's file, then those of `extra`."""
    options, fields = split(extra)
    try:
        if own is not None:
            config = composed([*options, *choices])
            with open_dict(config):
                config.merge_with(OmegaConf.masked_copy(own, [str(name) for name in own if name != "hydra"]))
            set_fields(config, fields)
            return config
    except OmegaConfBaseException:  # Hydra says where
        pass
    return _by_hydra([f"sweeps={sweep}", *extra, *choices])


def _by_hydra(overrides: Sequence[str], *, return_hydra_config: bool = False) -> DictConfig:
    """Compose a config as `hydra.compose` does, and leave Hydra's global state as a program around this one has it."""
    register()
    base = VersionBase.instance()
    before = base.version_base
    setbase("1.3")
    try:
        loader = Loader(create_config_search_path(str(REPOSITORY / "conf")))
        config = loader.compose("config", list(overrides), RunMode.RUN, from_shell=False)  # fields may fill a group
    finally:
        base.version_base = before
    if not return_hydra_config:
        with open_dict(config):
            del config["hydra"]
    return config


@cache
def _parsed(override: str) -> Override:
    """Parse an override with Hydra, each once, as the jobs of a sweep share most of them."""
    (parsed,) = OverridesParser.create().parse_overrides([override])
    return parsed


def _is_group(name: str) -> bool:
    return (REPOSITORY / "conf" / name).is_dir()


def _is_machine(override: str) -> bool:
    """Return True if an override sets the device, the speed or the tracking of a run, and not its numbers."""
    top = override.partition("=")[0].partition(".")[0]
    return top in FIELDS and FIELDS[top].part is Part.machine


def _set_machine(jobs: Sequence[Job], overrides: Sequence[str]) -> list[Job]:
    """Set fields of a machine in all jobs, as Hydra sets them. No id depends on them."""
    if not jobs or not overrides:
        return list(jobs)
    config = restored(jobs[0].values)
    set_fields(config, overrides)
    OmegaConf.resolve(config)
    check_ranges(config)
    changed, changed_jobs = plain(config), []
    for job in jobs:
        values = dict(job.values)
        for group, _, name in (_parsed(text).key_or_group.partition(".") for text in overrides):
            values[group] = values[group] | {name: changed[group][name]} if name else changed[group]
        changed_jobs.append(replace(job, values=values))
    return changed_jobs
