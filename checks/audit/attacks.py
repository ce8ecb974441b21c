"""Attacks: many independent trials of a target in both worlds, by an attacker who knows all but the canary.

Attackers know the code, the weights, all other examples and every number of the configuration. They know neither the
noise, nor the sampled batches, nor the presence of the canary. Everything random is the project's own: the mechanism
draws the batches, and its `release` draws the noise, for many trials at once, as a leading dimension. The sums of a
batch are computed once. This is valid because weights change only at the end of an attack, or gradients do not depend
on them. A trial is one draw of batches and noise, so that a million of them, in chunks, take seconds.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Generator, Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from checks.audit.bounds import Array, Scores
from checks.audit.targets import Setting, Target, World, option, target
from runner.accounting import Ledger
from runner.clipping import gradient_sum
from runner.config import Sampling
from runner.data.datasets import Split
from runner.gradients import Objective, OnePassEngine
from runner.mechanism.banded import Banded
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import PastNoise, generator
from runner.mechanism.statistics import PrivateStatistics, Standardize
from runner.training.averaging import Averaging, averaged, initial_average
from runner.training.updates import Schedule, Updates
from runner.training.updates.screened import Annealing, Screening

_CPU = torch.device("cpu")
_Sums = dict[int, dict[str, Tensor]]  # of batches, by the sum of 2^i over their examples i
_PLAIN_RATE = 1e6
_PLAIN_STEP = {"adam": {"eps": _PLAIN_RATE}, "adam_bc": {"floor": _PLAIN_RATE**2}}
_PILOT = 4000  # trials from which an attacker learns the noise
_CHUNK = 50_000  # trials at a time, so that a release of all of them fits into 50 MB
_DROP = 10.0  # of the logit, between the two losses that screening sees
_TEMPERATURE = 100.0


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


def turns(target: Target, steps: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Return all that whole cycles of b releases show of the canary, an example of part 0: a release for each turn.

    The attacker multiplies the releases by C, which leaves independent noise. Row k of a turn has c_k times the
    canary's contribution. The mean with weights c_k is a sufficient statistic. Without bands it is the release itself.

    Raises:
        ValueError: the canary is in another part.
    """
    c, seen = target.mechanism.coefficients, []
    if len(next(iter(steps[0].values()))) == 0:
        raise ValueError("Expected the canary in part 0: choose another number of examples.")
    for first in range(0, len(steps), len(c)):
        means = {name: torch.zeros_like(release) for name, release in steps[0].items()}
        for row, weight in enumerate(c, start=first):
            for back, coefficient in enumerate(c[: row + 1]):
                for name, total in means.items():
                    means[name] = total + weight * coefficient * steps[row - back][name]
        seen.append({name: total / sum(coefficient**2 for coefficient in c) for name, total in means.items()})
    return seen


def attack_scores(target: Target, trials: int, stream: str) -> Scores:
    """Return the scores of an attacker who sees the releases of all steps, or weights (`Setting.sees`).

    "all weights" are those after every step, or their average if there is one. The setting's schedule and average are
    applied as in a run. The attacker inverts both, since their numbers are public: w_t = w_(t-1) - lr_t y_t for the
    release y_t, and a_t = a_(t-1) + s_t (w_t - a_(t-1)) for the average. A step of rate zero shows nothing. "weights"
    are those before the first step and after the last. Gradients must not depend on weights, so the network has one
    layer then.
    """
    seer = _Seer(target, stream)

    def scores(steps: list[dict[str, Tensor]]) -> dict[str, Array]:
        if target.setting.sees == "releases":
            return seer.scores(turns(target, steps))
        after = list(_trained(target, steps))
        if target.setting.sees == "all weights":
            return seer.scores(turns(target, _inverted(list(steps[0]), after)))
        change = {name: -weight for name, weight in zip(steps[0], after[-1].weights, strict=True)}
        return {"change": seer.projected(change, offset=len(steps))}

    sides = []
    chunk = max(_CHUNK // 10, _CHUNK // math.ceil(target.setting.steps / 10))  # fewer if there are more than ten steps
    for i, world in enumerate(target.worlds):
        cache: _Sums = {}
        parts = [
            scores(released(target, world, min(chunk, trials - begin), f"{stream}/{i}/{begin}", cache))
            for begin in range(0, trials, chunk)
        ]
        sides.append({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return {name: (sides[0][name], sides[1][name]) for name in sides[0]}


class _After(NamedTuple):
    """What a step leaves: the rate it had, the newest weights' share in the average, and the weights or the average."""

    rate: float
    share: float
    weights: list[Tensor]


def _trained(target: Target, steps: list[dict[str, Tensor]]) -> Iterator[_After]:
    """Train from zero on the releases of many trials, each with its own copy of the weights, [trials, *shape].

    All updates are kept. The configuration is the attacker's: the first step of an optimizer that divides by root mean
    squares is the release itself, if these have a large number added or as their least value (`_PLAIN_STEP`).
    """
    setting = target.setting
    weights = {name: nn.Parameter(torch.zeros_like(release)) for name, release in steps[0].items()}
    name, mean = setting.option_of("optimizer"), setting.option_of("averaging")
    make = instantiate(option("optimizer", name), **_PLAIN_STEP.get(name, {})) if name else torch.optim.SGD
    optimizer = make(weights.values(), lr=_PLAIN_RATE if name in _PLAIN_STEP else 1.0)
    if hasattr(optimizer, "take_noise"):
        std = target.mechanism.noise_of_mean()
        optimizer.take_noise({parameter: std[key] for key, parameter in weights.items()})
    updates, schedule = Updates(optimizer), Schedule(_scheduler(setting.option_of("schedule"), optimizer, len(steps)))
    averaging: Averaging = instantiate(option("averaging", mean)) if mean else Averaging(0.0)
    average = initial_average(list(weights.values()))
    for number, step in enumerate(steps):
        if number % target.mechanism.steps_per_epoch == 0:
            schedule.start_epoch()
        schedule.start_step()
        for key, parameter in weights.items():
            parameter.grad = step[key]
        rate = optimizer.param_groups[0]["lr"]
        updates.step()
        average = averaged(averaging, average, [weight.detach() for weight in weights.values()])
        yield _After(rate, float(averaging.share(average[0])), average[1:])


def _inverted(names: list[str], after: list[_After]) -> list[dict[str, Tensor]]:
    """Return the releases that the weights, or their averages, show after steps that begin at zero."""
    before = average = [torch.zeros_like(weight) for weight in after[0].weights]
    seen = []
    for rate, share, shown in after:
        weights = [old + (new - old) / share for old, new in zip(average, shown, strict=True)]
        if rate > 0:
            moved = [(old - new) / rate for old, new in zip(before, weights, strict=True)]
            seen.append(dict(zip(names, moved, strict=True)))
        before, average = weights, shown
    return seen


def _scheduler(name: str, optimizer: torch.optim.Optimizer, steps: int) -> LRScheduler | None:
    config: Any = option("schedule", name) if name else {}
    if "_target_" not in config:
        return None
    config = OmegaConf.to_container(OmegaConf.merge({"epochs": steps}, config), resolve=True)
    del config["epochs"]
    make: partial[LRScheduler] = instantiate(config)
    return make(optimizer, steps=steps) if getattr(make.func, "by_step", False) else make(optimizer)


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
        alone = mechanism.neighbouring_relation == "add-or-remove-one" and not setting.everyone
        batch = list(range(setting.examples))[-1 if alone else -setting.batch_size :]
        quiet = replace(mechanism, noise_multiplier=0.0)
        self.without, within = (quiet.release(target.sums(world, batch), Generator()) for world in target.worlds)
        empty = {name: torch.zeros(_PILOT, *mean.shape) for name, mean in self.without.items()}
        pilot, past = generator(0, f"{stream}/pilot", _CPU), PastNoise(mechanism.coefficients)
        (noise,) = turns(target, [mechanism.release(empty, pilot, past) for _ in mechanism.coefficients])
        shifts = {name: within[name] - without for name, without in self.without.items()}
        self.direction = {name: shift / noise[name].double().var().item() for name, shift in shifts.items()}
        self.square = sum(float((shift * self.direction[name]).sum()) for name, shift in shifts.items())
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
        difference = {"difference": seen.max(0) - seen.min(0)} if len(self.shares) > 1 else {}
        return {"likelihood": losses.sum(0), **difference}


@dataclass(frozen=True)
class Screened:
    """An attack on screening: each released update is the candidate that was kept, which reveals more than a candidate.

    The configuration is the attacker's: learning rate 1 and weight decay 1. So the only weight after a step is minus
    the release, independent of the weight before: y = x + N(0, sigma^2), with x = 1 if the canary is there and 0 if
    not. The loss on the (public) screening images is low for |y - 1/2| > t and high between, and flat in both. From a
    weight of low loss, screening keeps a candidate outside, and draws again otherwise. So every kept weight has the
    density of y given |y - 1/2| > t, independently of the weights before. The likelihood ratio of x = 0 and x = 1 is a
    Gaussian's, but uninformative weights near 1/2 never occur. The score is the sum of the kept weights.

    The attack begins in the middle of a run, from a weight of low loss and one kept update. A run keeps its first
    update in any case. A candidate that is kept after many rejections may have a high loss, and candidates of high loss
    may follow. The chance is below 1e-6 here, and the attack checks for it.

    Attributes:
        kept: the number of kept steps.
        noise_multiplier: sigma.
        threshold: half the width of the rejected range, t / sigma.
        rejections: before a candidate is kept in any case.
    """

    kept: int
    noise_multiplier: float
    threshold: float
    rejections: int = 1000

    @property
    def target(self) -> Target:
        """The mechanism under attack: every batch is the whole data set, which is the canary or empty."""
        return target(Setting("flat", examples=1, batch_size=1), self.noise_multiplier)

    @property
    def ledger(self) -> Ledger:
        """The largest cost of a trial, as the runner guarantees it, and the claim: the kept updates alone."""
        mechanism, ledger = self.target.mechanism, Ledger()
        for _ in range(self.kept):
            for number in range(self.rejections + 1):
                mechanism.charge_step(ledger, 0, kept=number == self.rejections)
        return ledger

    def scores(self, trials: int, stream: str) -> Scores:
        """Return the scores of an attacker who sees the kept weights."""
        without, within = (
            self._kept_weights(trials * self.kept, canary, f"{stream}/{canary}").reshape(trials, self.kept).sum(1)
            for canary in (False, True)
        )
        return {"sum": (without, within)}

    def _kept_weights(self, count: int, canary: bool, stream: str) -> Array:
        streams = (f"{stream}/{purpose}" for purpose in ("sampling", "noise", "screening"))
        sampling, noise, draws = (generator(0, name, _CPU) for name in streams)
        half_width = self.threshold * self.noise_multiplier
        weight = nn.Linear(1, 1, bias=False)
        weight.weight.data.fill_(1 + half_width)
        objective = Objective(nn.Sequential(weight, _Wells(half_width)), _Steep())
        clipping = self.target.clipping
        mechanism = replace(self.target.mechanism, noise_groups=clipping.noise_groups(objective))
        optimizer = torch.optim.SGD(objective.parameters(), lr=1.0, weight_decay=1.0)
        limits = {"initial_temperature": _TEMPERATURE, "rejection_threshold": self.rejections}
        rule: Annealing = instantiate(option("screening", "annealing"), **limits)
        image = Split(torch.ones(1, 1), torch.zeros(1, dtype=torch.long))
        screening = Screening(rule, objective, Updates(optimizer), image, draws)
        screening.accepted = 1
        screening.start_epoch()
        engine, present = OnePassEngine(objective), int(canary)
        total = gradient_sum(clipping, engine, torch.ones(present, 1), torch.zeros(present), 1).gradients
        weights: list[float] = []
        while len(weights) < count:
            (_,) = mechanism.batches(sampling)
            release = mechanism.release(total, noise)
            for name, parameter in objective.named_parameters():
                parameter.grad = release[name]
            if screening.step():
                weights.append(weight.weight.item())
        if screening.forced:
            raise RuntimeError("An update was kept because of the rejections before it: trials are not independent.")
        return np.array(weights)


class _Wells(nn.Module):
    """Logits (h, 0) of a weight [batch, 1]: h is 0 between the wells and _DROP in them, and has a slope of 1e-6.

    The training loss's gradient comes from the slope, which is negligible for the screening loss.
    """

    def __init__(self, half_width: float) -> None:
        super().__init__()
        self.half_width = half_width

    def forward(self, weights: Tensor) -> Tensor:
        h = _DROP * ((weights - 0.5).abs() > self.half_width) + 1e-6 * weights
        return torch.cat([h, torch.zeros_like(h)], dim=1)


class _Steep(nn.Module):
    """A training loss whose gradient is far above the clipping norm, with a constant direction."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return -1e12 * logits[:, 0]
