"""One training step by every method: gradients of a batch, clipped and noised if private, and one SGD update.

Each builder gets its own network and returns a function without arguments that takes one step on one batch. Sampling
and updates are the same in all methods. Only the way to per-example gradients differs.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from checks.benchmarks.opacus_engine import OpacusEngine
from runner.clipping import Backprop, Clipping, Flat, Lipschitz, gradient_sum
from runner.config import Sampling
from runner.data.datasets import Split
from runner.gradients import Engine, IsolatedEngine, Objective, OnePassEngine
from runner.mechanism.dp_sgd import Mechanism
from runner.networks.architectures import small_cnn, vgg_cnn
from runner.networks.lipschitz import Spectral
from runner.networks.lipschitz.architectures import lipschitz_vgg
from runner.networks.lipschitz.layers import GroupSort2
from runner.networks.lipschitz.losses import SharpCrossEntropy
from runner.networks.objective import InputBound
from runner.speed.faster import faster
from runner.speed.slices import channels_last, examples_in_cache, examples_with_gradients
from runner.training.stacked import StackedStep, whole

CLIPPING_NORM, NOISE_MULTIPLIER, LEARNING_RATE = 1.0, 1.0, 1e-6
EXAMPLES = 50_000
_ROUNDING = 1e-5
# Width and convolutions of a block of the Lipschitz paper's VGGs, with 130,378, 510,602 and 2,020,618 parameters
LIPSCHITZ = {"VGG5": (32, 1), "VGG5 large": (64, 1), "VGG5 huge": (128, 1)}

Step = Callable[[], None]


@dataclass(frozen=True)
class Problem:
    """A network, its loss, and one batch.

    M has 26,010 parameters on 1 x 28 x 28 (table 1 of Tempered Sigmoid, tanh). C has 550,570 on 3 x 32 x 32
    (Handcrafted-DP's CIFAR-10 network, tanh). R has 18,752 on 1 x 28 x 28 (figure 3 of Backpropagation Clipping, ReLU,
    no biases). The networks of `LIPSCHITZ` have bounded images and weights.
    """

    network: nn.Sequential
    inputs: Tensor
    targets: Tensor

    @property
    def objective(self) -> Objective:
        return Objective(self.network, nn.CrossEntropyLoss(reduction="none"))

    @property
    def physical_batch(self) -> int:
        """The batch of methods that hold one gradient per example: a run's own, M 322 and C 15 on a CPU."""
        return examples_with_gradients(sum(p.numel() for p in self.network.parameters()), self.inputs.device.type)


def problem(name: str, batch: int, device: str = "cpu") -> Problem:
    """Make a network of this name with random weights and data, channels last, the same on every device."""
    torch.manual_seed(0)
    shape = (1, 28, 28) if name in ("M", "R") else (3, 32, 32)
    if name in LIPSCHITZ:
        network = lipschitz_vgg(shape, 10, GroupSort2, *LIPSCHITZ[name], bias=True)
    elif name == "M":
        network = small_cnn(shape, 10, nn.Tanh, [16, 32], 32, padding=3)
    elif name == "R":
        network = small_cnn(shape, 10, nn.ReLU, [16, 32], 32, padding=0, bias=False)
    else:
        network = vgg_cnn(shape, 10, nn.Tanh, [32, 64, 128], 128)
    inputs = channels_last(torch.randn(batch, *shape).renorm(2, 0, 1.0 if name in LIPSCHITZ else math.inf))
    targets = torch.randint(10, (batch,)).to(device)
    return Problem(network.to(device).to(memory_format=torch.channels_last), inputs.to(device), targets)


def _non_private(of: Problem, objective: nn.Module, pieces: int) -> Step:
    batch = len(of.targets)
    optimizer = torch.optim.SGD(objective.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        for inputs, targets in zip(of.inputs.split(pieces), of.targets.split(pieces), strict=True):
            (objective(inputs, targets).sum() / batch).backward()
        optimizer.step()

    return step


def non_private(of: Problem) -> Step:
    """Take an ordinary step on the whole batch, channels last, the reference of all other methods."""
    return _non_private(of, of.objective, len(of.targets))


def non_private_faster(of: Problem) -> Step:
    """Take an ordinary step with the engines' optimizations apart from privacy: `faster` and fitting the cache."""
    return _non_private(of, faster(of.objective), examples_in_cache(of.network, of.inputs.shape[1:]))


def _private(of: Problem, clipping: Clipping, engine: Callable[[Objective], Engine], physical_batch: int) -> Step:
    return _private_step(of, of.objective, clipping, engine, physical_batch)


def _private_step(
    of: Problem,
    objective: Objective,
    clipping: Clipping,
    engine: Callable[[Objective], Engine],
    physical_batch: int,
) -> Step:
    batch, device = len(of.targets), of.targets.device
    per_example, generator = engine(objective), torch.Generator(device).manual_seed(0)
    mechanism = Mechanism(Sampling.poisson, EXAMPLES, batch, NOISE_MULTIPLIER, clipping.noise_groups(objective))
    optimizer = torch.optim.SGD(objective.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        sums = gradient_sum(clipping, per_example, of.inputs, of.targets, physical_batch).gradients
        released = mechanism.release(sums, generator)
        for name, parameter in objective.named_parameters():
            parameter.grad = released[name]
        optimizer.step()
        objective.project()  # if there is a constraint

    return step


def one_pass(of: Problem) -> Step:
    """Take a step with this project's engine on the whole batch."""
    return _private(of, Flat(CLIPPING_NORM), OnePassEngine, len(of.targets))


def one_pass_graph(of: Problem) -> Step:
    """Take the one_pass step as one fixed sequence of calls, on CUDA as a graph (see `runner.training.stacked`)."""
    objective, batch, clipping, device = of.objective, len(of.targets), Flat(CLIPPING_NORM), of.targets.device
    mechanism = Mechanism(Sampling.poisson, EXAMPLES, batch, NOISE_MULTIPLIER, clipping.noise_groups(objective))
    optimizer = torch.optim.SGD(objective.parameters(), lr=LEARNING_RATE)
    step = StackedStep([objective], [clipping], [mechanism], [optimizer], Split(of.inputs, of.targets))
    batches = whole(batch, 1, device)
    step.make_room(batches.length)
    return lambda: step.take(batches, 0)


def backprop(of: Problem) -> Step:
    """Take a step of backpropagation clipping: an ordinary pass that clips on its way, with different gradients."""
    return _private(of, Backprop(1.0, 1.0), OnePassEngine, examples_in_cache(of.network, of.inputs.shape[1:]))


def opacus_hooks(of: Problem) -> Step:
    """Take a step with Opacus' GradSampleModule. It needs channels first, and gets it (see `OpacusEngine`)."""
    return _private(of, Flat(CLIPPING_NORM), OpacusEngine, of.physical_batch)


def isolated(of: Problem) -> Step:
    """Take a step with the engine for users' own layers: one example's recorded gradient, mapped by torch.func."""
    return _private(of, Flat(CLIPPING_NORM), IsolatedEngine, len(of.targets))


def opacus_ghost(of: Problem) -> Step:
    """Take a step with Opacus' ghost clipping: norms from one backward pass, the sum from a second. Channels first."""
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    of = _channels_first(of)
    hooked = GradSampleModuleFastGradientClipping(of.network, max_grad_norm=CLIPPING_NORM, loss_reduction="sum")
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(hooked.parameters(), lr=LEARNING_RATE / len(of.targets)),  # it steps by the sum
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIPPING_NORM,
        expected_batch_size=len(of.targets),
        loss_reduction="sum",
    )
    criterion = DPLossFastGradientClipping(hooked, optimizer, nn.CrossEntropyLoss(reduction="sum"), "sum")

    def step() -> None:
        optimizer.zero_grad()
        pieces = of.inputs.split(of.physical_batch)
        for i, (inputs, targets) in enumerate(zip(pieces, of.targets.split(of.physical_batch), strict=True), start=1):
            criterion(hooked(inputs), targets).backward()
            optimizer.signal_skip_step(i < len(pieces))
            optimizer.step()
            if i < len(pieces):
                optimizer.zero_grad()

    return step


def _channels_first(of: Problem) -> Problem:
    """Return the problem with every tensor laid out in the order of its dimensions."""
    for parameter in of.network.parameters():
        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
    return Problem(of.network, of.inputs.clone(memory_format=torch.contiguous_format), of.targets)


def jax_vmap(of: Problem) -> Step:
    """Take the whole step in JAX under jit: vmap(grad), clip, sum, noise, update."""
    from checks.benchmarks.in_jax import step

    return step(of.network, of.inputs, of.targets, CLIPPING_NORM, NOISE_MULTIPLIER, LEARNING_RATE, of.physical_batch)


def clipless(of: Problem) -> Step:
    """Take a clipless DP-SGD step: an ordinary pass, in slices, noise by bounds, and the projection."""
    objective = _constrained(of)
    pieces = examples_in_cache(of.network, of.inputs.shape[1:])
    return _private_step(of, objective, Lipschitz(), OnePassEngine, pieces)


def projection(of: Problem) -> Step:
    """Apply the projection after an update alone."""
    return _constrained(of).project


def _constrained(of: Problem) -> Objective:
    """Build the network with bounded images and weights."""
    objective = Objective(
        of.network, SharpCrossEntropy(50.0), InputBound(tuple(of.inputs.shape[1:]), 1.0 + _ROUNDING), Spectral()
    )
    objective.project()
    return objective


def methods(network: str = "M") -> dict[str, Callable[[Problem], Step]]:
    """Return every method that can run here on this network, by its name in the table."""
    if network in LIPSCHITZ:
        return {
            "non_private": non_private,
            "non_private_faster": non_private_faster,
            "clipless": clipless,
            "projection": projection,
            "one_pass": one_pass,
            "opacus_hooks": opacus_hooks,
            "isolated": isolated,
        }
    found: dict[str, Callable[[Problem], Step]] = {
        "non_private": non_private,
        "non_private_faster": non_private_faster,
        "one_pass": one_pass,
        "one_pass_graph": one_pass_graph,
        "backprop": backprop,
        "opacus_hooks": opacus_hooks,
        "opacus_ghost": opacus_ghost,
        "isolated": isolated,
    }
    if importlib.util.find_spec("jax"):
        found["jax_vmap"] = jax_vmap
    return found
