"""Averages of the weights over the steps of a run, which are evaluated next to the last weights.

Privacy. The average after step t is a function of the weights w_0..w_t. These follow from the initial weights and from
the noisy releases of the steps, which the ledger charges as if all of them were published. So the average is
post-processing, and costs nothing. An update that screening rejects changes no weights, and no average.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.config.fields import expect
from runner.gradients import Objective

LAST = ("test_loss_last", "test_accuracy_last")  # columns of a history: the last weights, not the averaged ones


@dataclass(frozen=True)
class Averaging:
    """Exponential moving average of the weights, a_t = d_t a_(t-1) + (1 - d_t) w_t, from the initial a_0 = w_0.

    The decay d_t = min(decay, (1 + t) / (10 + t)) rises with t, the number of updates, as in De et al. (2022). While it
    rises, w_k has a weight of about 9 k^8 / t^9 in a_t, and w_0 one of about 10! / t^9. So the weights in the average
    are t / 10 steps old, in the mean. From t = (10 decay - 1) / (1 - decay) on, the decay is constant, and they come to
    be decay / (1 - decay) steps old.

    The other usual start is a_0 = 0 with the correction a_t / (1 - decay^t). Until t = 1 / (1 - decay) that is nearly
    the plain mean of all weights so far. In a run of a few thousand steps and decay = 0.9999, the first weights would
    count as much as the last. Here, a decay that is too large for a run does little harm.

    Averages of weights stay within a convex constraint, such as a largest spectral norm.

    Raises:
        ValueError: `decay` is not in [0, 1).
    """

    decay: float

    def __post_init__(self) -> None:
        expect(0 <= self.decay < 1, "averaging.decay from 0 to below 1", self.decay)

    def share(self, updates: Tensor) -> Tensor:
        """Return the share of the newest weights in the average, 1 - d_t, after t = `updates`, a float64 number."""
        return 1 - ((1 + updates) / (10 + updates)).clamp(max=self.decay)


def averaged(averaging: Averaging, average: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the next average, as [updates, *averages], from the last one and the newest weights of the same shapes."""
    updates = average[0] + 1
    share = averaging.share(updates.clone())  # a user's code may change it
    if not isinstance(share, Tensor):  # a user's number, which needs no upload here
        share = torch.full_like(updates, share)
    return [updates, *(old.lerp(new, share.to(old.dtype)) for old, new in zip(average[1:], weights, strict=True))]


def initial_average(weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the average before the first update: [updates, *averages]."""
    return [torch.zeros((), dtype=torch.float64, device=weights[0].device), *(w.detach().clone() for w in weights)]


@contextmanager
def weights_replaced(objective: Objective, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Give an objective other weights inside a `with` block, and its own ones again afterwards."""
    before = {name: parameter.detach().clone() for name, parameter in objective.named_parameters()}
    objective.load_state_dict(weights, strict=False)
    try:
        yield
    finally:
        objective.load_state_dict(before, strict=False)
