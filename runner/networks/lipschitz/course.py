"""Changes of the bound on the loss's gradient during training: C_t = share_t C_0, with C_0 the first bound.

A course changes C_t by public values: the epoch, or earlier releases. One example's contribution to a sum is divided by
share_t. So its bounds, and the noise, are always for C_0. The release is multiplied by share_t again (`unit`), which is
post-processing and gives each step the gradient and the noise for C_t.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from runner.config.fields import expect

COUNT = "loss.within"  # the name of the count among the sums of a step
COUNT_SENSITIVITY = 0.5
LEAST_SHARE = 1e-6  # below it, dividing by a share and multiplying by it again would lose digits


class Course(nn.Module):
    """The bound as a share of the first one.

    Attributes:
        share: C_t / C_0, no dimensions.
        budget: the part of a step's privacy that the course uses, in [0, 1): see `runner.clipping.lipschitz`.
    """

    budget = 0.0
    share: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("share", torch.ones(()))
        self.counter: Tensor | None = None

    def start_epoch(self, epoch: int) -> None:
        """Start an epoch, counted from 0."""

    def learn(self, mean: Tensor) -> None:
        """Update the share from the released count over the expected batch size."""
        raise NotImplementedError

    @contextmanager
    def counting(self, counter: Tensor) -> Iterator[None]:
        """Make a pass count: the derivative by `counter`, a number or one per example, is the sum of `counted`."""
        self.counter = counter
        try:
            yield
        finally:
            self.counter = None


class Falling(Course):
    """C_t by epoch, independent of the data: from C_0 to last C_0 in `epochs` epochs, by the same factor each.

    Raises:
        ValueError: `last` is not from 1e-6 to 1, or `epochs` is below 1.
    """

    def __init__(self, last: float, epochs: int) -> None:
        super().__init__()
        expect(LEAST_SHARE <= last <= 1, f"loss.course.last from {LEAST_SHARE:g} to 1", last)
        expect(epochs >= 1, "loss.course.epochs >= 1", epochs)
        self.last, self.epochs = last, epochs

    def start_epoch(self, epoch: int) -> None:
        self.share.fill_(self.last ** min(1.0, epoch / max(1, self.epochs - 1)))


class Quantile(Course):
    """C_t that follows a quantile of the norms of the loss's gradients, privately (Andrew et al., 2021, algorithm 1).

    After each step C <- C exp(-rate (f - quantile)), with f the released share of examples with norms of at most C. C
    falls while too many are within. It starts at C_0 and stays from least C_0 to C_0. These limits depend only on the
    config, as C has to be a function of the releases.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(self, quantile: float = 0.9, rate: float = 0.2, budget: float = 0.05, least: float = 1e-3) -> None:
        super().__init__()
        expect(0 < quantile < 1, "loss.course.quantile between 0 and 1", quantile)
        expect(0 < budget < 1, "loss.course.budget between 0 and 1", budget)
        expect(LEAST_SHARE <= least < 1, f"loss.course.least from {LEAST_SHARE:g} to below 1", least)
        expect(0 < rate < math.inf, "loss.course.rate > 0 and finite", rate)
        self.quantile, self.rate, self.budget, self.least = quantile, rate, budget, least

    @torch.no_grad()
    def learn(self, mean: Tensor) -> None:
        within = mean + COUNT_SENSITIVITY  # each example's count is centred by a half
        factor = torch.exp(-self.rate * (within - self.quantile))
        self.share.copy_((self.share * factor).clamp(self.least, 1.0))


def counted(norms: Tensor, bound: Tensor) -> Tensor:
    """Return, for norms [batch, 1], +1/2 for each example within the bound, else (or for NaN) -1/2: [batch].

    The count is centred, so that an example more or less moves it by 1/2 and not by 1 (Andrew et al., 2021, theorem 1).
    """
    return ((norms <= bound).to(norms.dtype) - COUNT_SENSITIVITY).squeeze(-1)


def counting_course(loss: nn.Module) -> Course | None:
    """Return the course of a loss if it asks for a count, else None."""
    course = getattr(loss, "course", None)
    return course if isinstance(course, Course) and course.budget > 0 else None
