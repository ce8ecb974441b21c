"""The first batch of a private run, taken with and without one example: the sums may differ by what is charged for.

The sensitivities are proven, and what a user brings is bounded. This compares the numbers of the first real batch with
the bounds once, in every way of taking a step, at the price of three more sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from runner.mechanism.dp_sgd import Mechanism

_ROUNDING = 1e-3, 2e-6  # of the bound; and of the bound for each example whose sum is rounded
Sums = Callable[[Tensor], Mapping[str, Tensor]]  # by parameter name, of the examples that a mask [batch] keeps


def check_first_batch(mechanism: Mechanism, sums: Sums, norms: Tensor) -> None:
    """Take the example with the largest norm out of a batch, and compare the sums group by group.

    Nothing is compared where two sums of the same batch differ, as they do in a network that draws random numbers.

    Args:
        sums: the clipped sums over those examples of the batch that a mask keeps.
        norms: [batch], by which the example is chosen: norms of gradients or, where there are none, losses.

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
                f"one example of the first batch moves the sum of {group.parameters[0]} by {moved:.4g}, and the noise "
                f"is for {most:.4g}: no ε would hold"
            )
