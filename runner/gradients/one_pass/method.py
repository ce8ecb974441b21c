"""The methods by name, and the one that a layer gets on this machine: among those near in operations, the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from runner.gradients.one_pass.choice import Choice, choose
from runner.gradients.one_pass.gram import gram
from runner.gradients.one_pass.instantiate import instantiate
from runner.gradients.one_pass.kernel import kernel, usable
from runner.gradients.one_pass.one_by_one import one_by_one
from runner.gradients.one_pass.scratch import Scratch
from runner.gradients.terms import Terms
from runner.networks.geometry import Geometry
from runner.speed.choices import Way, fastest, made_up
from runner.speed.kernels import fits

METHODS: Mapping[str, Callable[[Tensor, Tensor, Geometry, bool, Scratch], Terms | None]] = {
    "kernel": kernel,
    "instantiate": instantiate,
    "gram": gram,
    "one_by_one": one_by_one,
}

_NEAR = 2.0  # times the fewest operations: a method with more has lost untried
_FORMED = 1 << 24  # numbers of the gradients formed in a trial
_EXAMPLES = 64


def method_for(shape: Geometry, like: Tensor) -> Choice:
    """The method for a layer whose inputs are of the type and on the device of `like`, and what all would cost.

    On a CPU those near in operations are timed on this machine (see `runner.speed.choices`): operations tell little of
    products of small matrices, whose speed hangs on the width of the registers.
    """
    choice = choose(shape, usable(like))
    near = [method for method, cost in choice.costs.items() if cost <= _NEAR * min(choice.costs.values())]
    if "kernel" in near:
        near.append("instantiate")
    if len(near) == 1 or not fits(like):
        return choice
    method = fastest("weight_gradients", _case(shape), lambda: _ways(near, shape), choice.method, near)
    return replace(choice, method=method)


def _case(shape: Geometry) -> str:
    """A geometry in words that differ where what is computed does."""
    inputs, outputs = (shape.channels_in, *shape.input), (shape.channels_out, *shape.output)
    sizes = [" x ".join(map(str, each)) for each in (inputs, outputs, shape.kernel, shape.stride)]
    about = "{} to {}, windows {} every {}".format(*sizes)
    about += f", padding {' x '.join(map(str, shape.padding))}" if any(shape.padding) else ""
    return about + (f", dilation {' x '.join(map(str, shape.dilation))}" if shape.dilation != (1, 1) else "")


def _ways(methods: list[str], shape: Geometry) -> dict[str, Way]:
    examples = max(1, min(_EXAMPLES, _FORMED // shape.weights))
    a = made_up(examples, *shape.input, shape.channels_in)
    g = made_up(examples, *shape.output, shape.channels_out)
    factors, scratch = torch.ones(examples), Scratch()

    def way(method: str) -> Way:
        def terms_and_sum() -> None:
            terms = METHODS[method](a, g, shape, False, scratch)
            if terms is not None:
                terms.weight_sum(factors)

        return terms_and_sum

    return {method: way(method) for method in methods}
