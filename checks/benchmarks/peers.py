"""The same step by other libraries, each as its documentation has it, in pieces of the size that is fastest for it.

These are pieces of 64 examples, of 256, or the whole batch. fastDP takes whole batches.

JAX and fastDP (github.com/awslabs/fast-differential-privacy, with transformers 4) are measured if they are installed.
"""

import importlib.util
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from opacus import GradSampleModule
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.functional import cross_entropy

from checks.benchmarks import jax_peer, own
from checks.benchmarks.own import Step, waited_for
from checks.benchmarks.problems import LIPSCHITZ, PLAIN, Problem
from runner.clipping import Flat
from runner.gradients.interface import GradientSum, OrdinaryPass, weigh_and_sum
from runner.gradients.terms import Factors
from runner.networks.objective import Objective

_SIZES = (64, 256)  # examples of a piece; the whole batch is timed, too
_MOST = 2 << 30  # bytes of per-example gradients at a time


class OpacusEngine(OrdinaryPass):
    """An engine that forms every per-example gradient by Opacus' `GradSampleModule`: hooks on every layer it knows.

    It then weighs and sums as `IsolatedEngine` does. This is a second, independent implementation. `PrivacyEngine` is
    not used, because it replaces the batch size by its own.

    Opacus 1.6 assumes that a convolution's input lies in memory as [batch, channels, height, width]. With channels-last
    inputs or weights it silently returns wrong gradients, so both are laid out anew here.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__(objective)
        for parameter in objective.parameters():
            parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
        self._hooked = GradSampleModule(objective, loss_reduction="sum")
        self._hooked.disable_hooks()  # on only inside clipped_sum: other passes must leave nothing behind

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        """See `Engine.clipped_sum`."""
        self._hooked.enable_hooks()
        losses = self._hooked(inputs.clone(memory_format=torch.contiguous_format), targets)
        losses.sum().backward()
        self._hooked.disable_hooks()
        per_example = {name: cast(Any, p).grad_sample for name, p in self.objective.named_parameters()}
        for p in self.objective.parameters():
            cast(Any, p).grad_sample, p.grad = None, None
        return weigh_and_sum(per_example, losses.detach(), groups, factors)


def non_private_default(case: Problem) -> Step:
    """Take an ordinary step as PyTorch is set by default: channels first, and on CUDA convolutions in TF32."""
    step = own.METHODS["non_private"](_channels_first(case))

    def take() -> None:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
            step()

    return take


def non_private_lowered(case: Problem) -> Step:
    """Take an ordinary step on tensor cores: channels last, in bfloat16 where autocast has it."""

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast(inputs.device.type, torch.bfloat16):
            lowered: Tensor = case.objective(inputs, targets)
            return lowered

    return own.non_private_by(case, losses)


def _fastest(case: Problem, step: Callable[[int], Step], *, gradients: bool = False) -> Step:
    """Return the fastest of the steps in pieces of each size. Weights stay.

    If it stores per-example gradients, sizes that fill more than 2 GiB are left out, but for the smallest.
    """
    examples, device = len(case.targets), str(case.targets.device)
    sizes = sorted({min(size, examples) for size in (*_SIZES, examples)})
    most = _MOST // (4 * sum(p.numel() for p in case.network.parameters())) if gradients else examples
    before = [weight.detach().clone() for weight in case.network.parameters()]
    clock = time.perf_counter if case.targets.is_cuda else time.process_time  # a busy machine does not decide on a CPU

    def seconds(step: Step) -> float:
        waited = waited_for(step, device)
        waited()
        started = clock()
        waited()
        return clock() - started

    fastest = min((step(size) for size in sizes if size <= most or size == sizes[0]), key=seconds)
    if case.targets.is_cuda:
        torch.cuda.reset_peak_memory_stats(device)
    with torch.no_grad():
        for weight, saved in zip(case.network.parameters(), before, strict=True):
            weight.copy_(saved)
    return fastest


def opacus_hooks(case: Problem) -> Step:
    """Take a step with Opacus' GradSampleModule. It needs channels first, and gets it (see `OpacusEngine`)."""
    engine, clipping = OpacusEngine(case.objective), Flat(own.CLIPPING_NORM)
    return _fastest(case, lambda size: own.private(case, clipping, lambda _: engine, size), gradients=True)


def opacus_ghost(case: Problem) -> Step:
    """Take a step with Opacus' ghost clipping: norms from one backward pass, the sum from a second. Channels first."""
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    case = _channels_first(case)
    hooked = GradSampleModuleFastGradientClipping(case.network, max_grad_norm=own.CLIPPING_NORM, loss_reduction="sum")
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(hooked.parameters(), lr=own.LEARNING_RATE / len(case.targets)),  # it steps by the sum
        noise_multiplier=own.NOISE_MULTIPLIER,
        max_grad_norm=own.CLIPPING_NORM,
        expected_batch_size=len(case.targets),
        loss_reduction="sum",
    )
    criterion = DPLossFastGradientClipping(hooked, optimizer, nn.CrossEntropyLoss(reduction="sum"), "sum")

    def step(size: int) -> None:
        optimizer.zero_grad()
        pieces = list(zip(case.inputs.split(size), case.targets.split(size), strict=True))
        for i, (inputs, targets) in enumerate(pieces, start=1):
            criterion(hooked(inputs), targets).backward()
            optimizer.signal_skip_step(i < len(pieces))
            optimizer.step()
            if i < len(pieces):
                optimizer.zero_grad()

    return _fastest(case, lambda size: lambda: step(size))


def _channels_first(case: Problem) -> Problem:
    """Return the problem with every tensor laid out in the order of its dimensions."""
    for parameter in case.network.parameters():
        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
    return Problem(case.network, case.inputs.clone(memory_format=torch.contiguous_format), case.targets)


Weights = dict[str, Tensor]


def vmap(case: Problem, *, compiled: bool = False) -> Step:
    """Take a step with `torch.func`: the gradient of one example, mapped over a piece, then clipped and summed.

    If it is compiled, it is so by torch.compile in one piece: gradients, norms and sums.
    """

    def loss(weights: Weights, image: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(functional_call(case.network, weights, (image[None],)), target[None])

    def clipped_sum(weights: Weights, inputs: Tensor, targets: Tensor) -> Weights:
        return _clip_and_sum(torch.vmap(grad(loss), (None, 0, 0))(weights, inputs, targets))

    return _mapped(case, torch.compile(clipped_sum, fullgraph=True, dynamic=False) if compiled else clipped_sum)


def by_hand(case: Problem) -> Step:
    """Take a step as one would write it for linear layers and convolutions: windows by `unfold`, then one product."""
    layers = {name: m for name, m in case.network.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}

    def formed(layer: nn.Module, x: Tensor, g: Tensor) -> Tensor:
        if isinstance(layer, nn.Conv2d):
            windows = nn.functional.unfold(x, layer.kernel_size, layer.dilation, cast(Any, layer.padding), layer.stride)
            return torch.bmm(g.flatten(2), windows.transpose(1, 2)).view(len(g), *layer.weight.shape)
        return g[:, :, None] * x[:, None]

    def clipped_sum(_weights: Weights, inputs: Tensor, targets: Tensor) -> Weights:
        passed: dict[str, tuple[Tensor, Tensor]] = {}
        hooks = [
            layer.register_forward_hook(lambda _, x, y, name=name: passed.update({name: (x[0].detach(), y)}))
            for name, layer in layers.items()
        ]
        losses = case.objective(inputs, targets)
        for hook in hooks:
            hook.remove()
        outputs = torch.autograd.grad(losses.sum(), [y for _, y in passed.values()])
        gradients = {}
        for (name, (x, _)), g in zip(passed.items(), outputs, strict=True):
            gradients[f"{name}.weight"] = formed(layers[name], x, g)
            if layers[name].bias is not None:
                gradients[f"{name}.bias"] = g.flatten(2).sum(2) if g.dim() > 2 else g
        return _clip_and_sum(gradients)

    return _mapped(case, clipped_sum)


def _clip_and_sum(gradients: Weights) -> Weights:
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients.values()]).norm(dim=0)
    factors = (own.CLIPPING_NORM / norms).clamp(max=1)
    return {name: torch.tensordot(factors, gradient, 1) for name, gradient in gradients.items()}


def _mapped(case: Problem, clipped_sum: Callable[[Weights, Tensor, Tensor], Weights]) -> Step:
    objective = case.objective

    def sums(size: int) -> Weights:
        weights = {name: weight.detach() for name, weight in case.network.named_parameters()}
        pieces = zip(case.inputs.split(size), case.targets.split(size), strict=True)
        parts = [clipped_sum(weights, *piece) for piece in pieces]
        return {f"network.{name}": torch.stack([part[name] for part in parts]).sum(0) for name in weights}

    clipping = Flat(own.CLIPPING_NORM)
    return _fastest(case, lambda size: own.released(case, objective, clipping, lambda: sums(size)), gradients=True)


def fastdp(case: Problem) -> Step:
    """Take a step with fastDP's book-keeping in its mode MixOpt. Channels first, on the whole batch."""
    from fastDP import PrivacyEngine

    case = _channels_first(case)
    optimizer = torch.optim.SGD(case.network.parameters(), lr=own.LEARNING_RATE)
    PrivacyEngine(
        case.network,
        batch_size=len(case.targets),
        sample_size=own.EXAMPLES,
        epochs=1,
        noise_multiplier=own.NOISE_MULTIPLIER,
        max_grad_norm=own.CLIPPING_NORM,
        clipping_fn="Abadi",
        clipping_mode="MixOpt",
    ).attach(optimizer)

    def step() -> None:
        cross_entropy(case.network(case.inputs), case.targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


METHODS: dict[str, own.Builder] = {
    "non_private": own.METHODS["non_private"],
    "non_private_default": non_private_default,
    "non_private_lowered": non_private_lowered,
    "non_private_compiled": lambda case: own.non_private_by(case, torch.compile(case.objective, dynamic=False)),
    "non_private_jax": jax_peer.step,
    **own.METHODS,
    "vmap": vmap,
    "vmap_compiled": partial(vmap, compiled=True),
    "by_hand": by_hand,
    "jax": lambda case: _fastest(case, partial(jax_peer.step, case), gradients=True),
    "opacus_hooks": opacus_hooks,
    "opacus_ghost": opacus_ghost,
    "fastdp": fastdp,
}


def methods(network: str = "M") -> dict[str, own.Builder]:
    """Return the methods that can run here on this network, by name. The first is an ordinary step."""
    if network.removesuffix(PLAIN) in LIPSCHITZ:
        names = ("non_private", "non_private_faster", "clipless", "projection", "one_pass", "opacus_hooks")
        return {name: METHODS[name] for name in names}
    left_out = {"projection"} if network == "L" else {"projection", "clipless"}
    left_out |= set() if network in ("M", "R", "C") else {"backprop"}
    for library, needing in (("fastDP", {"fastdp"}), ("jax", {"jax", "non_private_jax"})):
        left_out |= set() if importlib.util.find_spec(library) else needing
    if network == "W":  # these know no standardised convolution (Opacus is off by 2%)
        left_out |= {"by_hand", "jax", "non_private_jax", "opacus_hooks", "opacus_ghost", "fastdp"}
    bounded = {"clipless": own.clipless_bounded}
    return {name: step for name, step in (METHODS | bounded).items() if name not in left_out}
