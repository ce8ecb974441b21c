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

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from checks.audit.bounds import Array
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
    def draw(cls, run: Run, count: int, seed: int, *, real: bool = False) -> Canaries:
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
        optimizer = run.config.optimizer
        self._by_weights = optimizer["_target_"] == "torch.optim.SGD" and run.config.schedule is None
        self._by_weights &= run.initial.constraint is None
        self._velocity: dict[NoiseGroup, Tensor] = {}
        self._before: dict[NoiseGroup, Tensor] | None = None
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
        before = self._before
        if before is not None and any(not torch.equal(weights[g], before[g]) for g in weights):
            if self._by_weights:
                releases = {g: self._release(g, before[g] - weights[g]) for g in weights}
            else:
                releases = self._along({name: p.grad for name, p in parameters.items() if p.grad is not None})
            self._add(releases)
        self._before = weights
        self._known = {} if others is None else self._along(others)

    def _release(self, group: NoiseGroup, moved: Tensor) -> Tensor:
        """Return the noisy mean [k] that moved the weights by SGD, with momentum."""
        velocity: Tensor = moved / self._optimizer.lr
        release: Tensor = velocity - self._optimizer.momentum * self._velocity.get(group, torch.zeros_like(velocity))
        self._velocity[group] = velocity
        return release

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


@dataclass(frozen=True)
class _Observed:
    """A run's clipping, with canaries among the examples, and an attacker who knows the sum of the others.

    Canaries are examples of the data set (`real`), or gradients that the clipping gets instead of theirs. For real ones
    the attacker computes the sum of the others by the one-pass engine, which is faster than the isolated one.
    """

    clipping: Clipping
    canaries: Canaries
    attacker: Attacker
    real: bool
    engines: dict[int, Engine] = field(default_factory=dict)  # of the attacker, by the objective's identity

    @property
    def needs_engine(self) -> bool:
        return self.clipping.needs_engine

    @property
    def sums_by_engine(self) -> bool:
        return self.clipping.sums_by_engine

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        return self.clipping.noise_groups(model)

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        among, joined = self.canaries.among(targets), targets >= self.canaries.classes
        if isinstance(engine, MaskedEngine):
            joined = joined & engine.mask
            engine = replace(engine, mask=engine.mask & ~among)
            ordinary = self.clipping.sum_contributions(engine, inputs, targets.masked_fill(among, 0), groups)
        else:
            some = self._sum(self._one_pass(engine) if self.real else engine, inputs[~among], targets[~among], groups)
            norms = None if some.norms is None else _placed(some.norms, ~among)
            ordinary = GradientSum(some.gradients, _placed(some.losses, ~among), norms)
        self.attacker.look(engine.objective, ordinary.gradients)
        if self.real:
            return self.clipping.sum_contributions(engine, inputs, targets, groups)
        theirs = self._sum(CanaryEngine(engine.objective, self.canaries), inputs[joined], targets[joined], groups)
        return GradientSum(
            {name: g + ordinary.gradients[name].view_as(g) for name, g in theirs.gradients.items()},
            ordinary.losses.masked_fill(among, 0),
            None if ordinary.norms is None else ordinary.norms.masked_fill(joined, _STRONG),
        )

    def _one_pass(self, engine: Engine) -> Engine:
        key = id(engine.objective)
        if key not in self.engines:
            self.engines[key] = OnePassEngine(engine.objective)
        return self.engines[key]

    def _sum(self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup]) -> GradientSum:
        return gradient_sum(self.clipping, engine, inputs, targets, max(1, len(targets)), groups)


def _placed(numbers: Tensor, where: Tensor) -> Tensor:
    """Return numbers, one for each true value of `where` [batch], at their places in zeros [batch]."""
    return numbers.new_zeros(len(where)).masked_scatter(where, numbers)


@dataclass(frozen=True)
class _Attacked(Run):
    """A run that remembers the objectives it makes."""

    objectives: list[Objective] = field(default_factory=list)

    def new_objective(self) -> Objective:
        self.objectives.append(super().new_objective())
        return self.objectives[-1]


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
    accuracy: float
    seconds: float


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
    parts = {item.name: getattr(wrong, item.name) for item in fields(Run)}
    run = _Attacked(**parts | {"clipping": _Observed(wrong.clipping, canaries, attacker, attack.real)})
    data = load(run)
    data = (_with_canaries(data[0], canaries, attack.real), *data[1:])
    trained = _trained(run, data, resume=attack.way == "resumed")
    attacker.look(run.objectives[-1])
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
    """Train a run by the package's loop: whole, or stopped in the middle and resumed from the saved state."""

    def ignore(row: dict[str, float]) -> None:
        return None

    if not resume:
        return training(run, data)(ignore)
    saved: list[State] = []
    epochs = 0

    def save(state: Callable[[], State]) -> None:
        nonlocal epochs
        epochs += 1
        if epochs == run.epochs // 2:
            saved.append(_stored(state()))
            raise _StoppedError

    with suppress(_StoppedError):
        training(run, data, on_state=save)(ignore)
    return training(run, data, state=saved[0])(ignore)


def _stored(state: State) -> State:
    """Return a state as it is read from a file."""
    import io

    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    loaded: State = torch.load(buffer, weights_only=True)
    return loaded


def exact(canaries: int, sampling_rate: float, noise_multiplier: float, steps: int, share: float, seed: int) -> Outcome:
    """Draw the scores of an exact Gaussian mechanism, for as many canaries: the ceiling of every estimator."""
    draws = np.random.default_rng(seed)
    joined, scores = draws.random(canaries) < 0.5, np.zeros(canaries)
    square = share / noise_multiplier**2
    for _ in range(steps):
        present = joined & (draws.random(canaries) < sampling_rate)
        exponent = math.sqrt(square) * draws.standard_normal(canaries) + square * (present - 0.5)
        scores += ratio(exponent, sampling_rate)
    return Outcome(scores, joined, share, steps, math.nan, 0.0)
