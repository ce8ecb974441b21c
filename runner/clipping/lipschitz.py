"""No clipping: the network's own layers bound every example's gradient (Bethune et al., 2024).

The sum is that of one ordinary backward pass; `runner.networks.lipschitz.bounds` derives how far one example can move
it in each tensor, K_d, for inputs, weights and a loss that are bounded. Nothing here bounds anything itself: where the
inputs are not of bounded norm, the weights not projected after every update, or a module is not known, the clipping is
refused.

A loss may have its gradient in the logits bounded by a C_t that goes along (`runner.networks.lipschitz.course`). Let
K_d be the bounds for C_0, and u_t = C_t / C_0, which is public before step t: fixed by the epoch, or a function of what
earlier steps released. A row of the loss's gradient is clipped to C_t and divided by u_t, so that it is at most C_0,
and every example's gradient, in this unit, at most K_d in tensor d. The noise of step t is for K_d, and multiplying
what is released by u_t is post-processing: it is the gradient clipped at C_t with noise for u_t K_d.

Where C_t follows a quantile, step t also releases how many rows were within it, of the same batch: an example adds
+1/2 to the count if ||dz_i|| <= C_t, else -1/2, so one more or less moves the count by 1/2, whatever C_t. It is one
more group of the step, with the share w of its privacy that the course states, and the D tensors (1 - w) / D each:

    std_count = nm (1/2) / sqrt(w),   std_d = nm K_d / sqrt((1 - w) / D),
    (1/2)^2 / std_count^2 + sum_d K_d^2 / std_d^2 = (w + D (1 - w) / D) / nm^2 = 1 / nm^2,

so the step, count and all, is one Gaussian mechanism of multiplier nm, sampled once: what `runner.mechanism.dp_sgd`
charges. (In the terms of Andrew et al., 2021, theorem 1, sigma_b = std_count and z_delta = nm / sqrt(1 - w):
z_delta^-2 + (2 sigma_b)^-2 = nm^-2.) The next C is a function of C_t and of the released count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from runner.clipping.interface import NoiseGroup, Numbers
from runner.clipping.per_example import cut_to
from runner.gradients import Engine, GradientSum, IsolatedEngine, unknown
from runner.networks.lipschitz import gradient_bounds
from runner.networks.lipschitz.course import COUNT, COUNT_SENSITIVITY, counting_course
from runner.networks.objective import Objective

NOISE = ("local", "global")


@dataclass(frozen=True)
class Lipschitz:
    """The plain sum, of contributions bounded by K_d in tensor d of D.

    `noise`: how the noise is divided among the tensors, at one noise multiplier of the whole step.
    local: in proportion to K_d, each tensor a group of its own: its noise has the deviation nm sqrt(D) K_d (the paper's
        algorithm 2; what it calls the multiplier of a layer is nm sqrt(D)).
    global: the same on all numbers, for the sensitivity (sum_d K_d^2)^(1/2) (its algorithm 3).

    Raises:
        ValueError: if `noise` is neither.
    """

    noise: str = "local"
    needs_engine = False

    def __post_init__(self) -> None:
        if self.noise not in NOISE:
            raise ValueError(f"Expected clipping.noise {' or '.join(NOISE)}, got {self.noise}.")

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        """One group a tensor, or one of all, and one of the count, where the loss asks for it.

        Raises:
            ValueError: where a gradient has no bound.
        """
        if not isinstance(model, Objective):
            raise ValueError("clipping=lipschitz bounds the gradients of an objective: a network, its loss and inputs.")
        try:
            bounds = gradient_bounds(model).gradients
        except ValueError as error:
            raise ValueError(f"clipping=lipschitz: {error}.") from error
        if self.noise == "global":
            groups = [NoiseGroup(tuple(bounds), math.hypot(*bounds.values()))]
        else:
            groups = [NoiseGroup((name,), bound) for name, bound in bounds.items()]
        course = counting_course(model.loss)
        if course is None:
            return tuple(groups)
        if reason := unknown(model):
            raise ValueError(f"A count of clipped rows is bounded for known modules only, and {reason}.")
        share = (1 - course.budget) / len(groups)
        shared = [replace(group, share=share) for group in groups]
        return (*shared, NoiseGroup((COUNT,), COUNT_SENSITIVITY, course.budget))

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        """The sum over one physical batch, by one forward and one backward pass. Norms are not computed.

        By the isolated engine every example's gradient is computed by itself, and cut to the bound of its group.
        """
        if isinstance(engine, IsolatedEngine) and counting_course(engine.objective.loss) is None:
            names = [group.parameters for group in groups]
            return replace(engine.clipped_sum(inputs, targets, names, cut_to(groups)), norms=None)
        return self.sum_with(engine, inputs, targets, {})

    def sum_with(self, engine: Engine, inputs: Tensor, targets: Tensor, numbers: Numbers) -> GradientSum:
        course = counting_course(engine.objective.loss)
        if course is None:
            return engine.plain_sum(inputs, targets)
        counter = torch.zeros((), dtype=inputs.dtype, device=inputs.device, requires_grad=True)
        with course.counting(counter):
            return engine.plain_sum(inputs, targets, {COUNT: counter})
