"""The private mechanism: sampling, noise and what is charged for it, in one object, so that they cannot disagree.

One step releases, for a random batch S of the N private examples,

    y_g = sum_{i in S} c_ig + z_g,    z_g ~ N(0, std_g^2 I),    for each noise group g = 1..D,

where c_ig is example i's contribution, ||c_ig||_2 <= S_g. Adding or removing one example shifts (y_1 / std_1, ...,
y_D / std_D) by a vector of norm at most sqrt(sum_g (S_g / std_g)^2), so the step is one Gaussian mechanism with noise
multiplier (sum_g (S_g / std_g)^2)^(-1/2). With

    std_g = noise_multiplier * sqrt(D) * S_g

that is `noise_multiplier`, whatever the groups: layers compose first, the batch's sampling amplifies afterwards,
because all groups of a step see the same batch. A group may state its share w_g of the step's privacy in place of 1/D:
with std_g = noise_multiplier * S_g / sqrt(w_g) the sum is sum_g w_g / noise_multiplier^2, the same where the w_g add
up to 1.

Dividing y by the expected batch size B afterwards is post-processing. (Dividing by |S| would not be: |S| is private.)

What the run releases of the same examples before its first step (statistics for normalisation) is composed with the
steps: it is in `charges`, and so in everything that is calibrated or stopped by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from dp_accounting import DpEvent, GaussianDpEvent, NonPrivateDpEvent, NoOpDpEvent, PoissonSampledDpEvent
from torch import Generator, Tensor

from runner.accounting import Ledger, Releases
from runner.clipping import Clipping, NoiseGroup
from runner.config import Sampling
from runner.gradients import Objective
from runner.mechanism.sampling import poisson_batches, shuffled_batches

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Mechanism:
    """DP-SGD: batches, noise and charges of one run, as the module's text derives them.

    Raises:
        ValueError: if the batch size is not in 1..examples, the noise multiplier is negative, or noise is asked for
            where a sensitivity is infinite.
    """

    sampling: Sampling
    examples: int
    batch_size: int
    noise_multiplier: float
    noise_groups: tuple[NoiseGroup, ...]
    before: Releases = ()

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= self.examples:
            raise ValueError(
                f"Expected batch_size from 1 to {self.examples} (the training examples), got {self.batch_size}."
            )
        if not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(f"Expected noise_multiplier >= 0 and finite, got {self.noise_multiplier}.")
        if self.noise_multiplier > 0 and not all(0 < g.sensitivity < math.inf for g in self.noise_groups):
            raise ValueError(
                "Noise needs a bounded sensitivity: choose a clipping other than none, or noise_multiplier=0."
            )

        shares = [group.share for group in self.noise_groups if group.share is not None]
        if shares and (len(shares) != len(self.noise_groups) or not min(shares) > 0 or sum(shares) > 1 + _ROUNDING):
            raise ValueError(f"Expected a share above 0 of every noise group, at most 1 in all, got {shares}.")

    @property
    def private(self) -> bool:
        """Whether any noise is added."""
        return self.noise_multiplier > 0

    @property
    def sampling_rate(self) -> float:
        """q = B / N: the probability with which an example joins a Poisson batch."""
        return self.batch_size / self.examples

    @property
    def neighbouring_relation(self) -> str:
        """For which neighbours the sound epsilon holds: see `charge_step`."""
        return "add-or-remove-one" if self.sampling is Sampling.poisson else "zero-out"

    @property
    def steps_per_epoch(self) -> int:
        return self.examples // self.batch_size

    def batches(self, generator: Generator) -> Iterator[Tensor]:
        """The index batches of one epoch."""
        if self.sampling is Sampling.poisson:
            return poisson_batches(self.examples, self.sampling_rate, self.steps_per_epoch, generator)
        return shuffled_batches(self.examples, self.batch_size, self.steps_per_epoch, generator)

    def check(self, clipping: Clipping, objective: Objective, inputs: Tensor, targets: Tensor) -> None:
        """Raise ValueError where what is charged does not hold for this clipping of this objective.

        inputs [2, ...] and targets [2] are made up, on the device of the objective. What is charged here holds for any
        clipping that has the sensitivities of `noise_groups`.
        """

    def applied(self, clipping: Clipping, batch: int) -> Clipping:
        """The clipping for a logical batch of so many examples: here it is the same for all."""
        return clipping

    @property
    def denominator(self) -> int:
        """What the noisy sum is divided by: the expected batch size."""
        return self.batch_size

    def noise_std(self, group: NoiseGroup) -> float:
        """Standard deviation of the noise on each coordinate of the sum."""
        root = math.sqrt(len(self.noise_groups)) if group.share is None else 1 / math.sqrt(group.share)
        return self.noise_multiplier * root * group.sensitivity

    def most_moved(self, group: NoiseGroup) -> float:
        """The most that one example, in or out, moves the sum of a group: `actual` in the ledger is for that."""
        return group.sensitivity

    def release(self, sums: dict[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        """The noisy mean: (sum + noise) / denominator, by parameter name.

        Raises:
            ValueError: if the noise groups are not exactly the parameters of `sums`.
        """
        self.check_partition(sums)
        noisy = {}
        for group in self.noise_groups:
            for name in group.parameters:
                total = sums[name]
                if self.private:
                    noise = torch.randn(total.shape, dtype=total.dtype, device=total.device, generator=generator)
                    total = total + self.noise_std(group) * noise
                noisy[name] = total / self.denominator
        return noisy

    def draw_noise(self, views: Mapping[str, Tensor], generator: Generator) -> None:
        """Fill the parameters' views of a flat vector with the standard normal numbers that `release` would draw."""
        for group in self.noise_groups:
            for name in group.parameters:
                views[name].normal_(generator=generator)

    def check_partition(self, names: Iterable[str]) -> None:
        """ValueError unless the noise groups are exactly these parameters, each once."""
        named = [name for group in self.noise_groups for name in group.parameters]
        if sorted(named) != sorted(names):
            raise ValueError("The noise groups do not partition the parameters: some would get no noise, or twice.")

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        """Write one step's release to the ledger, whether or not its update was `kept` (see
        `runner.training.updates`).

        `claimed` is how the papers count: every step kept a Poisson-sampled Gaussian. With shuffled batches that is not
        what happened: each example is in at most one of an epoch's batches, so a whole epoch is one Gaussian
        mechanism without amplification by sampling (the batches of a fixed order compose in parallel, and a
        data-independent random order cannot do worse, by joint convexity). It is charged at the epoch's first step.
        Neighbours there differ in whether an example contributes or contributes zero, the order being the same.
        """
        per_step = self._step_event()
        claimed = per_step if kept else None
        if self.sampling is Sampling.poisson or not self.private:
            ledger.release(actual=per_step, claimed=claimed)
        elif step_in_epoch == 0:
            ledger.release(actual=GaussianDpEvent(self.noise_multiplier), claimed=claimed)
        else:
            ledger.release(actual=NoOpDpEvent(), claimed=claimed)

    def charges(self, steps: int) -> Ledger:
        """All that is charged for so many steps, all of them kept, and for what was released before the first.

        A replay of `charge_step`, one epoch standing for all whole ones: what a run is calibrated to and stopped by is
        what its ledger will say.
        """
        ledger = Ledger()
        for event, count in self.before:
            ledger.release(event, event, count)
        epochs, rest = divmod(steps, self.steps_per_epoch)
        for length, times in ((self.steps_per_epoch, epochs), (rest, 1)):
            part = Ledger()
            for step in range(length if times else 0):
                self.charge_step(part, step)
            ledger.add(part, times)
        return ledger

    def charges_of_epochs(self, epochs: int) -> Ledger:
        """All that is charged for so many whole epochs, all steps kept, and for what was released before the first."""
        return self.charges(epochs * self.steps_per_epoch)

    def _step_event(self) -> DpEvent:
        if not self.private:
            return NonPrivateDpEvent()
        return PoissonSampledDpEvent(self.sampling_rate, GaussianDpEvent(self.noise_multiplier))
