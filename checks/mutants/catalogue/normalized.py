"""Faults in the gradients of group normalisation and of standardised weights."""

from checks.mutants.mutant import Mutant, named

_EXACT = named("gradients/test_normalized.py", "test_norms_and_sums_are_those_of_torch_func")
_BOUND = named("gradients/test_normalized.py", "test_one_example_moves_each_parameter_by_at_most_its_bound")

MUTANTS = (
    Mutant(
        "gradients/one_pass/standardized.py",
        "g, scale, out=g).addcmul_(u, scale * gains[-1], value=-1)",
        "g, scale, out=g)",
        "the component along the standardised weights stays in the gradient",
        _EXACT,
    ),
    Mutant(
        "gradients/one_pass/standardized.py",
        "squared_norms(terms.formed)",
        "terms.squares * 1e-2",
        "norms of standardised weights are those before the map, made too small",
        _BOUND,
    ),
    Mutant(
        "gradients/terms.py",
        'self.squares if kind == "weight" else squared_norms(self._vectors(kind))',
        'self.squares if kind == "weight" else squared_norms(self._vectors(kind)) * (kind != "gain")',
        "gains are left out of the norms",
        _EXACT,
    ),
    Mutant(
        "gradients/one_pass/affine.py",
        "each.unflatten(0, (-1, views)).sum(positions)",
        "each.unflatten(0, (views, -1)).transpose(0, 1).sum(positions)",
        "group normalisation adds up views of different examples",
        _EXACT,
    ),
    Mutant(
        "training/stacked/layers.py",
        "scale * (by_run - by_run.mean(3, keepdim=True) - u * gains)",
        "scale * (by_run - u * gains)",
        "a graph does not centre the gradients of standardised weights",
        _EXACT,
    ),
    Mutant(
        "training/stacked/layers.py",
        "each.sum(2).unflatten(0, (-1, self.views)).sum(1) for each in (outputs * self.rows(), outputs)",
        "each.sum(2).unflatten(0, (-1, self.views)).sum(1) for each in (outputs, outputs)",
        "a graph takes the gradient of a gain for that of a bias",
        _EXACT,
    ),
)
