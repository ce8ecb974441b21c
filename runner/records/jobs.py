"""The runs of a sweep, listed without running them: what Hydra's multirun would launch, and in its order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from runner.config import REPOSITORY, register
from runner.records.identity import identify, resolved


@dataclass(frozen=True)
class Named:
    """One run of a sweep: what the sweep varies (`overrides`, by name), and its ids."""

    sweep: str
    overrides: dict[str, str]
    run_id: str
    setting_id: str

    @property
    def experiment(self) -> str:
        """The experiment overlay, "" where the sweep names none."""
        return self.overrides.get("experiment", "")

    @property
    def label(self) -> str:
        """For people: `mnist_tanh seed=0`."""
        others = [f"{name}={value}" for name, value in self.overrides.items() if name != "experiment"]
        return " ".join([self.experiment.rpartition("/")[2], *others]).strip()


@dataclass(frozen=True)
class Job(Named):
    """One run of a sweep with its resolved config.

    Attributes:
        goes_on: called by the process that trains, after each epoch, with the row of its history: False stops the run.
            None: nothing stops it.
    """

    config: DictConfig
    goes_on: Callable[[Mapping[str, Any]], bool] | None = None


def sweep_jobs(sweep: str, extra: tuple[str, ...] = ("scale=paper",)) -> list[Job]:
    """Every run of sweeps/<sweep>.yaml under further overrides (`scale=smoke`), runs that coincide once.

    They are composed once for the same overrides, and so once at the paper's scale, which is named even by default. At
    a scale that limits it, only the first `runs_per_sweep` are listed, first seeds and draws first.

    Raises:
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: where the sweep or an override is wrong.
        ConfigError: a number is not in its range, or a class may not be named.
    """
    return list(_sweep_jobs(sweep, extra))


def composed_at(sweep: str, choices: tuple[str, ...], extra: tuple[str, ...] = ("scale=paper",)) -> DictConfig:
    """What the runs of a sweep with these options of groups are made of: composed, not resolved.

    Raises:
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: where the sweep or an option is wrong.
    """
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        return compose("config", [f"sweeps={sweep}", *extra, *choices])


def composed_job(sweep: str, overrides: dict[str, str], extra: Sequence[str]) -> Job:
    """The run of a sweep with these overrides: one of `sweep_jobs`, composed by itself.

    Raises:
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: where the sweep or an override is wrong.
        ConfigError: a number is not in its range.
    """
    groups = {name: value for name, value in overrides.items() if (REPOSITORY / "conf" / name).is_dir()}
    choices = tuple(f"{name}={value}" for name, value in groups.items())
    config = copy.deepcopy(_composed_once(sweep, choices, tuple(extra)))
    for name, value in overrides.items():
        if name not in groups:
            OmegaConf.update(config, name, _parsed(f"{name}={value}").value())
    config.tracking.job_type = overrides.get("experiment")
    final = resolved(config)
    return Job(sweep, overrides, *identify(final), final)


_composed_once = cache(composed_at)


@cache
def _parsed(override: str) -> Override:
    """An override as Hydra reads it, once: the jobs of a sweep are made of few."""
    (parsed,) = OverridesParser.create().parse_overrides([override])
    return parsed


@cache
def _sweep_jobs(sweep: str, extra: tuple[str, ...]) -> tuple[Job, ...]:
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        base = [f"sweeps={sweep}", *extra]
        overlay = compose("config", base, return_hydra_config=True)
        parameters = [f"{name}={value}" for name, value in (overlay.hydra.sweeper.params or {}).items()]
        # The very splitting that Hydra's own sweeper does.
        batches = BasicSweeper.split_arguments([_parsed(text) for text in parameters], None)
        groups = {default.partition("@")[0] for default in overlay.hydra.runtime.choices}
        jobs: dict[str, Job] = {}
        composed: dict[tuple[str, ...], DictConfig] = {}
        for arguments in (job for batch in batches for job in batch):
            parsed = [_parsed(text) for text in arguments]
            # Composing takes 50 ms and more, so it is done once per choice of groups; a value is set as Hydra sets it.
            # Every job of a sweep sets the same fields, so that none keeps a value of the job before it.
            choices = tuple(str(o.input_line) for o in parsed if o.key_or_group in groups)
            if choices not in composed:
                composed[choices] = compose("config", [*base, *choices])
            config = composed[choices]
            for override in parsed:
                if override.key_or_group not in groups:
                    OmegaConf.update(config, override.key_or_group, override.value())
            overrides = {o.key_or_group: str(o.input_line).partition("=")[2] for o in parsed}
            config.tracking.job_type = overrides.get("experiment")
            final = resolved(config)
            if "seed" in overrides:
                overrides["seed"] = str(final.seed)
            identity, setting = identify(final)
            jobs.setdefault(identity, Job(sweep, overrides, identity, setting, final))
    limit = overlay.scale.runs_per_sweep
    ordered = sorted(jobs.values(), key=lambda job: (job.config.seed, job.config.draw))
    return tuple(ordered[:limit])
