"""White-box canaries in one real run: how much its releases tell of examples that joined it by a coin.

A run of a committed setting is prepared and trained by the package: its sampler, clipping, sums, noise, updates and
checkpoints. Of its N examples, k are canaries. Each of them joined with probability 1/2, by its own coin. One that did
not join contributes zero, which with Poisson batches is the same as not being there.

The gradient of canary j is far above every bound, in a direction e_j: one coordinate of the weights in each noise group
that has k coordinates. So the clipping makes it exactly as long as the sensitivity allows, and canaries are orthogonal.
Their number costs the run little: the sum of those in a batch is short next to the noise.

The attacker sees the weights before every step, and knows everything but the coins, the noise and which steps the
canaries joined. It even knows the batches of all other examples, and subtracts their sum. (The others' coins are
independent of the canary's, so given them a step is still one Gaussian, sampled at the rate q, as the ledger charges.)
What is left along e_j is

    x = [j joined the run and this batch] + z,    z ~ N(0, sigma^2),    1 / sigma^2 = sum_g S_g^2 / std_g^2,

with the sum over the groups that the canary reaches. So the log-likelihood ratio of in to out is, in float64,

    sum_t ln(1 - q + q exp((x_t - 1/2) / sigma^2)).

If the quartiles of all x_t show clearly less noise than is charged, the attacker takes the measured sigma of the step.
`audit.one_run` turns the ratios of all canaries into a lower bound. Reading weights leaves rounding errors of about
1e-5 of the noise.
"""

import io
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from checks.audit.bounds import Array, Found, lower_bounds
from runner.accounting import Releases
from runner.build.prepare import prepare
from runner.clipping import Clipping, NoiseGroup, gradient_sum
from runner.config import StepMode
from runner.data.datasets import Split
from runner.gradients import Engine, GradientSum, MappedEngine, Objective, OnePassEngine
from runner.records.identity import resolved
from runner.records.jobs import composed
from runner.training.graph.network import MaskedEngine
from runner.training.loop import Trained, load, training
from runner.training.run import Run, State

ABSENT = -1  # the target of a canary that did not join
_STRONG = 1e3  # a canary's gradient, in sensitivities
_PIXEL = 1e6  # of a canary that is an example of the data set
_LARGEST = 700.0  # exponent in float64
_QUARTILES = 1.349  # their distance, in standard deviations of normal noise
_CLEARLY, _LEAST_NOISE = 0.8, 1e-2  # of the charged noise; in sensitivities
_EVERYWHERE = ("tracking=disabled", "runtime.device=cpu", "diagnostics=[]")


class CanaryLoss(nn.Module):
    """A loss as a user may write it: cross-entropy, but a canary's own logit, and nothing for one that is absent.

    The gradient of a canary with one non-zero feature is one column of a linear model's weights.
    """

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Map logits [batch, classes] and targets [batch] to losses [batch]. Targets from `classes` on are canaries."""
        ordinary = F.cross_entropy(logits, targets.clamp(0, self.classes - 1), reduction="none")
        selected = logits.gather(1, (targets - self.classes).clamp(0, self.classes - 1)[:, None])[:, 0]
        losses = torch.where(targets >= self.classes, selected, ordinary)
        return torch.where(targets == ABSENT, torch.zeros_like(losses), losses)


@dataclass(frozen=True)
class Canaries:
    """The canaries of a run.

    Attributes:
        joined: [k], truth values.
        members: [k], their indices in the training set.
        places: for each noise group that they reach, a coordinate for each of them [k], in the group's parameters laid
            end to end.
        classes: the number of classes: canary j has the target `classes` + j if it joined, else `ABSENT`.
    """

    joined: Tensor
    members: Tensor
    places: dict[NoiseGroup, Tensor]
    classes: int

    @classmethod
    def draw(cls, run: Run, count: int, seed: int, *, real: bool = False) -> "Canaries":
        """Draw the coins, the indices and the coordinates of canaries. `real` ones have none in the biases at the end.

        Raises:
            ValueError: no noise group has so many coordinates.
        """
        draws = torch.Generator().manual_seed(seed)
        sizes = {name: p.numel() for name, p in run.initial.named_parameters()}
        lengths = {group: sum(sizes[name] for name in group.parameters) for group in run.mechanism.noise_groups}
        places = {
            group: torch.randperm(length - real * run.dataset.classes, generator=draws)[:count]
            for group, length in lengths.items()
            if length >= count
        }
        if not places:
            raise ValueError(f"No noise group has {count} coordinates: take fewer canaries.")
        # The first two examples stay: the graph tries its sums on them.
        members = torch.randperm(run.mechanism.examples - 2, generator=draws)[:count] + 2
        return cls(torch.rand(count, generator=draws) < 0.5, members, places, run.dataset.classes)

    def among(self, targets: Tensor) -> Tensor:
        """Return which targets [batch] are those of canaries, joined or absent."""
        return (targets >= self.classes) | (targets == ABSENT)

    def gradients(self, rows: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the gradients of canaries, by parameter name [batch, *shape], for their numbers `rows` [batch]."""
        gradients = {name: p.new_zeros(len(rows), *p.shape) for name, p in like.items()}
        for group, places in self.places.items():
            flat = torch.zeros(len(rows), sum(like[name].numel() for name in group.parameters))
            flat[torch.arange(len(rows)), places[rows]] = _STRONG * group.sensitivity
            parts = flat.split([like[name].numel() for name in group.parameters], dim=1)
            gradients |= {name: p.view_as(gradients[name]) for name, p in zip(group.parameters, parts, strict=True)}
        return gradients


class CanaryEngine(MappedEngine):
    """An engine whose examples are canaries that joined. Clips and cuts are those of `MappedEngine`."""

    def __init__(self, objective: Objective, canaries: Canaries) -> None:
        super().__init__(objective)
        self._canaries = canaries

    def gradients(self, inputs: Tensor, targets: Tensor, within: Any = None) -> tuple[dict[str, Tensor], Tensor]:
        rows = targets - self._canaries.classes
        return self._canaries.gradients(rows, self._parameters), torch.zeros(len(targets))


class Attacker:
    """An attacker that reads the weights before each step and adds up log-likelihood ratios: see the module's text.

    Attributes:
        scores: [k], log-likelihood ratios of in to out.
        steps: the number of releases seen.
        share: the squared shift that canaries reach, of the one that is charged.
    """

    def __init__(self, run: Run, canaries: Canaries) -> None:
        self._canaries, self._mechanism, self._optimizer = canaries, run.mechanism, run.config.optimizer
        self.scores, self.steps = np.zeros(len(canaries.joined)), 0
        self._squares = {g: (g.sensitivity / run.mechanism.noise_std(g)) ** 2 for g in canaries.places}
        self.share = sum(self._squares.values()) * run.mechanism.noise_multiplier**2
        # From weights, a release follows for SGD. Other updates are read by the gradient that the optimizer gets.
        plain = run.config.schedule is None and run.initial.constraint is None
        self._by_weights = plain and self._optimizer["_target_"] == "torch.optim.SGD"
        self._velocity: dict[NoiseGroup, Tensor] = {}
        self._before: dict[NoiseGroup, Tensor] = {}
        self._known: dict[NoiseGroup, Tensor] = {}

    def _along(self, tensors: Mapping[str, Tensor]) -> dict[NoiseGroup, Tensor]:
        """Return the canaries' coordinates of tensors by parameter name, by group [k], float64."""
        return {
            group: torch.cat([tensors[name].detach().flatten() for name in group.parameters])[places].double()
            for group, places in self._canaries.places.items()
        }

    def look(self, objective: Objective, others: dict[str, Tensor] | None = None) -> None:
        """Look at the weights before a step, whose other examples sum to `others`, or after the last step.

        A look at weights that have not changed is of the same step: the first batch is summed several times.
        """
        parameters = dict(objective.named_parameters())
        weights = self._along(parameters)
        if any(not torch.equal(weights[group], before) for group, before in self._before.items()):
            if self._by_weights:  # the velocity of SGD is the noisy mean, and momentum times the velocity before
                velocity = {group: (self._before[group] - weights[group]) / self._optimizer.lr for group in weights}
                earlier = {group: self._optimizer.momentum * v for group, v in self._velocity.items()}
                self._add({group: v - earlier.get(group, 0.0) for group, v in velocity.items()})
                self._velocity = velocity
            else:
                self._add(self._along({name: p.grad for name, p in parameters.items() if p.grad is not None}))
        self._before = weights
        self._known = {} if others is None else self._along(others)

    def _add(self, releases: dict[NoiseGroup, Tensor]) -> None:
        exponent = np.zeros(len(self.scores))
        for group, release in releases.items():
            seen = ((release * self._mechanism.denominator - self._known[group]) / group.sensitivity).numpy()
            exponent += self._square(group, seen) * (seen - 0.5)
        self.scores += ratio(exponent, self._mechanism.sampling_rate)
        self.steps += 1

    def _square(self, group: NoiseGroup, seen: Array) -> float:
        """Return the inverse variance of a group's noise: as charged, or as measured if it is clearly too small.

        Most canaries are not in a batch, so the quartiles of what is seen are those of the noise.
        """
        low, high = np.quantile(seen, [0.25, 0.75])
        spread = max(_LEAST_NOISE, (high - low) / _QUARTILES)
        charged = self._squares[group]
        return charged if spread**2 * charged > _CLEARLY**2 else 1 / spread**2


def ratio(exponent: Array, sampling_rate: float) -> Array:
    """Return ln(1 - q + q e^exponent), elementwise, in float64."""
    losses: Array = np.log1p(sampling_rate * np.expm1(np.minimum(exponent, _LARGEST)))
    return losses


_one_pass = cache(OnePassEngine)  # of the attacker, one for each objective


class _Observed:
    """A run's clipping, with canaries among the examples, and an attacker who knows the sum of the others.

    Canaries are examples of the data set (`real`), or gradients that the clipping gets instead of theirs. For real ones
    the attacker computes the sum of the others by the one-pass engine, which is faster than the isolated one.
    """

    def __init__(self, clipping: Clipping, canaries: Canaries, attacker: Attacker, real: bool) -> None:
        self._clipping, self._canaries, self._attacker, self._real = clipping, canaries, attacker, real
        self.needs_engine, self.sums_by_engine = clipping.needs_engine, clipping.sums_by_engine
        self.noise_groups = clipping.noise_groups

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        among, joined = self._canaries.among(targets), targets >= self._canaries.classes
        if isinstance(engine, MaskedEngine):
            joined = joined & engine.mask
            engine = replace(engine, mask=engine.mask & ~among)
            ordinary = self._clipping.sum_contributions(engine, inputs, targets.masked_fill(among, 0), groups)
        else:
            theirs = _one_pass(engine.objective) if self._real else engine
            ordinary = self._sum(theirs, inputs[~among], targets[~among], groups)
            norms = None if ordinary.norms is None else _placed(ordinary.norms, ~among)
            ordinary = GradientSum(ordinary.gradients, _placed(ordinary.losses, ~among), norms)
        self._attacker.look(engine.objective, ordinary.gradients)
        if self._real:
            return self._clipping.sum_contributions(engine, inputs, targets, groups)
        crafted = self._sum(CanaryEngine(engine.objective, self._canaries), inputs[joined], targets[joined], groups)
        return GradientSum(
            {name: g + ordinary.gradients[name].view_as(g) for name, g in crafted.gradients.items()},
            ordinary.losses.masked_fill(among, 0),
            None if ordinary.norms is None else ordinary.norms.masked_fill(joined, _STRONG),
        )

    def _sum(self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup]) -> GradientSum:
        return gradient_sum(self._clipping, engine, inputs, targets, max(1, len(targets)), groups)


def _placed(numbers: Tensor, where: Tensor) -> Tensor:
    """Return numbers, one for each true value of `where` [batch], at their places in zeros [batch]."""
    return numbers.new_zeros(len(where)).masked_scatter(where, numbers)


@dataclass(frozen=True)
class Attack:
    """An attack on one run.

    Attributes:
        experiment: a committed setting, below conf/experiment.
        canaries: k.
        way: how its steps are taken: call by call, graph, or resumed (call by call, from a checkpoint in the middle).
        real: True if canaries are examples of the data set, and a user's loss gives them their gradient.
        overrides: of the setting.
    """

    experiment: str
    canaries: int
    way: str = "call by call"
    real: bool = False
    overrides: tuple[str, ...] = ()

    def prepared(self) -> Run:
        """Prepare the run, whose steps see every batch in one piece."""
        step = StepMode.graph if self.way == "graph" else StepMode.eager
        more = [f"runtime.step={step.value}"]
        if self.real:
            more += ["loss._target_=checks.audit.canaries.CanaryLoss", "~loss.reduction"]
        experiment = [f"experiment={self.experiment}"] if self.experiment else []
        config = resolved(composed([*experiment, *_EVERYWHERE, *more, *self.overrides]))
        config.runtime.physical_batch = config.dataset.train_examples
        return prepare(config)


@dataclass(frozen=True)
class Outcome:
    """The scores of an attack, its canaries, and what the run was.

    Attributes:
        scores, joined: [k] each.
        share: of the squared shift that is charged, what the canaries reach.
        accuracy: of the run's last weights, in percent.
        seconds: of the processor.
    """

    scores: Array
    joined: Array
    share: float
    steps: int
    accuracy: float = math.nan
    seconds: float = 0.0

    def independent(self, charged: Releases, delta: float, error: float) -> Found:
        """Take the canaries for independent trials of what is charged."""
        sides = {"likelihood": (self.scores[~self.joined], self.scores[self.joined])}
        return lower_bounds(sides, charged, delta, error)


Plant = Callable[[Run], Run]


def carry_out(attack: Attack, plant: Plant = lambda run: run, seed: int = 0) -> Outcome:
    """Train the run with canaries, and return what the attacker saw.

    `plant` changes the run that is trained. The attacker believes the one that was prepared.

    Raises:
        RuntimeError: the attacker missed a step, as when a batch is empty.
    """
    started = time.process_time()
    right = attack.prepared()
    canaries = Canaries.draw(right, attack.canaries, seed, real=attack.real)
    attacker = Attacker(right, canaries)
    wrong = plant(right)
    run = replace(wrong, clipping=_Observed(wrong.clipping, canaries, attacker, attack.real))
    training_split, *evaluation_splits = load(run)
    data = (_with_canaries(training_split, canaries, attack.real), *evaluation_splits)
    trained = _trained(run, data, resume=attack.way == "resumed")
    assert trained.objective is not None
    attacker.look(trained.objective)
    if attacker.steps != run.most_steps:
        raise RuntimeError(f"The attacker saw {attacker.steps} of {run.most_steps} steps: take larger batches.")
    return Outcome(
        attacker.scores,
        canaries.joined.numpy(),
        attacker.share,
        attacker.steps,
        trained.history["test_accuracy"][-1],
        time.process_time() - started,
    )


def _with_canaries(training: Split, canaries: Canaries, real: bool) -> Split:
    """Return the training examples with canaries at their places, as targets, or as targets and features."""
    images, targets = training.images, training.targets.clone()
    numbers = torch.arange(len(canaries.joined))
    if real:  # the weight of class c and feature i is coordinate (c, i)
        images = images.clone()
        ((_, places),) = canaries.places.items()
        numbers, features = places // images[0].numel(), places % images[0].numel()
        rows = torch.zeros(len(places), images[0].numel())
        rows[torch.arange(len(places)), features] = _PIXEL * canaries.joined
        images[canaries.members] = rows.view(-1, *images.shape[1:])
    targets[canaries.members] = torch.where(canaries.joined, canaries.classes + numbers, ABSENT)
    return Split(images, targets)


class _StoppedError(Exception):
    """A run was stopped after its state was saved."""


def _trained(run: Run, data: tuple[Split, ...], *, resume: bool) -> Trained:
    """Train a run by the package's loop: whole, or stopped in the middle and resumed from a file of its state."""
    if not resume:
        return training(run, data)(lambda row: None)
    file, epochs = io.BytesIO(), itertools.count(1)

    def save(state: Callable[[], State]) -> None:
        if next(epochs) == run.epochs // 2:
            torch.save(state(), file)
            raise _StoppedError

    with suppress(_StoppedError):
        training(run, data, on_state=save)(lambda row: None)
    file.seek(0)
    return training(run, data, state=torch.load(file, weights_only=True))(lambda row: None)


def exact(canaries: int, sampling_rate: float, noise_multiplier: float, steps: int, share: float, seed: int) -> Outcome:
    """Draw the scores of an exact Gaussian mechanism, for as many canaries: the ceiling of every estimator."""
    draws = np.random.default_rng(seed)
    joined, scores = draws.random(canaries) < 0.5, np.zeros(canaries)
    square = share / noise_multiplier**2
    for _ in range(steps):
        present = joined & (draws.random(canaries) < sampling_rate)
        exponent = math.sqrt(square) * draws.standard_normal(canaries) + square * (present - 0.5)
        scores += ratio(exponent, sampling_rate)
    return Outcome(scores, joined, share, steps)
