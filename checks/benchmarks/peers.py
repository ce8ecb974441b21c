"""The same step by other libraries, each as its documentation has it, in pieces of the size that is fastest for it.

These are pieces of 64 examples, of 256, or the whole batch. fastDP takes whole batches.

fastDP is measured only if it is installed (github.com/awslabs/fast-differential-privacy, with transformers 4). Other
methods use PyTorch and Opacus alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.functional import cross_entropy

from checks.benchmarks import own
from checks.benchmarks.opacus_engine import OpacusEngine
from checks.benchmarks.own import Step, waited_for
from checks.benchmarks.problems import Problem
from runner.clipping import Flat

_SIZES = (64, 256)  # examples of a piece; the whole batch is timed, too
_MOST = 2 << 30  # bytes of per-example gradients at a time


def non_private_compiled(of: Problem) -> Step:
    """Take an ordinary step with the network and the loss compiled by torch.compile."""
    return own.non_private_by(of, torch.compile(of.objective, dynamic=False), len(of.targets))


def _fastest(of: Problem, step: Callable[[int], Step], numbers: int = 0) -> Step:
    """Return the fastest of the steps in pieces of each size. Weights stay.

    Sizes whose examples fill more than 2 GiB with `numbers` each are left out, but for the smallest.
    """
    examples, device = len(of.targets), str(of.targets.device)
    sizes = {min(size, examples) for size in (*_SIZES, examples)}
    steps = [step(size) for size in sorted(sizes) if 4 * numbers * size < _MOST or size == min(sizes)]
    before = [weight.detach().clone() for weight in of.network.parameters()]
    clock = time.perf_counter if of.targets.is_cuda else time.process_time  # a busy machine does not decide on a CPU
    fastest = min(steps, key=lambda each: _seconds(waited_for(each, device), clock))
    if of.targets.is_cuda:
        torch.cuda.reset_peak_memory_stats(device)
    with torch.no_grad():
        for weight, saved in zip(of.network.parameters(), before, strict=True):
            weight.copy_(saved)
    return fastest


def _seconds(step: Step, clock: Callable[[], float]) -> float:
    step()
    started = clock()
    step()
    return clock() - started


def _parameters(of: Problem) -> int:
    return sum(p.numel() for p in of.network.parameters())


def opacus_hooks(of: Problem) -> Step:
    """Take a step with Opacus' GradSampleModule. It needs channels first, and gets it (see `OpacusEngine`)."""
    engine = OpacusEngine(of.objective)
    return _fastest(of, lambda size: own.private(of, Flat(own.CLIPPING_NORM), lambda _: engine, size), _parameters(of))


def opacus_ghost(of: Problem) -> Step:
    """Take a step with Opacus' ghost clipping: norms from one backward pass, the sum from a second. Channels first."""
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    of = _channels_first(of)
    hooked = GradSampleModuleFastGradientClipping(of.network, max_grad_norm=own.CLIPPING_NORM, loss_reduction="sum")
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(hooked.parameters(), lr=own.LEARNING_RATE / len(of.targets)),  # it steps by the sum
        noise_multiplier=own.NOISE_MULTIPLIER,
        max_grad_norm=own.CLIPPING_NORM,
        expected_batch_size=len(of.targets),
        loss_reduction="sum",
    )
    criterion = DPLossFastGradientClipping(hooked, optimizer, nn.CrossEntropyLoss(reduction="sum"), "sum")

    def step(size: int) -> None:
        optimizer.zero_grad()
        pieces = list(zip(of.inputs.split(size), of.targets.split(size), strict=True))
        for i, (inputs, targets) in enumerate(pieces, start=1):
            criterion(hooked(inputs), targets).backward()
            optimizer.signal_skip_step(i < len(pieces))
            optimizer.step()
            if i < len(pieces):
                optimizer.zero_grad()

    return _fastest(of, lambda size: lambda: step(size))


def _channels_first(of: Problem) -> Problem:
    """Return the problem with every tensor laid out in the order of its dimensions."""
    for parameter in of.network.parameters():
        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
    return Problem(of.network, of.inputs.clone(memory_format=torch.contiguous_format), of.targets)


def vmap(of: Problem) -> Step:
    """Take a step with `torch.func`: the gradient of one example, mapped over a piece, then clipped and summed."""
    return _mapped(of, _clipped_sum(of))


def vmap_compiled(of: Problem) -> Step:
    """Take the step of `vmap` with gradients, norms and sums compiled by torch.compile in one piece."""
    return _mapped(of, torch.compile(_clipped_sum(of), fullgraph=True, dynamic=False))


Weights = dict[str, Tensor]


def _clipped_sum(of: Problem) -> Callable[[Weights, Tensor, Tensor], Weights]:
    def loss(weights: Weights, image: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(functional_call(of.network, weights, (image[None],)), target[None])

    def clipped_sum(weights: Weights, inputs: Tensor, targets: Tensor) -> Weights:
        gradients = torch.vmap(grad(loss), (None, 0, 0))(weights, inputs, targets)
        norms = torch.stack([each.flatten(1).norm(dim=1) for each in gradients.values()]).norm(dim=0)
        factors = (own.CLIPPING_NORM / norms).clamp(max=1)
        return {name: torch.tensordot(factors, each, 1) for name, each in gradients.items()}

    return clipped_sum


def _mapped(of: Problem, clipped_sum: Callable[[Weights, Tensor, Tensor], Weights]) -> Step:
    objective = of.objective

    def sums(size: int) -> Weights:
        weights = {name: weight.detach() for name, weight in of.network.named_parameters()}
        pieces = zip(of.inputs.split(size), of.targets.split(size), strict=True)
        parts = [clipped_sum(weights, *piece) for piece in pieces]
        return {f"network.{name}": torch.stack([part[name] for part in parts]).sum(0) for name in weights}

    clipping = Flat(own.CLIPPING_NORM)
    return _fastest(of, lambda size: own.released(of, objective, clipping, lambda: sums(size)), _parameters(of))


def fastdp(of: Problem) -> Step:
    """Take a step with fastDP's book-keeping in its mode MixOpt. Channels first, on the whole batch."""
    from fastDP import PrivacyEngine

    of = _channels_first(of)
    optimizer = torch.optim.SGD(of.network.parameters(), lr=own.LEARNING_RATE)
    PrivacyEngine(
        of.network,
        batch_size=len(of.targets),
        sample_size=own.EXAMPLES,
        epochs=1,
        noise_multiplier=own.NOISE_MULTIPLIER,
        max_grad_norm=own.CLIPPING_NORM,
        clipping_fn="Abadi",
        clipping_mode="MixOpt",
    ).attach(optimizer)

    def step() -> None:
        cross_entropy(of.network(of.inputs), of.targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
