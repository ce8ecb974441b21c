"""PyTorch with a made-up CUDA device in place of a real one."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
import torch._dynamo  # it lists the functions of torch.cuda, so it is imported before they are replaced

from checks.rehearsal.gpu import Gpu, Graph, graph, present
from checks.rehearsal.tensor import CudaTensor, Mode
from runner.build.parts import device_of
from runner.config import ConfigError
from runner.gradients import interface
from runner.terminal import Parser

_to = torch.Tensor.to
_reason = interface.unknown_module
_MEMORY = 80 << 30  # bytes


class _Generator(torch.Generator):
    """A generator of a made-up device, which draws the CPU's numbers, so that runs can be compared."""

    def __new__(cls, device: Any = "cpu") -> "_Generator":
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]

    def __init__(self, device: Any = "cpu") -> None:
        self._device = _indexed(torch.device(device))

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._device  # type: ignore[no-any-return]


class _Stream:
    def __init__(self, device: Any = None, **_: Any) -> None:
        self.device = torch.device("cuda", present().current) if device is None else torch.device(device)

    def wait_stream(self, other: "_Stream") -> None:
        """Order the work of two streams, which are one here."""

    def synchronize(self) -> None:
        """Count nothing, as it is no wait of a step."""


class _Device:
    """A stand-in for `torch.cuda.device`: it changes the current device."""

    def __init__(self, device: Any) -> None:
        self._index = device if isinstance(device, int) else _indexed(torch.device(device)).index

    def __enter__(self) -> None:
        gpu = present()
        self._before, gpu.current = gpu.current, self._index

    def __exit__(self, *_: object) -> None:
        present().current = self._before


def _indexed(device: Any) -> Any:
    if device == "cuda" or (isinstance(device, torch.device) and device.type == "cuda" and device.index is None):
        return torch.device("cuda", present().current)
    return device


def _moved(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return _to(self, *map(_indexed, args), **{name: _indexed(value) for name, value in kwargs.items()})


def _unknown(module: torch.nn.Module) -> str | None:
    """Accept weights on the made-up device in modules that are known otherwise."""
    reason = _reason(module)
    return None if reason and reason.endswith(f"is a {CudaTensor.__name__}") else reason


def _ignored(*_: Any, **__: Any) -> Any:
    """Do nothing."""


@contextmanager
def made_up_cuda(devices: int = 1) -> Iterator[Gpu]:
    """Let PyTorch find made-up CUDA devices, and yield their counts."""
    gpu = Gpu(devices)
    replaced: dict[str, Any] = {
        "_lazy_init": _ignored,
        "is_available": lambda: True,
        "is_bf16_supported": lambda *_: True,
        "device_count": lambda: devices,
        "current_device": lambda: gpu.current,
        "get_device_name": lambda *_: "made-up GPU",
        "device": _Device,
        "Stream": _Stream,
        "stream": lambda _: nullcontext(),
        "current_stream": lambda *_: _Stream(),
        "synchronize": _ignored,
        "CUDAGraph": Graph,
        "graph": graph,
        "graph_pool_handle": lambda: (0, 0),
        "get_rng_state": lambda *_: torch.get_rng_state().clone(),
        "set_rng_state": _ignored,
        "manual_seed": _ignored,
        "manual_seed_all": _ignored,
        "empty_cache": _ignored,
        "reset_peak_memory_stats": _ignored,
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "mem_get_info": lambda *_: (_MEMORY, _MEMORY),
    }
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(torch.cuda, **replaced))
        for owner, name, value in (
            (Gpu, "present", gpu),
            (torch, "Generator", _Generator),
            (torch, "compile", lambda function, **_: function),
            (
                torch,
                "inference_mode",
                lambda mode=True: torch.set_grad_enabled(not mode),
            ),  # such tensors have no wrapper
            (torch.Tensor, "to", _moved),
            (interface, "unknown_module", _unknown),
            (torch.optim.Optimizer, "_accelerator_graph_capture_health_check", _ignored),
            (torch.optim.Optimizer, "_cuda_graph_capture_health_check", _ignored),
        ):
            if hasattr(owner, name):
                stack.enter_context(mock.patch.object(owner, name, value))
        future, core = torch.__future__, torch._C
        # A wrapper cannot change its type in place, so a module's parameters are replaced.
        stack.callback(
            future.set_overwrite_module_params_on_conversion, future.get_overwrite_module_params_on_conversion()
        )
        future.set_overwrite_module_params_on_conversion(True)
        # `torch.tensor(number, device="cuda")` is made on the CPU and copied, so that the copy is seen.
        stack.callback(core._set_only_lift_cpu_tensors, core._only_lift_cpu_tensors())
        core._set_only_lift_cpu_tensors(True)
        stack.enter_context(Mode())  # type: ignore[no-untyped-call]
        yield gpu


def parsed(parser: Parser, arguments: Sequence[str]) -> Namespace:
    """Read the arguments of a command that needs a GPU, or a made-up one, and refuse a device that is none."""
    parser.add_argument("--device", default="cuda", help="cuda (default), or cuda:1")
    parser.add_argument("--rehearse", action="store_true", help="in small, on a made-up GPU; what it writes is lost")
    chosen = parser.parse_args(arguments)
    if not chosen.device.startswith("cuda"):
        parser.error(f"--device {chosen.device} is no GPU: --rehearse makes one up.")
    try:
        if not chosen.rehearse:
            device_of(chosen.device)
    except ConfigError as error:
        parser.error(f"{str(error).replace('runtime.device=', '--device ')} --rehearse makes one up.")
    return chosen
