"""The losses of Losing Less against their formulas in float64, and one example's loss against any other example."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runner.clipping import Flat, gradient_sum
from runner.gradients import ENGINES, Objective
from runner.networks.architectures import small_cnn
from runner.networks.losses import AbsoluteError, Focal, Huber, LosingLess, SquaredError, SquaredErrorThenFocal
from tests.references import clipped_sum, per_example

HIDDEN = [(4, 3, 3), (6,)]


def scheduled(loss: SquaredErrorThenFocal, epoch: int) -> SquaredErrorThenFocal:
    loss = loss.double()
    loss.start_epoch(epoch)
    return loss


def sse(z: np.ndarray, t: int) -> float:
    return 0.5 * sum((z[d] - (d == t)) ** 2 for d in range(len(z)))


def focal(z: np.ndarray, t: int, gamma: float) -> float:
    p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    return -((1 - p[t]) ** gamma) * math.log(p[t])


def huber(x: float, b: float) -> float:
    return x * x / (2 * b) if abs(x) < b else abs(x) - b / 2


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


CASES = {
    "sse": (SquaredError(), lambda z, t, h: sse(z, t)),
    "sae": (AbsoluteError(), lambda z, t, h: sum(abs(z[d] - (d == t)) for d in range(len(z)))),
    "huber": (Huber(0.6), lambda z, t, h: sum(huber(z[d] - (d == t), 0.6) for d in range(len(z)))),
    "focal": (Focal(2.5), lambda z, t, h: focal(z, t, 2.5)),
    "sse_ce": (
        scheduled(SquaredErrorThenFocal(2, 0), 3),
        lambda z, t, h: sigmoid(1) * focal(z, t, 0) + (1 - sigmoid(1)) * sse(z, t),
    ),
    "sse_focal": (
        scheduled(SquaredErrorThenFocal(2, 5), 0),
        lambda z, t, h: sigmoid(-2) * focal(z, t, 5) + (1 - sigmoid(-2)) * sse(z, t),
    ),
    "losing_less": (
        scheduled(LosingLess(7, 11, 5), 4),
        lambda z, t, h: (
            sigmoid(-3) * focal(z, t, 5)
            + (1 - sigmoid(-3)) * sse(z, t)
            + (1 - sigmoid(-3)) / 11 * sum(float((m**2).mean()) for m in h)
        ),
    ),
}


def call(loss: nn.Module, logits: Tensor, targets: Tensor, hidden: list[Tensor]) -> Tensor:
    return loss(logits, targets, hidden) if getattr(loss, "reads_pre_activations", False) else loss(logits, targets)


@pytest.mark.parametrize("name", CASES)
def test_losses_are_their_formulas_one_example_at_a_time(name: str) -> None:
    torch.manual_seed(0)
    loss, formula = CASES[name]
    logits, targets = 2 * torch.randn(7, 10, dtype=torch.float64), torch.randint(10, (7,))
    hidden = [torch.randn(7, *shape, dtype=torch.float64) for shape in HIDDEN]
    values = call(loss, logits, targets, hidden)
    expected = [formula(logits[i].numpy(), int(targets[i]), [h[i].numpy() for h in hidden]) for i in range(7)]
    torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["focal", "losing_less"])
def test_gradients_are_the_finite_differences(name: str) -> None:
    torch.manual_seed(1)
    loss, _ = CASES[name]
    logits, targets = torch.randn(3, 10, dtype=torch.float64, requires_grad=True), torch.tensor([0, 4, 9])
    hidden = [torch.randn(3, *shape, dtype=torch.float64, requires_grad=True) for shape in HIDDEN]
    assert torch.autograd.gradcheck(lambda z, *h: call(loss, z, targets, list(h)), (logits, *hidden))


@pytest.mark.parametrize("gamma", [0.5, 5.0])
@pytest.mark.parametrize("margin", [5.0, 1000.0, -1000.0])
def test_focal_gradient_is_right_at_extreme_probabilities(gamma: float, margin: float) -> None:
    """d focal / d z_t = (1 - p)^gamma (gamma p log p - (1 - p))."""
    logits = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    logits.data[0, 0] = margin
    Focal(gamma)(logits, torch.tensor([0])).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    log_p, log_q = -np.logaddexp(0, -margin), -np.logaddexp(0, margin)  # of the true and of the other class
    p, q = math.exp(log_p), math.exp(log_q)
    expected = q**gamma * (gamma * p * log_p - q)
    assert logits.grad[0, 0].item() == pytest.approx(expected, rel=1e-6, abs=1e-15)


def objective(epoch: int = 3) -> Objective:
    torch.manual_seed(2)
    model = Objective(small_cnn([1, 28, 28], 10, nn.Tanh, [4, 5], 6, 3), LosingLess(2, 3, 4)).double()
    model.start_epoch(epoch)
    return model


def test_regulariser_reads_hidden_pre_activations_but_no_logit() -> None:
    model, x = objective(), torch.randn(3, 1, 28, 28, dtype=torch.float64)
    model.loss = LosingLess(2, 1e-6, 4).double()  # the regulariser outweighs the rest
    model.start_epoch(0)
    seen, h = [], x
    for layer in model.network:
        h = layer(h)
        if isinstance(layer, nn.Conv2d | nn.Linear):
            seen.append(h)
    expected = (1 - sigmoid(-2)) / 1e-6 * sum(m.flatten(1).square().mean(1) for m in seen[:-1])
    assert len(seen) == 4
    torch.testing.assert_close(model(x, torch.tensor([1, 2, 3])), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_the_regularisers_derivatives_in_a_pre_activation(order: torch.memory_format) -> None:
    """The first is it over half their number, the second one over that: in either order in memory, at zero too."""
    torch.manual_seed(0)
    loss, logits, targets = LosingLess(2, 0.5, 1), torch.zeros(5, 10), torch.arange(5)
    h = torch.randn(5, 3, 4, 6).contiguous(memory_format=order)
    h[2] = 0
    h.requires_grad_()
    weights = torch.randn(5)
    (values,) = torch.autograd.grad((weights * loss(logits, targets, [h])).sum(), [h], create_graph=True)
    (second,) = torch.autograd.grad(values.sum(), [h])
    scale = (1 - sigmoid(-2)) / 0.5 * 2 / (3 * 4 * 6)
    torch.testing.assert_close(values, scale * weights.view(5, 1, 1, 1) * h.detach(), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(second, (scale * weights).view(5, 1, 1, 1).expand(h.shape), rtol=1e-5, atol=1e-7)
    assert len(loss(logits[:0], targets[:0], [h[:0]])) == 0


@pytest.mark.parametrize(("engine", "epoch"), [("one_pass", 0), ("isolated", 5)])
def test_engines_clip_gradients_with_the_regulariser(engine: str, epoch: int) -> None:
    model, norm = objective(epoch), 0.3
    x, y = torch.randn(6, 1, 28, 28, dtype=torch.float64), torch.arange(6)
    values = gradient_sum(Flat(norm), ENGINES[engine](model), x, y, 4).gradients
    for name, total in clipped_sum(per_example(model, x, y), norm).items():
        torch.testing.assert_close(values[name], total, rtol=1e-8, atol=1e-10, msg=name)
