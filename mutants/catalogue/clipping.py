"""What bounds one example, and what is stated of it."""

from mutants.groups import AGREES
from mutants.mutant import Mutant, named

_PER_EXAMPLE = named(
    "clipping/test_per_example_gradients.py",
    "test_pieces_add_up",
    "test_one_example_moves_the_sum_by_at_most_the_sensitivity",
    "test_whole_contribution_of_per_layer_clipping_keeps_the_norm",
    "test_matches_float64_reference",
)
_BACKPROP = named(
    "clipping/test_backprop.py",
    "test_stated_sensitivities",
    "test_what_cannot_be_bounded_is_refused",
    "test_a_layer_on_other_rows_than_one_an_example_is_refused",
    "test_rows_of_the_mean_loss_move_by_almost_twice_the_sensitivity",
    "test_rows_of_the_mean_loss_never_move_by_twice_the_sensitivity",
    "test_matches_float64_reference_one_example_at_a_time",
    "test_no_adversary_exceeds_the_sensitivity",
)
_CLIPS = "clipping/test_clips.py"

MUTANTS = (
    Mutant(
        "clipping/per_example.py",
        "return (bound / norms).clamp(max=1.0)",
        "return (bound / norms).clamp(max=1.0).maximum(bound / bound / 4 + 0 * norms)",
        "no gradient is made smaller than a quarter of itself",
        _PER_EXAMPLE,
    ),
    Mutant(
        "clipping/per_example.py",
        'clip_factors(norms, numbers["norm"] / math.sqrt(norms.shape[-1]))',
        'clip_factors(norms, numbers["norm"])',
        "every layer is clipped to the norm of the whole",
        _PER_EXAMPLE,
    ),
    Mutant(
        "clipping/per_example.py",
        "NoiseGroup(group, self.norm / math.sqrt(len(groups)))",
        "NoiseGroup(group, self.norm / len(groups))",
        "layers state too small a sensitivity",
        _PER_EXAMPLE,
    ),
    Mutant(
        "clipping/per_example.py",
        '(norms + numbers["stability"])',
        '(norms.clamp(max=1) + numbers["stability"])',
        "AUTO-S does not bound gradients longer than 1",
        _PER_EXAMPLE,
    ),
    Mutant(
        "clipping/interface.py",
        "        total = piece if total is None else total + piece",
        "        total = piece",
        "of a batch in pieces the last one counts alone",
        _PER_EXAMPLE,
    ),
    Mutant(
        "clipping/interface.py",
        "        if numbers is not None and numbers.shape != targets.shape[:1]:",
        "        if False:",
        "what is clipped may be something else than examples",
        named("training/test_independence.py", "test_an_engine_that_counts_rows_is_caught_in_the_sum"),
    ),
    Mutant(
        "clipping/backprop.py",
        "math.hypot(self.input_bound, 1) * self.upstream_bound",
        "self.input_bound * self.upstream_bound",
        "a layer's bias is left out of its sensitivity",
        _BACKPROP,
    ),
    Mutant(
        "clipping/backprop.py",
        "return math.sqrt(math.prod(layer.kernel_size)) * product",
        "return product",
        "the factor of a convolution's kernel is forgotten",
        _BACKPROP,
    ),
    Mutant(
        "clipping/backprop.py",
        "_ClipUpstream.apply(output, self.upstream_bound, l1_over_space)",
        "output",
        "upstream gradients are not clipped",
        _BACKPROP,
    ),
    Mutant(
        "clipping/backprop.py",
        "plain(_ClipInput.apply(x, self.input_bound))",
        "plain(x)",
        "inputs are not clipped",
        _BACKPROP,
    ),
    Mutant(
        "clipping/backprop.py",
        "                if name in called:",
        "                if False:",
        "a layer called twice adds two rows an example",
        _BACKPROP,
    ),
    Mutant(
        "clipping/backprop.py",
        "                if id(parameter) in owners:",
        "                if False:",
        "a weight that two layers share is bounded as one",
        _BACKPROP,
    ),
    Mutant(
        "clipping/backprop.py",
        "{name: g / self.batch for name, g in found.gradients.items()}",
        "{name: g / max(1, self.batch - 1) for name, g in found.gradients.items()}",
        "rows of the mean loss are longer than their bound",
        _BACKPROP,
    ),
    Mutant(
        "clipping/clips.py",
        "    return x.masked_fill(_by_example(broken, x), 0), norms.masked_fill(broken, 0)",
        "    return x, norms",
        "a row that is not finite goes into the sum (without a compiler)",
        _CLIPS,
    ),
    Mutant(
        "clipping/clips.py",
        "        factors = bound / norms.clamp(min=bound)",
        "        factors = (bound / norms.clamp(min=bound)).sqrt()",
        "rows beyond the bound are scaled too little (without a compiler)",
        _CLIPS,
    ),
    Mutant(
        "clipping/clips.py",
        "along = (y * gradient).sum(dim=tuple(range(1, y.dim()))) * (factors / -(bound**2))",
        "along = torch.zeros_like(factors)",
        "the gradient of a clipped row is that of a constant factor (without a compiler)",
        _CLIPS,
    ),
    Mutant(
        "speed/kernels/clips.cpp",
        "    if (!(norm <= kLargest)) {",
        "    if (norm > kLargest) {",
        "a row of NaN goes into the sum",
        f"{AGREES} {_CLIPS}",
    ),
    Mutant(
        "speed/kernels/clips.cpp",
        "static_cast<float>(bound / std::max(norm, bound))",
        "static_cast<float>(2 * bound / std::max(norm, 2 * bound))",
        "rows are clipped to twice the bound",
        f"{AGREES} {_CLIPS}",
    ),
    Mutant(
        "speed/kernels/clips.cpp",
        "run[c] += std::fabs(x[p * channels + c]);",
        "run[c] += x[p * channels + c];",
        "gradients of opposite sign cancel in their norm",
        f"{AGREES} {_CLIPS}",
    ),
    Mutant(
        "speed/kernels/clips.cpp",
        "    for (; i < length; i++) total += terms(i);",
        "    i = length;",
        "the last numbers of a row are left out of its norm",
        f"{AGREES} {_CLIPS}",
    ),
)
