"""Tensors that say they are on a CUDA device and hold their values on the CPU, and the rules of their operations."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from checks.rehearsal.gpu import Gpu, place, present

_aten = torch.ops.aten
_DATA = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_INDEXED = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index"}
_CHECKED = {"aten::_linalg_check_errors"}  # waits for a status
_NO_KERNEL = ("aten::empty", "aten::new_empty", "aten::_unsafe_view", "aten::set_", "prim::")
_CPU = torch.device("cpu")


class CudaTensor(Tensor):
    """A tensor on a made-up device. PyTorch's own code sees a tensor on the meta device, which needs no driver."""

    held: Tensor
    index: int  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: Tensor, index: int, requires_grad: bool = False) -> "CudaTensor":
        wrapper: CudaTensor = Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            layout=held.layout, device=torch.device("meta"), requires_grad=requires_grad,
        )  # fmt: skip
        wrapper.held, wrapper.index = held, index
        return wrapper

    def __init__(self, *_: Any) -> None: ...

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return call(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"CudaTensor({self.held!r}, {self.index})"

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", self.index)

    is_cuda = property(lambda self: True)
    is_meta = property(lambda self: False)
    is_cpu = property(lambda self: False)

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, new: Any) -> None:
        self.held, self.index = new.held, new.index

    def get_device(self) -> int:
        return self.index

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy it first.")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def cpu(self, *_: Any, **__: Any) -> Tensor:
        return _aten._to_copy(self, device=_CPU)  # type: ignore[no-any-return]

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        device, dtype, _, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        if args and isinstance(args[0], Tensor):
            device, dtype = args[0].device, args[0].dtype
        if device is not None and device.type == "cuda" and device.index is None:
            device = torch.device("cuda", present().current)
        same = device in (None, self.device) and dtype in (None, self.dtype) and memory_format is None
        if same and not kwargs.get("copy"):
            return self
        formats = {} if memory_format is None else {"memory_format": memory_format}
        return _aten._to_copy(self, dtype=dtype or self.dtype, device=device or self.device, **formats)  # type: ignore[no-any-return]

    def __getitem__(self, position: Any) -> Tensor:
        def move(index: Any) -> Any:
            return torch.tensor(index, device=self.device) if isinstance(index, list) else index

        return super().__getitem__(tuple(map(move, position)) if isinstance(position, tuple) else move(position))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            new = CudaTensor(self.held.clone(memory_format=torch.preserve_format), self.index, self.requires_grad)
            new.__dict__ |= {name: value for name, value in self.__dict__.items() if name not in ("held", "index")}
            new.grad = copy.deepcopy(self.grad, memo)
            memo[id(self)] = new
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return CudaTensor, (self.held.detach().clone(), self.index, self.requires_grad)


class Mode(TorchDispatchMode):
    """Calls that make tensors on a CUDA device. Meta is taken for CUDA, as PyTorch's own code says meta there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _asked(kwargs) is not None or any(isinstance(tensor, CudaTensor) for tensor in _tensors((args, kwargs))):
            return call(func, args, kwargs)
        return func(*args, **kwargs)


def call(func: Any, args: Any, kwargs: Any) -> Any:
    """Make one call as CUDA would, by the CPU.

    Raises:
        RuntimeError: CUDA would refuse it.
    """
    gpu, name = present(), func._schema.name
    if name == "prim::device":
        return args[0].device
    tensors = list(_tensors((args, kwargs)))
    ours = [tensor for tensor in tensors if isinstance(tensor, CudaTensor)]
    host = [tensor for tensor in tensors if not isinstance(tensor, CudaTensor)]
    index = _asked(kwargs)
    leaves_device = kwargs.get("device") is not None and index is None
    if index is None or (ours and torch.device(kwargs["device"]).type == "meta"):
        index = ours[0].index if ours else gpu.current
    _check(gpu, func, args, ours, host, index, leaves_device)
    if gpu.capturing is not None and gpu.capturing.device != index:
        raise RuntimeError(f"{name} on cuda:{index} during a capture on cuda:{gpu.capturing.device} ({place()})")
    wrappers: dict[int, CudaTensor] = {id(tensor.held): tensor for tensor in ours}
    held_args, held_kwargs = _mapped(_held, (args, kwargs))
    if held_kwargs.get("device") is not None:
        held_kwargs = {**held_kwargs, "device": _CPU}
    if gpu.capturing is None:
        out = func(*held_args, **held_kwargs)
    else:
        out = gpu.capturing.record(func, held_args, held_kwargs, _written(func, args, kwargs))
    if leaves_device:
        return out
    if not func.is_view and not name.startswith(_NO_KERNEL):
        gpu.launches[name] += 1

    def wrapped(tensor: Tensor) -> Tensor:
        if id(tensor) in wrappers:
            return wrappers[id(tensor)]
        if not func.is_view:
            gpu.allocate(tensor.numel() * tensor.element_size())
        return CudaTensor(tensor, index)

    return _mapped(wrapped, out)


def _check(
    gpu: Gpu, func: Any, args: Any, ours: list[CudaTensor], host: list[Tensor], index: int, leaves_device: bool
) -> None:
    """Count waits and uploads, and refuse tensors of several devices."""
    name = func._schema.name
    if name in ("aten::_to_copy", "aten::copy_"):
        to_cpu = leaves_device or (name == "aten::copy_" and not isinstance(args[0], CudaTensor))
        if ours and to_cpu:
            gpu.wait("a copy to the CPU")
        elif host:
            gpu.upload("a copy from the CPU")
        return
    if host and ours and name in _INDEXED and isinstance(args[0], CudaTensor):
        gpu.upload("indices on the CPU")
    elif ours and (
        any(tensor.dim() for tensor in host) or any(tensor.index != index for tensor in ours if tensor.dim())
    ):
        devices = sorted({str(tensor.device) for tensor in (*ours, *host)})
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {' and '.join(devices)}! "
            f"({name} in {place()})"
        )
    if name in _INDEXED:
        if any(isinstance(tensor, Tensor) and tensor.dtype in (torch.bool, torch.uint8) for tensor in args[1]):
            gpu.wait("a mask as an index")
    elif name in _CHECKED or _DATA.intersection(func.tags):
        gpu.wait(name.removeprefix("aten::"))


def _asked(kwargs: Any) -> int | None:
    """Return the index of the made-up device that a call names."""
    if kwargs.get("device") is None:
        return None
    device = torch.device(kwargs["device"])
    if device.type not in ("cuda", "meta"):
        return None
    return present().current if device.type == "meta" or device.index is None else device.index


def _tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in tuples, lists and dicts, faster than PyTorch's function for any structure."""
    for tensor in values.values() if isinstance(values, dict) else values:
        if isinstance(tensor, Tensor):
            yield tensor
        elif isinstance(tensor, (tuple, list, dict)):
            yield from _tensors(tensor)


def _mapped(function: Callable[[Tensor], Tensor], values: Any) -> Any:
    if isinstance(values, Tensor):
        return function(values)
    if isinstance(values, dict):
        return {name: _mapped(function, tensor) for name, tensor in values.items()}
    return type(values)(_mapped(function, tensor) for tensor in values) if isinstance(values, (tuple, list)) else values


def _held(tensor: Tensor) -> Tensor:
    return tensor.held if isinstance(tensor, CudaTensor) else tensor


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return the values of the arguments that a call changes."""
    pairs = zip(func._schema.arguments, args, strict=False)
    values = [*pairs, *((tensor, kwargs.get(tensor.name)) for tensor in func._schema.arguments)]
    return [
        value.held
        for tensor, value in values
        if isinstance(value, CudaTensor) and tensor.alias_info is not None and tensor.alias_info.is_write
    ]
