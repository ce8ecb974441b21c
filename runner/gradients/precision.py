"""Passes in fewer bits, as the tensor cores of a GPU compute them, and why they cost no privacy.

A step with `precision` bf16 or tf32 makes its forward pass, its backward pass and the products that form gradients with
operands of 8 or 11 bits. Losses, norms and weighted sums stay in the 32 bits of the weights.

Let S = sum_i f(||v_i||) v_i be the sum over a batch, with f(n) n <= C for all n. Here v_i are the numbers that the step
has stored of example i: its gradients, or the two factors of v_i = g_i a_i^T (a linear layer with one position).

1. *Its own contribution is at most C.* The norm and the sum read the same stored numbers, and both compute in 32 bits.
   So ||f(||v_i||) v_i|| <= C up to the rounding of 32 bits, whatever made v_i: the map before it may round or be wrong.
   Formed gradients are stored once, and both read them. Of factors, the norm is that of g_i and a_i, and the sum
   multiplies (f g_i) and a_i. If that product rounded its operands to 11 or 8 bits, the term would no longer be the one
   whose norm was taken, and could be longer than C by 2^-11 or 2^-8 for each operand. So would a sum of formed
   gradients, which is a product of f and v. Hence norms and sums are outside `lowered`.

2. *The contributions of the others are the same with and without it.* The sum moves by one contribution alone if no
   other v_j depends on example i. With 32 bits we let a v_j depend on the number of examples, through the library's
   choice of an algorithm: it changes by 1e-6 of itself. With 8 bits it would be 2^-8, times the batch size. So here v_j
   has to be the same, bit by bit. It follows from three facts:

   a. Shapes are the same. All batches have P places. P is public, as it follows from N, q and the number of steps. A
      batch is longer with a probability of at most `LONGER` in a whole run, which adds no more than this to delta.
   b. Places are the same. n examples get n of the P places by a uniformly random permutation, drawn apart from all
      data. If the batch has one example more, let that one have a place s, and give the others the places that they
      have without it. This is a coupling: of n + 1 random places without repetition, any n are n such places. Given the
      permutation, the two sums differ in place s alone, where one of them has a zero. So each step is the mechanism
      that is charged for, given the permutation. Mixing over permutations cannot increase any divergence that is
      jointly convex, as those of differential privacy are. (In shuffled batches, an example is replaced by zero in its
      own place.)
   c. Rows do not mix. Every module keeps examples apart (`runner.gradients.interface`), and an operation computes the
      numbers of one place from that place and the weights. It is repeatable, as `runner.speed.machine` asks for. There
      is no scale of the whole batch, as of 8-bit formats or of a scaled loss. This is an assumption about libraries,
      which a run's first batch tests (`runner.mechanism.dp_sgd.check_first_batch`), and `python -m checks parity`.

What this needs is refused where it is missing:

- Steps call by call, where the number of examples is the shape.
- Compiled steps: the compiler may fuse a norm with the operation before it, and leaves out the rounding in between. The
  norm is then of other numbers than the sum, which reads the rounded ones.
- Lipschitz networks: K_d bounds the gradient of exact arithmetic, with a margin of 1e-5 for rounding. 2^-8 exceeds it.
- Backpropagation clipping: it bounds the factors of a product that the library forms and sums at once. So norms
  of operands rounded up to 8 bits exceed the bounds that were proved for them.
- A user's parts, which see one example at a time, in batches of any shape.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from runner.config import Precision

LONGER = 1e-12  # probability that a batch of a run is longer than its places


def lowered(precision: Precision | None, device: str) -> AbstractContextManager[None]:
    """Compute products and convolutions in fewer bits inside a `with` block, on a type of device. None: as always."""
    if precision is Precision.bf16:
        return torch.autocast(device, torch.bfloat16, cache_enabled=False)
    return _tf32() if precision is Precision.tf32 else nullcontext()


@contextmanager
def _tf32() -> Iterator[None]:
    flags: list[Any] = [torch.backends.cudnn, torch.backends.cuda.matmul]
    before = [flag.allow_tf32 for flag in flags]
    try:
        for flag in flags:
            flag.allow_tf32 = True
        yield
    finally:
        for flag, value in zip(flags, before, strict=True):
            flag.allow_tf32 = value
