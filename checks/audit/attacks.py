"""Attacks: many independent trials of a target in both worlds, by an attacker who knows all but the canary.

Attackers know the code, the weights, all other examples and every number of the configuration. They know neither the
noise, nor the sampled batches, nor the presence of the canary. Everything random is the project's own: the mechanism
draws the batches, and its `release` draws the noise, for many trials at once, as a leading dimension. The sums of a
batch are computed once. This is valid because weights change only at the end of an attack, or gradients do not depend
on them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, islice, repeat

import numpy as np
import torch
from torch import Generator, Tensor, nn

from checks.audit.bounds import Array, Scores
from checks.audit.targets import Target, World
from runner.accounting import Ledger
from runner.mechanism.banded import Banded
from runner.mechanism.normal import PastNoise, generator
from runner.mechanism.statistics import PrivateStatistics, Standardize
from runner.training.updates import Updates

_CPU = torch.device("cpu")
_PILOT = 4000  # trials from which an attacker learns the noise


def released(target: Target, world: World, trials: int, stream: str) -> list[dict[str, Tensor]]:
    """Return the release of each step, by parameter [trials, *shape]: a list of steps."""
    sampling, noise = (generator(0, f"{stream}/{purpose}", _CPU) for purpose in ("sampling", "noise"))
    place: dict[tuple[int, ...], int] = {}  # of each batch among the batches of all trials
    runs = []
    for _ in range(trials):  # each from the start of an epoch
        batches = chain.from_iterable(target.mechanism.batches(s) for s in repeat(sampling))
        run = (tuple(sorted(batch.tolist())) for batch in islice(batches, target.setting.steps))
        runs.append([place.setdefault(batch, len(place)) for batch in run])
    numbers = torch.tensor(runs)
    sums = [target.sums(world, list(batch)) for batch in place]
    steps, past = [], PastNoise(target.mechanism.coefficients)
    for step in range(target.setting.steps):
        totals = {name: torch.stack([part[name] for part in sums])[numbers[:, step]] for name in sums[0]}
        steps.append(target.mechanism.release(totals, noise, past))
    return steps


def turns(target: Target, steps: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Return all that whole cycles of b releases show of the canary, an example of part 0: a release for each turn.

    The attacker multiplies the releases by C, which leaves independent noise. Row k of a turn has c_k times the
    canary's contribution. The mean with weights c_k is a sufficient statistic. Without bands it is the release itself.

    Raises:
        ValueError: the canary is in another part.
    """
    c = target.mechanism.coefficients
    if isinstance(target.mechanism, Banded) and target.mechanism.equal_parts[-1] != 0:
        raise ValueError("Expected the canary in part 0: choose another number of examples.")

    def mean(name: str, first: int) -> Tensor:
        total = torch.zeros_like(steps[0][name])
        for k, weight in enumerate(c):
            row = first + k
            for back, coefficient in enumerate(c[: row + 1]):
                total = total + weight * coefficient * steps[row - back][name]
        return total / sum(coefficient**2 for coefficient in c)

    return [{name: mean(name, first) for name in steps[0]} for first in range(0, len(steps), len(c))]


def release_scores(target: Target, trials: int, stream: str) -> Scores:
    """Return the scores of an attacker who sees every release."""
    seer = _Seer(target, stream)
    names = ["likelihood", "difference"] if target.setting.steps > 1 else ["likelihood"]
    sides = [
        seer.scores(turns(target, released(target, w, trials, f"{stream}/{i}"))) for i, w in enumerate(target.worlds)
    ]
    return {name: (sides[0][name], sides[1][name]) for name in names}


def weight_scores(target: Target, trials: int, stream: str) -> Scores:
    """Return the scores of an attacker who sees the weights before the first step and after the last.

    All updates are kept. The optimizer of every trial has its own copy of the weights, [trials, *shape]. Gradients must
    not depend on them, so the network has one layer.
    """
    sides = []
    for i, world in enumerate(target.worlds):
        steps = released(target, world, trials, f"{stream}/{i}")
        weights = {name: nn.Parameter(torch.zeros_like(release)) for name, release in steps[0].items()}
        updates = Updates(torch.optim.SGD(weights.values(), lr=1.0))
        for step in steps:
            for name, parameter in weights.items():
                parameter.grad = step[name]
            updates.step()
        sides.append({name: -p.detach() for name, p in weights.items()})
    seer = _Seer(target, stream)
    out, within = (seer.projected(side, offset=target.setting.steps) for side in sides)
    return {"change": (out, within)}


def statistics_scores(statistics: PrivateStatistics, trials: int, stream: str) -> tuple[Scores, Ledger]:
    """Return the scores of an attacker who reads the constants of a normalisation, and the cost of one set-up.

    The canary is at both bounds, or zero. The others have means of zero and mean squares at the bound. They are
    numerous enough that no variance is rounded up, so the two noisy means follow from the constants.
    """
    examples = torch.tensor([1e3, -1e3]).expand(100, 2, 2).unsqueeze(3)
    noise = generator(0, f"{stream}/noise", _CPU)
    layer, ledger, sides = statistics.layer(2), Ledger(), []
    assert isinstance(layer, Standardize)
    norms = np.array([[statistics.mean_norm], [statistics.square_norm]])
    for canary in (0.0, 1e3):
        features = torch.cat([examples, torch.full((1, 2, 2, 1), canary)])
        seen = np.empty((trials, 2, 2))
        for trial in range(trials):
            ledger = Ledger()
            statistics.fit(layer, features, noise, ledger)
            mean = layer.mean.flatten().double()
            seen[trial] = np.stack([mean, layer.std.flatten().double().square() + mean.square()])
        sides.append((seen / norms).sum((1, 2)))
    return {"sum": (sides[0], sides[1])}, ledger


class _Seer:
    """An attacker that projects releases on the canary's direction, every coordinate in units of its noise.

    The attacker measures the noise in its own trials of an empty batch, without trusting the mechanism's statements. A
    projection is 0 on average without the canary in the batch, and 1 with it.
    """

    def __init__(self, target: Target, stream: str) -> None:
        setting, mechanism = target.setting, target.mechanism
        everyone = list(range(setting.examples))
        batch = everyone if setting.everyone else everyone[-setting.batch_size :]
        if not setting.everyone and mechanism.neighbouring_relation == "add-or-remove-one":
            batch = everyone[-1:]
        quiet = replace(mechanism, noise_multiplier=0.0)
        means = [quiet.release(target.sums(world, batch), Generator()) for world in target.worlds]
        self.without = means[0]
        empty = {name: torch.zeros(_PILOT, *mean.shape) for name, mean in self.without.items()}
        pilot, past = generator(0, f"{stream}/pilot", _CPU), PastNoise(mechanism.coefficients)
        (noise,) = turns(target, [mechanism.release(empty, pilot, past) for _ in mechanism.coefficients])
        self.direction, square = {}, 0.0
        for name, without in self.without.items():
            shift = means[1][name] - without
            variance = noise[name].double().var().item()
            self.direction[name] = shift / variance
            square += float((shift * self.direction[name]).sum())
        self.square = square
        self.rate = mechanism.sampling_rate

    def projected(self, seen: dict[str, Tensor], offset: float = 1.0) -> Array:
        """Project a release, after subtracting `offset` times the release without the canary: [trials]."""
        total = sum(
            ((seen[name] - offset * self.without[name]) * direction).flatten(1).sum(1)
            for name, direction in self.direction.items()
        )
        assert isinstance(total, Tensor)
        return total.double().numpy() / self.square

    def scores(self, steps: list[dict[str, Tensor]]) -> dict[str, Array]:
        """Return, over all steps, the log-likelihood ratio and the largest difference between two steps."""
        seen = np.stack([self.projected(step) for step in steps])
        losses = self.square * (seen - 0.5)
        if self.rate < 1:
            losses = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + losses)
        return {"likelihood": losses.sum(0), "difference": seen.max(0) - seen.min(0)}
