"""Normalised features: by group within each example, or per channel by statistics that are released with noise.

`PrivateStatistics` is a separate mechanism, before training. Take N examples with features x_i [channels, positions].
Let m_i be the means of x_i over its positions and s_i the means of x_i^2, both vectors [channels]. It releases

    mean   = (1/N) * [ sum_i m_i * min(1, mean_norm   / ||m_i||_2) + noise_multiplier * mean_norm   * N(0, I) ]
    square = (1/N) * [ sum_i s_i * min(1, square_norm / ||s_i||_2) + noise_multiplier * square_norm * N(0, I) ]

One example contributes only a vector of norm at most `mean_norm` to the first sum. So adding or removing it moves that
sum by at most `mean_norm` in L2, the sensitivity. The noise has `noise_multiplier` times that standard deviation. So
the release is a Gaussian mechanism with that multiplier, without sampling, since every example takes part. The same
holds for the second release. N, the size of the training set, counts as public, as the batch size of training does.
Dividing by it is post-processing. So are the variance square - mean^2, its clamping, and normalising any example with
the result.

Both norms are constants of the configuration. Handcrafted-DP instead takes the medians of ||m_i|| and ||s_i|| over the
private examples, computed without noise. This releases two more statistics of the private data, which its epsilon does
not contain. A constant that fits badly costs accuracy, never privacy: clipping biases the statistics, and too large a
norm adds noise. So choose it from public images or from the transform.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from runner.accounting import Ledger, Releases, gaussian
from runner.config.fields import expect
from runner.mechanism.normal import noisy_mean, standard_normal

_CHUNK = 500  # examples read at a time
_SMALLEST_VARIANCE = 1e-5  # as in PyTorch's normalisation layers


@dataclass(frozen=True)
class GroupNormalization:
    """Zero mean and unit variance of each group of neighbouring channels of each example (Wu and He, 2018).

    Every example is normalised separately, so it costs no privacy. There is no affine map.

    Raises:
        ValueError: `groups` is not positive.
    """

    groups: int

    def __post_init__(self) -> None:
        expect(self.groups >= 1, "normalization.groups > 0", self.groups)

    @property
    def releases(self) -> Releases:
        return ()

    def layer(self, channels: int) -> nn.Module:
        return nn.GroupNorm(self.groups, channels, affine=False)

    def fit(self, layer: nn.Module, features: Tensor, generator: Generator, ledger: Ledger) -> None:
        pass


class Standardize(nn.Module):
    """(x - mean) / std per channel, [batch, channels, height, width], which is the identity until constants are set."""

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("std", torch.ones(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


@dataclass(frozen=True)
class PrivateStatistics:
    """Per-channel mean and variance of the training features, by two noisy releases: see the module's text.

    A variance at or below the standard deviation of the noise on the mean squares is only noise, and could be negative.
    So variances are at least that deviation, and at least 1e-5. (Handcrafted-DP sets a channel to zero if its noisy
    variance is not positive.) Without noise (`noise_multiplier` = 0) the run is not private.

    Raises:
        ValueError: `noise_multiplier` is negative, or a norm is not positive and finite.
    """

    noise_multiplier: float
    mean_norm: float
    square_norm: float

    def __post_init__(self) -> None:
        noise = self.noise_multiplier
        expect(0 <= noise < math.inf, "normalization.noise_multiplier >= 0 and finite", noise)
        for name in ("mean_norm", "square_norm"):
            expect(0 < getattr(self, name) < math.inf, f"normalization.{name} > 0 and finite", getattr(self, name))

    @property
    def releases(self) -> Releases:
        return ((gaussian(self.noise_multiplier), 2),)

    def layer(self, channels: int) -> nn.Module:
        return Standardize(channels)

    def fit(self, layer: nn.Module, features: Tensor, generator: Generator, ledger: Ledger) -> None:
        assert isinstance(layer, Standardize)
        mean_sum = torch.zeros(features.shape[1], dtype=torch.float64, device=features.device)
        square_sum = torch.zeros_like(mean_sum)
        for some in features.split(_CHUNK):
            means, squares = self.contributions(some)
            mean_sum += means.sum(dim=0)
            square_sum += squares.sum(dim=0)
        mean = self._release(mean_sum, self.mean_norm, generator, ledger) / len(features)
        square = self._release(square_sum, self.square_norm, generator, ledger) / len(features)
        noise_std = self.noise_multiplier * self.square_norm / len(features)
        variance = (square - mean.square()).clamp(min=max(noise_std, _SMALLEST_VARIANCE))
        layer.mean.copy_(mean.view(-1, 1, 1))
        layer.std.copy_(variance.sqrt().view(-1, 1, 1))

    def contributions(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return each example's contributions to the two sums, [examples, channels], float64.

        Their norms are at most `mean_norm` and `square_norm`. A contribution that is not finite is zero, as it would
        show in the sum despite the noise.
        """
        positions = features.flatten(2).double()
        return _bounded(positions.mean(dim=2), self.mean_norm), _bounded(
            positions.square().mean(dim=2), self.square_norm
        )

    def _release(self, total: Tensor, sensitivity: float, generator: Generator, ledger: Ledger) -> Tensor:
        """Return one of the two releases, the noisy sum, and charge it."""
        event = gaussian(self.noise_multiplier)
        ledger.release(actual=event, claimed=event)
        if self.noise_multiplier == 0:
            return total
        noise = standard_normal(len(total), generator, total.device)
        return noisy_mean(total, noise, self.noise_multiplier * sensitivity, denominator=1)


def _bounded(vectors: Tensor, bound: float) -> Tensor:
    """Return rows [examples, channels], scaled down to the L2 norm `bound` if they exceed it."""
    norms = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return torch.where(norms.isfinite(), vectors * (bound / norms).clamp(max=1.0), 0.0)
