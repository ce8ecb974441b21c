"""The C++ sources in this folder as libraries, if there is a compiler.

Each is compiled once per machine (seconds) into the user's cache folder, needs nothing but a C++ compiler, and is
never required: what uses one does the same work by PyTorch without it. A library ends in the SHA-256 of what comes
before, and is not loaded unless that fits: a damaged one crashes, or computes something else. What it computes is
compared with PyTorch, on a few numbers, before anything else is (milliseconds, once a process): compilers have bugs,
and a kernel that disagrees is not used.
"""

import ctypes
import hashlib
import math
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from runner.config import ConfigError
from runner.config.checkout import scan
from runner.files import cache_folder, is_sealed, safe_folder, sealed, write_whole

if TYPE_CHECKING:
    from torch import Tensor

_FOLDER = Path(__file__).parent
MORE_FLAGS = os.environ.get("DP_REPRO_KERNEL_FLAGS", "").split()  # -march=haswell, say, for an older processor's
_FLAGS = ["-O3", "-march=native", "-ffp-contract=fast", "-std=c++17", "-shared", "-fPIC", "-pthread", *MORE_FLAGS]
_FOR_THREADS = 1 << 18  # numbers below which threads take longer to start than they save


def fits(tensor: "Tensor") -> bool:
    """Return True if the kernels take tensors of this type on this device: float32 in main memory."""
    import torch  # here, because plans need no PyTorch

    # What stands for a tensor while it is recorded has no numbers.
    has_numbers = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return has_numbers and tensor.device.type == "cpu" and tensor.dtype is torch.float32


_used: set[str] = set()


def library(name: str, agrees: Callable[[ctypes.CDLL], bool]) -> ctypes.CDLL | None:
    """Load the library of this name, and compile it if this machine has not done so before.

    `agrees` computes the same function with the library and with PyTorch, and returns True if the results are equal.
    The return value is None if the library cannot be compiled, or does not agree.
    """
    loaded = _library(name, agrees)
    if loaded is not None:
        _used.add(name)
    return loaded


def used() -> str | None:
    """Return a hash of the kernels used since `forget_used`: names, sources and flags. None: none was used."""
    if not _used:
        return None
    parts = [*_FLAGS, *(text for name in sorted(_used) for text in (name, *_sources(_FOLDER / f"{name}.cpp")))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def forget_used() -> None:
    _used.clear()


@cache
def _library(name: str, agrees: Callable[[ctypes.CDLL], bool]) -> ctypes.CDLL | None:
    loaded = _loaded(name)
    if loaded is None:
        return None
    import torch

    with suppress(AttributeError), torch.inference_mode(False), torch.no_grad(), torch.device("cpu"):
        # It may have no such function, and the first call may be for anything.
        if agrees(loaded):
            return loaded
    print(
        f"The compiled kernel {name} does not compute what PyTorch does on this machine, so it is not used: "
        f"everything takes longer, and numbers are right.",
        file=sys.stderr,
    )
    return None


def pays(by_rule: bool) -> bool:
    """Return True if a kernel is used for a shape: its rule says so, or DP_REPRO_KERNELS=all ignores the rule."""
    return by_rule or kernels_wanted() == "all"


def kernels_wanted() -> Literal["none", "all", "by rule"]:
    """Return the meaning of DP_REPRO_KERNELS: none of them (0), all that agree (all), or, unset, by each one's rule.

    Raises:
        ConfigError: it says something else.
    """
    setting = os.environ.get("DP_REPRO_KERNELS", "")
    wanted: dict[str, Literal["none", "all", "by rule"]] = {"0": "none", "all": "all", "": "by rule"}
    if setting not in wanted:
        raise ConfigError(
            f"DP_REPRO_KERNELS is 0 (no compiled kernel), all, or not set (those that pay): got {setting!r}"
        )
    return wanted[setting]


def why_off() -> str | None:
    """Return the reason why no kernel is compiled here, or None."""
    off = "so what a CPU does takes longer, and numbers are the same to rounding."
    if kernels_wanted() == "none":
        return f"DP_REPRO_KERNELS=0: no compiled kernel is used, {off}"
    if _compiler():
        return None
    compiler = (
        f"CXX={os.environ['CXX']} names no C++ compiler" if os.environ.get("CXX") else "No C++ compiler (c++) is found"
    )
    return f"{compiler}: no kernel is compiled, {off}"


def _compiler() -> list[str]:
    """Return the command of the C++ compiler, which may be several words in CXX: `ccache g++`. Empty: there is none."""
    try:
        words = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    except ValueError:  # a quotation mark without its end
        return []
    program = shutil.which(words[0])
    return [program, *words[1:]] if program else []


def _loaded(name: str) -> ctypes.CDLL | None:
    compiler = _compiler()
    if kernels_wanted() == "none" or not compiler:
        return None
    try:
        source, information = _FOLDER / f"{name}.cpp", Path("/proc/cpuinfo")
        lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
        processor = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
        # Machines of several processors and compilers may share a home folder.
        parts = "sealed", *_sources(source), " ".join(_FLAGS), shlex.join(compiler), platform.machine(), processor
        fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        built = safe_folder(cache_folder()) / f"{name}_{fingerprint}.so"
        if not is_sealed(built):
            with tempfile.TemporaryDirectory(dir=built.parent) as folder:
                new = Path(folder) / built.name
                subprocess.run([*compiler, *_FLAGS, str(source), "-o", str(new)], check=True, capture_output=True)
                # Loaders ignore the end of the file.
                write_whole(built, sealed(new.read_bytes()), replace=True, private=True)
        return ctypes.CDLL(str(built))
    except (OSError, subprocess.CalledProcessError) as error:
        reason = " ".join((getattr(error, "stderr", None) or str(error).encode()).decode(errors="replace").split())
        print(f"The kernel {name} is not used, everything takes longer: {reason[:200]}", file=sys.stderr)
        return None


def call(function: Callable[..., None], *arguments: "Tensor | Sequence[int] | float | None") -> None:
    """Call a library's function with tensors as pointers, None as null, int64, arrays of int64, and float64."""
    converted: list[Any] = []
    for argument in arguments:
        if isinstance(argument, int):
            converted.append(ctypes.c_int64(argument))
        elif isinstance(argument, float):
            converted.append(ctypes.c_double(argument))
        elif isinstance(argument, list | tuple):
            converted.append((ctypes.c_int64 * len(argument))(*argument))
        else:
            converted.append(ctypes.c_void_p(None if argument is None else cast("Tensor", argument).data_ptr()))
    function(*converted)


def waves(*size: int) -> "Tensor":
    """Numbers of every sign and size about one, for trials, [size]: the same ones always, in no order."""
    import torch

    count = torch.arange(1, math.prod(size) + 1, dtype=torch.float64)
    return ((count * 1.618).sin() * (count * 0.577).cos().exp()).float().view(size)


def threads_for(tensor: "Tensor") -> int:
    """Return the number of threads that share the rows of a tensor."""
    import torch

    return torch.get_num_threads() if tensor.numel() >= _FOR_THREADS else 1


def _sources(source: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in (source, *scan(_FOLDER, "*.h"))]


def channels_last(images: "Tensor") -> "Tensor":
    """Return images [batch, channels, height, width] with the channels innermost; anything else as it is.

    With one channel both orders are the same memory, and only strides that say so keep the network channels last.
    """
    import torch

    if images.dim() != 4:
        return images
    images = images.contiguous(memory_format=torch.channels_last)
    _, channels, height, width = images.shape
    if channels == 1:
        images = images.as_strided(images.shape, (height * width, 1, width, 1))
    return images
