"""Which of several ways to compute the same is the fastest on this machine: tried once a kind of shape, and kept.

A way that wins on one processor loses on another: PyTorch's tanh comes from a library that is quick on Intel's, a
product of small matrices pays where registers are wide. So each is timed here before it is used, on made-up numbers of
the same shape, for some milliseconds. What came out is kept in the user's cache, beside the compiled kernels, for as
long as the processor, PyTorch, the number of threads and the kernels are the same, so that a run takes the same way
when it goes on, or is repeated. `python -m checks.benchmarks.kernels`
shows it.

The ways agree to rounding, a convolution to some 1e-5 of its largest output (see each kernel's `agrees`), so what is
chosen changes no number by more. The environment variable DP_REPRO_KERNELS set to `all` takes every kernel without a
trial, to `0` none.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from runner.data.files import cache_folder, of_the_user_alone, safe_folder, write_whole
from runner.speed.kernels import fingerprint, kernels_wanted
from runner.speed.slices import channels_last

PYTORCH, COMPILED = "PyTorch", "compiled"
_ROUNDS, _SECONDS = 7, 0.2  # of a trial, at most
_NUMBERS = 1 << 21  # in a tensor of a trial, at most
_CLEAR = 2.0  # a way that takes so much longer than the best after three rounds has lost

Way = Callable[[], object]
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Trial:
    """What was measured: for the kernel of this name and a kind of shape, the milliseconds each way takes."""

    kernel: str
    case: str
    threads: int
    milliseconds: dict[str, float]

    @property
    def chosen(self) -> str:
        """The name of the fastest way."""
        return min(self.milliseconds, key=lambda way: self.milliseconds[way])


_used: dict[str, dict[str, str]] = {}


def forget_used() -> None:
    """Begin anew to note what is chosen."""
    _used.clear()


def used() -> dict[str, dict[str, str]]:
    """What was chosen since `forget_used`: by kernel, then by kind of shape, the way."""
    return {kernel: dict(sorted(cases.items())) for kernel, cases in sorted(_used.items())}


def function_pays(kernel: str, shape: Sequence[int], ours: Function, pytorchs: Function, about: str = "") -> bool:
    """Whether the compiled form of a function is the faster one here, forward and backward: see `trial_shape`.

    The kernel has to be there, and to agree.
    """

    def ways() -> dict[str, Way]:
        x = channels_last(made_up(*shape))
        return {COMPILED: both_passes(ours, x), PYTORCH: both_passes(pytorchs, x)}

    case = " x ".join(map(str, shape)) + (about and f", {about}")
    return fastest(kernel, case, ways, untried=COMPILED) == COMPILED


def fastest(
    kernel: str,
    case: str,
    ways: Callable[[], Mapping[str, Way]],
    untried: str,
    among: Sequence[str] = (COMPILED, PYTORCH),
) -> str:
    """The name of the fastest way here; `untried` where DP_REPRO_KERNELS says that nothing is to be tried.

    ways: makes all ways by the names in `among`, where no trial among these is known.
    """
    key = kernel, case, torch.get_num_threads(), tuple(sorted(among))
    chosen = _chosen(key, ways) if kernels_wanted() == "measured" else untried
    _used.setdefault(kernel, {})[case] = chosen
    return chosen


def trial_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Of the tensor that is tried for all whose other sizes are these: the first one, examples, is a power of four."""
    examples = 4 ** (((max(shape[0], 1) - 1).bit_length() + 1) // 2)
    while examples > 1 and examples * math.prod(shape[1:]) > _NUMBERS:
        examples //= 4
    return examples, *shape[1:]


def made_up(*size: int) -> Tensor:
    """Numbers for a trial, [size], that leave PyTorch's random numbers as they are."""
    return torch.randn(*size, generator=torch.Generator().manual_seed(0))


def both_passes(function: Function, x: Tensor) -> Way:
    """A forward and a backward pass of a function."""
    x = x.detach().requires_grad_()

    def passes() -> None:
        with torch.enable_grad():
            y = function(x)
            torch.autograd.grad(y, x, torch.ones_like(y))

    return passes


def trials() -> list[Trial]:
    """All that was tried on this machine with these versions, by kernel and kind of shape."""
    found = (_read(path) for path in sorted(_folder().glob("*.json")))
    return sorted((trial for trial in found if trial), key=lambda trial: (trial.kernel, trial.case, trial.threads))


Key = tuple[str, str, int, tuple[str, ...]]
_known: dict[Key, str] = {}


def _chosen(key: Key, ways: Callable[[], Mapping[str, Way]]) -> str:
    if key not in _known:
        kernel, case, threads, among = key
        path = _folder() / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.json"
        trial = _read(path)
        if trial is not None and tuple(sorted(trial.milliseconds)) != among:  # damaged
            path.unlink(missing_ok=True)
            trial = None
        if trial is None:
            with torch.inference_mode(False), torch.no_grad():
                trial = _kept(path, Trial(kernel, case, threads, _timed(ways(), threads)))
        _known[key] = trial.chosen
    return _known[key]


def _timed(ways: Mapping[str, Way], threads: int) -> dict[str, float]:
    """Median milliseconds of each way, taken in turns: of this thread's own time, where it is the only one."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    for way in ways.values():
        way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    started = clock()
    for done in range(1, _ROUNDS + 1):
        for name, way in ways.items():
            before = clock()
            way()
            seconds[name].append(clock() - before)
        middle = sorted(statistics.median(each) for each in seconds.values())
        if done >= 3 and (clock() - started > _SECONDS or middle[1] > _CLEAR * middle[0]):
            break
    return {name: round(1e3 * statistics.median(each), 4) for name, each in seconds.items()}


@cache
def _folder() -> Path:
    """Of the trials on this processor, with this PyTorch and these kernels."""
    parts = fingerprint(), torch.__version__, torch.backends.cpu.get_cpu_capability()
    return cache_folder() / "trials" / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _read(path: Path) -> Trial | None:
    """The trial in a file; None where there is none, or it is not whole."""
    try:
        trial = Trial(**json.loads(path.read_text())) if of_the_user_alone(path) else None
        return trial if trial and all(isinstance(time, float) for time in trial.milliseconds.values()) else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _kept(path: Path, trial: Trial) -> Trial:
    """The trial, written; where another process was first, that one's. If it cannot be kept, this process has it."""
    try:
        safe_folder(path.parent)
        if not write_whole(path, json.dumps(asdict(trial)), replace=False, private=True):
            if first := _read(path):
                return first
            write_whole(path, json.dumps(asdict(trial)), replace=True, private=True)  # it was damaged
    except OSError:
        pass
    return trial
