"""The attack on screening: each released update is the candidate that was kept, which reveals more than a candidate.

The configuration is the attacker's: learning rate 1 and weight decay 1. So the only weight after a step is minus the
release, independent of the weight before: y = x + N(0, sigma^2), with x = 1 if the canary is there and 0 if not. The
loss on the (public) screening images is low for |y - 1/2| > t and high between, and flat in both. From a weight of low
loss, screening keeps a candidate outside, and draws again otherwise. So every kept weight has the density of y given
|y - 1/2| > t, independently of the weights before. The likelihood ratio of x = 0 and x = 1 is a Gaussian's, but
uninformative weights near 1/2 never occur. The score is the sum of the kept weights.

The attack begins in the middle of a run, from a weight of low loss and one kept update. A run keeps its first update in
any case. A candidate that is kept after many rejections may have a high loss, and candidates of high loss may follow.
The chance is below 1e-6 here, and the attack checks for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from hydra.utils import instantiate
from torch import Tensor, nn

from checks.audit.bounds import Array, Scores
from checks.audit.targets import Setting, Target, option, target
from runner.accounting import Ledger
from runner.clipping import gradient_sum
from runner.data.datasets import Split
from runner.gradients import Objective, OnePassEngine
from runner.mechanism.normal import generator
from runner.training.updates import Updates
from runner.training.updates.screened import Annealing, Screening

_DROP = 10.0  # of the logit, between the two losses
_TEMPERATURE = 100.0


@dataclass(frozen=True)
class Screened:
    """Kept steps in an attack: number, noise multiplier, and half the width of the rejected range, in sigma."""

    kept: int
    noise_multiplier: float
    threshold: float
    rejections: int = 1000


class _Wells(nn.Module):
    """Logits (h, 0) of a weight [batch, 1]: h is 0 between the wells and _DROP in them, and has a slope of 1e-6.

    The training loss's gradient comes from the slope, which is negligible for the screening loss.
    """

    def __init__(self, half_width: float) -> None:
        super().__init__()
        self.half_width = half_width

    def forward(self, weights: Tensor) -> Tensor:
        h = _DROP * ((weights - 0.5).abs() > self.half_width) + 1e-6 * weights
        return torch.cat([h, torch.zeros_like(h)], dim=1)


class _Steep(nn.Module):
    """A training loss whose gradient is far above the clipping norm, with a constant direction."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return -1e12 * logits[:, 0]


def screened_target(setting: Screened) -> Target:
    """Make the mechanism of an attack: every batch is the whole data set, which is the canary or empty."""
    return target(Setting("flat", examples=1, batch_size=1), setting.noise_multiplier)


def screened_scores(setting: Screened, trials: int, stream: str) -> Scores:
    """Return the scores of an attacker who sees the kept weights."""
    without, within = (
        _kept_weights(setting, trials * setting.kept, canary, f"{stream}/{canary}").reshape(trials, setting.kept).sum(1)
        for canary in (False, True)
    )
    return {"sum": (without, within)}


def _kept_weights(setting: Screened, count: int, canary: bool, stream: str) -> Array:
    attacked = screened_target(setting)
    streams = (f"{stream}/{purpose}" for purpose in ("sampling", "noise", "screening"))
    sampling, noise, draws = (generator(0, name, torch.device("cpu")) for name in streams)
    half_width = setting.threshold * setting.noise_multiplier
    weight = nn.Linear(1, 1, bias=False)
    weight.weight.data.fill_(1 + half_width)
    objective = Objective(nn.Sequential(weight, _Wells(half_width)), _Steep())
    clipping = attacked.clipping
    mechanism = replace(attacked.mechanism, noise_groups=clipping.noise_groups(objective))
    optimizer = torch.optim.SGD(objective.parameters(), lr=1.0, weight_decay=1.0)
    rule: Annealing = instantiate(
        option("screening", "annealing"),
        initial_temperature=_TEMPERATURE,
        rejection_threshold=setting.rejections,
    )
    image = Split(torch.ones(1, 1), torch.zeros(1, dtype=torch.long))
    screening = Screening(rule, objective, Updates(optimizer), image, draws)
    screening.accepted = 1
    screening.start_epoch()
    engine = OnePassEngine(objective)
    present = 1 if canary else 0
    total = gradient_sum(clipping, engine, torch.ones(present, 1), torch.zeros(present), 1).gradients
    weights = np.empty(count)
    count_kept = 0
    while count_kept < count:
        for _ in mechanism.batches(sampling):
            release = mechanism.release(total, noise)
            for name, parameter in objective.named_parameters():
                parameter.grad = release[name]
            if screening.step():
                weights[count_kept] = weight.weight.item()
                count_kept += 1
    if screening.forced:
        raise RuntimeError("An update was kept because of the rejections before it: the trials are not independent.")
    return weights


def charges(setting: Screened) -> Ledger:
    """Return the largest cost of a trial, as the runner guarantees it, and the claim: the kept updates alone."""
    mechanism, ledger = screened_target(setting).mechanism, Ledger()
    for _ in range(setting.kept):
        for try_ in range(setting.rejections + 1):
            mechanism.charge_step(ledger, 0, kept=try_ == setting.rejections)
    return ledger
