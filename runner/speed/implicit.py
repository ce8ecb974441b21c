"""Every example's gradient of a convolution's weights on a GPU, by a Triton kernel that stores no windows.

    W_i[o, (c, k)] = sum_t g_i[o, t] a_i[c, s t + d k]     (t output positions in all views, k kernel positions)

A program computes one block of W_i as a product over t, of windows that it reads from the images themselves (implicit
GEMM) and of output gradients. It also writes the sum of the block's squares, and these are added in a fixed order, so
that results repeat. Nothing of an example depends on another one, on its place or on the number of them.

Products are those of tensor cores in TF32, summed in float32. For float32 each operand is a sum of two in TF32, and of
their four products the smallest is left out: an error of some 1e-6, as by Winograd's algorithm on a CPU. If passes are
in fewer bits one product is enough, as TF32 has the numbers of bf16. `runner.gradients.precision` has the reason why
this changes no guarantee.
"""

import math
import sys
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from runner.networks.geometry import Geometry
from runner.speed.kernels import kernels_wanted, pays, waves

_BLOCK = 64  # numbers of a block of a weight's gradient, along the inputs and along the outputs
_NARROWEST, _DEEPEST = 16, 32  # channels out of a block; positions of a product, of two blocks
_ERRORS = {False: 1e-5, True: 3e-3}  # of the largest number, in fewer bits or not
# Multiplications and bytes a second of an H200, from its data sheet: in float32, by tensor cores in TF32, and of its
# memory. A batched product of this size reaches about two thirds of them, and this kernel is taken to reach a third,
# because it computes addresses. Neither was measured.
_FLOAT32, _TF32, _MEMORY = 33e12, 247e12, 4.3e12


def worthwhile(shape: Geometry, *, lowered: bool) -> bool:
    """Return True if the kernel takes less time for a convolution than windows and a batched product, as counted.

    That is the time of the multiplications, which are of whole blocks by the kernel, and of the windows that the
    product needs, which are written and read.
    """
    k, o, t = shape.weights // shape.channels_out, shape.channels_out, shape.positions
    blocks = math.prod([-(-size // block) * block for size, block in zip((k, o, t), _blocks(shape), strict=True)])
    kernel = 3 * (1 if lowered else 3) * blocks / _TF32
    product = 1.5 * k * o * t / (_TF32 if lowered else _FLOAT32) + 2 * 4 * k * t / _MEMORY
    return pays(kernel < product)


def _blocks(shape: Geometry) -> tuple[int, int, int]:
    """Return the sizes of a block, along a window, the channels out and the positions: powers of two."""

    def least(size: int, most: int) -> int:
        return max(_NARROWEST, min(most, 1 << (size - 1).bit_length()))

    return _BLOCK, least(shape.channels_out, _BLOCK), least(math.prod(shape.output), _DEEPEST)


def formed_gradients(a: Tensor, g: Tensor, shape: Geometry, *, lowered: bool) -> tuple[Tensor, Tensor]:
    """Return every example's gradient [batch, out, in * kh * kw], in float32, and their squared norms [batch].

    Args:
        a: inputs [batch * views, in, h, w], of any strides, in float32 or bf16.
        g: output gradients [batch * views, out, h', w'], likewise.
        lowered: passes are in fewer bits, and so may products be.
    """
    sizes = [*shape.input, shape.channels_in, *shape.output, shape.channels_out]
    sizes += [*shape.kernel, *shape.stride, *shape.padding, *shape.dilation, shape.views]
    formed, squares = _formed(a, g, sizes, lowered)
    return formed, squares


@torch.library.custom_op("runner::formed_gradients", mutates_args=())  # one call for PyTorch's compiler
def _formed(a: Tensor, g: Tensor, sizes: list[int], lowered: bool) -> tuple[Tensor, Tensor]:
    """Compute `formed_gradients` on a GPU by the kernel. On a CPU, which has no use for it, by the definition."""
    shape = _shape(sizes)
    if a.device.type != "cuda":
        return definition(a.float(), g.float(), shape)
    from runner.speed.implicit_kernel import launch

    with torch.cuda.device(a.device):
        return launch(a, g, shape, _blocks(shape), lowered=lowered)


@_formed.register_fake
def _(a: Tensor, g: Tensor, sizes: list[int], lowered: bool) -> tuple[Tensor, Tensor]:
    shape = _shape(sizes)
    batch, o = len(a) // shape.views, shape.channels_out
    return g.new_empty(batch, o, shape.weights // o, dtype=torch.float32), g.new_empty(batch, dtype=torch.float32)


def _shape(sizes: list[int]) -> Geometry:
    h, w, c, h_out, w_out, o, *pairs, views = sizes
    kernel, stride, padding, dilation = zip(pairs[::2], pairs[1::2], strict=True)
    return Geometry(c, o, (h, w), (h_out, w_out), kernel, stride, padding, dilation, views)


def definition(a: Tensor, g: Tensor, shape: Geometry) -> tuple[Tensor, Tensor]:
    """Return what `formed_gradients` does, by windows and a batched product, in the type of a and g."""
    windows = F.unfold(a, shape.kernel, shape.dilation, shape.padding, shape.stride)
    formed = torch.bmm(g.flatten(2), windows.transpose(1, 2)).unflatten(0, (-1, shape.views)).sum(1)
    return formed, formed.square().sum((1, 2))


SHAPES = (  # blocks whole and cut off, strides, padding, dilation, views
    Geometry(16, 64, (8, 8), (8, 8), (3, 3), padding=(1, 1)),
    Geometry(3, 70, (7, 7), (4, 3), (3, 2), (2, 2), (1, 0)),
    Geometry(5, 10, (8, 9), (4, 5), (3, 3), (1, 1), (0, 0), (2, 2), views=2),
)


@cache
def agrees(device: torch.device) -> bool:
    """Return True if the kernel computes on a device what its definition does, and a NaN stays in its own example."""
    if kernels_wanted() == "none":
        return False
    reason = "its results differ"
    try:
        if all(difference(shape, device, lowered=lowered) <= 1 for shape in SHAPES for lowered in _ERRORS):
            return True
    except Exception as error:  # Triton is not installed, its compiler is not found, or it does not know the GPU
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    print(f"The kernel implicit is not used, so steps take longer: {reason}", file=sys.stderr)
    return False


def difference(shape: Geometry, device: torch.device, *, lowered: bool) -> float:
    """Return the largest error of gradients and squares, as a share of what is let pass. The second example is NaN."""
    a = waves(3 * shape.views, shape.channels_in, *shape.input).to(device)
    g = waves(3 * shape.views, shape.channels_out, *shape.output).to(device)
    a[shape.views, 0, 0, 0] = torch.nan
    for images in (a, a.contiguous(memory_format=torch.channels_last)):
        computed = formed_gradients(images, g, shape, lowered=lowered)
        errors = []
        for numbers, exact in zip(computed, definition(a.double(), g.double(), shape), strict=True):
            finite, expected = numbers[[0, 2]].double(), exact[[0, 2]]
            errors.append((finite - expected).abs().max() / expected.abs().max() / _ERRORS[lowered])
        if not computed[1][1].isnan():
            return math.inf
        worst = float(torch.stack(errors).max())
        if not worst <= 1:
            break
    return math.inf if math.isnan(worst) else worst
