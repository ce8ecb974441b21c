"""Measurements of single steps for the user's own tracking (`tracking.every`).

They are exact numbers of private batches, like training losses, so no epsilon covers them. They go to no record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.gradients import GradientSum, Objective, undisturbed
from runner.mechanism.dp_sgd import Mechanism


@dataclass(frozen=True)
class Watch:
    """Measures every `every`-th step, counted from 1, and passes the numbers to `log`."""

    every: int
    log: Callable[[dict[str, float]], None]

    def weights_before(self, step: int, objective: Objective) -> Sequence[Tensor]:
        """Return copies of the weights if this step is measured, else nothing."""
        return [p.detach().clone() for p in objective.parameters()] if step % self.every == 0 else ()

    @undisturbed()
    def measure(
        self, step: int, mechanism: Mechanism, of: GradientSum, objective: Objective, before: Sequence[Tensor]
    ) -> None:
        """Measure a step of at least one example, after its update.

        Args:
            step: its number in the run, from 1.
            mechanism: states the bounds of the step's noise groups.
            of: its sum of clipped gradients. Without norms there is no share of clipped examples.
            objective: has the updated weights.
            before: its weights before the update.
        """
        moved = [
            torch.linalg.vector_norm(p.detach() - old) for p, old in zip(objective.parameters(), before, strict=True)
        ]
        measured = {"train_loss": of.losses.mean(), "step_size": torch.linalg.vector_norm(torch.stack(moved))}
        if mechanism.private and of.norms is not None:
            bound = math.hypot(*(group.sensitivity for group in mechanism.noise_groups))
            measured["clipped_share"] = (of.norms > bound).float().mean()
        self.log({"step": step, **{name: value.item() for name, value in measured.items()}})
