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
    """List the epochs that a claim is about: one of each run, or five with `each_fifth`."""
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


def _last_within(run: PlannedRun, bound: float, by: str = "epsilon") -> int | None:
    """Return the last epoch whose epsilon (or epsilon_sound) is within a bound; without privacy the last of all."""
    return run.last_epoch if math.isinf(run.history(by)[0]) else run.last_within(bound, by)


def _fifth(part: int) -> Epoch:
    return lambda run: max(1, (run.last_epoch + 1) * part // FIFTHS) - 1


def _quarter(run: PlannedRun) -> int:
    """Return a quarter of the epochs in the config, or the run's last epoch if it diverged before."""
    return min(max(1, int(run.field("epochs")) // 4) - 1, run.last_epoch)


_EPOCHS: dict[str, Callable[[Claim, str], Epoch]] = {
    "last": lambda *_: lambda run: run.last_epoch,
    "first": lambda *_: lambda _: 0,
    "quarter": lambda *_: _quarter,
    "epoch": lambda _, number: lambda run: int(number) - 1 if int(number) <= run.last_epoch + 1 else None,
    "below": lambda claim, _: lambda run: _last_within(run, math.nextafter(claim.bound, 0)),
    "within": lambda claim, _: lambda run: _last_within(run, claim.bound),
    "sound_within": lambda _, number: lambda run: _last_within(run, float(number) + _ROUNDING, "epsilon_sound"),
}
_WITH_NUMBER = ("epoch", "sound_within")
