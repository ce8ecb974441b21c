"""Clipping of residuals around past releases: g_i - r is clipped, and r is added back after the noise.

Let y_t be the released mean of step t, and r_t = decay * r_(t-1) + (1 - decay) * (r_(t-1) + y_t) the reference. A
contribution is the residual g_i - r_t, clipped to C. The reference follows from earlier releases, so it is public, and
the sensitivity is C as in DP-SGD. The released sum lacks r_t once for each example of the batch. Their number is
private under Poisson sampling, so the expected number B is used: the update is y_t + r_t, with y_t the noisy sum over B.
"""

from dataclasses import dataclass

import torch

from runner.clipping import Flat, NoiseGroup

REFERENCE: list[torch.Tensor] = []  # r_t by parameter, written by the optimizer from releases and read by the clipping


@dataclass(frozen=True)
class Residuals(Flat):
    """(g_i - r) * min(1, C / ||g_i - r||), of norm at most C."""

    def contribution(self, gradients):
        residuals = dict(gradients)
        if len(REFERENCE) == len(gradients):  # not before training, when the class is tried without its optimizer
            residuals = {name: g - r for (name, g), r in zip(gradients.items(), REFERENCE, strict=True)}
        norm = torch.cat([residual.flatten() for residual in residuals.values()]).norm()
        factor = (self.norm / norm).clamp(max=1.0)
        return {name: residual * factor for name, residual in residuals.items()}


class AddedBack(torch.optim.SGD):
    """SGD on y + r. Then r becomes r + (1 - decay) y. Both follow from releases."""

    def __init__(self, parameters, lr, momentum=0.0, decay=0.9):
        super().__init__(parameters, lr=lr, momentum=momentum)
        self.decay = decay
        REFERENCE[:] = [torch.zeros_like(parameter) for parameter in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        for reference, parameter in zip(REFERENCE, self.param_groups[0]["params"], strict=True):
            release = parameter.grad.clone()
            parameter.grad.add_(reference)
            reference.add_(release, alpha=1 - self.decay)
        return super().step(closure)

    def state_dict(self):
        return super().state_dict() | {"reference": [reference.clone() for reference in REFERENCE]}

    def load_state_dict(self, state):
        REFERENCE[:] = [reference.clone() for reference in state["reference"]]
        super().load_state_dict({name: value for name, value in state.items() if name != "reference"})
