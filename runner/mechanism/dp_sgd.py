"""The private mechanism: sampling, noise and charges in one object, so that they cannot disagree.

One step releases, for a random batch A of the N private examples,

    y_g = sum_{i in A} c_ig + z_g,    z_g ~ N(0, std_g^2 I),    for each noise group g = 1..D,

with c_ig the contribution of example i, ||c_ig||_2 <= S_g. Adding or removing one example shifts
(y_1 / std_1, ..., y_D / std_D) by a vector of norm at most sqrt(sum_g (S_g / std_g)^2). So the step is one Gaussian
mechanism with noise multiplier (sum_g (S_g / std_g)^2)^(-1/2). With

    std_g = noise_multiplier * sqrt(D) * S_g

this is `noise_multiplier`, for any groups. Layers compose first and the sampling of the batch amplifies afterwards,
because all groups of a step see the same batch. A group may state its share w_g of the step's privacy instead of 1/D.
With std_g = noise_multiplier * S_g / sqrt(w_g) the sum is sum_g w_g / noise_multiplier^2, the same if the w_g add up
to 1.

Dividing y by the expected batch size B afterwards is post-processing. (Dividing by |A| would not be: |A| is private.)

The noise multiplier may change from step to step (`Scheduled`): m_t for step t. All m_t are public and fixed before
training.

- Poisson sampling: every step draws a new batch. Step t is a Gaussian of multiplier m_t, sampled with q = B / N, and
  the steps compose adaptively.
- Shuffled batches: in neighbouring data sets an example contributes, or contributes zero, in the same order. For one
  order the example is in at most one batch of an epoch. Let k be its step. Given the releases before it, step k is a
  Gaussian of multiplier m_k. Given earlier releases, the other releases of the epoch do not depend on the example. So
  the epoch is a Gaussian whose multiplier is the smallest of its steps, or better. The order is random and does not
  depend on the data, which cannot do worse, by joint convexity. There is no amplification by sampling.

A run may release statistics of the same examples before its first step, for normalisation. These are composed with the
steps and are in `charges`. So calibration and stopping include them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Protocol

import torch
from dp_accounting import DpEvent, NoOpDpEvent
from torch import Generator, Tensor, nn

from runner.accounting import Ledger, Releases, gaussian
from runner.clipping import Clipping, NoiseGroup
from runner.config import Sampling
from runner.config.fields import expect
from runner.gradients import Objective
from runner.mechanism.normal import PastNoise, noisy_mean, standard_normal

_ROUNDING = 1e-12
_MOVED = 1e-3, 2e-6  # rounding of a sum, relative to its bound; and for each example whose sum is rounded
_DTYPES = (torch.float32, torch.float64)  # a complex number would get noise in only one of its two coordinates


@dataclass(frozen=True)
class Mechanism:
    """DP-SGD: batches, noise and charges of one run, as derived in the module's text.

    A user's mechanism is a subclass that overrides `shares` or `noise_factor`: see `runner.trust.mechanism`.

    Raises:
        ValueError: the batch size is not in 1..examples, the noise multiplier is negative, or noise is asked for but a
            sensitivity is infinite.
    """

    sampling: Sampling
    examples: int
    batch_size: int
    noise_multiplier: float
    noise_groups: tuple[NoiseGroup, ...]
    before: Releases = ()

    def __post_init__(self) -> None:
        size, count = self.batch_size, self.examples
        expect(1 <= size <= count, f"batch_size from 1 to {count} (the training examples)", size)
        expect(0 <= self.noise_multiplier < math.inf, "noise_multiplier >= 0 and finite", self.noise_multiplier)
        if self.noise_multiplier > 0 and not all(0 < g.sensitivity < math.inf for g in self.noise_groups):
            raise ValueError(
                "Noise needs a bounded sensitivity: choose a clipping other than none, or noise_multiplier=0."
            )
        shares = [group.share for group in self.noise_groups if group.share is not None]
        within = all(share > 0 for share in shares) and sum(shares) <= 1 + _ROUNDING
        complete = not shares or (within and len(shares) == len(self.noise_groups))
        expect(complete, "a share above 0 of every noise group, at most 1 in all", shares)

    def shares(self, noise_groups: Sequence[NoiseGroup]) -> Sequence[float] | None:
        """Choose each noise group's share of a step's privacy: above 0, at most 1 in total. None: the groups' own."""
        return None

    def noise_factor(self, step: int) -> float:
        """Choose the noise of a step, as a multiple of `noise_multiplier`. Steps count from 0 over the whole run."""
        return 1.0

    def at(self, step: int) -> "Mechanism":
        """Return the mechanism that releases and charges a step: here this one, with the same noise at all steps."""
        return self

    @property
    def private(self) -> bool:
        return self.noise_multiplier > 0

    @property
    def sampling_rate(self) -> float:
        """Return q = B / N, the probability with which an example joins a Poisson batch."""
        return self.batch_size / self.examples

    @property
    def neighbouring_relation(self) -> str:
        """Return the neighbours for which the sound epsilon holds: see `charge_step`."""
        return "add-or-remove-one" if self.sampling is Sampling.poisson else "zero-out"

    @property
    def steps_per_epoch(self) -> int:
        return self.examples // self.batch_size

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Return the coefficients of the noise's correlation over steps (`correlated`): here of independent noise."""
        return (1.0,)

    def memberships(self, generator: Generator) -> Iterator[Tensor]:
        """Yield the Poisson batches of one epoch as truth values [examples], so that no code waits for their sizes.

        Uniforms are float64. On float32's grid of 2^-24 the rate would have a relative rounding error of up to 1e-5.
        """
        for _ in range(self.steps_per_epoch):
            uniforms = torch.rand(self.examples, dtype=torch.float64, device=generator.device, generator=generator)
            yield uniforms < self.sampling_rate

    def batches(self, generator: Generator) -> Iterator[Tensor]:
        """Yield the index batches of one epoch: Poisson batches, or disjoint ones of a fresh random order."""
        if self.sampling is Sampling.poisson:
            for members in self.memberships(generator):
                yield members.nonzero().squeeze(1)
            return
        order = torch.randperm(self.examples, device=generator.device, generator=generator)
        for step in range(self.steps_per_epoch):
            yield order[step * self.batch_size : (step + 1) * self.batch_size]

    def check(self, clipping: Clipping, objective: Objective, inputs: Tensor, targets: Tensor) -> None:
        """Check that the charge holds for this clipping of this objective.

        inputs [2, ...] and targets [2] are made up, on the device of the objective. The charge of this class holds for
        any clipping that has the sensitivities of `noise_groups`.

        Raises:
            ValueError: the charge does not hold.
        """

    def applied(self, clipping: Clipping, batch: int) -> Clipping:
        """Return the clipping for a logical batch of `batch` examples: here the same for all."""
        return clipping

    @property
    def denominator(self) -> int:
        """Return the divisor of the noisy sum: the expected batch size."""
        return self.batch_size

    def noise_std(self, group: NoiseGroup) -> float:
        """Return the standard deviation of the noise on each coordinate of the sum."""
        root = math.sqrt(len(self.noise_groups)) if group.share is None else 1 / math.sqrt(group.share)
        return self.noise_multiplier * root * group.sensitivity

    def noise_of_mean(self) -> dict[str, float]:
        """Return the standard deviation of the noise on each coordinate of the noisy mean, by parameter name."""
        return {
            name: self.noise_std(group) / self.denominator for group in self.noise_groups for name in group.parameters
        }

    def most_moved(self, group: NoiseGroup) -> float:
        """Return the largest change of a group's sum by one example, in or out, which `actual` in the ledger covers."""
        return group.sensitivity

    def release(
        self, sums: dict[str, Tensor], generator: Generator, past: PastNoise | None = None
    ) -> dict[str, Tensor]:
        """Return the noisy mean, (sum + noise) / denominator, by parameter name, with the dtype of the sum.

        It is computed in float64 and rounded once, after the noise is added: see `runner.mechanism.normal`. The noise
        is correlated with `past`, or independent if that is None, which has the same cost.

        Raises:
            ValueError: the noise groups are not exactly the parameters of `sums`, or a sum is neither float32 nor
                float64.
        """
        self.check_partition(sums)
        for name, total in sums.items():
            if total.dtype not in _DTYPES:
                raise ValueError(f"The sum of {name} is {total.dtype}: noise is for float32 and float64 only.")
        if not self.private:
            return {name: total / self.denominator for name, total in sums.items()}
        noise = self.draw_noise(sums, generator)
        noise = noise if past is None else past.next(noise)
        return {
            name: noisy_mean(sums[name], noise[name], self.noise_std(group), self.denominator)
            for group in self.noise_groups
            for name in group.parameters
        }

    def draw_noise(self, like: Mapping[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        """Draw the standard normal numbers of one step at once: float64, of the shapes of `like`, by parameter."""
        names = [name for group in self.noise_groups for name in group.parameters]
        sizes = [like[name].numel() for name in names]
        numbers = standard_normal(sum(sizes), generator, like[names[0]].device)
        return {name: z.view(like[name].shape) for name, z in zip(names, numbers.split(sizes), strict=True)}

    def check_partition(self, names: Iterable[str]) -> None:
        """Check that the noise groups are exactly these parameters, each once.

        Raises:
            ValueError: they are not.
        """
        parameters = [name for group in self.noise_groups for name in group.parameters]
        if sorted(parameters) != sorted(names):
            raise ValueError("The noise groups do not partition the parameters: some would get no noise, or twice.")

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        """Write one step's release to the ledger, for a kept or a rejected update (see `runner.training.updates`).

        `claimed` counts as the papers do: every kept step is a Poisson-sampled Gaussian. Shuffled batches are no such
        samples. Their whole epoch is charged as one Gaussian, at its first step (see the module's text).
        """
        per_step = gaussian(self.noise_multiplier, self.sampling_rate)
        claimed = per_step if kept else None
        if self.sampling is Sampling.poisson or not self.private:
            ledger.release(actual=per_step, claimed=claimed)
        elif step_in_epoch == 0:
            ledger.release(actual=self._epoch_event(), claimed=claimed)
        else:
            ledger.release(actual=NoOpDpEvent(), claimed=claimed)

    def charges(self, steps: int) -> Ledger:
        """Return all charges for `steps` steps, all of them kept, and for the releases before the first.

        It repeats `charge_step`, with one epoch for all whole ones. So calibration and stopping use the same charges as
        the run's ledger.
        """
        ledger = Ledger()
        for event, count in self.before:
            ledger.release(event, event, count)
        epochs, remainder = divmod(steps, self.steps_per_epoch)
        for length, times in ((self.steps_per_epoch, epochs), (remainder, 1)):
            part = Ledger()
            for step in range(length if times else 0):
                self.charge_step(part, step)
            ledger.add(part, times)
        return ledger

    def charges_of_epochs(self, epochs: int) -> Ledger:
        """Return all charges for whole epochs, all steps kept, and for the releases before the first."""
        return self.charges(epochs * self.steps_per_epoch)

    def _epoch_event(self) -> DpEvent:
        return gaussian(self.noise_multiplier)


@dataclass(frozen=True)
class Scheduled(Mechanism):
    """DP-SGD with noise that changes: step t has the noise multiplier `noise_multiplier * factors[t]`.

    The last factor holds for all later steps.

    Raises:
        ValueError: as for `Mechanism`, or there is no factor, or a multiplier is not above 0 and finite.
    """

    factors: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        for factor in self.factors or (math.nan,):
            multiplier = (self.noise_multiplier if self.private else 1.0) * factor
            expect(0 < multiplier < math.inf, "noise factors > 0 and finite, and so the noise", factor)

    def at(self, step: int) -> Mechanism:
        return self._steps[min(step, len(self.factors) - 1)]

    @cached_property
    def _steps(self) -> list[Mechanism]:
        """Return the mechanism of each step that has a factor. Equal ones are one object."""
        same = {field.name: getattr(self, field.name) for field in fields(Mechanism)}
        steps_by_noise: dict[tuple[float, float], Mechanism] = {}
        steps = []
        for begin in range(0, len(self.factors), self.steps_per_epoch):
            epoch = [self.noise_multiplier * factor for factor in self.factors[begin : begin + self.steps_per_epoch]]
            least = min(epoch)
            for multiplier in epoch:
                if (multiplier, least) not in steps_by_noise:
                    steps_by_noise[multiplier, least] = _Step(**same | {"noise_multiplier": multiplier, "least": least})
                steps.append(steps_by_noise[multiplier, least])
        return steps

    def noise_std(self, group: NoiseGroup) -> float:
        """Refuse, as the noise belongs to a step, see `at`."""
        raise TypeError("The noise changes from step to step: use at(step).noise_std.")

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        """Refuse, as the charge belongs to a step, see `at`."""
        raise TypeError("The charges change from step to step: use at(step).charge_step.")

    def charges(self, steps: int) -> Ledger:
        ledger = super().charges(0)
        for step in range(steps):
            self.at(step).charge_step(ledger, step % self.steps_per_epoch)
        return ledger


@dataclass(frozen=True)
class _Step(Mechanism):
    """A step of `Scheduled`, with its noise multiplier and the smallest multiplier of its epoch."""

    least: float = math.inf

    def _epoch_event(self) -> DpEvent:
        return gaussian(min(self.least, self.noise_multiplier))


def check_first_batch(mechanism: Mechanism, sums: Callable[[Tensor], Mapping[str, Tensor]], norms: Tensor) -> None:
    """Take the example with the largest norm out of a batch, and compare the sums group by group.

    The sensitivities are proven, and the contributions of a user's code are bounded. This check compares the first real
    batch of a private run with the bounds once, in every way of taking a step. It costs three more sums, and is skipped
    if two sums of the same batch differ, as in a network that draws random numbers.

    Args:
        sums: the clipped sums, by parameter name, over the examples of the batch that a mask [batch] keeps.
        norms: [batch], norms of gradients or, without these, losses; the largest selects the example.

    Raises:
        RuntimeError: the sums differ by more than is charged for.
    """
    if not mechanism.private or len(norms) < 2:
        return
    everyone = torch.ones(len(norms), dtype=torch.bool, device=norms.device)
    without_largest = everyone.clone()
    without_largest[norms.nan_to_num(-1.0, -1.0).argmax()] = False
    devices = [norms.device] if norms.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        total, without = sums(everyone), sums(without_largest)
        again = sums(everyone)
    if any(not torch.equal(total[name].nan_to_num(), again[name].nan_to_num()) for name in total):
        return
    for group in mechanism.noise_groups:
        squares = [(total[name] - without[name]).double().square().sum() for name in group.parameters]
        moved, most = float(torch.stack(squares).sum().sqrt()), mechanism.most_moved(group)
        if not moved <= most * (1 + _MOVED[0] + _MOVED[1] * len(norms)):
            raise RuntimeError(
                f"one example of the first batch moves the sum of {group.parameters[0]} by {moved:.4g}, but the noise "
                f"is for {most:.4g}: no ε would hold"
            )


class Normalization(Protocol):
    """A layer without parameters between the features and the network, and its cost in privacy."""

    @property
    def releases(self) -> Releases:
        """Return the releases of the training examples by `fit`, empty if the layer needs none."""
        ...

    def layer(self, channels: int) -> nn.Module:
        """Return the layer for features [batch, channels, height, width].

        Raises:
            ValueError: the number of channels is not supported.
        """
        ...

    def fit(self, layer: nn.Module, features: Tensor, generator: Generator, ledger: Ledger) -> None:
        """Set up `layer` from the training features [examples, channels, height, width], charging `releases`."""
        ...
