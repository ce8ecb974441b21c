"""Bounds on the loss's gradient that go along: what a step sums, what it gets, and what a private count costs."""

import math
from collections.abc import Mapping

import dp_accounting
import pytest
import torch
from dp_accounting.rdp import RdpAccountant
from torch import nn
from torch.nn import functional as F

from runner.accounting.accountants import Rdp
from runner.clipping import Lipschitz, NoiseGroup, gradient_sum
from runner.config import Sampling
from runner.gradients import ENGINES, Objective
from runner.mechanism.dp_sgd import Mechanism
from runner.networks.lipschitz import Spectral, gradient_bounds
from runner.networks.lipschitz.architectures import lipschitz_mlp
from runner.networks.lipschitz.course import COUNT, Course, Falling, Quantile
from runner.networks.lipschitz.layers import GroupSort2
from runner.networks.lipschitz.losses import SharpCrossEntropy
from runner.networks.objective import InputBound

FIRST = 0.5


def made(course: Course | None, bound: float | None = FIRST) -> Objective:
    torch.manual_seed(0)
    network = lipschitz_mlp([1, 4, 4], 3, GroupSort2, [8])
    loss = SharpCrossEntropy(20.0, bound, course)
    objective = Objective(network, loss, InputBound((1, 4, 4), 1.0), Spectral()).double()
    objective.project()
    return objective


def examples(count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(count, 1, 4, 4, dtype=torch.float64).renorm(2, 0, 1.0), torch.arange(count) % 3


def summed(
    objective: Objective, inputs: torch.Tensor, targets: torch.Tensor, engine: str = "one_pass", piece: int = 12
) -> Mapping[str, torch.Tensor]:
    groups = Lipschitz().noise_groups(objective)
    return gradient_sum(Lipschitz(), ENGINES[engine](objective), inputs, targets, piece, groups).gradients


def row_norms(objective: Objective) -> torch.Tensor:
    """Norms of p - e_t, the gradient of CE(s z) / s in z, by torch's own softmax."""
    inputs, targets = examples()
    with torch.no_grad():
        return (F.softmax(20 * objective.network(inputs), 1) - F.one_hot(targets, 3)).norm(dim=1)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_gets_the_gradient_clipped_at_the_present_bound(engine):
    """Summed in units in which the first bounds hold, received as with a bound of 0.1 from the start, in float64."""
    course = Falling(last=0.2, epochs=3)
    moving, fixed = made(course), made(None, 0.2 * FIRST)
    course.start_epoch(2)
    sums, expected = (summed(objective, *examples(), engine, 5) for objective in (moving, fixed))
    received = moving.received(dict(sums))
    for name, total in expected.items():
        assert torch.allclose(received[name], total, rtol=1e-9, atol=1e-14)
        assert torch.allclose(sums[name], 5 * total, rtol=1e-9, atol=1e-14)


def test_bounds_stay_those_of_the_first_whatever_the_share():
    for share in (1.0, 0.3, 1e-3):
        course = Falling(1.0, 1)
        objective = made(course)
        course.share.fill_(share)
        bounds = gradient_bounds(objective)
        assert bounds == gradient_bounds(made(None))
        inputs, targets = examples()
        for i in range(len(targets)):
            alone = summed(objective, inputs[i : i + 1], targets[i : i + 1])
            assert all(alone[name].norm() <= bound for name, bound in bounds.items())


def test_rows_within_the_bound_are_counted_in_pieces_of_any_size():
    objective = made(Quantile())
    norms = row_norms(objective)
    between = norms.sort().values[5:7].mean()  # no row is so near that rounding would decide
    objective.loss.course.share.fill_(between.item() / FIRST)
    inputs, targets = examples()
    for piece in (12, 5, 1):
        sums = summed(objective, inputs, targets, piece=piece)
        assert sums[COUNT].item() == (norms <= between).sum().item() - 6
    for i in range(len(targets)):
        members = torch.arange(len(targets)) != i
        fewer = summed(objective, inputs[members], targets[members])
        assert abs((sums[COUNT] - fewer[COUNT]).item()) == 0.5
    assert summed(objective, inputs[:0], targets[:0])[COUNT] == 0


def test_a_nan_row_counts_as_beyond_the_bound_and_adds_nothing():
    objective = made(Quantile())
    inputs, targets = examples(2)
    inputs[0] = torch.nan
    alone = summed(objective, inputs[1:], targets[1:], "isolated")
    logits = torch.tensor([[math.nan] * 3, [0.1, 0.2, 0.3]], dtype=torch.float64, requires_grad=True)
    counter = torch.zeros((), dtype=torch.float64, requires_grad=True)
    with objective.loss.course.counting(counter):
        rows, count = torch.autograd.grad(objective.loss(logits, targets).sum(), [logits, counter])
    assert torch.equal(rows[0], torch.zeros(3).double())
    assert count == alone[COUNT] - 0.5


class Shifted(nn.Module):
    """Has the slope that it states for one example, and moves each example by the mean of its batch."""

    lipschitz = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.mean(0)


def test_rows_are_counted_for_known_modules_only():
    objective = made(Quantile(budget=0.1))
    objective.network.append(Shifted())
    with pytest.raises(ValueError, match="count of clipped rows is bounded for known modules only"):
        Lipschitz().noise_groups(objective)


@pytest.mark.parametrize("noise", ["local", "global"])
def test_a_step_with_its_count_is_one_gaussian(noise):
    """Epsilon by dp-accounting of the Gaussians one by one, from the deviations of the noise, is what is charged."""
    budget, nm, rate, steps = 0.1, 1.3, 0.02, 150
    clipping, objective = Lipschitz(noise), made(Quantile(budget=budget))
    mechanism = Mechanism(Sampling.poisson, 500, 10, nm, clipping.noise_groups(objective))
    *gradients, count = mechanism.noise_groups
    assert len(gradients) == (2 if noise == "local" else 1)
    assert (count.parameters, count.sensitivity) == ((COUNT,), 0.5)
    sigma_b = mechanism.noise_std(count)
    z_delta = sum((group.sensitivity / mechanism.noise_std(group)) ** 2 for group in gradients) ** -0.5
    assert z_delta == pytest.approx((nm**-2 - (2 * sigma_b) ** -2) ** -0.5)  # Andrew et al., 2021, theorem 1
    assert 2 * sigma_b == pytest.approx(nm / math.sqrt(budget))

    one_by_one = [
        dp_accounting.GaussianDpEvent(mechanism.noise_std(group) / group.sensitivity)
        for group in mechanism.noise_groups
    ]
    accountant = RdpAccountant()
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.ComposedDpEvent(one_by_one)), steps)
    charged = mechanism.charges(steps)
    assert charged.actual == charged.claimed
    assert Rdp().epsilon(charged.actual, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, one_by_one[-1]), steps)
    assert Rdp().epsilon(charged.actual, 1e-5) < 0.99 * accountant.get_epsilon(1e-5), "a count charged twice would show"


@pytest.mark.parametrize("shares", [(0.5, None), (0.6, 0.5), (0.5, 0.0)])
def test_shares_of_more_than_a_step_are_refused(shares):
    groups = tuple(NoiseGroup((str(i),), 1.0, share) for i, share in enumerate(shares))
    with pytest.raises(ValueError, match="Expected a share"):
        Mechanism(Sampling.poisson, 100, 10, 1.0, groups)


def test_the_bound_follows_the_quantile():
    """C exp(-rate (f - quantile)), by hand; and with counts of many steps it settles where nine of ten are within."""
    course = Quantile(quantile=0.9, rate=0.5)
    course.learn(torch.tensor(1.0 - 0.5))
    assert course.share.item() == pytest.approx(math.exp(-0.5 * 0.1))
    course.learn(torch.tensor(0.7 - 0.5))
    assert course.share.item() == 1.0, "no more than at first"
    norms = torch.linspace(0.01, 1.0, 100)
    course = Quantile(quantile=0.9, rate=0.2)
    for _ in range(400):
        course.learn((norms <= course.share).float().mean() - 0.5)
    assert course.share.item() == pytest.approx(0.9, abs=0.02)
    for mean, end in ((0.5, 1e-3), (-0.5, 1.0)):  # all are within, or none
        for _ in range(2000):
            course.learn(torch.tensor(mean))
        assert course.share.item() == pytest.approx(end)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Quantile(budget=1.0),
        lambda: Quantile(quantile=0.0),
        lambda: Quantile(rate=0.0),
        lambda: Quantile(least=1e-42),
        lambda: Falling(0.0, 3),
        lambda: Falling(1e-42, 3),
        lambda: Falling(0.5, 0),
        lambda: made("falling"),
        *(lambda bound=bound: made(None, bound) for bound in (1e-40, 0.0, math.inf)),
    ],
)
def test_what_is_no_course_or_no_bound_is_refused(make):
    with pytest.raises(ValueError, match=r"Expected loss\.(course|gradient_bound from 1e-30)"):
        make()


def test_what_is_learnt_hangs_on_what_was_released_only():
    """An empty batch, which has no forward pass, and a batch of one that release the same are followed by the same."""
    shares = []
    for count in (0, 1):
        objective = made(Quantile(), None)
        inputs, targets = (tensor[:count] for tensor in examples())
        sums = summed(objective, inputs, targets)
        objective.received({name: torch.full_like(total, -3.0) for name, total in sums.items()})
        shares.append(objective.loss.course.share.item())
    assert shares[0] == shares[1] == 1.0
