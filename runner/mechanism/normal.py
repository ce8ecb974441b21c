"""Standard normal numbers for noise: drawn in float64, then rounded, with ends that no release can reach.

PyTorch's float32 normal numbers on a CPU come from 24 random bits (Box and Muller, 1958): two numbers share a radius
sqrt(-2 ln u) with u >= 2^-24, so their radius ends at sqrt(48 ln 2) = 5.768. A release beyond that end cannot happen
without an example that shifts it there. Here the radius comes from 83 random bits and ends at

    END = sqrt(168 ln 2) = 10.79,

and the angle from 43 others. All arithmetic is float64, and the result is rounded to the dtype of the sum.

**What an end costs.** Let one example shift the sum of a step by a vector of length 1 / sigma, in units of the noise's
standard deviation. Let s_j be its length in the plane of the j-th pair of numbers. Without the example, that pair lies
within a distance `end` of its centre, which is known in the worst case. With it, the pair lies outside with the
probability

    F(s_j) = integral over r in [end - s_j, end] of r exp(-r^2 / 2) arccos(c(r)) / pi dr,
    c(r) = (end^2 - r^2 - s_j^2) / (2 r s_j), cut to [-1, 1],

because a point at distance r from the centre, in a uniform direction, is shifted out of the disc if the cosine of its
angle to the shift exceeds c(r). Over T steps that the example joins with the rate q each, a release that only the
example can cause has the probability 1 - (1 - q p)^T, with p = 1 - prod_j (1 - F(s_j)). At any epsilon, delta is at
least that.

F(s) / s grows with s, so p <= sum_j F(s_j) <= F(s) / s * sum_j s_j <= sqrt(n) F(s) for n pairs and s = 1 / sigma. For
small s, F(s) is nearly proportional to s, so an example that shifts many pairs a little can be worse than one that
shifts a single pair. `delta_growth` gives both numbers: the worst of m equal shifts, for m from 1 to n, and the bound.

For ends as far as `END` nothing else is lost. Within all discs, the densities with and without the example have the
ratio of exact Gaussians. All discs together hold a share c >= 1 - n T exp(-END^2 / 2) of the exact noise, which is 1 to
13 digits for a million pairs and a million steps. So delta grows to delta / c plus that probability at most.
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
END_OF_FLOAT32 = math.sqrt(48 * math.log(2))  # the same of PyTorch's float32 numbers on a CPU, as in older records
_LOW = (1 << 20) - 1


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


def delta_growth(
    end: float, pairs: int, noise_multiplier: float, sampling_rate: float, steps: int
) -> tuple[float, float]:
    """Compute by how much delta grows because the noise ends: for an example that attains it, and at most for any.

    Args:
        end: where the radius of two numbers ends, in standard deviations.
        pairs: n of numbers in a step, all of one noise group.
        noise_multiplier: sigma > 0.
        sampling_rate: q of Poisson batches.

    >>> [f"{growth:.1e}" for growth in delta_growth(END_OF_FLOAT32, 13_005, 1.23, 512 / 60_000, 4_680)]
    ['4.1e-04', '4.4e-03']
    """
    counts = np.unique(np.geomspace(1, pairs, 400).round())
    outside = np.array([_outside(end, 1 / (noise_multiplier * math.sqrt(count))) for count in counts])
    attained = (-np.expm1(counts * np.log1p(-outside))).max()
    most = min(1.0, math.sqrt(pairs) * outside[0])
    attained, bound = -np.expm1(steps * np.log1p(-sampling_rate * np.array([attained, most])))
    return float(attained), float(bound)


def _outside(end: float, shift: float) -> float:
    """Compute F(shift) by Gauss and Legendre's rule in v, with r = end - shift (1 - v^2), smooth at both ends."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    v, weights = (nodes + 1) / 2, weights / 2
    r = end - shift * (1 - v**2)
    inside = r > 0  # a shift beyond the end moves the centre out, too
    r = np.where(inside, r, 1.0)
    cosine = np.clip((end**2 - r**2 - shift**2) / (2 * r * shift), -1, 1)
    density = np.where(inside, r * np.exp(-(r**2) / 2), 0.0)
    return float((weights * 2 * v * shift * density * np.arccos(cosine) / math.pi).sum())
