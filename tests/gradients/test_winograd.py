"""Per-example weight gradients of 3 x 3 convolutions in C++, against float64, at odd sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.grad import conv2d_weight

from runner.gradients import methods
from runner.gradients.methods import METHODS
from runner.gradients.terms import Terms
from runner.networks.geometry import Geometry

EXAMPLES = 3


def geometry(c_in: int, c_out: int, height: int, width: int, padding: int = 1, views: int = 1) -> Geometry:
    output = height + 2 * padding - 2, width + 2 * padding - 2
    return Geometry(c_in, c_out, (height, width), output, (3, 3), padding=(padding, padding), views=views)


def numbers(shape: Geometry) -> tuple[Tensor, Tensor]:
    """Return inputs and output gradients, channels last."""
    torch.manual_seed(0)
    rows = EXAMPLES * shape.views
    return torch.randn(rows, *shape.input, shape.channels_in), torch.randn(rows, *shape.output, shape.channels_out)


def terms_of(shape: Geometry, method: str) -> Terms:
    return METHODS[method](*numbers(shape), shape, True)


def exact_weights(shape: Geometry) -> Tensor:
    """Return each example's gradient in float64: [examples, kh * kw * in * out]."""
    a, g = (slopes.double().permute(0, 3, 1, 2).chunk(EXAMPLES) for slopes in numbers(shape))
    size = shape.channels_out, shape.channels_in, 3, 3
    slopes = [conv2d_weight(x, size, y, padding=shape.padding).permute(2, 3, 1, 0) for x, y in zip(a, g, strict=True)]
    return torch.stack(slopes).flatten(1)


def compiled(shape: Geometry) -> str:
    """Return the fastest compiled method that takes this shape."""
    names = methods.usable(torch.zeros(1), shape)
    if not names:
        pytest.skip("no C++ compiler")
    return names[-1]


SHAPES = {
    "one pixel": geometry(16, 17, 1, 1),
    "two": geometry(17, 16, 2, 2),
    "three, features": geometry(243, 17, 3, 2),
    "five": geometry(35, 48, 5, 3),
    "seven, unpadded": geometry(16, 243, 7, 5, padding=0),
    "seventeen": geometry(19, 16, 17, 7),
    "padded by two": geometry(16, 16, 3, 4, padding=2),
    "views": geometry(17, 31, 5, 6, views=2),
    "one channel in": geometry(1, 16, 17, 5),
    "three channels out": geometry(17, 3, 5, 7),
}


@pytest.mark.parametrize("size", SHAPES)
def test_gradients_at_odd_sizes(size: str) -> None:
    """Within 5e-6 of the largest number. The norm counts each computed number once."""
    shape = SHAPES[size]
    method = compiled(shape)
    assert method == ("kernel" if "channel" in size else "winograd")
    terms, exact = terms_of(shape, method), exact_weights(shape)
    assert terms.formed is not None
    assert terms.biases is not None
    assert (terms.formed - exact).abs().max() < 5e-6 * exact.abs().max()
    torch.testing.assert_close(terms.squares.double(), terms.formed.double().square().sum(1), rtol=2e-6, atol=0)
    of_biases = numbers(shape)[1].double().view(EXAMPLES, -1, shape.channels_out).sum(1)
    torch.testing.assert_close(terms.biases.double(), of_biases, rtol=0, atol=1e-5)


def test_threads_and_other_examples_change_no_number() -> None:
    """An example with NaN leaves every bit of the others."""
    shape = geometry(17, 33, 9, 6)
    method, (a, g) = compiled(shape), numbers(shape)
    expected = terms_of(shape, method)
    a[1, 4, 3, 16] = torch.nan
    try:
        torch.set_num_threads(3)
        computed = METHODS[method](a, g, shape, True)
    finally:
        torch.set_num_threads(1)
    for computed_part, other in ((computed.formed, expected.formed), (computed.squares, expected.squares)):
        assert computed_part is not None
        assert other is not None
        assert torch.equal(computed_part[[0, 2]], other[[0, 2]])
    assert computed.squares[1].isnan()
