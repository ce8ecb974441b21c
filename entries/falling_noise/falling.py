"""Noise that falls with the learning rate, as agents of a benchmark for DP-SGD proposed it."""

from dataclasses import dataclass

from runner.mechanism.dp_sgd import Mechanism


@dataclass(frozen=True)
class FallingNoise(Mechanism):
    """Noise in proportion to 1 - (1 - last) k / 7 in the k-th eighth of T steps, k = 0..7, as the rate of `linear_by_step`.

    The class chooses the proportions alone. The package scales all of them by one number, so that the run costs the ε
    that it is asked for, and it draws and charges the noise of each step.
    """

    steps: int = 1
    last: float = 0.5

    def noise_factor(self, step: int) -> float:
        """Return the share of the first step's noise. The step counts from 0."""
        return 1.0 - (1.0 - self.last) * (8 * step // self.steps) / 7
