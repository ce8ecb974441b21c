"""Standard normal numbers of a generator, in C++ if there is a compiler: PyTorch's stream in a third of its time.

For a small network PyTorch's numbers take a tenth of a step. The compiled ones differ from them by rounding alone, and
the generator is left in the same state.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Generator, Tensor

from runner.speed.kernels import fits, integers, library, pays, pointers

_MANY = 1 << 13  # numbers: for fewer, reading and writing the generator's state takes longer than is saved
_FEWEST = 16  # PyTorch draws fewer in another way
_ROUNDING = 4e-6  # of numbers up to 6


def agrees(compiled: ctypes.CDLL) -> bool:
    """Return True if a library draws the numbers that PyTorch does, and leaves the same state, draw after draw."""
    ours, theirs = (Generator().manual_seed(11) for _ in range(2))
    for length in (16, 40, 5, 607, 4096, 20001):  # five are PyTorch's in both, with a spare number for the next draw
        found, expected = torch.empty(length), torch.empty(length).normal_(generator=theirs)
        if length < _FEWEST:
            found.normal_(generator=ours)
        else:
            _draw(compiled, found, ours)
        same = torch.equal(ours.get_state(), theirs.get_state())
        if not (same and torch.allclose(found, expected, rtol=0, atol=_ROUNDING)):
            return False
    return True


def draw_normal(numbers: Tensor, generator: Generator) -> None:
    """Fill a tensor with the generator's standard normal numbers."""
    many = pays(numbers.numel() >= _MANY) and numbers.numel() >= _FEWEST
    on_host = fits(numbers) and numbers.is_contiguous() and generator.device.type == "cpu"
    compiled = library("normal", agrees) if many and on_host else None
    if compiled is None:
        numbers.normal_(generator=generator)
    else:
        _draw(compiled, numbers, generator)


def _draw(compiled: ctypes.CDLL, numbers: Tensor, generator: Generator) -> None:
    state = generator.get_state()
    compiled.normal(*pointers(state, numbers), *integers(numbers.numel()))
    generator.set_state(state)
