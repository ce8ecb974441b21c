"""No clipping: the network's own layers bound every example's gradient (Bethune et al., 2024).

The sum comes from one ordinary backward pass. `runner.networks.lipschitz.bounds` derives K_d: how far one example can
move the sum in each tensor, for inputs, weights and a loss that are bounded. Nothing is bounded in this file. So the
inputs need a bounded norm, weights have to be projected after every update, and all modules have to be known.

A loss may bound its gradient in the logits by a C_t that changes (`runner.networks.lipschitz.course`). Let K_d be the
bounds for C_0, and u_t = C_t / C_0. u_t is public before step t: fixed by the epoch, or a function of earlier releases.
A row of the loss's gradient is clipped to C_t and divided by u_t, so that it is at most C_0. In this unit every
example's gradient is at most K_d in tensor d. The noise of step t is for K_d. Multiplying the release by u_t is
post-processing. It gives the gradient clipped at C_t with noise for u_t K_d.

If C_t follows a quantile, step t also releases the number of rows within it, of the same batch. An example adds +1/2 to
the count if ||dz_i|| <= C_t, else -1/2. So one example more or less moves the count by 1/2, for any C_t. The count is
one more group of the step, with the share w of its privacy that the course states. The D tensors get (1 - w) / D each:

    std_count = nm (1/2) / sqrt(w),   std_d = nm K_d / sqrt((1 - w) / D),
    (1/2)^2 / std_count^2 + sum_d K_d^2 / std_d^2 = (w + D (1 - w) / D) / nm^2 = 1 / nm^2,

So the step with its count is one Gaussian mechanism of multiplier nm, sampled once, as `runner.mechanism.dp_sgd`
charges. (In the terms of Andrew et al., 2021, theorem 1, sigma_b = std_count and z_delta = nm / sqrt(1 - w):
z_delta^-2 + (2 sigma_b)^-2 = nm^-2.) The next C is a function of C_t and of the released count.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from runner.clipping import NoiseGroup, cut_to
from runner.config.fields import expect
from runner.gradients import Engine, GradientSum, MappedEngine, unknown
from runner.networks.lipschitz import gradient_bounds
from runner.networks.lipschitz.course import COUNT, COUNT_SENSITIVITY, counting_course
from runner.networks.objective import Objective

NOISE = ("local", "global")


@dataclass(frozen=True)
class Lipschitz:
    """The plain sum, of contributions bounded by K_d in tensor d of D.

    `noise`: the division of the noise among the tensors, at one noise multiplier of the whole step.
    local: in proportion to K_d (the paper's algorithm 2). Each tensor is a group. Its noise has the deviation
        nm sqrt(D) K_d, and the paper calls nm sqrt(D) the multiplier of a layer.
    global: the same on all numbers, for the sensitivity (sum_d K_d^2)^(1/2) (the paper's algorithm 3).

    Raises:
        ValueError: `noise` is neither.
    """

    noise: str = "local"
    needs_engine = False
    sums_by_engine = True

    def __post_init__(self) -> None:
        expect(self.noise in NOISE, f"clipping.noise {' or '.join(NOISE)}", self.noise)

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        """Return one group per tensor, or one for all, and one for the count if the loss asks for it.

        Raises:
            ValueError: a gradient has no bound.
        """
        assert isinstance(model, Objective)  # the network, its loss and its inputs
        try:
            bounds = gradient_bounds(model)
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
        """Return the sum over one physical batch, by one forward and one backward pass, without norms.

        The mapped engine computes each example's gradient separately, and cuts it to the bound of its group.
        """
        if isinstance(engine, MappedEngine) and not any(COUNT in group.parameters for group in groups):
            names = [group.parameters for group in groups]
            return replace(engine.clipped_sum(inputs, targets, names, cut_to(groups)), norms=None)
        course = counting_course(engine.objective.loss)
        if course is None:
            return engine.plain_sum(inputs, targets)
        counter = torch.zeros((), dtype=inputs.dtype, device=inputs.device).requires_grad_()
        with course.counting(counter):
            return engine.plain_sum(inputs, targets, {COUNT: counter})
