"""The kernel of `runner.speed.implicit`. Triton is imported where it is used: PyTorch for CPUs comes without it."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runner.networks.geometry import Geometry

OPTIONS = {"num_warps": 4, "num_stages": 3}


@triton.jit  # type: ignore[untyped-decorator]
def form(  # type: ignore[no-untyped-def]
    a, g, formed, squares, an, ac, ay, ax, gn, go, gy, gx,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, T: tl.constexpr, WO: tl.constexpr, OUT: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, SY: tl.constexpr, SX: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr,
    DY: tl.constexpr, DX: tl.constexpr, VIEWS: tl.constexpr, BK: tl.constexpr, BO: tl.constexpr, BT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write a block [BK, BO] of one example's gradient, and the sum of its squares."""
    example, K = tl.program_id(0).to(tl.int64), C * KH * KW
    k, o = tl.program_id(1) * BK + tl.arange(0, BK), tl.program_id(2) * BO + tl.arange(0, BO)
    ky, kx = (k // KW) % KH * DY, k % KW * DX
    taps = (k // (KH * KW)) * ac + ky * ay + kx * ax
    block = tl.zeros((BK, BO), tl.float32)
    for view in range(VIEWS):
        image = a + (example * VIEWS + view) * an
        gradient = g + (example * VIEWS + view) * gn
        for first in range(0, T, BT):
            t = first + tl.arange(0, BT)
            y, x = t // WO, t % WO
            top, left = y * SY - PY, x * SX - PX
            row, column = top[None, :] + ky[:, None], left[None, :] + kx[:, None]
            inside = (row >= 0) & (row < H) & (column >= 0) & (column < W) & (k < K)[:, None] & (t < T)[None, :]
            window = tl.load(image + taps[:, None] + (top * ay + left * ax)[None, :], mask=inside, other=0.0)
            places = (y * gy + x * gx)[:, None] + (o * go)[None, :]
            slope = tl.load(gradient + places, mask=(t < T)[:, None] & (o < OUT)[None, :], other=0.0)
            block = tl.dot(window.to(tl.float32), slope.to(tl.float32), block, input_precision=PRECISION)
    tl.store(
        formed + example * OUT * K + o[None, :] * K + k[:, None], block, mask=(k < K)[:, None] & (o < OUT)[None, :]
    )
    place = (example * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2) + tl.program_id(2)
    tl.store(squares + place, tl.sum(block * block))


def launch(
    a: Tensor, g: Tensor, shape: Geometry, blocks: tuple[int, int, int], *, lowered: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients [batch, out, in * kh * kw] and their squared norms [batch]: see `runner.speed.implicit`."""
    batch, o, k = len(a) // shape.views, shape.channels_out, shape.weights // shape.channels_out
    programs = triton.cdiv(k, blocks[0]), triton.cdiv(o, blocks[1])
    formed = torch.empty(batch, o, k, device=a.device)
    squares = torch.empty(batch, *programs, device=a.device)
    form[(batch, *programs)](
        a, g, formed, squares, *a.stride(), *g.stride(), *constants(shape, blocks, lowered=lowered), **OPTIONS
    )
    return formed, squares.sum((1, 2))


def constants(shape: Geometry, blocks: tuple[int, int, int], *, lowered: bool) -> tuple[int | str, ...]:
    """Return the constants that the kernel is compiled for."""
    (h_out, w_out), views = shape.output, shape.views
    sizes = *shape.input, shape.channels_in, h_out * w_out, w_out, shape.channels_out
    pairs = *shape.kernel, *shape.stride, *shape.padding, *shape.dilation
    return *sizes, *pairs, views, *blocks, "tf32" if lowered else "tf32x3"
