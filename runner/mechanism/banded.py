"""DP-SGD with banded correlated noise and cyclic Poisson sampling (Choquette-Choo et al., NeurIPS 2023, "BandMF").

Noise that is added in one step is partly subtracted in the next ones. So sums of steps, and with them the weights, have
less noise. The price is amplification by sampling: an example takes part in every b-th step, at b times the rate.

**The mechanism.** The N examples are split into b parts, at random, in one of two ways (`parts`). By default the parts
are equal: a permutation of the N indices, whose generator depends on N and b alone. If they are `independent`, the part
of each example is drawn uniformly, independently of all others, by a generator of the run. Step t = 0, ..., T - 1 draws
its batch from part t mod b. Each example of the part joins with probability
q_b = b B / N, so the expected batch size is B. Let x_t be the sum of the batch's bounded contributions to
all noise groups. Each group is in units of its noise's standard deviation over `noise_multiplier`, so an example's
contribution has norm 1 at most. The steps release the rows of

    x + C^-1 z,    z_t ~ N(0, sigma^2 I) independent,    C [T, T] with C_{t+k, t} = c_k for 0 <= k < b, else 0.

The coefficients have sum_k c_k^2 = 1. So the columns of C have norm one. The last b - 1 columns are truncated and have
less.

**The charge.** A run costs what ceil(T / b) Gaussians of multiplier sigma cost, each on a Poisson sample of rate q_b.
Neighbours differ by one example at one index. Derivation, for an example of part p:

1. C is public and invertible, and both C and its inverse are lower-triangular. So releasing the rows of x + C^-1 z one
   after another equals releasing the rows of C x + z. Row s is o_s = sum_{k < b} c_k x_{s-k} + z_s.
2. x_t depends on the example only if t = p + j b, and then through one coin w_j ~ Bernoulli(q_b). Rows before p do not
   depend on the example. Let block j have the rows p + j b, ..., p + j b + b - 1, as far as they are below T. Row
   p + j b + k adds up b steps. Exactly one of them belongs to part p: step p + j b, with the coefficient c_k. So the
   coin w_j is in block j alone, because the steps of a part are b apart and C has b bands.
3. Condition on the coins of all other examples. They are independent of w_j, with the same distribution for both
   neighbours. Averaging over them cannot increase a hockey-stick divergence, by joint convexity. Let g_j be the
   contribution of the example in step p + j b. It is a function of the weights there, hence of the rows before block j.
   All other terms of row s are a function h_s of earlier rows. So o_s = c_k w_j g_j + h_s(o_0, ..., o_{s-1}) + z_s.
4. Let u have the parts u_k = c_k w_j g_j + z_s for all k. It is a Gaussian mechanism on a Poisson sample, with one
   coin for all coordinates, and a shift of norm ||c|| ||g_j|| <= 1. Given the rows before block j, its rows follow from
   u one after another, by o_s = u_k + h_s(o_0, ..., o_{s-1}). This is post-processing of u, although the later steps
   of the block choose their x_t adaptively. (Denisov et al., NeurIPS 2022, theorem 2.1, prove adaptivity for any C
   without sampling. Choquette-Choo et al. prove it for banded C with sampling.)
5. Blocks compose adaptively. Part p has ceil((T - p) / b) of them, and part 0 the most: ceil(T / b). An index has one
   part, so the run costs what it costs for the worst part.

A truncated column moves its block by less than is charged, so the charge is an upper bound. Nothing is lost by it.
After whole cycles, as at the end of each epoch here, the last column of part 0 is complete.

**Neighbours** of `independent` parts differ by one example, which is added or removed. Condition on the parts of all
other examples, too. They have the same distribution for both neighbours, so averaging over them cannot increase a
hockey-stick divergence. Then step 3 holds for any part p of the example. The rate q_b has the public N, as for Poisson
sampling without parts. For equal parts this is no proof, because one index more makes another permutation, which moves
most of the others to another part. There, a neighbour has the contribution of one example set to zero, at an index
that both have. Neither charge holds for a replaced example: the contributions of the two can be opposite, and move a
step by twice the bound. By group privacy, such neighbours have 2 epsilon at (1 + e^epsilon) delta.

**The coefficients.** c is proportional to the first b coefficients of 1 / sqrt((1 - x)(1 - m x)). This is the square
root of the workload of SGD with momentum m. For m = 0 the workload has the prefix sums, and the root 1, 1/2, 3/8, 5/16,
... (Fichtenberger, Henzinger and Upadhyay, ICML 2023). Kalinin and Lampert (NeurIPS 2024) cut it to b bands and bound
the loss of that. The coefficients decrease, so all roots of sum_k c_k x^k are outside the unit circle (Eneström and
Kakeya), and the recurrence for the noise is stable. With b = 1 the mechanism is DP-SGD.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from dp_accounting import NoOpDpEvent
from torch import Generator, Tensor

from runner.accounting import Ledger
from runner.config import Sampling
from runner.config.fields import expect
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import generator as seeded

INDEPENDENT = "independent"
ZERO_OUT = "zero-out"


def square_root(bands: int, momentum: float = 0.0) -> tuple[float, ...]:
    """Return the first coefficients of 1 / sqrt((1 - x)(1 - momentum x)), scaled to norm one."""
    series = [1.0]
    for k in range(1, bands):
        series.append(series[-1] * (2 * k - 1) / (2 * k))
    mixed = [math.fsum(series[i] * series[k - i] * momentum**i for i in range(k + 1)) for k in range(bands)]
    norm = math.hypot(*mixed)
    return tuple(coefficient / norm for coefficient in mixed)


@dataclass(frozen=True)
class Banded(Mechanism):
    """DP-SGD with noise that is correlated over `bands` steps, as derived in the module's text.

    An epoch is floor(N / (b B)) whole cycles of b steps, so that each epoch begins with part 0.

    Attributes:
        bands: b >= 1, the number of parts and of bands of C.
        momentum: of the workload that the noise is correlated for, in [0, 1): the optimizer's, say.
        parts: None for equal parts by a permutation, or "independent".

    Raises:
        ValueError: as for `Mechanism`, or a number is out of its range, or batches are not Poisson samples.
    """

    bands: int = 4
    momentum: float = 0.0
    parts: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.bands >= 1, "mechanism.bands >= 1", self.bands)
        expect(0 <= self.momentum < 1, "mechanism.momentum >= 0 and below 1", self.momentum)
        expect(self.parts in (None, INDEPENDENT), f"mechanism.parts to be null or {INDEPENDENT}", self.parts)
        if self.sampling is not Sampling.poisson:
            raise ValueError(f"mechanism=banded needs sampling=poisson, got {self.sampling.value}.")
        if self.bands * self.batch_size > self.examples:
            raise ValueError(
                f"mechanism=banded draws each batch from one of its {self.bands} parts, so batch_size can be at most "
                f"{self.examples // self.bands} of {self.examples} examples, got {self.batch_size}."
            )

    @property
    def coefficients(self) -> tuple[float, ...]:
        return square_root(self.bands, self.momentum)

    @property
    def sampling_rate(self) -> float:
        """Return q_b = b B / N, the probability with which an example joins a batch of its part."""
        return self.bands * self.batch_size / self.examples

    @property
    def steps_per_epoch(self) -> int:
        return self.examples // (self.bands * self.batch_size) * self.bands

    @property
    def neighbouring_relation(self) -> str:
        return super().neighbouring_relation if self.parts == INDEPENDENT else ZERO_OUT

    @cached_property
    def equal_parts(self) -> Tensor:
        """The part of each example, [examples]: fixed, at random, of sizes that differ by at most one."""
        return torch.randperm(self.examples, generator=seeded(0, "parts", torch.device("cpu"))) % self.bands

    def part_of(self, generator: Generator) -> Tensor:
        """Return the part of each example, [examples], on the device of the generator that draws the run's batches.

        Independent parts follow from that generator's seed, so they stay the same over the epochs of a run.
        """
        if self.parts is None:
            return self.equal_parts.to(generator.device)
        own = seeded(generator.initial_seed(), "parts", torch.device("cpu"))
        return torch.randint(self.bands, (self.examples,), generator=own).to(generator.device)

    def memberships(self, generator: Generator) -> Iterator[Tensor]:
        parts = self.part_of(generator)
        for step, members in enumerate(super().memberships(generator)):
            yield members & (parts == step % self.bands)

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        """Write a cycle's release to the ledger, at its first step: one sampled Gaussian for the worst part."""
        if step_in_epoch % self.bands == 0 or not self.private:
            super().charge_step(ledger, step_in_epoch, kept=kept)
        else:
            ledger.release(actual=NoOpDpEvent(), claimed=None)
