"""Which runs take about the same time an epoch, or a run: one of them tells it for all."""

from __future__ import annotations

import json
from typing import Any

from omegaconf import DictConfig

from runner.config import FIELDS
from runner.config.fields import Differs, Part
from runner.records.identity import identify, plain
from runner.runs.paces import MINOR

_NEVER_PAID = ("activation", "optimizer")  # what a network is made of and what is done with a noisy sum cost nothing


def alike(config: DictConfig) -> str:
    """The same text for runs that take about the same time where they are computed alike: their groups have the same
    classes, but for those that hardly matter, and differ in numbers. It is the time of an epoch; of the run where a
    budget ends it, which the numbers that cost privacy say when; all of them do where it is screened.
    """
    values = {name: value for name, value in plain(config).items() if FIELDS[name].part is not Part.machine}
    values["dataset"] = {name: value for name, value in values["dataset"].items() if name != "name"}
    ended = config.max_epsilon is not None
    if ended and config.screening:
        return identify(config)[1]
    costs = {name: value for name, value in values.items() if name not in (*MINOR, *(() if ended else ("epochs",)))}
    same = {name: value for name, value in costs.items() if FIELDS[name].differs is Differs.nothing}
    numbers = {name: value for name, value in costs.items() if FIELDS[name].differs is Differs.numbers}
    paid = {name: value for name, value in values.items() if ended and _may_cost_privacy(name)}
    return json.dumps(same | _classes(numbers) | paid, sort_keys=True)


def _classes(groups: dict[str, Any]) -> dict[str, Any]:
    """The classes of groups, without their arguments; null where one is left out."""
    return {name: value and value["_target_"] for name, value in groups.items()}


def _may_cost_privacy(name: str) -> bool:
    """Whether a field of the config may have a say in what a step costs."""
    return FIELDS[name].part is Part.setting and name not in _NEVER_PAID
