"""A learning rate that changes at every step."""

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

from runner.config.fields import expect, expect_option


class ByStep(SequentialLR):
    """A learning rate that changes at every step: a linear warm-up, then a decay to a share of the full rate.

    Of W warm-up steps, step t = 0..W-1 has the rate lr (t + 1) / (W + 1), and step W has lr. With s = `last_share` and
    u rising from 0 at step W to 1 at the last of the `steps`, the rate is then

        lr (1 - (1 - s) u) if `decay` is linear,    lr (s + (1 - s) (1 + cos(pi u)) / 2) if it is cosine.

    The steps are those that the run attempts at most, kept or not. The rate depends on no data.

    Args:
        optimizer: has the full rate.
        steps: the run's number of steps, which is passed to schedules with `by_step = True`.
        warmup_steps: W.
        decay: "cosine" or "linear".
        last_share: s, from 0 to 1; with 1 there is no decay.

    Raises:
        ValueError: an argument is out of its range.
    """

    by_step = True

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        steps: int,
        warmup_steps: int = 0,
        decay: str = "cosine",
        last_share: float = 0.0,
    ) -> None:
        expect(0 <= warmup_steps < steps, f"schedule.warmup_steps from 0 to {steps - 1}", warmup_steps)
        expect_option("schedule.decay", decay, ("cosine", "linear"))
        expect(0 <= last_share <= 1, "schedule.last_share from 0 to 1", last_share)
        full, falling = optimizer.param_groups[0]["lr"], max(1, steps - 1 - warmup_steps)
        parts: list[LRScheduler] = []
        if warmup_steps:
            parts.append(LinearLR(optimizer, start_factor=1 / (warmup_steps + 1), total_iters=warmup_steps))
        if decay == "cosine":
            parts.append(CosineAnnealingLR(optimizer, falling, eta_min=last_share * full))
        else:
            parts.append(LinearLR(optimizer, start_factor=1.0, end_factor=last_share, total_iters=falling))
        super().__init__(optimizer, parts, milestones=[warmup_steps] if warmup_steps else [])
