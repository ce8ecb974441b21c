"""Faults in bounds without clipping: layers, weights, inputs and losses."""

from checks.mutants.mutant import Mutant, named

_BOUNDS = named(
    "networks/test_lipschitz_bounds.py",
    "test_bounds_by_hand",
    "test_a_chain_of_linear_layers_reaches_every_bound",
    "test_constants_of_losses_are_reached_and_never_passed",
    "test_what_has_no_bound_is_refused_by_name",
)
_SPECTRAL = "networks/test_spectral.py"
_CLIPPING = named("clipping/test_lipschitz.py", "test_noise_is_local_by_bounds_or_global_by_their_root_of_squares")
_COURSES = "clipping/test_lipschitz_courses.py"

MUTANTS = (
    Mutant(
        "networks/lipschitz/bounds.py",
        "return math.prod(-(-k // s) for k, s in zip(kernel, stride, strict=True))",
        "return math.prod(k // s for k, s in zip(kernel, stride, strict=True))",
        "a pixel is read by fewer windows than it is",
        _BOUNDS,
    ),
    Mutant(
        "networks/lipschitz/bounds.py",
        "        bias = 0.0 if layer.bias is None else math.sqrt(positions)",
        "        bias = 0.0 if layer.bias is None else 1.0",
        "a bias on a map is bounded as one on a vector",
        _BOUNDS,
    ),
    Mutant(
        "networks/lipschitz/bounds.py",
        "            if id(parameter) in self._seen:",
        "            if False:",
        "a weight that two layers share is bounded as one (Lipschitz)",
        _BOUNDS,
    ),
    Mutant(
        "networks/lipschitz/bounds.py",
        "weight * behind + way(weight * behind)",
        "weight * behind",
        "a residual's own branch sends nothing back",
        _BOUNDS,
    ),
    Mutant(
        "networks/lipschitz/spectral.py",
        "_WITHIN = 1.9",
        "_WITHIN = 2.5",
        "the projection starts outside of where its polynomial holds",
        _SPECTRAL,
    ),
    Mutant(
        "networks/lipschitz/spectral.py",
        "values.mul_((self.bias_radius / norms).clamp(max=1.0))",
        "values.mul_(1.0)",
        "biases are not kept bounded",
        f"{_SPECTRAL} {_BOUNDS}",
    ),
    Mutant(
        "clipping/lipschitz.py",
        "NoiseGroup(tuple(bounds), math.hypot(*bounds.values()))",
        "NoiseGroup(tuple(bounds), max(bounds.values()))",
        "the sensitivity of all tensors is that of the largest",
        _CLIPPING,
    ),
    Mutant(
        "clipping/lipschitz.py",
        "share = (1 - course.budget) / len(groups)",
        "share = None",
        "the count is not paid for by the gradients of its step",
        _COURSES,
    ),
    Mutant(
        "clipping/lipschitz.py",
        "NoiseGroup((COUNT,), COUNT_SENSITIVITY, course.budget)",
        "NoiseGroup((COUNT,), COUNT_SENSITIVITY / 2, course.budget)",
        "the count has half its noise",
        _COURSES,
    ),
    Mutant(
        "networks/lipschitz/losses.py",
        ".clamp(max=1.0) / unit",
        ".clamp(max=1.0)",
        "a bound that falls takes the unit of the sums with it",
        _COURSES,
    ),
    Mutant(
        "data/bounded.py",
        "        factors = _LEFT * self.largest_norm / norms",
        "        factors = _LEFT * self.largest_norm / norms.clamp(max=2 * self.largest_norm)",
        "images beyond twice the bound stay longer than it",
        "data/test_bounded.py",
    ),
    Mutant(
        "training/updates/plain.py",
        "        self._project()\n        return True",
        "        return True",
        "weights leave their constraint after the first step",
        "training/stacked/test_step.py::test_trains_lipschitz_networks_as_the_eager_loop_does",
    ),
    Mutant(
        "networks/lipschitz/spectral.py",
        " - sum(matrices.shape[-2:]) * _ROUNDING",
        "",
        "a projection leaves no room for the rounding of long sums",
        "networks/test_spectral.py",
    ),
)
