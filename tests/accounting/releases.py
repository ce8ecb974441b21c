"""Releases for tests of the accountants."""

from __future__ import annotations

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from runner.accounting.ledger import Releases

DELTA = 1e-5
MNIST = (512 / 60000, 1.23, 4680)


def sampled(q: float, noise_multiplier: float, times: int) -> Releases:
    return ((PoissonSampledDpEvent(q, GaussianDpEvent(noise_multiplier)), times),)


def unsampled(noise_multiplier: float, times: int = 1) -> Releases:
    return ((GaussianDpEvent(noise_multiplier), times),)
