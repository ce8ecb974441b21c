"""Per-example gradients, layer by layer: their norms, which determine the factors, and then their weighted sum.

A layer's follow from its inputs a and output gradients g at T positions. All methods are exact.

- `linear`, with one position: the gradient of example i is the outer product g_i a_i^T, which is not formed.

      ||g a^T||^2 = ||g||^2 ||a||^2,    bias: ||g||^2,    sum_i c_i g_i a_i^T = (c * G)^T A

  Cost: C + O multiplications per example for the norm, and the O C of the ordinary weight gradient for the sum. Nothing
  cancels, so the norm is as exact as its two factors.
- `affine`, gain and bias of every channel, as group normalisation has them: y = gain * x + bias over the T positions.

      gain: sum_t g_t x_t,    bias: sum_t g_t

  Cost: T C multiplications per example. Both gradients are formed.
- `instantiate`, a convolution with gradients formed, for every example the O x K C matrix below.

      W[o, (k, c)] = sum_t g[t, o] a[s t + d k, c]        (t output positions, k kernel positions, a padded)

  It is computed as a matrix product over the T positions, in channels-last order.
  Cost: the T K C O multiplications of the ordinary weight gradient, which this replaces. In addition, one write and two
  reads of K C O numbers per example. The sum adds the same numbers whose norm was taken.
- `kernel`, the same in C++, if there is a compiler, without unfolding the input. Batched matrix products reach about
  two thirds of the speed of an ordinary weight gradient on matrices this small. weight_gradients.cpp reaches its full
  speed, and computes the norm in the same loop.
- `winograd`, for windows of 3 x 3, one pixel apart: winograd_gradients.cpp takes a quarter of the multiplications. Its
  gradients are off by at most 5e-6 of the largest. It computes the norms from the numbers that it writes, and these are
  summed.
"""

import ctypes
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.networks.geometry import Geometry
from runner.networks.objective import Objective
from runner.networks.standardized import StandardizedConv2d, standardized
from runner.speed.kernels import call, fits, library, waves

Factors = Callable[[Tensor], Tensor]  # norms [batch, groups] -> factors [batch, groups]
_ROOT_OF_LARGEST = 1e19  # the square of a norm above it may overflow in float32
_LONG_SUM = 2048  # terms: float32 keeps the norm of this many to 1e-5, whatever their sizes
_MOVE, _MOVES = 1e-3, 3  # to examples nearby, relative to the largest number of one; and how many
_AGREE, _NOTHING = 1e-3, 1e-12  # tolerance of the comparison with autograd, and the norms too small to compare
# An operation is one multiplication and addition of an ordinary weight gradient. The constants are the costs of other
# work in this unit, measured on CPUs with AVX2 and AVX-512. They choose the method and never change its result.
_STORED = 4  # a number written, whose square is added before it leaves the cache, and read again for the sum
_TRANSFORMED = 18  # a number that `winograd` makes of a tile's inputs or output gradients
_TRANSFORMED_BACK = 26  # a weight's gradient, from 36 numbers
_LONGEST = 16  # numbers in the longest register: with fewer channels most of it is empty
_IN_CACHE = 1 << 17  # numbers of the examples that are mapped to standardised weights at a time


@dataclass(frozen=True)
class Terms:
    """One layer's per-example gradients over one slice of the batch, in a form that is cheap.

    Attributes:
        squares: [batch], squared L2 norm of each example's gradient of the weight.
        weight_sum: from factors [batch], sum_i factor_i * (gradient of the weight): its numbers, in any shape. The
            second argument marks silent examples, as in `weighted_sum`.
        bias: [batch, out], each example's gradient of the bias; None if the layer has none.
        gain: the same of the gain, which standardised weights have.
        formed: [batch, numbers], each example's gradient of the weight, in any order; None if they are not formed.
    """

    squares: Tensor
    weight_sum: Callable[[Tensor, Tensor | None], Tensor]
    bias: Tensor | None
    gain: Tensor | None = None
    formed: Tensor | None = None

    def squared(self, kind: str) -> Tensor:
        """Return squared norms [batch] of the gradients of the layer's "weight", "bias" or "gain"."""
        return self.squares if kind == "weight" else squared_norms(getattr(self, kind))

    def weighted_sum(self, kind: str, factors: Tensor, silent: Tensor | None) -> Tensor:
        """Return the sum of the gradients of the layer's "weight", "bias" or "gain", each times its factor."""
        if kind == "weight":
            return self.weight_sum(factors, silent)
        return weighted_sum(getattr(self, kind), factors, silent)


def weighted_sum(gradients: Tensor, factors: Tensor, silent: Tensor | None) -> Tensor:
    """Return the sum of gradients [batch, numbers] by factors [batch]: [numbers].

    The `silent` examples [batch] have the factor zero and are left out, whatever their numbers are. None: all numbers
    are finite.
    """
    if silent is None:
        return factors @ gradients
    # PyTorch's compiler fuses the zeros with a batched product, but not with one of a vector and a matrix.
    return torch.bmm(factors[None, None], silenced(gradients, silent)[None])[0, 0]


def group_norms(terms: Mapping[str, Terms], groups: Sequence[Sequence[str]], zero: Tensor) -> Tensor:
    """Return L2 norms [batch, groups]; `zero` [batch] is the square of a gradient that no layer contributes to."""
    squares = [sum((part.squared(kind) for _, part, kind in _parts(terms, group)), zero) for group in groups]
    return torch.stack(squares, dim=1).sqrt()


def factors_of(norms: Tensor, silent: Tensor, factors: Factors) -> Tensor:
    """Return factors [batch, groups], zero for the silent examples [batch], whose norms are ignored."""
    return factors(norms.masked_fill(silent[:, None], 0)).masked_fill(silent[:, None], 0)


def weighted_sums(
    terms: Mapping[str, Terms], groups: Sequence[Sequence[str]], weights: Tensor, silent: Tensor | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and sum of every parameter whose layer has terms, by the weights [batch, groups] of its group.

    `silent`: see `weighted_sum`.
    """
    for column, group in enumerate(groups):
        for parameter, part, kind in _parts(terms, group):
            yield parameter, part.weighted_sum(kind, weights[:, column], silent)


def _parts(terms: Mapping[str, Terms], group: Sequence[str]) -> Iterator[tuple[str, Terms, str]]:
    """Yield each parameter of a group whose layer has terms, with these terms and "weight", "bias" or "gain"."""
    for parameter in group:
        layer, _, kind = parameter.rpartition(".")
        if layer in terms:
            yield parameter, terms[layer], kind


def squared_norms(rows: Tensor) -> Tensor:
    """Return squared L2 norms [batch] of rows [batch, ...].

    `vector_norm` is vectorised, unlike `square().sum(1)`. But its long sums lose small terms: the norm of 19 million
    normal numbers came out a thousandth too small. So it takes parts of 2,048 numbers, which `sum` adds pairwise.
    """
    rows = as_rows(rows).contiguous()
    end = rows.shape[1] // _LONG_SUM * _LONG_SUM
    norm = torch.linalg.vector_norm
    if rows.shape[1] <= _LONG_SUM:
        squares: Tensor = norm(rows, dim=1).square()
        return squares
    squares = norm(rows[:, :end].unflatten(1, (-1, _LONG_SUM)), dim=2).square().sum(1)
    return squares + norm(rows[:, end:], dim=1).square() if end < rows.shape[1] else squares


def squared_norms_of_outer(first: Tensor, second: Tensor) -> Tensor:
    """Return squared L2 norms [batch] of outer products of rows [batch, O] and [batch, C]; infinity beyond float32.

    Each row's norm is taken in float64. In float32 the squares of tiny numbers vanish, and a row of huge numbers could
    then make a large product whose norm seems to be 0. Where a square overflows in float32, the other row could lose
    its digits when it is scaled down. So that example is silenced.
    """
    norms = [torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in (first, second)]
    squares: Tensor = (norms[0] * norms[1]).square()
    squares = squares.masked_fill(torch.maximum(*norms) > _ROOT_OF_LARGEST, torch.inf)
    return squares.to(first.dtype)


def as_rows(gradient: Tensor) -> Tensor:
    """Return [batch, *shape] as [batch, numbers], with one number if the shape has no dimensions."""
    return gradient.flatten(1) if gradient.dim() > 1 else gradient[:, None]


def silenced(numbers: Tensor, silent: Tensor) -> Tensor:
    """Return numbers [batch, ...] in the same shape, with zeros for the silent examples."""
    return numbers.masked_fill(silent.reshape(-1, *[1] * (numbers.dim() - 1)), 0)


def is_gradient(
    objective: Objective, inputs: Tensor, targets: Tensor, sums: Mapping[str, Tensor], norm: Tensor
) -> bool:
    """Return True if one example's gradient and norm agree with autograd; on the meta device, always."""
    parameters = dict(objective.named_parameters())
    losses = objective(inputs, targets)
    slopes = torch.autograd.grad(losses.sum(), list(parameters.values()), materialize_grads=True)
    if losses.is_meta:
        return True
    expected = torch.cat([g.flatten() for g in slopes])
    ours = torch.cat(
        [sums[name].flatten() if name in sums else expected.new_zeros(p.numel()) for name, p in parameters.items()]
    )
    length, distance = (squared_norms(numbers[None]).sqrt() for numbers in (expected, ours - expected))
    return not (torch.isfinite(length) and length > _NOTHING and max(distance, abs(norm - length)) > _AGREE * length)


def agrees_at(agrees: Callable[..., bool], tensors: Sequence[Tensor]) -> bool:
    """Return True if two ways to a gradient agree at an example, or else at all of a few examples nearby.

    At one example they can differ by chance: of nearly equal numbers, max-pooling takes another one after another
    rounding, and its slope is another one, too. Nearby, its numbers are moved by about a thousandth of the largest.
    """
    if agrees(*tensors):
        return True
    generator = torch.Generator().manual_seed(0)

    def moved(t: Tensor) -> Tensor:
        return t + _MOVE * t.abs().max() * torch.randn(t.shape, generator=generator).to(t)

    return all(agrees(*(moved(t) if t.is_floating_point() else t for t in tensors)) for _ in range(_MOVES))


def choose(shape: Geometry, compiled: Collection[str]) -> str:
    """Return the name of the cheapest exact method for a layer, from its geometry alone.

    compiled: the compiled methods that this machine has for it.
    """
    o, c = shape.channels_out, shape.channels_in
    if shape.positions == math.prod(shape.kernel) == math.prod(shape.padded) == 1:
        return "linear"
    if "kernel" not in compiled:
        return "instantiate"
    costs = {"kernel": float(shape.positions * shape.weights + _STORED * shape.weights)}
    if "winograd" in compiled:
        numbers = 36 * shape.views * math.prod(math.ceil(size / 4) for size in shape.output)  # of a channel
        stored = (_TRANSFORMED_BACK + _STORED) * shape.weights
        costs["winograd"] = numbers * c * o + _TRANSFORMED * numbers * (c + o) + stored
    return min(costs, key=lambda method: costs[method])


def layer_terms(module: nn.Module, shape: Geometry, method: str, a: Tensor, g: Tensor) -> Terms:
    """Return a layer's per-example gradients by a method, from inputs a [batch * views, ...] and output gradients g."""
    if isinstance(module, nn.GroupNorm):
        return affine(F.group_norm(a, module.num_groups, eps=module.eps), g, shape.views)
    has_bias = module.bias is not None
    if method == "linear":
        return linear(a.flatten(1), g.flatten(1), has_bias)
    if isinstance(module, nn.Linear):
        a, g = (numbers.reshape(-1, 1, shape.positions, numbers.shape[-1]) for numbers in (a, g))
    else:
        a, g = a.permute(0, 2, 3, 1), g.permute(0, 2, 3, 1)
    terms = METHODS[method](a, g, shape, has_bias)
    return through_standardization(terms, module, shape) if isinstance(module, StandardizedConv2d) else terms


def linear(a: Tensor, g: Tensor, has_bias: bool) -> Terms:
    """Return terms of a layer with inputs a [batch, in] and output gradients g [batch, out]."""

    def weight_sum(factors: Tensor, silent: Tensor | None) -> Tensor:
        outputs, inputs = (g, a) if silent is None else (silenced(g, silent), silenced(a, silent))
        return (outputs * factors[:, None]).T @ inputs

    return Terms(squared_norms_of_outer(g, a), weight_sum, g if has_bias else None)


def affine(x: Tensor, g: Tensor, views: int) -> Terms:
    """Return terms of normalised inputs x and output gradients g, both [batch * views, channels, ...]."""
    positions = [1, *range(3, g.dim() + 1)]
    gains, biases = (slopes.unflatten(0, (-1, views)).sum(positions) for slopes in (g * x, g))
    return Terms(squared_norms(gains), lambda factors, silent: weighted_sum(gains, factors, silent), biases)


def instantiate(a: Tensor, g: Tensor, shape: Geometry, has_bias: bool) -> Terms:
    """Return terms of a convolution, channels last: a [batch, h, w, in] and g [batch, h', w', out].

    With K views of each example, these are [batch * K, ...], and the sum over positions is one over views, too.
    """
    rows = g.reshape(-1, shape.positions, shape.channels_out)
    formed = torch.bmm(windows(a, shape).transpose(1, 2), rows).flatten(1)
    return formed_terms(formed, squared_norms(formed), rows.sum(1) if has_bias else None, shape)


def windows(a: Tensor, shape: Geometry) -> Tensor:
    """Return every window of each example's images [batch * views, h, w, in]: [batch, T, kh * kw * in]."""
    (ph, pw), (sy, sx), (dy, dx) = shape.padding, shape.stride, shape.dilation
    a = F.pad(a.contiguous(), (0, 0, pw, pw, ph, ph)) if ph or pw else a.contiguous()
    batch, row, column, channel = a.stride()
    size = (len(a), *shape.output, *shape.kernel, shape.channels_in)
    view = a.as_strided(size, (batch, sy * row, sx * column, dy * row, dx * column, channel))
    return view.reshape(len(a) // shape.views, shape.positions, -1)


def formed_terms(
    formed: Tensor, squares: Tensor, bias: Tensor | None, shape: Geometry, gain: Tensor | None = None
) -> Terms:
    """Return terms of gradients [batch, kh * kw * in * out] in that order, and their squared norms [batch]."""
    (kh, kw), c, o = shape.kernel, shape.channels_in, shape.channels_out
    return Terms(
        squares=squares,
        weight_sum=lambda factors, silent: weighted_sum(formed, factors, silent).view(kh, kw, c, o).permute(3, 2, 0, 1),
        bias=bias,
        gain=gain,
        formed=formed,
    )


def kernel(a: Tensor, g: Tensor, shape: Geometry, has_bias: bool, method: str = "kernel") -> Terms:
    """Return terms of a convolution, channels last: a [batch * views, h, w, in] and g likewise."""
    name, agrees = _LIBRARIES[method]
    compiled = library(name, agrees)
    assert compiled is not None
    return formed_terms(*_formed(getattr(compiled, name), a, g, shape, has_bias, torch.get_num_threads()), shape)


def _formed(
    function: Callable[..., None], a: Tensor, g: Tensor, shape: Geometry, has_bias: bool, threads: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return gradients [batch, kh * kw * in * out], their squared norms [batch], and those of the bias [batch, out]."""
    a, g, examples = a.contiguous(), g.contiguous(), len(a) // shape.views
    formed, squares = a.new_empty(examples, shape.weights), a.new_empty(examples)
    bias = a.new_empty(examples, shape.channels_out) if has_bias else None
    numbers = [*shape.input, shape.channels_in, *shape.output, shape.channels_out]
    numbers += [*shape.kernel, *shape.stride, *shape.padding, *shape.dilation, shape.views]
    call(function, a, g, formed, squares, bias, examples, numbers, threads)
    return formed, squares, bias


def _agrees(compiled: ctypes.CDLL, name: str, shapes: tuple[Geometry, ...]) -> bool:
    """Check that a library forms the gradients that PyTorch does, in these shapes."""
    for shape in shapes:
        images = 3 * shape.views
        a, g = waves(images, *shape.input, shape.channels_in), waves(images, *shape.output, shape.channels_out)
        formed, squares, bias = _formed(getattr(compiled, name), a, g, shape, True, threads=2)
        assert bias is not None
        rows = g.view(3, shape.positions, shape.channels_out)
        expected = torch.bmm(windows(a, shape).transpose(1, 2), rows).flatten(1)
        if not (
            torch.allclose(formed, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
            and torch.allclose(squares, expected.square().sum(1), rtol=1e-4)
            and torch.allclose(bias, rows.sum(1), rtol=1e-4, atol=1e-4)
        ):
            return False
    return True


# Surplus lanes or none, padding, dilation, views; tiles cut off and whole.
agrees = partial(
    _agrees,
    name="weight_gradients",
    shapes=(
        Geometry(3, 70, (7, 6), (4, 3), (3, 2), (2, 2), (1, 0)),
        Geometry(5, 32, (8, 9), (4, 5), (3, 3), (1, 1), (0, 0), (2, 2)),
        Geometry(3, 20, (7, 6), (4, 3), (3, 2), (2, 2), (1, 0), views=2),
    ),
)
agrees_by_winograd = partial(
    _agrees,
    name="winograd_gradients",
    shapes=(
        Geometry(19, 37, (6, 9), (6, 9), (3, 3), padding=(1, 1)),
        Geometry(16, 32, (18, 17), (18, 15), (3, 3), padding=(1, 0)),
        Geometry(17, 16, (4, 5), (4, 5), (3, 3), padding=(1, 1), views=2),
    ),
)
_LIBRARIES = {"kernel": ("weight_gradients", agrees), "winograd": ("winograd_gradients", agrees_by_winograd)}
METHODS: Mapping[str, Callable[[Tensor, Tensor, Geometry, bool], Terms]] = {
    "kernel": kernel,
    "winograd": partial(kernel, method="winograd"),
    "instantiate": instantiate,
}


def usable(tensor: Tensor, shape: Geometry) -> list[str]:
    """Return the methods for a layer that this machine has compiled: "kernel", and "winograd" if it suits the shape.

    tensor: of the type and on the device of the numbers.
    """
    square = shape.kernel == (3, 3) and shape.stride == shape.dilation == (1, 1)
    suits = {"kernel": True, "winograd": square and min(shape.channels_in, shape.channels_out) >= _LONGEST}
    return [name for name, trial in _LIBRARIES.items() if suits[name] and fits(tensor) and library(*trial) is not None]


def through_standardization(terms: Terms, layer: StandardizedConv2d, shape: Geometry) -> Terms:
    """Return terms of a layer's weight, bias and gain, from the terms of its standardised weight, overwritten.

    Cost: in addition to an ordinary convolution's, five reads and three writes of K C O numbers per example. Most of
    them stay in the cache. See `runner.networks.standardized`.
    """
    assert terms.formed is not None
    direction, inverse = standardized(layer.weight)
    u = direction.permute(2, 3, 1, 0).reshape(-1, shape.channels_out)  # in the order of the formed gradients
    scale = layer.gain * inverse.flatten()
    gains = []
    for g in terms.formed.view(-1, *u.shape).split(max(1, _IN_CACHE // u.numel())):
        gains.append((g * u).sum(1, keepdim=True))
        torch.addcmul(-scale * g.mean(1, keepdim=True), g, scale, out=g).addcmul_(u, scale * gains[-1], value=-1)
    return formed_terms(terms.formed, squared_norms(terms.formed), terms.bias, shape, torch.cat(gains).squeeze(1))
