"""Losses that are Lipschitz in the logits, each per example: losses [batch] from logits z [batch, K] and targets.

A loss states by `lipschitz(classes)` the largest L2 norm of its gradient in the logits, for all logits and targets. t
is the target and e_t the one-hot vector. Each class has its derivation. The suprema are attained or approached, so no
smaller number would do. (The paper's code for `KantorovichRubinstein` weighs an example by the number of the batch's
examples in its class. No loss here does so, as it would couple examples.)

With `gradient_bound` C, every example's gradient in the logits is scaled to at most C: the backward pass gets
dz * min(1, C / ||dz||), and the constant is the smaller of C and the loss's constant. Without it, C is the loss's
constant, which changes only rounding. A gradient that is not finite becomes zero. A `course` changes the bound with the
epoch or with a private count (`runner.networks.lipschitz.course`). C is then the first bound.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from runner.config.fields import expect
from runner.networks.lipschitz.course import COUNT, Course, counted

_LEAST = 1e-30  # of a bound: times the least share of a course it still has all digits of float32
_ROUNDING = 1 + 1e-6  # above the constant of a loss, so that its gradient is not scaled


class LipschitzLoss(nn.Module):
    """Base of these losses, with the bound on the gradient in the logits.

    Raises:
        ValueError: `gradient_bound` is below 1e-30 or not finite.
    """

    def __init__(self, gradient_bound: float | None = None, course: Course | None = None) -> None:
        super().__init__()
        bounded = gradient_bound is None or _LEAST <= gradient_bound < math.inf
        expect(bounded, f"loss.gradient_bound from {_LEAST:g} up and finite", gradient_bound)
        expect(course is None or isinstance(course, Course), "loss.course to name a class of courses", course)
        self.gradient_bound, self.course = gradient_bound, course

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.course is not None:
            share = self.course.share.to(logits.dtype)
            present = self.lipschitz(logits.shape[1]) * share
            counter = self.course.counter
            counters = None if counter is None else counter.expand(len(logits))
            return self.losses(_clipped_backward(logits, present, share, counters), targets)
        bound = self.gradient_bound
        if bound is None and math.isfinite(self.constant(logits.shape[1])):
            bound = self.constant(logits.shape[1]) * _ROUNDING
        return self.losses(logits if bound is None else _clipped_backward(logits, bound), targets)

    def start_epoch(self, epoch: int) -> None:
        """Pass the epoch that begins, counted from 0, to the course."""
        if self.course is not None:
            self.course.start_epoch(epoch)

    @property
    def unit(self) -> float | Tensor:
        """Return the factor for released gradients."""
        return 1.0 if self.course is None else self.course.share

    def received(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return released gradients by name, in their unit, and pass a released count to the course."""
        if self.course is None:
            return means
        gradients = {name: self.unit * mean for name, mean in means.items() if name != COUNT}
        if COUNT in means:
            self.course.learn(means[COUNT])
        return gradients

    def lipschitz(self, classes: int) -> float:
        """Return the largest norm of one example's gradient in its logits."""
        return min(self.constant(classes), math.inf if self.gradient_bound is None else self.gradient_bound)

    def constant(self, classes: int) -> float:
        """Return the loss's Lipschitz constant without `gradient_bound`."""
        raise NotImplementedError

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return losses [batch]."""
        raise NotImplementedError


class SharpCrossEntropy(LipschitzLoss):
    """CE(s z) / s, s = `inverse_temperature`: the larger s, the nearer to max_j z_j - z_t.

    Its gradient is p - e_t, p = softmax(s z): ||p - e_t||^2 = (1 - p_t)^2 + sum_{j != t} p_j^2 <= 2 (1 - p_t)^2 <= 2.

    Raises:
        ValueError: `inverse_temperature` is not positive and finite.
    """

    def __init__(
        self, inverse_temperature: float, gradient_bound: float | None = None, course: Course | None = None
    ) -> None:
        super().__init__(gradient_bound, course)
        wanted = "loss.inverse_temperature > 0 and finite"
        expect(0 < inverse_temperature < math.inf, wanted, inverse_temperature)
        self.inverse_temperature = inverse_temperature

    def constant(self, classes: int) -> float:
        return math.sqrt(2)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        losses = F.cross_entropy(self.inverse_temperature * logits, targets, reduction="none")
        return losses / self.inverse_temperature


class Cosine(LipschitzLoss):
    """-z_t / max(||z||, X), X = `smallest_norm`.

    For ||z|| < X the gradient is -e_t / X. Beyond, it is -(e_t - (u_t) u) / ||z|| with u = z / ||z||: a projection of
    e_t over a norm of at least X. So 1 / X bounds both.

    Raises:
        ValueError: `smallest_norm` is not positive and finite.
    """

    def __init__(self, smallest_norm: float, gradient_bound: float | None = None, course: Course | None = None) -> None:
        super().__init__(gradient_bound, course)
        expect(0 < smallest_norm < math.inf, "loss.smallest_norm > 0 and finite", smallest_norm)
        self.smallest_norm = smallest_norm

    def constant(self, classes: int) -> float:
        return 1 / self.smallest_norm

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(logits, dim=1)
        return -_target_logits(logits, targets) / norms.clamp_min(self.smallest_norm)


class Hinge(LipschitzLoss):
    """(1/K) [(K - 1) relu(m/2 - z_t) + sum_{j != t} relu(m/2 + z_j)], m = `margin`: one class against all others.

    With every hinge open the gradient is (-(K - 1) e_t + sum_{j != t} e_j) / K. Its square is
    ((K - 1)^2 + K - 1) / K^2 = (K - 1) / K. With fewer open hinges it is shorter. (The paper states 1.)

    Raises:
        ValueError: `margin` is not positive and finite.
    """

    def __init__(self, margin: float, gradient_bound: float | None = None, course: Course | None = None) -> None:
        super().__init__(gradient_bound, course)
        expect(0 < margin < math.inf, "loss.margin > 0 and finite", margin)
        self.margin = margin

    def constant(self, classes: int) -> float:
        return math.sqrt((classes - 1) / classes)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return _hinge(logits, targets, self.margin)


class KantorovichRubinstein(LipschitzLoss):
    """-z_t + sum_{j != t} z_j / (K - 1): the difference of means that the dual of a Wasserstein distance maximises.

    Its gradient is constant, of square 1 + (K - 1) / (K - 1)^2 = K / (K - 1). (The paper states 1, which is too small.)
    """

    def constant(self, classes: int) -> float:
        return math.sqrt(classes / (classes - 1))

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return _difference_of_means(logits, targets)


class HingeKantorovichRubinstein(LipschitzLoss):
    """KR + alpha * hinge (Serrurier et al., 2021).

    Both gradients are multiples of one vector if every hinge is open. So sqrt(K / (K - 1)) + alpha sqrt((K - 1) / K) is
    attained, and the triangle inequality allows no more. (The paper states 1 + alpha. For ten classes that is enough
    from alpha = 1.055 on.)

    Raises:
        ValueError: `margin` is not positive and finite, or `alpha` is negative.
    """

    def __init__(
        self, alpha: float, margin: float, gradient_bound: float | None = None, course: Course | None = None
    ) -> None:
        super().__init__(gradient_bound, course)
        expect(0 <= alpha < math.inf, "loss.alpha >= 0 and finite", alpha)
        expect(0 < margin < math.inf, "loss.margin > 0 and finite", margin)
        self.alpha, self.margin = alpha, margin

    def constant(self, classes: int) -> float:
        return math.sqrt(classes / (classes - 1)) + self.alpha * math.sqrt((classes - 1) / classes)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return _difference_of_means(logits, targets) + self.alpha * _hinge(logits, targets, self.margin)


def lipschitz_constant(loss: nn.Module, classes: int) -> float:
    """Return the Lipschitz constant of a loss in K logits, from its class, or for torch's plain cross-entropy.

    Raises:
        ValueError: the loss has no known constant.
    """
    if type(loss) is nn.CrossEntropyLoss and loss.weight is None and loss.label_smoothing == 0:
        return math.sqrt(2)
    stated = getattr(loss, "lipschitz", None)
    if stated is None:
        raise ValueError(f"no Lipschitz constant is known for the loss {type(loss).__name__}")
    return float(stated(classes))


def _target_logits(logits: Tensor, targets: Tensor) -> Tensor:
    return logits.gather(1, targets[:, None]).squeeze(1)


def _difference_of_means(logits: Tensor, targets: Tensor) -> Tensor:
    target = _target_logits(logits, targets)
    return (logits.sum(1) - target) / (logits.shape[1] - 1) - target


def _hinge(logits: Tensor, targets: Tensor, margin: float) -> Tensor:
    classes, target = logits.shape[1], _target_logits(logits, targets)
    open_hinges = F.relu(margin / 2 + logits).sum(1) - F.relu(margin / 2 + target)
    return ((classes - 1) * F.relu(margin / 2 - target) + open_hinges) / classes


def _clipped_backward(
    logits: Tensor, bound: float | Tensor, unit: float | Tensor = 1.0, counters: Tensor | None = None
) -> Tensor:
    # Numbers without dimensions are made on the device, as a captured step may not copy them from the CPU.
    scales = (n if isinstance(n, Tensor) else logits.new_full((), n) for n in (bound, unit))
    clipped: Tensor = _ClippedBackward.apply(logits, *scales, counters)
    return clipped


class _ClippedBackward(torch.autograd.Function):
    """The identity, whose backward pass scales each example's row to at most the bound, and divides it by the unit.

    The derivative by the counters [batch], if there are any, is `counted` for each example.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, bound: Tensor, unit: Tensor, counters: Tensor | None) -> Tensor:
        return logits.view_as(logits)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1], inputs[2])

    @staticmethod
    def backward(ctx: Any, rows: Tensor) -> tuple[Tensor, None, None, Tensor | None]:
        bound, unit = ctx.saved_tensors
        norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        clipped = rows * (bound / norms).clamp(max=1.0) / unit
        counts = counted(norms, bound) if ctx.needs_input_grad[3] else None
        return torch.where(torch.isfinite(norms), clipped, 0.0), None, None, counts
