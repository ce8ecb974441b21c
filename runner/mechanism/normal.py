"""Noise: independent streams from one seed, standard normal numbers in float64, noisy sums rounded once, correlation.

Numbers come in pairs of a radius and an angle (Box and Muller, 1958). PyTorch draws the float32 numbers of a CPU, in
tensors of 16 or more, from 24 bits each: the radii are r_k = sqrt(-2 ln(k 2^-24)) with k from 1 to 2^24. Here a radius
comes from 83 bits and ends at END = sqrt(168 ln 2) = 10.79, an angle comes from 43 others, and the arithmetic is
float64. A noisy sum is computed in float64, too, and then rounded to a grid, before it is divided and gets the dtype of
the sum. Every epsilon is that of exact Gaussian noise. The rest of this text says what that leaves out, first for
records whose noise was made in other ways. `correlated` derives noise that is correlated over steps.

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

**Float64 noise that was rounded before it was added, in other records ("float64"): the end costs at most
`delta_of_end`.** Take exact noise, given that the n pairs of each of T steps have radii up to END. This has the
probability c = (1 - 2^-84)^(n T). One example shifts the pairs of a step by s_j with sum_j s_j^2 <= S^2 = 1 / sigma^2.
A release is ordinary if its pairs lie within END of their centres both with and without the example, in all steps. A
pair is not ordinary only if its noise has a radius from END - s_j to END, so

    P(not ordinary) <= T sum_j G(s_j),    G(s) = (exp(END s - s^2 / 2) - 1) / (2^84 - 1),

both with and without the example. On ordinary releases, the densities are those of exact noise, divided by c. So delta
becomes at most delta / c plus that probability, in both directions, and delta / c - delta <= n T / (2^84 - 1) for delta
< 1/2. For s <= END - 1, G''(s) has the sign of (END - s)^2 - 1 >= 0, and G(0) = 0. So G(s) / s grows up to there, and
sum_j G(s_j) <= G(S) / S sum_j s_j <= sqrt(n) G(S), if sigma >= 1 / (END - 1) = 0.103. Below that, no bound is given. In
all, delta grows by at most T (sqrt(n) G(1 / sigma) + n / (2^84 - 1)).

Their last digits are not covered, as noise was rounded to float32, added, and the noisy sum rounded again. This is no
post-processing of an exact Gaussian mechanism: floating-point numbers that one sum plus noise can reach are not those
that another can reach (Mironov, 2012, for Laplace noise; Jin et al., 2022, for Gaussian noise and DP-SGD). In a step of
MNIST's network (sigma = 1.23, S = 0.1), about 270 of 26,010 noisy numbers are impossible without an example that shifts
all alike, and about 430 are impossible with it. Whoever sees all digits of the noisy sums, and knows the sum of the
other examples, so recognises the steps that it joins, and delta is close to 1 - (1 - q)^T.

**Noise that is rounded once, after it is added: all rounding of noise costs at most `cost_of_rounding`.** If noise and
addition were exact, rounding a noisy sum to a grid would be post-processing, and so is all that follows. Lengths are in
standard deviations from here on. The grid has a width from h = 2^-12 to 2h, so a release states a cell of it for each
pair of numbers, a rectangle in the plane of the pair's noise. Let P be its probability by exact noise, and Q by the
noise as it is computed, both for the same sum. Let the cell have the distances R_1 to R from the origin of the noise,
with R <= rho, the diagonal D <= 2 sqrt(2) h, and the sides h_1 and h_2. The claim is

    |Q / P - 1| <= e(R) = (9 R + 6) 2^-43 / h + 2^-69.8 exp(R^2 / 2) / R_1,    or 2^-24 if R_1 < 1/64,

and 9 R more in the brackets for a cell across an axis.

1. *Angles* are N = 2^43 equal steps. Let F(t) be the probability that an exact radius falls into the cell, given the
   angle t. Q has the mean of F over N angles, and P over all. These differ by at most V / (2N), with V the variation of
   F. Within a quadrant, F rises and then falls: at first the near end of the ray's part in the cell moves in and the
   far end out, and at last the reverse. In between, both lie on parallel sides, and dF/dt changes its sign at most
   once, from + to -. So V = 2 max F, and twice that across an axis. Here max F <= D R exp(-R_1^2 / 2) and P >= h_1 h_2
   exp(-R^2 / 2) / (2 pi). With D / (h_1 h_2) <= sqrt(2) / h and R^2 - R_1^2 <= 2 R D, the relative error is at most 2
   sqrt(2) pi exp(R D) R / (N h), which is below 9 R / (N h).
2. *Radii* come from u in (0, 1), on a lattice of 2^-83 and rounded to 53 bits. So of each angle, the share of radii in
   the cell is wrong by at most 2^-83 + 2^-51 exp(-R_1^2 / 2). A share of D / (4 R_1) of the angles at most meets the
   cell, or all if it is near the origin. Relative to P, this is at most 2^-69.8 exp(R^2 / 2) / R_1 + 0.6 / (N h), or
   2^-24.3 if R_1 < 1/64.
3. *Arithmetic*: if a noisy number is wrong by at most 2^-43, then Q lies between those of cells whose sides are 2^-42
   longer or shorter, which changes P by 4.1 / (N h) at most. A rounding of float64 is 2^-53 of the largest number, so
   noisy numbers up to 2^9 and errors of several last digits in logarithm, root, sine and cosine are within this.

Let E be the largest e, across an axis and at rho. Under P, the mean of e^2 is at most v = (19 * 2^-43 / h)^2. Indeed, a
radius has the moments 1.26 and 2, so (9 (r + D) + 6)^2 has the mean 333, and cells across an axis, near the origin or
near rho have too little probability to add the rest to 361. Given the batches and the releases before, all pairs are
independent. Let L be the sum of ln(Q / P) over the m = n T pairs, without the cells beyond rho. If E <= 0.01, each
summand is at most 1.01 E in size, with the mean v + 2^-52 and the variance 1.01 v at most, under Q, and so has -L under
P. Freedman's inequality (1975) for martingales bounds L, but for a probability exp(-x), by

    a = m (v + 2^-52) + sqrt(2.02 v m x) + 0.68 E x.

The worst case of all cells at once, which is linear, would be m E, or 60 for m = 6e7 and E = 1e-6, and so tells
nothing. A cell is beyond rho only if its noise has a radius beyond A = rho - D, which has a probability of at most b =
m exp(-A^2 / 2), by exact noise and, to 2^-83, by computed noise. So for any outcomes O, Q(O) <= exp(a) P(O) + b +
exp(-x), and the same with P and Q exchanged. Let exact noise be (epsilon, delta)-private. Then computed noise is
private with

    epsilon + 2 a    and    exp(a) delta + (1 + exp(epsilon + a)) (b + exp(-x)).

Here x is epsilon + 24, and A^2 / 2 is ln m + epsilon + 16.2, or 37 if that is more. This subsumes the end of the noise.
It is a proof for the lattice, and step 3 rests on the arithmetic of the processor, compiler and libraries. (Without the
grid, cells would be as small as float32's, which are tiny near zero, and e would not be small. The grid adds 2e-8 to
the variance of the noise at most.)

**Not covered.** Random bits are those of PyTorch's generator, from a recorded seed. Sums and norms are rounded, so
sensitivities are exact only to the fifth digit (Casacuberta et al., 2022): whether an example joins changes the
rounding of everything added after it. A margin in the clipping norm does not bound this, but sums on a grid would: see
`docs/privacy.md`. Noise that is correlated over steps is rounded once, too, but the derivation above is for independent
noise, as a release then depends on the exact noise of earlier ones.
"""

import ctypes
import hashlib
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Generator, Tensor

from runner.speed.kernels import call, fits, library, threads_for, waves

PRECISION = "float64, rounded once"  # how noise is drawn and added, as records say it
DRAWN = "float64"  # the same of records whose noise was rounded before it was added
GRID = 12  # a noisy sum is rounded to 2^-12 to 2^-11 standard deviations of its noise
END = math.sqrt(168 * math.log(2))  # of the radius of two numbers
RESOLUTION = 1e-3  # in standard deviations: twice the error with which an attack on float32 noise reads a distance
_LOW = (1 << 20) - 1
_RADII = np.sqrt(-2 * np.log(np.arange(1, 65) * 2.0**-24))  # the largest of PyTorch's float32 numbers on a CPU
_SURE = 0.9999  # the largest lower bound that is given


def standard_normal(count: int, generator: Generator, device: torch.device) -> Tensor:
    """Draw independent standard normal numbers: float64 [count].

    They are computed of 63 random bits for each number, in one draw and without waiting for the device.

    >>> standard_normal(3, torch.Generator().manual_seed(0), torch.device("cpu")).dtype
    torch.float64
    """
    pairs = (count + 1) // 2
    bits = torch.empty(2, pairs, dtype=torch.int64, device=device).random_(generator=generator)
    compiled = library("normal", agrees) if device.type == "cpu" else None
    return (box_muller(bits) if compiled is None else _transform_in_place(compiled, bits))[:count]


def anchor(std: float) -> float:
    """Return 1.5 * 2^52 h for the width h of the grid of sums whose noise has this standard deviation, above 0.

    A float64 number below 2^51 h is rounded to a multiple of h by adding the anchor, and is then given back by
    subtracting it.
    """
    return 1.5 * 2.0 ** (52 + math.frexp(std)[1] - GRID)


def noisy_mean(total: Tensor, noise: Tensor, std: float, denominator: int) -> Tensor:
    """Return (total + std * noise) / denominator, computed in float64 and rounded as the module's text says.

    Args:
        total: [*shape], float32 or float64, as is the result.
        noise: standard normal numbers, float64 [*shape].
        std: above 0.

    >>> noisy_mean(torch.zeros(2), torch.tensor([1.0, -2.0], dtype=torch.float64), 4.0, 8)
    tensor([ 0.5000, -1.0000])
    """
    same = (noise.shape, noise.dtype, noise.device) == (total.shape, torch.float64, total.device)
    compiled = library("normal", agrees) if fits(total) and same else None
    if compiled is None:
        return rounded_once(total, noise, std, anchor(std), denominator)
    return _mean_by_kernel(compiled, total, noise, std, denominator)


def rounded_once(
    total: Tensor, noise: Tensor, std: Tensor | float, anchors: Tensor | float, denominator: int
) -> Tensor:
    """Do what `noisy_mean` does, with PyTorch alone, and for several standard deviations: [*shape] or a number."""
    noisy = total + std * noise  # float64, as the noise is
    return ((noisy + anchors - anchors) / denominator).to(total.dtype)


def box_muller(bits: Tensor) -> Tensor:
    """Transform pairs of 63 random bits, int64 [2, pairs], to standard normal numbers, float64 [2 pairs]."""
    a, b = bits
    u = a.double() * 2.0**-63 + ((b & _LOW).double() + 0.5) * 2.0**-83
    radius = (-2 * u.log()).sqrt()
    angle = (b >> 20).double() * (2 * math.pi * 2.0**-43)
    return torch.cat([radius * angle.cos(), radius * angle.sin()])


def _transform_in_place(compiled: ctypes.CDLL, bits: Tensor) -> Tensor:
    """Do what `box_muller` does, in the memory of the bits."""
    call(compiled.normal_of, bits, bits.shape[1], threads_for(bits))
    return bits.view(torch.float64).flatten()


def _mean_by_kernel(compiled: ctypes.CDLL, total: Tensor, noise: Tensor, std: float, denominator: int) -> Tensor:
    total, noise, mean = total.contiguous(), noise.contiguous(), torch.empty(total.shape, device="cpu")
    numbers = total.numel(), threads_for(total), float(std), anchor(std), float(denominator)
    call(compiled.mean_of, total, noise, mean, *numbers)
    return mean


def agrees(compiled: ctypes.CDLL) -> bool:
    """Return True if a library computes the numbers of `box_muller` and the means of `rounded_once`.

    The bits are also the least and the most that there are.
    """
    bits = torch.arange(1, 2 * 997 + 1).view(2, 997) * 0x5DEECE66D0A7B3C1 & (1 << 63) - 1
    bits[:, :8] = torch.tensor(
        [[0, 0, 1, 1 << 31, -1, -1, 1 << 62, 0], [0, -1, 1 << 62, 7 << 40, 0, -1, 1 << 61, _LOW]]
    )
    bits &= (1 << 63) - 1
    right = box_muller(bits)
    same = torch.allclose(_transform_in_place(compiled, bits), right, rtol=1e-14, atol=1e-14)
    sums = 3 * waves(2 * 997)
    mean = _mean_by_kernel(compiled, sums, right, 0.3, 7)
    return same and torch.equal(mean, rounded_once(sums, right, 0.3, anchor(0.3), 7))


def delta_of_radii(pairs: int, noise_multiplier: float, sampling_rate: float, steps: int) -> float:
    """Compute a lower bound on delta, at any epsilon, for float32 noise of a CPU: see the module's text.

    It is the largest one over the numbers of pairs that an example can shift alike, and 0.9999 at most.

    Args:
        pairs: of numbers of a step, all of one noise group. Only tensors of 16 numbers or more have them.
        noise_multiplier: sigma > 0.
        sampling_rate: q of Poisson batches.

    >>> f"{delta_of_radii(12_945, 1.23, 512 / 60_000, 4_680):.2f}"
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


def cost_of_rounding(pairs: int, steps: int, epsilon: float, delta: float) -> tuple[float, float]:
    """Bound from above by how much epsilon and delta grow because noise and noisy sums are rounded: see the text above.

    Args:
        pairs: n of numbers of a step, of all its noise groups.
        epsilon, delta: of exact noise.

    >>> "{:.1e}, {:.1e}".format(*cost_of_rounding(13_005, 4_680, 2.6, 1e-5))
    '1.1e-03, 8.1e-08'
    """
    count, exponent, width = pairs * steps, epsilon + 24, 2.0**-GRID
    half_square = max(37.0, math.log(count) + epsilon + 16.2)  # of A
    if half_square > 45:  # E would be above 0.01
        return math.inf, 1.0
    near = math.sqrt(2 * half_square)
    far = near + 2**1.5 * width
    largest = (18 * far + 6) * 2.0**-43 / width + 2.0**-69.8 * math.exp(far**2 / 2) / near
    mean_square = (19 * 2.0**-43 / width) ** 2
    ratio = count * (mean_square + 2.0**-52) + math.sqrt(2.02 * mean_square * count * exponent)
    ratio += 0.68 * largest * exponent
    rare = count * math.exp(-half_square) + math.exp(-exponent)
    return 2 * ratio, math.expm1(ratio) * delta + (1 + math.exp(epsilon + ratio)) * rare


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


def derived_seed(seed: int, stream: str) -> int:
    """Return a 63-bit seed for a stream, which is named by its use: init, sampling, noise, and so on.

    More draws from one stream do not change the others.
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}".encode()).digest()[:8], "big") >> 1


def generator(seed: int, stream: str, device: torch.device) -> torch.Generator:
    """Return a generator of the named stream on a device. A CPU's takes the lower 32 bits of the derived seed."""
    return torch.Generator(device=device).manual_seed(derived_seed(seed, stream))


def correlated(coefficients: Sequence[float], fresh: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    """Return y_t [*shape], a row of C^-1 z for a lower-triangular banded Toeplitz matrix C, and the next step's past.

    Row t of C y = z is sum_{k < b} c_k y_{t-k} = z_t, with the coefficients c_0, ..., c_{b-1} of C's columns. So

        y_t = (z_t - sum_{k=1}^{b-1} c_k y_{t-k}) / c_0,

    which needs the last b - 1 vectors y and no more. Before the first step they are zero. This is a pure function
    without uploads or waits.

    Args:
        coefficients: c_0, ..., c_{b-1}, with c_0 > 0.
        fresh: z_t [*shape].
        past: y_{t-1}, ..., y_{t-b+1}: [b - 1, *shape].
    """
    first, *later = coefficients
    total = fresh
    for coefficient, earlier in zip(later, past, strict=True):
        total = total - coefficient * earlier
    noise = total / first
    return noise, torch.cat([noise[None], past])[: len(later)]


class PastNoise:
    """The noise of a run's last b - 1 steps, by parameter, for steps that are taken call by call."""

    def __init__(self, coefficients: Sequence[float]) -> None:
        self._coefficients, self._past = coefficients, dict[str, Tensor]()

    def next(self, fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the noise of the next step from standard normal numbers of its own, by parameter."""
        noise = {}
        for name, z in fresh.items():
            past = self._past.get(name)
            if past is None:
                past = z.new_zeros(len(self._coefficients) - 1, *z.shape)
            noise[name], self._past[name] = correlated(self._coefficients, z, past.to(z.device))
        return noise

    def state_dict(self) -> dict[str, Tensor]:
        """Return the past vectors by parameter, each [b - 1, *shape]."""
        return dict(self._past)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._past = dict(state)
