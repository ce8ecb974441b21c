"""`instantiate` in C++, where there is a compiler: the same gradients and norms, without unfolding the input.

Batched matrix products reach about two thirds of the speed of an ordinary weight gradient on matrices this small;
kernel.cpp reaches it, and takes the norm on the way. It is compiled once per machine (seconds) into the user's cache
folder, needs nothing but a C++ compiler, and is never required: without it, `instantiate` does the work. The
environment variable ONE_PASS_KERNEL=0 turns it off.

Cost: the T K C O multiplications of the ordinary weight gradient, one write and one read of K C O numbers an example.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from runner.cache import cache_folder
from runner.engines.one_pass.geometry import Geometry
from runner.engines.one_pass.instantiate import formed_terms
from runner.engines.one_pass.scratch import Scratch
from runner.engines.one_pass.terms import Terms

_SOURCE = Path(__file__).with_name("kernel.cpp")
_FLAGS = ["-O3", "-march=native", "-ffp-contract=fast", "-std=c++17", "-shared", "-fPIC", "-pthread"]


def usable(tensor: Tensor) -> bool:
    """Whether the kernel can take such a tensor on this machine."""
    return tensor.device.type == "cpu" and tensor.dtype is torch.float32 and _compiled() is not None


def kernel(a: Tensor, g: Tensor, shape: Geometry, has_bias: bool, scratch: Scratch) -> Terms:
    """Terms of a convolution without groups: a [batch, h, w, in] and g [batch, h', w', out], channels last."""
    compiled = _compiled()
    assert compiled is not None
    a, g = a.contiguous(), g.contiguous()
    formed, squares = scratch.empty(a, len(a), shape.weights), a.new_empty(len(a))
    numbers = [*shape.input, shape.channels_in, *shape.output, shape.channels_out]
    numbers += [*shape.kernel, *shape.stride, *shape.padding, *shape.dilation]
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, g, formed, squares)]
    layout = (ctypes.c_int64 * len(numbers))(*numbers)
    compiled(*pointers, ctypes.c_int64(len(a)), layout, ctypes.c_int64(torch.get_num_threads()))
    return formed_terms(formed, g.flatten(1, 2), shape, has_bias, squares)


@cache
def _compiled() -> Callable[..., None] | None:
    """The kernel, compiled if this machine has not done so before; None if it cannot be had."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if os.environ.get("ONE_PASS_KERNEL") == "0" or compiler is None:
        return None
    try:
        library = cache_folder() / f"one_pass_{_fingerprint(compiler)}.so"
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=library.parent) as folder:  # then renamed: never half a library
                built = Path(folder) / library.name
                subprocess.run([compiler, *_FLAGS, str(_SOURCE), "-o", str(built)], check=True, capture_output=True)
                built.replace(library)
        function = ctypes.CDLL(str(library)).per_example_weight_gradients
    except (OSError, subprocess.CalledProcessError):
        return None
    function.restype = None
    return function


def _fingerprint(compiler: str) -> str:
    """Changes with the source, the flags, the compiler and the processor: a home folder may be shared."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    processor = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
    parts = (_SOURCE.read_text(), " ".join(_FLAGS), compiler, platform.machine(), processor)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
