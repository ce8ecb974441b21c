"""Attacks: many independent trials of a target in both worlds, by an attacker who knows all but the canary.

Attackers know the code, the weights, all other examples and every number of the configuration. They know neither the
noise, nor the sampled batches, nor the presence of the canary. Everything random is the project's own: the mechanism
draws the batches, and its `release` draws the noise, for many trials at once, as a leading dimension. The sums of a
batch are computed once. This is valid because weights change only at the end of an attack, or gradients do not depend
on them. A trial is one draw of batches and noise, so that a million of them, in chunks, take seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Generator, Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from checks.audit.bounds import Array, Scores
from checks.audit.targets import Target, World, option
from runner.accounting import Ledger
from runner.config import Sampling
from runner.mechanism.banded import Banded
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import PastNoise, generator
from runner.mechanism.statistics import PrivateStatistics, Standardize
from runner.training.averaging import Averaging, averaged, initial_average
from runner.training.updates import Schedule, Updates

_CPU = torch.device("cpu")
_Sums = dict[int, dict[str, Tensor]]  # of batches, by the sum of 2^i over their examples i
_View = Callable[[list[dict[str, Tensor]]], list[dict[str, Tensor]]]  # from releases to what is seen
_PLAIN_RATE = 1e6
_PLAIN_STEP = {"adam": {"eps": _PLAIN_RATE}, "adam_bc": {"floor": _PLAIN_RATE**2}}
_PILOT = 4000  # trials from which an attacker learns the noise
_CHUNK = 50_000  # trials at a time, so that a release of all of them fits into 50 MB


def released(
    target: Target, world: World, trials: int, stream: str, cache: _Sums | None = None
) -> list[dict[str, Tensor]]:
    """Return the release of each step, by parameter [trials, *shape]: a list of steps.

    `cache`: sums of this world's batches by their codes, to which new ones are added.
    """
    sampling, noise = (generator(0, f"{stream}/{purpose}", _CPU) for purpose in ("sampling", "noise"))
    bits = 2 ** torch.arange(target.setting.examples)
    codes = torch.stack([members.long() @ bits for members in joined(target, trials, sampling)])
    batches, numbers = codes.unique(return_inverse=True)
    cache = {} if cache is None else cache
    for code in batches.tolist():
        if code not in cache:
            cache[code] = target.sums(world, (code & bits).nonzero().flatten().tolist())
    sums = [cache[code] for code in batches.tolist()]
    parts = {name: torch.stack([part[name] for part in sums]) for name in sums[0]}
    past = PastNoise(target.mechanism.coefficients)
    return [
        target.mechanism.at(step).release({name: part[number] for name, part in parts.items()}, noise, past)
        for step, number in enumerate(numbers)
    ]


def joined(target: Target, trials: int, sampling: Generator) -> list[Tensor]:
    """Return who joins the batch of each step, [trials, examples] truth values: a list of steps.

    Each trial begins with an epoch. Poisson batches of K trials come from one call of the mechanism's own
    `memberships`, for K N examples and the expected size K B. Its uniforms U_1, ..., U_KN are independent, and example
    i joins if U_i < q, with q = K B / (K N) = B / N. The numbers from k N to (k + 1) N are trial k. So its coins have
    the rate of the mechanism and are independent of all others, which is all that K calls with N examples would give.
    Steps and epochs draw anew in either case. `sampling_rate` and `steps_per_epoch` have B and N in quotients alone,
    so a wrong rate in the class is also the rate here. Fixed, equal parts of banded noise are public and the same in
    all trials. Independent parts differ by trial. The attacker is told the canary's, as the proof of the charge allows,
    and only the trials with part 0 are returned: it is the part that takes most turns. If the mechanism has more
    examples than the setting, whose others have no gradients, the coins of one call are those of many trials.

    This needs coins that are independent. A batch of exactly K B of the K N examples would look nearly like Poisson
    sampling in a single trial. So shuffled batches, and all that another class draws, are drawn trial by trial. (If
    coins of one class were not independent, its tests in tests/mechanism would say so.)
    """
    mechanism, steps, n = target.mechanism, target.setting.steps, target.setting.examples
    if mechanism.sampling is Sampling.poisson and _flips_coins(type(mechanism)):
        times = math.ceil(trials * n / mechanism.examples)  # `trials`, if the mechanism's examples are the setting's
        many = replace(mechanism, examples=times * mechanism.examples, batch_size=times * mechanism.batch_size)
        if isinstance(mechanism, Banded) and mechanism.parts is None:
            vars(many)["equal_parts"] = mechanism.equal_parts.repeat(times)
        chosen = torch.ones(trials, dtype=torch.bool)
        if isinstance(many, Banded):
            chosen = many.part_of(sampling)[: trials * n].view(trials, n)[:, -1] == 0
        epochs = chain.from_iterable(many.memberships(s) for s in repeat(sampling))
        return [members[: trials * n].view(trials, n)[chosen] for members in islice(epochs, steps)]
    members = torch.zeros(steps, trials, n, dtype=torch.bool)
    for trial in range(trials):
        batches = chain.from_iterable(mechanism.batches(s) for s in repeat(sampling))
        for step, batch in enumerate(islice(batches, steps)):
            members[step, trial, batch] = True
    return list(members)


def _flips_coins(kind: type[Mechanism]) -> bool:
    """Return True if the class draws its batches by the code that `joined` speaks of."""
    return kind.batches is Mechanism.batches and kind.memberships in (Mechanism.memberships, Banded.memberships)


def _chunks(target: Target, trials: int, stream: str) -> Iterator[tuple[int, str]]:
    """Yield the number of trials and the stream of each chunk: fewer than usual if there are more than ten steps."""
    most = max(_CHUNK // 10, _CHUNK // math.ceil(target.setting.steps / 10))
    yield from ((min(most, trials - begin), f"{stream}/{begin}") for begin in range(0, trials, most))


def turns(target: Target, steps: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Return all that whole cycles of b releases show of the canary, an example of part 0: a release for each turn.

    The attacker multiplies the releases by C, which leaves independent noise. Row k of a turn has c_k times the
    canary's contribution. The mean with weights c_k is a sufficient statistic. Without bands it is the release itself.

    Raises:
        ValueError: the canary is in another part.
    """
    c = target.mechanism.coefficients
    if len(next(iter(steps[0].values()))) == 0:
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
    return _scores(target, trials, stream, lambda steps: steps)


def all_weights_scores(target: Target, trials: int, stream: str) -> Scores:
    """Return the scores of an attacker who sees the weights after every step, or their average if there is one.

    The setting's schedule and average are applied as in a run. The attacker inverts both, since their numbers are
    public: w_t = w_(t-1) - lr_t y_t for the release y_t, and a_t = a_(t-1) + s_t (w_t - a_(t-1)) for the average. A
    step of rate zero shows nothing. Gradients must not depend on weights, so the network has one layer.
    """
    return _scores(target, trials, stream, lambda steps: _inverted(target, steps))


def _scores(target: Target, trials: int, stream: str, view: _View) -> Scores:
    seer = _Seer(target, stream)
    names = ["likelihood", "difference"] if target.setting.steps > 1 else ["likelihood"]
    sides = []
    for i, world in enumerate(target.worlds):
        cache: _Sums = {}
        parts = [
            seer.scores(turns(target, view(released(target, world, count, part, cache))))
            for count, part in _chunks(target, trials, f"{stream}/{i}")
        ]
        sides.append({name: np.concatenate([part[name] for part in parts]) for name in names})
    return {name: (sides[0][name], sides[1][name]) for name in names}


def _inverted(target: Target, steps: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Train on the releases, and return what the weights of all steps show of them."""
    setting = target.setting
    weights = {name: nn.Parameter(torch.zeros_like(release)) for name, release in steps[0].items()}
    optimizer = torch.optim.SGD(weights.values(), lr=1.0)
    updates, schedule = Updates(optimizer), Schedule(_scheduler(setting.option_of("schedule"), optimizer, len(steps)))
    name = setting.option_of("averaging")
    averaging: Averaging = instantiate(option("averaging", name)) if name else Averaging(0.0)
    average = initial_average(list(weights.values()))
    before = average_before = [w.detach().clone() for w in weights.values()]
    seen = []
    for number, step in enumerate(steps):
        if number % target.mechanism.steps_per_epoch == 0:
            schedule.start_epoch()
        schedule.start_step()
        rate = optimizer.param_groups[0]["lr"]
        for key, parameter in weights.items():
            parameter.grad = step[key]
        updates.step()
        average = averaged(averaging, average, [w.detach() for w in weights.values()])
        share = float(averaging.share(average[0]))
        after = [old + (new - old) / share for old, new in zip(average_before, average[1:], strict=True)]
        if rate > 0:
            shown = [(old - new) / rate for old, new in zip(before, after, strict=True)]
            seen.append(dict(zip(weights, shown, strict=True)))
        before, average_before = after, average[1:]
    return seen


def _scheduler(name: str, optimizer: torch.optim.Optimizer, steps: int) -> LRScheduler | None:
    config: Any = option("schedule", name) if name else {}
    if "_target_" not in config:
        return None
    config = OmegaConf.to_container(OmegaConf.merge({"epochs": steps}, config), resolve=True)
    del config["epochs"]
    make: partial[LRScheduler] = instantiate(config)
    return make(optimizer, steps=steps) if getattr(make.func, "by_step", False) else make(optimizer)


def weight_scores(target: Target, trials: int, stream: str) -> Scores:
    """Return the scores of an attacker who sees the weights before the first step and after the last.

    All updates are kept. The optimizer of every trial has its own copy of the weights, [trials, *shape]. Gradients must
    not depend on them, so the network has one layer. The configuration is the attacker's: the first step of an
    optimizer that divides by root mean squares is the release itself, if these have a large number added or as their
    least value (`_PLAIN_STEP`).
    """
    seer = _Seer(target, stream)
    sides = []
    for i, world in enumerate(target.worlds):
        cache: _Sums = {}
        parts = [
            seer.projected(_change(target, released(target, world, count, part, cache)), offset=target.setting.steps)
            for count, part in _chunks(target, trials, f"{stream}/{i}")
        ]
        sides.append(np.concatenate(parts))
    return {"change": (sides[0], sides[1])}


def _change(target: Target, steps: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return how far all steps move the weights, with its sign turned round."""
    weights = {name: nn.Parameter(torch.zeros_like(release)) for name, release in steps[0].items()}
    name = target.setting.option_of("optimizer")
    make = instantiate(option("optimizer", name), **_PLAIN_STEP.get(name, {})) if name else torch.optim.SGD
    optimizer = make(weights.values(), lr=_PLAIN_RATE if name in _PLAIN_STEP else 1.0)
    if hasattr(optimizer, "take_noise"):
        std = target.mechanism.noise_of_mean()
        optimizer.take_noise({parameter: std[key] for key, parameter in weights.items()})
    updates = Updates(optimizer)
    for step in steps:
        for name, parameter in weights.items():
            parameter.grad = step[name]
        updates.step()
    return {name: -p.detach() for name, p in weights.items()}


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

    The attacker measures the noise in its own trials of an empty batch, without trusting the mechanism's statements. If
    noise changes by step, its ratio to the first step's is public. A projection is 0 on average without the canary in
    the batch, and 1 with it.
    """

    def __init__(self, target: Target, stream: str) -> None:
        setting, mechanism = target.setting, target.mechanism.at(0)
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
        later = [target.mechanism.at(step).noise_multiplier for step in range(setting.steps)]
        self.shares = (np.array(later) / later[0]) ** -2 if later[0] > 0 else np.ones(len(later))

    def projected(self, seen: dict[str, Tensor], offset: float = 1.0) -> Array:
        """Project a release, after subtracting `offset` times the release without the canary: [trials]."""
        total = sum(
            ((seen[name] - offset * self.without[name]) * direction).reshape(len(seen[name]), -1).sum(1)
            for name, direction in self.direction.items()
        )
        assert isinstance(total, Tensor)
        return total.double().numpy() / self.square

    def scores(self, steps: list[dict[str, Tensor]]) -> dict[str, Array]:
        """Return, over all steps, the log-likelihood ratio and the largest difference between two steps."""
        seen = np.stack([self.projected(step) for step in steps])
        losses = self.square * self.shares[: len(seen), None] * (seen - 0.5)
        if self.rate < 1:
            losses = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + losses)
        return {"likelihood": losses.sum(0), "difference": seen.max(0) - seen.min(0)}
