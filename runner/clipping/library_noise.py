"""The noise of the authors' library (lip-dp; Bethune et al., 2024), at its true cost.

The library gives tensor d noise of the deviation nm sqrt(D) K'_d. Two of its bounds K'_d are too small:

- A bias on a map is added at P positions, and K' and its norm are those of one position: sqrt(P) is missing.
- A kernel is trained as V = a W, with W orthogonal and a = 1 / sqrt(m), m as in `runner.networks.lipschitz.bounds`. Its
  bound K'_V = a sqrt(m) X G = X G is that of the gradient in W. In V it is sqrt(m) X G. Here W is trained. Its gradient
  is a times that in V, and so is the noise: K'_W = X G / sqrt(m), where X G would do.

Let K_d be the bounds that hold. A step is then one Gaussian mechanism of the multiplier

    (sum_d K_d^2 / (nm sqrt(D) K'_d)^2)^(-1/2) = nm sqrt(D) / c,    c = (sum_d (K_d / K'_d)^2)^(1/2).

This is the `noise_multiplier` of a run, and shares w_d = (K_d / K'_d)^2 / c^2 give the noise: noise_multiplier K_d /
sqrt(w_d) = nm sqrt(D) K'_d. So the noise is the library's, and the charges are for what it really hides.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import nn

from runner.clipping import NoiseGroup
from runner.clipping.lipschitz import Lipschitz
from runner.networks.lipschitz.bounds import Backward, Walk, gradient_bounds, reads_of
from runner.networks.lipschitz.course import counting_course
from runner.networks.objective import Objective


def library_bounds(objective: Objective) -> Mapping[str, float]:
    """Return K'_d by parameter name.

    Raises:
        ValueError: as for `gradient_bounds`.
    """
    return gradient_bounds(objective, _LibraryWalk)


@dataclass(frozen=True)
class LibraryNoise(Lipschitz):
    """`Lipschitz` with local noise in proportion to the library's bounds. Sensitivities are those that hold."""

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        """Return one group per tensor, with its share of a step's privacy.

        Raises:
            ValueError: a gradient has no bound, noise is global, or a count is released.
        """
        groups = super().noise_groups(model)
        assert isinstance(model, Objective)
        if self.noise != "local" or counting_course(model.loss) is not None:
            raise ValueError("The library's noise is local here, and the bound of the loss's gradient stays the same.")
        bounds = library_bounds(model)
        squares = (sum((group.sensitivity / bounds[name]) ** 2 for name in group.parameters) for group in groups)
        ratio = math.sqrt(len(groups) / sum(squares))  # sqrt(D) / c
        return tuple(
            replace(group, share=(ratio * group.sensitivity / bounds[group.parameters[0]]) ** 2 / len(groups))
            for group in groups
        )


class _LibraryWalk(Walk):
    def _layer(self, name: str, layer: nn.Linear | nn.Conv2d, positions: int, norm: float) -> tuple[float, Backward]:
        largest, backward = super()._layer(name, layer, 1, norm)
        reads = 1 if isinstance(layer, nn.Linear) else reads_of(layer.kernel_size, layer.stride)

        def behind_to_before(behind: float) -> float:
            before = backward(behind)
            self.gradients[id(layer.weight)] /= math.sqrt(reads)
            return before

        return largest, behind_to_before
