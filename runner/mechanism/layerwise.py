"""The four mechanisms of Backpropagation Clipping (Stevens et al., 2022), which adds noise to every layer separately.

All of them take D layers, of sensitivity S_g each (`runner.clipping.Backprop`). A layer gets the noise of the base
class, std_g = noise_multiplier sqrt(D) S_g (only `OriginalBug` differs). A layer alone then has the multiplier

    sigma = noise_multiplier sqrt(D),

as the paper and its code state it, and all layers of a step together have `noise_multiplier`. The four differ in the
batches, in the charge for a step, and in its correctness. The ledger's `actual` always follows from the noise that is
added, for the neighbours that `neighbouring_relation` names.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from runner.accounting import Ledger, gaussian
from runner.clipping import Clipping, NoiseGroup
from runner.clipping.backprop import Backprop, BackpropOfMeanLoss
from runner.config import Sampling
from runner.config.fields import expect
from runner.gradients import Objective, unknown
from runner.mechanism.dp_sgd import Mechanism
from runner.networks.objective import is_chain

NEIGHBOURS = ("zero_out", "replace_one")
ASKED_FOR = "original_bug"
_MOST_MOVED = 2  # times the bound of a row, by one more example in the mean loss, see `BackpropOfMeanLoss`


@dataclass(frozen=True)
class Joint(Mechanism):
    """Sound DP-SGD by layers: Poisson batches, a sum of bounded contributions, a step's layers as one release.

    This is the base class. All layers see the same batch, so they are one Gaussian mechanism, which sampling amplifies
    as a whole. The budget has to be met by an accountant that bounds it (PLD, in conf/mechanism).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sampling(self.sampling, Sampling.poisson, "joint")


class _DisjointBatches(Mechanism):
    """Batches that hold every example at most once an epoch, so an epoch costs as much as one step.

    This is parallel composition. In a step, D releases of rho = 1 / (2 sigma^2) compose to D rho =
    1 / (2 noise_multiplier^2) (zCDP), so that E epochs have E D rho (theorem 1). Later batches of an epoch see the
    example through earlier releases only.
    """

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        """Write an epoch's release to the ledger, at its first step. No step is rejected here."""
        if step_in_epoch == 0:
            ledger.release(actual=gaussian(self._true_multiplier()), claimed=gaussian(self.noise_multiplier))

    def _true_multiplier(self) -> float:
        return self.noise_multiplier


@dataclass(frozen=True)
class Printed(_DisjointBatches):
    """Algorithm 2 as it is printed: disjoint batches, no amplification by sampling.

    `neighbours`: the paper's data sets "differ on a single element" and have equal sizes.
    zero_out: the element counts as zero in one of them, in the same place of the same order. It moves the sum of one
        batch by S_g. So the noise and epsilon of the paper hold.
    replace_one: it is another element. It moves the sum by 2 S_g, so for the same epsilon the noise is twice the
        paper's. (With the paper's noise, rho would be four times the stated value.)

    Raises:
        ValueError: `neighbours` is unknown or batches are not disjoint.
    """

    neighbours: str = "zero_out"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sampling(self.sampling, Sampling.shuffled, "printed")
        expect(self.neighbours in NEIGHBOURS, f"mechanism.neighbours {' or '.join(NEIGHBOURS)}", self.neighbours)
        if self.before and self.neighbours == "replace_one":
            raise ValueError("mechanism.neighbours=replace_one does not cover releases before the first step.")

    @property
    def neighbouring_relation(self) -> str:
        return self.neighbours.replace("_", "-")

    def noise_std(self, group: NoiseGroup) -> float:
        return super().noise_std(group) * (2 if self.neighbours == "replace_one" else 1)


@dataclass(frozen=True)
class OfMeanLoss(Mechanism):
    """Bounds rows of the mean loss, and releases its gradient without a further division."""

    def check(self, clipping: Clipping, objective: Objective, inputs: Tensor, targets: Tensor) -> None:
        """Accept only the case that `BackpropOfMeanLoss` derives its sensitivity for: its rows, in a chain of layers.

        Raises:
            ValueError: the clipping, a module or the network differs from that.
        """
        if type(clipping) is not Backprop:
            raise ValueError("This mechanism clips rows of the mean loss: it needs clipping=backprop.")
        if reason := unknown(objective):
            raise ValueError(f"Rows of the mean loss are bounded for known modules only, and {reason}.")
        if not is_chain(objective, inputs, targets):
            raise ValueError("Rows of the mean loss are bounded in a chain of layers only: choose another mechanism.")

    def applied(self, clipping: Clipping, batch: int) -> Clipping:
        assert isinstance(clipping, Backprop)
        return BackpropOfMeanLoss(clipping, max(1, self._rows(batch)))

    @property
    def denominator(self) -> int:
        return 1

    def most_moved(self, group: NoiseGroup) -> float:
        """Return the bound of a row, twice, as the other rows move with the number of examples."""
        return _MOST_MOVED * group.sensitivity

    def _rows(self, batch: int) -> int:
        return batch


@dataclass(frozen=True)
class Corrected(OfMeanLoss):
    """The authors' repository, after its corrections: Poisson batches, GDP by the central limit theorem.

    Claimed: a step's layers as D independent samples of rate B / N, floor(N/B) D of them per epoch. Four points differ:

    - The layers of a step see the same batch: one sampled Gaussian, not D.
    - The sampler's rate is 1 / ceil(N/B), and it takes ceil(N/B) steps per epoch.
    - Rows belong to the mean over the examples drawn. So the sensitivity is 2 S_g and not S_g (derived in
      `BackpropOfMeanLoss`), and `noise_multiplier` is twice the true one.
    - The central limit theorem is no bound.

    `actual` corrects all four.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sampling(self.sampling, Sampling.poisson, "corrected")

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.examples / self.batch_size)

    @property
    def sampling_rate(self) -> float:
        return 1 / self.steps_per_epoch

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        """Write one step's release to the ledger; the claim counts only floor(N/B) steps per epoch."""
        actual = gaussian(self.noise_multiplier / _MOST_MOVED, self.sampling_rate)
        if step_in_epoch < self.examples // self.batch_size:
            layers = len(self.noise_groups)
            claimed = gaussian(self.noise_multiplier * math.sqrt(layers), self.batch_size / self.examples)
            ledger.release(actual, claimed, claimed_count=layers)
        else:
            ledger.release(actual, None)


@dataclass(frozen=True)
class OriginalBug(OfMeanLoss, _DisjointBatches):
    """The code behind the paper's numbers: rows of the mean loss clipped to b, noise for a sensitivity of a b / B.

    An example's contribution to the mean loss's gradient may have the norm a b. So the true multiplier is B times
    smaller than the charged one, and almost nothing is private: see `epsilon_sound`. (Neighbours zero an example out
    and the mean is over a fixed number, so no other row moves.)

    `in_order`: True for the batches of the authors' code. They are the same in every epoch, in the order of the file,
    and the last has the remaining N mod B examples. The mean is over the examples of the batch, and the noise is for
    a b / B in all batches. None: disjoint batches of a random order, each of B examples.

    Raises:
        ValueError: it is not `asked_for` by its name, or batches are not disjoint.
    """

    asked_for: str | None = None
    in_order: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.asked_for != ASKED_FOR:
            raise ValueError(
                f"mechanism=original_bug adds noise too small by a factor of the batch size, which is not private: "
                f"to run it all the same, say mechanism.asked_for={ASKED_FOR}."
            )
        _check_sampling(self.sampling, Sampling.shuffled, "original_bug")

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.examples / self.batch_size) if self.in_order else super().steps_per_epoch

    def batches(self, generator: Generator) -> Iterator[Tensor]:
        if self.in_order:
            return iter(torch.arange(self.examples, device=generator.device).split(self.batch_size))
        return super().batches(generator)

    def most_moved(self, group: NoiseGroup) -> float:
        """Return the bound of a row: the mean is over a fixed number, so the other rows stay."""
        return group.sensitivity

    def _rows(self, batch: int) -> int:
        return batch if self.in_order and batch == self.examples % self.batch_size else self.batch_size

    def noise_std(self, group: NoiseGroup) -> float:
        return super().noise_std(group) / self.batch_size

    def _true_multiplier(self) -> float:
        return self.noise_multiplier / self.batch_size


def _check_sampling(sampling: Sampling, expected: Sampling, mechanism: str) -> None:
    if sampling is not expected:
        raise ValueError(f"mechanism={mechanism} needs sampling={expected.value}, got {sampling.value}.")
