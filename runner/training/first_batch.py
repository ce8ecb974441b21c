"""A check of a private run's first batch: removing one example changes the sums by at most the charged sensitivity.

The sensitivities are proven, and the contributions of a user's code are bounded. This check compares the first real
batch with the bounds once, in every way of taking a step. It costs three more sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from runner.mechanism.dp_sgd import Mechanism

_ROUNDING = 1e-3, 2e-6  # relative to the bound; and for each example whose sum is rounded
Sums = Callable[[Tensor], Mapping[str, Tensor]]  # by parameter name, over the examples that a mask [batch] keeps


def check_first_batch(mechanism: Mechanism, sums: Sums, norms: Tensor) -> None:
    """Take the example with the largest norm out of a batch, and compare the sums group by group.

    The check is skipped if two sums of the same batch differ, as in a network that draws random numbers.

    Args:
        sums: the clipped sums over the examples of the batch that a mask keeps.
        norms: [batch], norms of gradients or, without these, losses; the largest selects the example.

    Raises:
        RuntimeError: the sums differ by more than the mechanism charges for.
    """
    if not mechanism.private or len(norms) < 2:
        return
    everyone = torch.ones(len(norms), dtype=torch.bool, device=norms.device)
    others = everyone.clone()
    others[norms.nan_to_num(-1.0, -1.0).argmax()] = False
    devices = [norms.device] if norms.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        whole, without = sums(everyone), sums(others)
        again = sums(everyone)
    if any(not torch.equal(whole[name].nan_to_num(), again[name].nan_to_num()) for name in whole):
        return
    for group in mechanism.noise_groups:
        squares = [(whole[name] - without[name]).double().square().sum() for name in group.parameters]
        moved, most = float(torch.stack(squares).sum().sqrt()), mechanism.most_moved(group)
        if not moved <= most * (1 + _ROUNDING[0] + _ROUNDING[1] * len(norms)):
            raise RuntimeError(
                f"one example of the first batch moves the sum of {group.parameters[0]} by {moved:.4g}, but the noise "
                f"is for {most:.4g}: no ε would hold"
            )
