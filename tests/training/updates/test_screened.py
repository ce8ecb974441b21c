"""Screening: the rule of algorithm 2, its fast evaluation, what a rejection takes back, and what is charged."""

import math
from typing import Any

import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from torch import nn
from torch.nn.functional import cross_entropy

from runner.accounting import RdpClassic, sound_epsilon
from runner.build.prepare import prepare
from runner.clipping import NoiseGroup
from runner.config import Sampling
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.layerwise import Joint, Printed
from runner.training.loop import final_metrics, load, train
from runner.training.updates import Updates
from runner.training.updates.screened import Annealing, Screening, ScreeningLoss
from tests.small import NETWORK

CLASSES, FEATURES = 4, 6


def images(count: int = 700, seed: int = 0) -> Split:
    """More than one batch of them, as [count, 1, 2, 3]."""
    torch.manual_seed(seed)
    return Split(torch.randn(count, 1, 2, 3), torch.arange(count) % CLASSES)


def small_objective(seed: int = 0) -> Objective:
    torch.manual_seed(seed)
    return Objective(nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, CLASSES)), nn.CrossEntropyLoss(reduction="none"))


def make(rule: Annealing, *, momentum: float = 0.0, other: Any = None, largest: float = math.inf):
    objective = small_objective()

    def project() -> None:
        for parameter in objective.parameters():
            parameter.data.clamp_(-largest, largest)

    sgd = torch.optim.SGD(objective.parameters(), lr=0.3, momentum=momentum)
    optimizer = other(objective.parameters(), lr=1.0) if other else sgd
    screening = Screening(rule, objective, Updates(optimizer, project), images(), torch.Generator().manual_seed(0))
    screening.start_epoch()
    return objective, optimizer, screening


def random_gradients(objective: Objective, generator: torch.Generator, size: float = 1.0) -> None:
    for parameter in objective.parameters():
        parameter.grad = size * torch.randn(parameter.shape, generator=generator)


def flat(objective: Objective) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in objective.parameters()]).clone()


def mean_loss(objective: Objective, split: Split) -> float:
    """J as algorithm 2 has it: all images, in the order of their files."""
    with torch.no_grad():
        return cross_entropy(objective.network(split.images), split.targets, reduction="none").double().mean().item()


@pytest.mark.parametrize(("momentum", "q0", "mu0"), [(0.0, 0.05, 10), (0.9, 1.0, 3), (0.0, 1e6, 0), (0.9, 1e6, 2)])
def test_it_is_algorithm_2(momentum: float, q0: float, mu0: int) -> None:
    """90 tries against the listing, written out: same decisions, weights and momentum buffers at every try."""
    objective, optimizer, screening = make(Annealing(q0, mu0), momentum=momentum)
    split = images()
    gradients, draws = torch.Generator().manual_seed(1), torch.Generator().manual_seed(0)
    w, buffer = flat(objective), None
    tau = mu = forced = 0
    kept_by_rule = 0
    for t in range(90):
        if t % 30 == 0:
            screening.start_epoch()
        random_gradients(objective, gradients)
        g = torch.cat([p.grad.flatten() for p in objective.parameters()])
        accepted = screening.step()

        new_buffer = g if buffer is None or not momentum else momentum * buffer + g
        w_new = w - 0.3 * new_buffer
        reference = small_objective()
        nn.utils.vector_to_parameters(w, reference.parameters())
        before = mean_loss(reference, split)
        nn.utils.vector_to_parameters(w_new, reference.parameters())
        rise = mean_loss(reference, split) - before
        probability = 1.0 if rise <= 0 else math.exp(-rise * q0 * tau)
        uniform = torch.rand((), dtype=torch.float64, generator=draws).item()
        by_rule = uniform <= probability
        if by_rule or mu >= mu0:
            w, buffer, tau, mu = w_new, new_buffer, tau + 1, 0
            forced += not by_rule
            kept_by_rule += by_rule
            assert accepted
        else:
            mu += 1
            assert not accepted
        assert torch.allclose(flat(objective), w, atol=1e-5)
        buffers = [optimizer.state[p].get("momentum_buffer") for p in objective.parameters()]
        if momentum:
            assert torch.allclose(torch.cat([b.flatten() for b in buffers]), buffer, atol=1e-5)
        w = flat(objective)  # rounding must not add up over the tries
    assert (screening.tries, screening.accepted, screening.forced) == (90, tau, forced)
    assert kept_by_rule > 0
    assert (tau < 90) == (mu0 > 0)


def test_a_rejection_leaves_no_trace() -> None:
    """Bit for bit: weights, and a momentum buffer that was not there before the try."""
    objective, optimizer, screening = make(Annealing(1e9, 1000), momentum=0.9)
    random_gradients(objective, torch.Generator().manual_seed(3), 100)
    screening.accepted = 1  # so that Q is not 0
    before = flat(objective)
    assert not screening.step()
    assert torch.equal(flat(objective), before)
    assert not optimizer.state
    screening.accepted = 0
    assert screening.step(), "the first update is always kept"
    after, buffers = flat(objective), [optimizer.state[p]["momentum_buffer"].clone() for p in objective.parameters()]
    random_gradients(objective, torch.Generator().manual_seed(4), 100)
    assert not screening.step()
    assert torch.equal(flat(objective), after)
    for parameter, buffer in zip(objective.parameters(), buffers, strict=True):
        assert torch.equal(optimizer.state[parameter]["momentum_buffer"], buffer)


def test_momentum_keeps_rejected_gradients_if_weights_revert() -> None:
    """v = 0.9 v + g at every try, w = w - 0.3 v at kept ones: a first gradient, two that are rejected, one kept."""
    objective, optimizer, screening = make(Annealing(1e9, 2, restores="weights"), momentum=0.9)
    generator = torch.Generator().manual_seed(3)
    w, v = flat(objective), torch.zeros(len(flat(objective)))
    computed = []
    for size in (1.0, 100.0, 100.0, 100.0):  # the large ones raise the loss; the last is kept by force
        random_gradients(objective, generator, size)
        v = 0.9 * v + torch.cat([p.grad.flatten() for p in objective.parameters()])
        computed.append(screening.step())
        w = w - 0.3 * v if computed[-1] else w
        assert torch.allclose(flat(objective), w, rtol=1e-5)
        buffers = [optimizer.state[p]["momentum_buffer"].flatten() for p in objective.parameters()]
        assert torch.allclose(torch.cat(buffers), v, rtol=1e-5)
    assert computed == [True, False, False, True]
    assert (screening.tries, screening.accepted, screening.forced) == (4, 2, 1)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop])
def test_other_optimizers_are_taken_back_too(kind: type[torch.optim.Optimizer]) -> None:
    """RMSprop's update is PyTorch's own, which changes its buffers in place."""
    objective, optimizer, screening = make(Annealing(1e9, 1000), other=kind)
    random_gradients(objective, torch.Generator().manual_seed(3))
    assert screening.step()
    state = {p: {n: torch.as_tensor(v).clone() for n, v in s.items()} for p, s in optimizer.state.items()}
    random_gradients(objective, torch.Generator().manual_seed(5))
    assert not screening.step()
    for parameter, values in state.items():
        assert all(
            torch.equal(torch.as_tensor(optimizer.state[parameter][name]), value) for name, value in values.items()
        )


def test_a_projection_is_applied_or_reverted_with_its_step() -> None:
    """After every step the weights are within 0.1."""
    objective, _, screening = make(Annealing(1e9, 1000), momentum=0.9, largest=0.1)
    random_gradients(objective, torch.Generator().manual_seed(3))
    assert flat(objective).abs().max() > 0.1
    assert screening.step()
    after = flat(objective)
    assert after.abs().max() <= 0.1
    objective.zero_grad()
    split = images()
    (-1e6 * objective(split.images, split.targets).mean()).backward()  # uphill, to where the weights may go at most
    assert not screening.step()
    assert torch.equal(flat(objective), after)


class Fixed(nn.Module):
    """A network whose cross-entropies are given: the input holds a loss L, the logits are (-L + ln(1 - e^-L), 0)."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        wanted = inputs.flatten(1)[:, :1]
        return torch.cat([-wanted - torch.log(-torch.expm1(-wanted)), torch.zeros_like(wanted)], dim=1)


def fixed_losses(losses: torch.Tensor) -> ScreeningLoss:
    return ScreeningLoss(Fixed(), Split(losses.view(-1, 1, 1, 1), torch.zeros(len(losses), dtype=torch.long)))


def test_stopping_early_gives_the_answer_of_the_whole_sum() -> None:
    """Random losses over eight decades and every kind of bound, above all those next to the sum and to partial sums."""
    generator = torch.Generator().manual_seed(0)
    stopped = 0
    for _ in range(25):
        count = int(torch.randint(1, 4000, (), generator=generator))
        loss = fixed_losses(10 ** (torch.rand(count, generator=generator) * 8 - 6))
        if count % 2:
            loss.sort()
        full_sum = loss.sum_up_to(math.inf)[1]
        partial = loss.sum_up_to(full_sum / 2)[1]
        close = [math.nextafter(b, to) for b in (full_sum, partial) for to in (0.0, math.inf)]
        for bound in (full_sum, partial, *close, 0.0, full_sum / 3, 2 * full_sum, math.inf, -1.0, math.nan):
            within, total = loss.sum_up_to(bound)
            assert within == (full_sum <= bound), (full_sum, bound)
            assert total == full_sum if within else total <= full_sum
            stopped += total < full_sum
    assert stopped > 40


def test_a_loss_that_is_not_a_number_is_never_within_a_bound() -> None:
    for bad in (math.nan, math.inf):
        losses = torch.full((1200,), 0.5)
        losses[1100] = bad
        network = nn.Identity()
        logits = torch.zeros(1200, 2, 1, 1)
        logits[1100] = bad
        loss = ScreeningLoss(nn.Sequential(network, nn.Flatten()), Split(logits, torch.zeros(1200, dtype=torch.long)))
        assert loss.sum_up_to(math.inf)[0] is False
        assert math.isnan(loss.sum_up_to(math.inf)[1])


def trained_run(smoke, *overrides: str):
    run = prepare(smoke("screening=annealing", "noise_multiplier=2.0", *NETWORK, *overrides))
    rows: list[dict[str, float]] = []
    return run, train(run, load(run), rows.append), rows


@pytest.mark.usefixtures("coarse")
def test_kept_updates_are_claimed_and_every_try_is_charged(smoke) -> None:
    run, trained, rows = trained_run(smoke, "epochs=3", "optimizer.lr=2")
    history = trained.history
    assert {len(values) for values in history.values()} == {3}
    assert history["tries"] == history["steps"] == [44, 88, 132]
    accepted = history["accepted"]
    assert accepted[-1] < 132, "some are rejected"
    event = PoissonSampledDpEvent(run.mechanism.sampling_rate, GaussianDpEvent(2.0))
    before = 0
    for epoch in range(3):
        assert history["epsilon"][epoch] == pytest.approx(run.accountant.epsilon(((event, accepted[epoch]),), 1e-5))
        tries = ((event, history["tries"][epoch]),)
        assert history["epsilon_sound"][epoch] == pytest.approx(sound_epsilon(tries, 1e-5))
        assert history["acceptance_rate"][epoch] == pytest.approx((accepted[epoch] - before) / 44)
        before = accepted[epoch]
    assert history["unscreened_accuracy"] == history["test_accuracy"]
    assert 0 <= history["forced"][-1] <= accepted[-1]
    assert rows[-1]["tries"] == 132
    final = final_metrics(run, trained)
    assert final["epsilon_sound"] == history["epsilon_sound"][-1], "the number of tries is fixed, so they are charged"
    assert not final.keys() & {"max_tries", "epsilon_spent"}
    assert 0 < trained.seconds_deciding < trained.seconds_training


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize(("threshold", "most"), [(0, 20), (2, 60), (None, 132)])
def test_a_run_ends_where_the_papers_epsilon_is_reached(smoke, threshold: int | None, most: int) -> None:
    """Its own limit is on kept updates, and what is guaranteed is the cost of the most tries it could have made.

    Of `threshold` + 1 tries in a row one is kept, whatever the data. The run's three epochs have 132 steps.
    """
    config = smoke("screening=annealing", "epochs=3", "noise_multiplier=2.0", "optimizer.lr=2", *NETWORK)
    if threshold is not None:
        config.screening.rejection_threshold = threshold
    event = PoissonSampledDpEvent(32 / 1438, GaussianDpEvent(2.0))
    config.max_epsilon = RdpClassic().epsilon(((event, 20),), 1e-5) + 1e-9
    run = prepare(config)
    assert (run.epochs, run.paid_for) == (3, 20)
    trained = train(run, load(run), lambda row: None)
    history, final = trained.history, final_metrics(run, trained)
    assert history["accepted"].count(20) == 1  # no try and no epoch comes after the last one paid for
    assert history["accepted"][-1] == 20
    assert 20 <= history["tries"][-1] == history["steps"][-1] <= final["max_tries"] == most
    assert history["epsilon"][-1] <= config.max_epsilon
    assert final["epsilon_sound"] == pytest.approx(sound_epsilon(((event, most),), 1e-5))
    assert final["epsilon_sound"] >= final["epsilon_spent"] == history["epsilon_spent"][-1]
    assert final["epsilon_spent"] == pytest.approx(sound_epsilon(((event, int(history["tries"][-1])),), 1e-5))
    assert "epsilon_sound" not in history, "no epoch of it is a guarantee"


def test_images_that_screen_and_images_reported_on(smoke) -> None:
    def splits(*overrides: str):
        return load(prepare(smoke("screening=annealing", *overrides)))

    _, test = load(prepare(smoke()))
    _, reported, screens = splits("screening.images=test")
    assert torch.equal(reported.images, test.images)
    assert torch.equal(screens.images, test.images)
    _, reported, screens = splits()
    assert torch.equal(screens.images, test.images[0::2])
    assert torch.equal(reported.images, test.images[1::2])
    training, reported, screens = splits("evaluation=holdout", "screening.images=test")
    assert torch.equal(screens.images, test.images)
    assert (len(training), len(reported)) == (1438 - 119, 119)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize(
    ("overrides", "apart"),
    [(("screening.images=test",), False), (("screening.images=test", "evaluation=holdout"), True)],
)
def test_accuracy_on_images_that_did_not_screen(smoke, overrides: tuple[str, ...], apart: bool) -> None:
    _, trained, _ = trained_run(smoke, "epochs=1", "scale.batch_size=240", *overrides)
    value = trained.history["unscreened_accuracy"][0]
    assert value == trained.history["test_accuracy"][0] if apart else math.isnan(value)
    if not apart:
        assert trained.history["screening_accuracy"] == trained.history["test_accuracy"]


@pytest.mark.parametrize(("kind", "sampling"), [(Joint, Sampling.poisson), (Printed, Sampling.shuffled)])
def test_mechanisms_with_charges_unlike_dp_sgd_are_refused(kind: type[Mechanism], sampling: Sampling) -> None:
    """Printed charges an epoch at its first step, kept or not: one that ends at kept steps would be charged wrongly."""
    numbers = (sampling, 100, 10, 1.0, (NoiseGroup(("w",), 1.0),))
    Annealing(1.0, 3).check(Mechanism(*numbers))
    with pytest.raises(ValueError, match=r"no mechanism but DP-SGD's own"):
        Annealing(1.0, 3).check(kind(*numbers))
