"""One training step by every method: gradients of a batch, clipped and noised if private, and one SGD update.

Each builder gets its own network and returns a function without arguments that takes one step on one batch. Sampling
and updates are the same in all methods. Only the way to per-example gradients differs. `peers` has other libraries'.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from checks.benchmarks.problems import Problem, problem
from runner.clipping import Clipping, Flat, gradient_sum
from runner.clipping.backprop import Backprop
from runner.clipping.lipschitz import Lipschitz
from runner.config import Sampling, StepMode
from runner.data.datasets import Split
from runner.gradients import Engine, Objective, OnePassEngine
from runner.mechanism.dp_sgd import Mechanism
from runner.networks.lipschitz import Spectral
from runner.networks.lipschitz.losses import SharpCrossEntropy
from runner.networks.objective import InputBound
from runner.speed.faster import examples_in_cache, faster
from runner.training.graph import GraphStep
from runner.training.graph.batches import enough, usual, whole
from runner.training.updates import Schedule, UpdateRule
from runner.trust.engine import IsolatedEngine

CLIPPING_NORM, NOISE_MULTIPLIER, LEARNING_RATE = 1.0, 1.0, 1e-6
EXAMPLES, EPOCHS = 50_000, 60  # of a run
_ROUNDING = 1e-5
Step = Callable[[], None]


def non_private_by(case: Problem, losses: Callable[[Tensor, Tensor], Tensor], pieces: int) -> Step:
    """Take an ordinary step by the losses [batch] of examples and their labels, piece by piece."""
    batch = len(case.targets)
    optimizer = torch.optim.SGD(case.network.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        for inputs, targets in zip(case.inputs.split(pieces), case.targets.split(pieces), strict=True):
            (losses(inputs, targets).sum() / batch).backward()
        optimizer.step()

    return step


def waited_for(step: Step, device: str) -> Step:
    """Make a step that ends when the device has finished it."""
    if device == "cpu":
        return step

    def take() -> None:
        step()
        torch.cuda.synchronize(device)

    return take


def non_private(case: Problem) -> Step:
    """Take an ordinary step on the whole batch, channels last, the reference of all other methods."""
    return non_private_by(case, case.objective, len(case.targets))


def non_private_faster(case: Problem) -> Step:
    """Take an ordinary step with the engines' optimizations apart from privacy: `faster` and fitting the cache."""
    return non_private_by(case, faster(case.objective), examples_in_cache(case.network, case.inputs.shape[1:]))


def private(
    case: Problem,
    clipping: Clipping,
    engine: Callable[[Objective], Engine],
    physical_batch: int,
    objective: Objective | None = None,
) -> Step:
    """Take a step by one of this project's interfaces to per-example gradients, in pieces of `physical_batch`.

    `objective` is the problem's, unless it has a constraint.
    """
    objective = objective or case.objective
    per_example = engine(objective)
    return released(
        case,
        objective,
        clipping,
        lambda: gradient_sum(clipping, per_example, case.inputs, case.targets, physical_batch).gradients,
    )


def released(case: Problem, objective: Objective, clipping: Clipping, sums: Callable[[], dict[str, Tensor]]) -> Step:
    """Take a step that adds the noise of `clipping` to the sums of a batch, and updates the weights."""
    batch, generator = len(case.targets), torch.Generator(case.targets.device).manual_seed(0)
    mechanism = Mechanism(Sampling.poisson, EXAMPLES, batch, NOISE_MULTIPLIER, clipping.noise_groups(objective))
    optimizer = torch.optim.SGD(objective.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        gradients = mechanism.release(sums(), generator)
        for name, parameter in objective.named_parameters():
            parameter.grad = gradients[name]
        optimizer.step()
        objective.project()  # if there is a constraint

    return step


def one_pass(case: Problem) -> Step:
    """Take a step with this project's engine on the whole batch."""
    return private(case, Flat(CLIPPING_NORM), OnePassEngine, len(case.targets))


def padded_length(batch: int) -> int:
    """Return the length to which a run of this batch size pads most of its Poisson batches: 272 for 256 examples."""
    mechanism = Mechanism(Sampling.poisson, EXAMPLES, batch, NOISE_MULTIPLIER, ())
    return usual(mechanism, enough(mechanism, EPOCHS * mechanism.steps_per_epoch))[0]


def one_pass_graph(case: Problem, asked: StepMode = StepMode.graph) -> Step:
    """Take the one_pass step as one fixed sequence of calls, on CUDA as a graph (see `runner.training.graph`).

    The batch is padded as in training, whose shapes cannot depend on the size of a Poisson batch.
    """
    objective, batch, clipping, device = case.objective, len(case.targets), Flat(CLIPPING_NORM), case.targets.device
    mechanism = Mechanism(Sampling.poisson, EXAMPLES, batch, NOISE_MULTIPLIER, clipping.noise_groups(objective))
    optimizer = torch.optim.SGD(objective.parameters(), lr=LEARNING_RATE)
    data = Split(case.inputs, case.targets)
    runtime = SimpleNamespace(step=asked, physical_batch=None)
    config = SimpleNamespace(runtime=runtime, seed=0, diagnostics=(), precision=None)
    run: Any = SimpleNamespace(  # what a step reads of a `Run`
        config=config, clipping=clipping, mechanism=mechanism, rule=UpdateRule(), epochs=0, isolation=None,
        augmentation=None, averaging=None, optimizer=lambda _: optimizer, schedule=lambda _: Schedule(None),
    )  # fmt: skip
    step = GraphStep(run, objective, data)
    batches = whole(batch, device, padded_length(batch))
    step.make_room(batches.indices.shape[1])
    return lambda: step.take(batches, 0)


def one_pass_compiled(case: Problem) -> Step:
    """Take the step of `one_pass_graph`, on CUDA compiled."""
    return one_pass_graph(case, StepMode.compiled)


def backprop(case: Problem) -> Step:
    """Take a step of backpropagation clipping: an ordinary pass that clips on its way, with different gradients."""
    return private(case, Backprop(1.0, 1.0), OnePassEngine, examples_in_cache(case.network, case.inputs.shape[1:]))


def isolated(case: Problem) -> Step:
    """Take a step with the engine for users' own layers: one example's gradient, mapped by torch.func."""
    return private(case, Flat(CLIPPING_NORM), IsolatedEngine, len(case.targets))


def clipless(case: Problem) -> Step:
    """Take a clipless DP-SGD step: an ordinary pass, in slices, noise by bounds, and the projection."""
    pieces = examples_in_cache(case.network, case.inputs.shape[1:])
    return private(case, Lipschitz(), OnePassEngine, pieces, _constrained(case))


def projection(case: Problem) -> Step:
    """Apply the projection after an update alone."""
    return _constrained(case).project


def _constrained(case: Problem) -> Objective:
    """Build the network with bounded images and weights."""
    objective = Objective(
        case.network, SharpCrossEntropy(50.0), InputBound(tuple(case.inputs.shape[1:]), 1.0 + _ROUNDING), Spectral()
    )
    objective.project()
    return objective


def clipless_bounded(case: Problem) -> Step:
    """Take a clipless step of the network "L bounded", which has the layers of L and GroupSort in place of ReLU."""
    return clipless(problem("L bounded", len(case.targets), str(case.targets.device)))
