"""Losses that torch.nn does not have, each per example: losses [batch] from logits z [batch, classes] and targets.

Notation: y is the target as a one-hot vector, p = softmax(z), t the true class. No loss reads another example. So
per-example gradients, clipping and accounting are the usual ones of DP-SGD.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.config.fields import expect


def squared_error(logits: Tensor, targets: Tensor) -> Tensor:
    """Return 1/2 sum_d (z_d - y_d)^2: [batch] (Losing Less, equation 5)."""
    return 0.5 * _errors(logits, targets).square().sum(1)


def focal(logits: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """Return -(1 - p_t)^gamma log p_t: [batch] (Losing Less, equation 6); cross-entropy at gamma = 0.

    1 - p_t is -expm1(log p_t), which keeps its digits as p_t nears 1. If it rounds to zero and gamma < 1, the power's
    derivative would be infinite. So it is at least the smallest normal number, for which loss and gradient are 0.
    """
    log_p = F.log_softmax(logits, dim=1).gather(1, targets[:, None]).squeeze(1)
    if gamma == 0:
        return -log_p
    tiny = torch.finfo(log_p.dtype).tiny
    return -(-torch.expm1(log_p)).clamp_min(tiny).pow(gamma) * log_p


def _errors(logits: Tensor, targets: Tensor) -> Tensor:
    """Return z - y: [batch, classes]; vmap cannot apply one_hot to single examples."""
    classes = torch.arange(logits.shape[1], device=targets.device)
    return logits - (classes == targets[:, None]).to(logits.dtype)


class SquaredError(nn.Module):
    """SSE, 1/2 sum_d (z_d - y_d)^2."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return squared_error(logits, targets)


class AbsoluteError(nn.Module):
    """SAE, sum_d |z_d - y_d|, with the derivative 0 at z_d = y_d."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return _errors(logits, targets).abs().sum(1)


class Huber(nn.Module):
    """sum_d h(z_d - y_d), h(x) = x^2 / (2 b) if |x| < b, else |x| - b / 2, b = `threshold`.

    This is torch's smooth L1 loss. As b falls to 0 it becomes SAE.

    Raises:
        ValueError: `threshold` is not positive.
    """

    def __init__(self, threshold: float) -> None:
        super().__init__()
        expect(0 < threshold < math.inf, "loss.threshold > 0 and finite", threshold)
        self.threshold = threshold

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        errors = _errors(logits, targets)
        return F.smooth_l1_loss(errors, torch.zeros_like(errors), reduction="none", beta=self.threshold).sum(1)


class Focal(nn.Module):
    """The focal loss -(1 - p_t)^gamma log p_t.

    Raises:
        ValueError: `gamma` is negative.
    """

    def __init__(self, gamma: float) -> None:
        super().__init__()
        expect(0 <= gamma < math.inf, "loss.gamma >= 0 and finite", gamma)
        self.gamma = gamma

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return focal(logits, targets, self.gamma)


class SquaredErrorThenFocal(nn.Module):
    """(1 - alpha) SSE + alpha focal, alpha = sigmoid(epoch - threshold_epoch), the epoch counted from 0.

    The ablations SSE + CE (gamma = 0) and SSE + focal of Losing Less, section 4.3. alpha is a function of the epoch
    only. It is a buffer, so that a captured CUDA graph reads its changes.

    Raises:
        ValueError: `gamma` is negative or `threshold_epoch` is not finite.
    """

    alpha: Tensor

    def __init__(self, threshold_epoch: float, gamma: float) -> None:
        super().__init__()
        expect(math.isfinite(threshold_epoch), "loss.threshold_epoch to be finite", threshold_epoch)
        expect(0 <= gamma < math.inf, "loss.gamma >= 0 and finite", gamma)
        self.threshold_epoch, self.gamma = threshold_epoch, gamma
        self.register_buffer("alpha", torch.tensor(0.0), persistent=False)
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        """Set alpha for an epoch, counted from 0."""
        self.alpha.fill_(1 / (1 + math.exp(min(self.threshold_epoch - epoch, 700.0))))

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        alpha = self.alpha.to(logits.dtype)
        return alpha * focal(logits, targets, self.gamma) + (1 - alpha) * squared_error(logits, targets)


class LosingLess(SquaredErrorThenFocal):
    """alpha focal + (1 - alpha) SSE + (1 - alpha) / beta sum_m ||h_m||^2 / d_m (Losing Less, equation 8).

    h_m are the example's d_m pre-activations of hidden layer m: every convolution and linear layer but the last, before
    activation and pooling. The regulariser is a mean of squares of this example alone, no statistic of the batch.

    Raises:
        ValueError: `beta` is not positive, `gamma` is negative or `threshold_epoch` is not finite.
    """

    reads_pre_activations = True

    def __init__(self, threshold_epoch: float, beta: float, gamma: float) -> None:
        super().__init__(threshold_epoch, gamma)
        expect(0 < beta < math.inf, "loss.beta > 0 and finite", beta)
        self.beta = beta

    def forward(self, logits: Tensor, targets: Tensor, hidden: Sequence[Tensor]) -> Tensor:  # type: ignore[override]
        regulariser = sum(_mean_square(h) for h in hidden)
        return super().forward(logits, targets) + (1 - self.alpha.to(logits.dtype)) / self.beta * regulariser


def _mean_square(h: Tensor) -> Tensor:
    """Return ||h||^2 / d of each example's d numbers in h [batch, ...]: [batch].

    Numbers are read in memory order. Squares are used although a norm's gradient needs fewer passes over h. The second
    derivative of a norm is NaN if h is zero.
    """
    flat = h.flatten(1) if h.dim() < 3 or h.is_contiguous() else h.movedim(1, -1).flatten(1)
    return flat.square().mean(1)
