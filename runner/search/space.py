"""Spaces that sweeps search: the fields that an experiment draws, and the run of any values of them.

A sweep is a search if `draw` is all that it varies, and its experiment has `${uniform:...}` or `${log_uniform:...}`
in some fields. A trial is a run with numbers there: draw number k of the sweep, or numbers that were suggested. The
same numbers written into the config make the same run, with the same id.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from omegaconf import DictConfig, OmegaConf

from runner.config import ConfigError, Dimension, EvaluationSplit, drawn_fields
from runner.records.identity import identify_recorded, plain, resolved
from runner.records.jobs import Job, command_of, composed, sweep_jobs

RETRAINED = 5  # seeds, other than the search's own, that the chosen values are trained with to report on test images


@dataclass(frozen=True)
class Space:
    """The search of one sweep at one scale."""

    sweep: str
    composed: DictConfig  # the sweep's config before anything is drawn
    dimensions: Mapping[str, Dimension]  # what is drawn from, by field name
    draws: tuple[Job, ...]  # the sweep's own runs

    @property
    def epochs(self) -> int:
        """The epochs of a whole trial."""
        return int(self.draws[0].values["epochs"])

    def rounded(self, values: Mapping[str, float]) -> dict[str, float]:
        """Round suggested values, each within its range."""
        return {name: self.dimensions[name].rounded(value) for name, value in values.items()}

    def job(self, values: Mapping[str, float], **fields: Any) -> Job:
        """Return the run with these values of the searched fields, and further fields."""
        config, experiment = copy.deepcopy(self.composed), self.draws[0].experiment
        for name, value in {**values, **fields, "tracking.job_type": experiment}.items():
            OmegaConf.update(config, name, value)
        final = resolved(config)
        overrides = {"experiment": experiment, **{name: f"{value:g}" for name, value in values.items()}}
        overrides |= {name: str(plain(final)[name]) for name in fields}
        told = {"sweeps": self.sweep, "scale": final.scale.name, **overrides, "draw": final.draw}
        final.tracking.command = command_of([f"{name}={value}" for name, value in told.items()])
        return Job.of(self.sweep, overrides, final)

    def values(self, config: Any) -> dict[str, float]:
        """Return the searched fields of a run's config."""
        nested = OmegaConf.create(config) if isinstance(config, dict) else config
        return {name: float(OmegaConf.select(nested, name)) for name in self.dimensions}

    def holds(self, recorded: dict[str, Any]) -> bool:
        """Return True if a recorded config belongs to the search: only searched fields differ from the sweep's."""
        return _rest(recorded, self.dimensions) == self._own_rest

    @cached_property
    def _own_rest(self) -> str:
        """Asked for once a record: of thousands, it would take minutes to make anew."""
        return _rest(self.draws[0].values, self.dimensions)

    def retrained(self, values: Mapping[str, float], seeds: int = RETRAINED) -> list[Job]:
        """Return runs of chosen values on all training images, evaluated on test images, with new seeds."""
        first = int(self.draws[0].config.seed) + 1
        found = [self.job(values, evaluation=EvaluationSplit.test, seed=first + place) for place in range(seeds)]
        return list({job.run_id: job for job in found}.values())  # a scale may have fewer seeds


def space_of(sweep: str, extra: tuple[str, ...] = ("scale=paper",)) -> Space:
    """Read the search of sweeps/<sweep>.yaml under further overrides.

    Raises:
        ConfigError: the sweep is no search, or its trials would be evaluated on test images.
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException: the sweep or an override is wrong.
    """
    draws = tuple(sweep_jobs(sweep, extra))
    others = {tuple((k, v) for k, v in job.overrides.items() if k != "draw") for job in draws}
    if len(others) != 1 or any("draw" not in job.overrides for job in draws):
        raise ConfigError(f"{sweep} is no search: a sweep that is one varies draw and nothing else.")
    fixed = dict(next(iter(others)))
    found = composed([f"sweeps={sweep}", *extra, *(f"{name}={value}" for name, value in fixed.items())])
    dimensions = drawn_fields(found)
    if not dimensions:
        raise ConfigError(f"{sweep} is no search: no field of its experiment is drawn.")
    if draws[0].config.evaluation is not EvaluationSplit.holdout:
        raise ConfigError(f"{sweep} would choose by test images: its experiment needs evaluation: holdout.")
    return Space(sweep, found, dimensions, draws)


def _rest(config: dict[str, Any], names: Mapping[str, Any]) -> str:
    """Return the run id of a config without some fields."""
    blank = copy.deepcopy(config)
    for name in names:
        node: Any = blank
        *groups, last = name.split(".")
        for group in groups:
            node = node.get(group) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node[last] = None
    return identify_recorded(blank)[0]
