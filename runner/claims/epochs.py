"""The epoch of each run that a claim is about, by the name that `at` has in a file of claims."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from runner.claims.claim import Claim, called
from runner.claims.runs import PlannedRun

Epoch: TypeAlias = Callable[[PlannedRun], int | None]  # from 0; None: the run has no such epoch
FIFTHS = 5
_ROUNDING = 1e-9  # records are rounded up


def epochs_of(claim: Claim) -> list[Epoch]:
    """The epochs that a claim is about: one of each run, or `each_fifth`."""
    name, argument = called(claim.at)
    if name == "each_fifth":
        return [_fifth(part) for part in range(1, FIFTHS + 1)]
    return [_EPOCHS[name](claim, argument)]


def check(text: str) -> None:
    """Check the name of an epoch.

    Raises:
        ValueError: there is no such epoch.
    """
    name, argument = called(text)
    if name not in (*_EPOCHS, "each_fifth"):
        raise ValueError(f"no epoch {name!r}: choose from {', '.join((*_EPOCHS, 'each_fifth'))}")
    if (name in _WITH_NUMBER) != bool(argument):
        raise ValueError(f"{name} takes {'a' if name in _WITH_NUMBER else 'no'} number in brackets")
    if argument:
        float(argument)


def last(run: PlannedRun) -> int:
    """The last epoch that the run recorded."""
    return len(run.history("epoch")) - 1


def last_with(run: PlannedRun, holds: Callable[[float], bool], by: str = "epsilon") -> int | None:
    """The last epoch whose epsilon (or epsilon_sound) meets a condition; the last of all without privacy."""
    spent = run.history(by)
    if math.isinf(spent[0]):
        return last(run)
    return max((epoch for epoch, value in enumerate(spent) if holds(value)), default=None)


def _fifth(part: int) -> Epoch:
    return lambda run: max(1, (last(run) + 1) * part // FIFTHS) - 1


def _quarter(run: PlannedRun) -> int:
    """A quarter of the epochs that were asked for, or the run's last if it diverged before."""
    return min(max(1, int(run.field("epochs")) // 4) - 1, last(run))


_EPOCHS: dict[str, Callable[[Claim, str], Epoch]] = {
    "last": lambda *_: last,
    "first": lambda *_: lambda _: 0,
    "quarter": lambda *_: _quarter,
    "epoch": lambda _, number: lambda run: int(number) - 1 if int(number) <= last(run) + 1 else None,
    "below": lambda claim, _: lambda run: last_with(run, lambda spent: spent < claim.bound),
    "within": lambda claim, _: lambda run: last_with(run, lambda spent: spent <= claim.bound),
    "sound_within": lambda _, number: (
        lambda run: last_with(run, lambda spent: spent < float(number) + _ROUNDING, "epsilon_sound")
    ),
}
_WITH_NUMBER = ("epoch", "sound_within")
