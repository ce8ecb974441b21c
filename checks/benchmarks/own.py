"""One training step by every method: gradients of a batch, clipped and noised if private, and one SGD update.

Each builder gets its own network and returns a function without arguments that takes one step on one batch. Sampling
and updates are the same in all methods. Only the way to per-example gradients differs. `peers` has other libraries'.
"""

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
Builder = Callable[[Problem], Step]


def non_private_by(case: Problem, losses: Callable[[Tensor, Tensor], Tensor], pieces: int | None = None) -> Step:
    """Take an ordinary step by the losses [batch] of examples and their labels, on the whole batch or in pieces."""
    batch = len(case.targets)
    optimizer = torch.optim.SGD(case.network.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        for inputs, targets in zip(
            case.inputs.split(pieces or batch), case.targets.split(pieces or batch), strict=True
        ):
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


def private(
    case: Problem,
    clipping: Clipping,
    engine: Callable[[Objective], Engine] = OnePassEngine,
    pieces: int | None = None,
    objective: Objective | None = None,
) -> Step:
    """Take a step by one of this project's interfaces to per-example gradients, on the whole batch or in pieces.

    `objective` is the problem's, unless it has a constraint.
    """
    objective = objective or case.objective
    per_example, size = engine(objective), pieces or len(case.targets)

    def sums() -> dict[str, Tensor]:
        return gradient_sum(clipping, per_example, case.inputs, case.targets, size).gradients

    return released(case, objective, clipping, sums)


def released(case: Problem, objective: Objective, clipping: Clipping, sums: Callable[[], dict[str, Tensor]]) -> Step:
    """Take a step that adds the noise of `clipping` to the sums of a batch, and updates the weights."""
    generator = torch.Generator(case.targets.device).manual_seed(0)
    mechanism = _mechanism(len(case.targets), clipping, objective)
    optimizer = torch.optim.SGD(objective.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        gradients = mechanism.release(sums(), generator)
        for name, parameter in objective.named_parameters():
            parameter.grad = gradients[name]
        optimizer.step()
        objective.project()  # if there is a constraint

    return step


def _mechanism(batch: int, clipping: Clipping, objective: Objective) -> Mechanism:
    return Mechanism(Sampling.poisson, EXAMPLES, batch, NOISE_MULTIPLIER, clipping.noise_groups(objective))


def padded_length(batch: int) -> int:
    """Return the length to which a run of this batch size pads most of its Poisson batches: 272 for 256 examples."""
    mechanism = Mechanism(Sampling.poisson, EXAMPLES, batch, NOISE_MULTIPLIER, ())
    return usual(mechanism, enough(mechanism, EPOCHS * mechanism.steps_per_epoch))[0]


def one_pass_graph(case: Problem, asked: StepMode = StepMode.graph) -> Step:
    """Take the one_pass step as one fixed sequence of calls, on CUDA as a graph (see `runner.training.graph`).

    The batch is padded as in training, whose shapes cannot depend on the size of a Poisson batch.
    """
    objective, batch, clipping, device = case.objective, len(case.targets), Flat(CLIPPING_NORM), case.targets.device
    optimizer = torch.optim.SGD(objective.parameters(), lr=LEARNING_RATE)
    runtime = SimpleNamespace(step=asked, physical_batch=None)
    config = SimpleNamespace(runtime=runtime, seed=0, diagnostics=(), precision=None)
    run: Any = SimpleNamespace(  # what a step reads of a `Run`
        config=config, clipping=clipping, mechanism=_mechanism(batch, clipping, objective), rule=UpdateRule(), epochs=0,
        isolation=None, augmentation=None, averaging=None, optimizer=lambda _: optimizer,
        schedule=lambda _: Schedule(None),
    )  # fmt: skip
    step = GraphStep(run, objective, Split(case.inputs, case.targets))
    batches = whole(batch, device, padded_length(batch))
    step.make_room(batches.indices.shape[1])
    return lambda: step.take(batches, 0)


def in_cache(case: Problem) -> int:
    """Return the examples of a piece that fits the cache in an ordinary pass."""
    return examples_in_cache(case.network, case.inputs.shape[1:])


def clipless(case: Problem) -> Step:
    """Take a clipless DP-SGD step: an ordinary pass, in slices, noise by bounds, and the projection."""
    return private(case, Lipschitz(), OnePassEngine, in_cache(case), _constrained(case))


def clipless_bounded(case: Problem) -> Step:
    """Take a clipless step of the network "L bounded", which has the layers of L and GroupSort in place of ReLU."""
    return clipless(problem("L bounded", len(case.targets), str(case.targets.device)))


def _constrained(case: Problem) -> Objective:
    objective = Objective(
        case.network, SharpCrossEntropy(50.0), InputBound(tuple(case.inputs.shape[1:]), 1.0 + _ROUNDING), Spectral()
    )
    objective.project()
    return objective


METHODS: dict[str, Builder] = {
    # On the whole batch, channels last: the reference of all other methods.
    "non_private": lambda case: non_private_by(case, case.objective),
    # With the engines' optimizations apart from privacy: `faster` and fitting the cache.
    "non_private_faster": lambda case: non_private_by(case, faster(case.objective), in_cache(case)),
    "one_pass": lambda case: private(case, Flat(CLIPPING_NORM)),
    "one_pass_graph": one_pass_graph,
    "one_pass_compiled": lambda case: one_pass_graph(case, StepMode.compiled),
    # An ordinary pass that clips on its way, with different gradients.
    "backprop": lambda case: private(case, Backprop(1.0, 1.0), OnePassEngine, in_cache(case)),
    "clipless": clipless,
    "projection": lambda case: _constrained(case).project,  # after an update, alone
    # The engine for users' own layers: one example's gradient, mapped by torch.func.
    "isolated": lambda case: private(case, Flat(CLIPPING_NORM), IsolatedEngine),
}
