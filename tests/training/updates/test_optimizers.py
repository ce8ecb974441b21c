"""SGD and Adam of this package against torch.optim, to the digit."""

from __future__ import annotations

import copy

import pytest
import torch

from runner.training.updates.interface import Updates, unsupported, update_of

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
    """Fifty steps with gradients of all sizes, learning rates that change, and a state that is saved and loaded."""
    ours, theirs = (KINDS[kind](parameters()) for _ in range(2))
    updates = Updates(ours)
    ours.step = lambda: pytest.fail("torch's own step is taken")  # type: ignore[method-assign]
    for step in range(50):
        if step == 25:
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_learning_rate_on_the_device_is_the_number(kind: str) -> None:
    """As a graph takes steps: on one vector, and without Python's numbers for what changes."""
    optimizer = KINDS[kind](parameters())
    update, lr = update_of(optimizer), torch.tensor(0.02, dtype=torch.float64)
    by_number = by_tensor = torch.randn(1000)
    buffers, on_device = (
        update.initial_buffers(by_number),
        update.initial_buffers(by_number, torch.zeros((), dtype=torch.float64)),
    )
    for _ in range(20):
        gradient = torch.randn(1000)
        by_number, buffers = update(by_number, gradient, buffers, 0.02)
        by_tensor, on_device = update(by_tensor, gradient, on_device, lr)
    torch.testing.assert_close(by_tensor, by_number, rtol=1e-6, atol=1e-6)


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
