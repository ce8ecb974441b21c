"""Updates by hand and against torch.optim: SGD and Adam to the digit, AdamBC, and learning rates by step."""

import copy
import math

import pytest
import torch

from runner.build.prepare import prepare
from runner.mechanism.normal import generator
from runner.training.updates import Schedule, Updates, unsupported
from runner.training.updates.adam_bc import AdamBC
from runner.training.updates.schedule import ByStep
from tests.small import FEW_STEPS

KINDS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.3),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.02),
    "adam, other settings": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.7, 0.95), eps=1e-3),
}
SHAPES = ((), (1,), (7,), (33, 5), (4, 3, 3, 3), (257, 65))


def parameters() -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]


@pytest.mark.parametrize("kind", KINDS)
def test_every_digit_is_that_of_torch(kind: str) -> None:
    """Twenty steps with gradients of all sizes, learning rates that change, and a state that is saved and loaded."""
    ours, theirs = (KINDS[kind](parameters()) for _ in range(2))
    updates = Updates(ours)
    ours.step = lambda: pytest.fail("torch's own step is taken")  # type: ignore[method-assign]
    for step in range(20):
        if step == 10:
            state = copy.deepcopy(updates.state_dict())
            updates = Updates(ours)
            updates.load_state_dict(state)
        for optimizer in (ours, theirs):
            torch.manual_seed(step)
            optimizer.param_groups[0]["lr"] = 0.3 / (1 + step)
            for p in optimizer.param_groups[0]["params"]:
                p.grad = torch.randn_like(p) * 10 ** torch.randint(-6, 3, p.shape)
        updates.step()
        theirs.step()
        for mine, other in zip(ours.param_groups[0]["params"], theirs.param_groups[0]["params"], strict=True):
            assert torch.equal(mine, other)


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (lambda p: torch.optim.SGD(p, lr=1, weight_decay=0.1), "setting weight_decay"),
        (lambda p: torch.optim.Adam(p, amsgrad=True), "setting amsgrad"),
        (lambda p: torch.optim.RMSprop(p), "optimizer RMSprop"),
        (lambda p: torch.optim.SGD([{"params": p[:1]}, {"params": p[1:]}], lr=1), "several groups"),
    ],
)
def test_any_other_optimizer_takes_its_own_step(optimizer, reason: str) -> None:
    ours, theirs = (optimizer(parameters()) for _ in range(2))
    assert reason in unsupported(ours)
    updates = Updates(ours)
    for candidate in (ours, theirs):
        for group in candidate.param_groups:
            for p in group["params"]:
                p.grad = torch.ones_like(p)
    updates.step()
    theirs.step()
    assert torch.equal(ours.param_groups[0]["params"][0], theirs.param_groups[0]["params"][0])


def test_a_schedule_that_changes_momentum_is_left_to_torch() -> None:
    optimizer = KINDS["momentum"](parameters())
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    assert "setting max_lr" in unsupported(optimizer)


BC = "optimizer=adam_bc"


def test_two_steps_by_hand() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = AdamBC([weight], lr=0.1, betas=(0.5, 0.75), floor=1e-2)
    optimizer.take_noise({weight: 2.0})
    weight.grad = torch.tensor([3.0], dtype=torch.float64)
    optimizer.step()  # m = 3, v = 9 and Phi = 4
    assert weight.item() == pytest.approx(1 - 0.1 * 3 / math.sqrt(5), rel=1e-12)
    before = weight.item()
    weight.grad = torch.tensor([1.0], dtype=torch.float64)
    optimizer.step()  # m = (0.25 * 3 + 0.5 * 1) / 0.75, v = (0.1875 * 9 + 0.25 * 1) / 0.4375
    assert weight.item() == pytest.approx(before - 0.1 * (1.25 / 0.75) / math.sqrt(1.9375 / 0.4375 - 4), rel=1e-12)
    for _ in range(20):  # v - Phi is negative: the floor holds
        before, weight.grad = weight.item(), torch.zeros(1, dtype=torch.float64)
        optimizer.step()
    mean = optimizer.state[weight]["mean"].item() / (1 - 0.5**22)
    assert weight.item() == pytest.approx(before - 0.1 * mean / math.sqrt(1e-2), rel=1e-12)


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_the_variance_is_that_of_the_noise_that_is_drawn(smoke, clipping: str) -> None:
    """10% off, as for a forgotten sqrt(D) or batch size, is far outside the error of 10,000 numbers."""
    run = prepare(smoke(BC, f"clipping={clipping}", "noise_multiplier=1.3", "target_epsilon=null"))
    objective = run.new_objective()
    zeros = {name: torch.zeros_like(parameter) for name, parameter in objective.named_parameters()}
    noise = run.mechanism.release(zeros, generator(0, "noise", torch.device("cpu")))
    variance = run.optimizer(objective)._variance
    for name, parameter in objective.named_parameters():
        count = parameter.numel()
        assert noise[name].square().mean().item() == pytest.approx(variance[parameter], rel=5 * math.sqrt(2 / count))
    assert max(parameter.numel() for parameter in objective.parameters()) > 5_000


STEPS, FULL = 12, 0.5


def rates(**arguments) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=FULL)
    schedule = Schedule(ByStep(optimizer, STEPS, **arguments))
    computed = []
    for _ in range(STEPS):
        schedule.start_epoch()  # changes nothing
        schedule.start_step()
        computed.append(optimizer.param_groups[0]["lr"])
    return computed


@pytest.mark.parametrize("decay", ["cosine", "linear"])
@pytest.mark.parametrize("warmup", [0, 1, 4, STEPS - 1])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_rates_are_those_of_the_formulas(decay: str, warmup: int, share: float) -> None:
    expected = [FULL * (t + 1) / (warmup + 1) for t in range(warmup)]
    for t in range(warmup, STEPS):
        u = (t - warmup) / max(1, STEPS - 1 - warmup)
        shares = {"linear": 1 - (1 - share) * u, "cosine": share + (1 - share) * (1 + math.cos(math.pi * u)) / 2}
        expected.append(FULL * shares[decay])
    assert rates(warmup_steps=warmup, decay=decay, last_share=share) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_last_step_of_a_run_has_the_last_rate(smoke) -> None:
    run = prepare(smoke(*FEW_STEPS, "schedule=linear_by_step", "schedule.last_share=0.25", "optimizer.lr=1"))
    optimizer = run.optimizer(run.new_objective())
    schedule = run.schedule(optimizer)
    for _ in range(run.epochs * run.mechanism.steps_per_epoch):
        schedule.start_step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.25)
