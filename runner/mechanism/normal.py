"""Standard normal numbers for noise, drawn in float64 and rounded to the dtype of the sum, and what they cost.

Numbers come in pairs of a radius and an angle (Box and Muller, 1958). PyTorch draws the float32 numbers of a CPU, in
tensors of 16 or more, from 24 bits each: the radii are r_k = sqrt(-2 ln(k 2^-24)) with k from 1 to 2^24. Here a radius
comes from 83 bits and ends at END = sqrt(168 ln 2) = 10.79, an angle comes from 43 others, and the arithmetic is
float64. Every epsilon is that of exact Gaussian noise. The rest of this text says what that leaves out.

**Float32 noise, in older records: delta is at least `delta_of_radii`, at any epsilon.** The attack needs no last
digits. It knows the sum of the other examples, and takes the distance of each pair of noisy numbers from where it has
its centre without the example, in standard deviations and to eta / 2 = `RESOLUTION` / 2. Without the example, every
distance is an r_k. The largest are 5.77, 5.65 and 5.57, so there are gaps of 0.12, 0.07 and less, into which an example
shifts some pairs. A shift of length s in a pair's plane moves the radius r_k to the distance

    d = sqrt(r_k^2 + 2 r_k s cos(phi) + s^2),    P(d <= x) = 1 - arccos((x^2 - r_k^2 - s^2) / (2 r_k s)) / pi,

with the quotient cut to [-1, 1], as phi is uniform (on 2^24 values, which changes the result in the fifth digit). With
K = 64, a pair is seen to be impossible without the example if d > r_K + eta and d is not within eta of r_1 to r_(K-1).
Only the K largest radii are counted as moved there, each with the probability 2^-24:

    p_1(s) = 2^-24 sum_(k <= K) (1 - P(d <= r_K + eta) - sum_(j < K) P(r_j - eta < d <= r_j + eta)).

Of m pairs that are all shifted by s = 1 / (sigma sqrt(m)), one or more are impossible with p = 1 - (1 - p_1(s))^m. Over
T steps that the example joins with the rate q each, such a release has the probability 1 - (1 - q p)^T. It has
probability 0 without the example, so delta is at least that. Whoever reads more digits finds smaller gaps, and comes
close to 1 - (1 - q)^T, the probability that the example joins at all.

**Float64 noise: its end is proven to cost at most `delta_of_end`.** Take exact noise, given that the n pairs of each of
T steps have radii up to END. This has the probability c = (1 - 2^-84)^(n T). One example shifts the pairs of a step by
s_j with sum_j s_j^2 <= S^2 = 1 / sigma^2. A release is ordinary if its pairs lie within END of their centres both with
and without the example, in all steps. A pair is not ordinary only if its noise has a radius from END - s_j to END, so

    P(not ordinary) <= T sum_j G(s_j),    G(s) = (exp(END s - s^2 / 2) - 1) / (2^84 - 1),

both with and without the example. On ordinary releases, the densities are those of exact noise, divided by c. So delta
becomes at most delta / c plus that probability, in both directions, and delta / c - delta <= n T / (2^84 - 1) for delta
< 1/2. For s <= END - 1, G''(s) has the sign of (END - s)^2 - 1 >= 0, and G(0) = 0. So G(s) / s grows up to there, and
sum_j G(s_j) <= G(S) / S sum_j s_j <= sqrt(n) G(S), if sigma >= 1 / (END - 1) = 0.103. Below that, no bound is given. In
all, delta grows by at most T (sqrt(n) G(1 / sigma) + n / (2^84 - 1)).

**Float64 noise: its lattice is negligible to coarse eyes, which is argued and not proven.** A pair is one of 2^126
points. By the same uniform numbers, it is within 1e-10 of an exact pair, except for a share below 1e-12 of all pairs:
angles are 7e-13 apart, and a float64 just below 1 has neighbours at 2^-53. Sums that are added exactly and rounded to a
grid of h standard deviations would so differ from those of exact noise with a probability of about 2e-10 / h for each
number, at most. For the 1e8 numbers of a run and a fine grid, this union bound says nothing. The probability of a
square of the grid is an average over h / 7e-13 lines of points, so its relative error is far smaller, but no bound on
delta follows from this here.

**Not covered, in float32 or float64: the last digits.** The noise is rounded before it is added, and the noisy sum once
more. So this is no post-processing of an exact Gaussian mechanism. Floating-point numbers that one sum plus noise can
reach are not those that another can reach (Mironov, 2012, for Laplace noise; Jin et al., 2022, for Gaussian noise and
DP-SGD). In a step of MNIST's network (sigma = 1.23, S = 0.1), about 270 of 26,010 noisy numbers are impossible without
an example that shifts all alike, and about 430 are impossible with it. Whoever sees all digits of the noisy sums, and
knows the sum of the other examples, so recognises the steps that it joins, and delta is close to 1 - (1 - q)^T. Sums
and norms are rounded, too, so sensitivities are exact only to the fifth digit (Casacuberta et al., 2022). A sum of
several normal numbers makes such a search harder (Holohan and Braghin, 2021), without a proof. What would have a proof
is noise on a grid: see `docs/privacy.md`.
"""

from __future__ import annotations

import ctypes
import math

import numpy as np
import torch
from torch import Generator, Tensor

from runner.speed.kernels import integers, library, pointers, threads_for

PRECISION = "float64"  # in which noise is drawn, as records say it
END = math.sqrt(168 * math.log(2))  # of the radius of two numbers
RESOLUTION = 1e-3  # in standard deviations: twice the error with which an attack on float32 noise reads a distance
_LOW = (1 << 20) - 1
_RADII = np.sqrt(-2 * np.log(np.arange(1, 65) * 2.0**-24))  # the largest of PyTorch's float32 numbers on a CPU
_SURE = 0.9999  # the largest lower bound that is given


def standard_normal(count: int, generator: Generator, like: Tensor) -> Tensor:
    """Draw independent standard normal numbers: [count], with the dtype (float32 or float64) and the device of `like`.

    They are computed in float64, of 63 random bits for each number, in one draw and without waiting for the device.

    >>> standard_normal(3, torch.Generator().manual_seed(0), torch.empty(0)).shape
    torch.Size([3])
    """
    pairs = (count + 1) // 2
    bits = torch.empty(2, pairs, dtype=torch.int64, device=like.device).random_(generator=generator)
    compiled = library("normal", agrees) if like.device.type == "cpu" and like.dtype is torch.float32 else None
    return box_muller(bits)[:count].to(like.dtype) if compiled is None else _by_kernel(compiled, bits, count)


def box_muller(bits: Tensor) -> Tensor:
    """Transform pairs of 63 random bits, int64 [2, pairs], to standard normal numbers, float64 [2 pairs]."""
    a, b = bits
    u = a.double() * 2.0**-63 + ((b & _LOW).double() + 0.5) * 2.0**-83
    radius = (-2 * u.log()).sqrt()
    angle = (b >> 20).double() * (2 * math.pi * 2.0**-43)
    return torch.cat([radius * angle.cos(), radius * angle.sin()])


def _by_kernel(compiled: ctypes.CDLL, bits: Tensor, count: int) -> Tensor:
    normal = torch.empty(count, device="cpu")
    compiled.normal_of(*pointers(bits, normal), *integers(bits.shape[1], count, threads_for(normal)))
    return normal


def agrees(compiled: ctypes.CDLL) -> bool:
    """Return True if a library rounds the numbers of `box_muller`, also of the least and the most bits there are."""
    bits = torch.arange(1, 2 * 997 + 1).view(2, 997) * 0x5DEECE66D0A7B3C1 & (1 << 63) - 1
    bits[:, :8] = torch.tensor(
        [[0, 0, 1, 1 << 31, -1, -1, 1 << 62, 0], [0, -1, 1 << 62, 7 << 40, 0, -1, 1 << 61, _LOW]]
    )
    bits &= (1 << 63) - 1
    right = box_muller(bits)
    return all(
        torch.allclose(_by_kernel(compiled, bits, count).double(), right[:count], rtol=6e-8, atol=1e-11)
        for count in (2 * 997, 2 * 997 - 1)
    )


def delta_of_radii(pairs: int, noise_multiplier: float, sampling_rate: float, steps: int) -> float:
    """Compute a lower bound on delta, at any epsilon, for float32 noise of a CPU: see the module's text.

    It is the largest one over the numbers of pairs that an example can shift alike, and 0.9999 at most.

    Args:
        pairs: of numbers of a step, all of one noise group. Only tensors of 16 numbers or more have them.
        noise_multiplier: sigma > 0.
        sampling_rate: q of Poisson batches.

    >>> f"{delta_of_radii(12_960, 1.23, 512 / 60_000, 4_680):.2f}"
    '0.72'
    """
    counts = np.unique(np.geomspace(1, max(pairs, 1), 20).round())
    impossible = np.array([_impossible(1 / (noise_multiplier * math.sqrt(count))) for count in counts])
    recognised = (-np.expm1(counts * np.log1p(-impossible))).max() if pairs else 0.0
    return min(float(-np.expm1(steps * np.log1p(-sampling_rate * recognised))), _SURE)


def _impossible(shift: float) -> float:
    """Compute p_1(shift)."""
    radii, edges = _RADII[:, None], np.stack([_RADII - RESOLUTION, _RADII + RESOLUTION])[:, None]
    cosine = (edges**2 - radii**2 - shift**2) / (2 * radii * shift)
    below = 1 - np.arccos(np.clip(cosine, -1, 1)) / math.pi
    near = below[1] - below[0]
    near[:, -1] = below[1, :, -1]
    return float(2.0**-24 * (1 - near.sum(axis=1)).sum())


def delta_of_end(pairs: int, noise_multiplier: float, steps: int) -> float:
    """Bound from above by how much delta grows because float64 noise ends: see the module's text.

    Args:
        pairs: n of numbers of a step, of all its noise groups.
        noise_multiplier: sigma > 0 of the whole step.

    >>> f"{delta_of_end(13_005, 1.23, 4_680):.1e}"
    '1.3e-16'
    """
    shift = 1 / noise_multiplier
    if shift > END - 1:
        return 1.0
    beyond = math.sqrt(pairs) * math.expm1(END * shift - shift**2 / 2)
    return min(1.0, steps * (beyond + pairs) / (2.0**84 - 1))
