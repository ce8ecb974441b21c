"""Protection of private examples against code that PyTorch runs at modules and operators.

PyTorch can call a function at every module's pass, at every operator, or on every tensor that a pass saves. It can
compute in lower precision. Such a setting applies to the whole process, at any time and from any code. A subclass of
`Tensor` gets all operators on it in `__torch_function__`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import autocast, overrides
from torch.nn.modules import module as torch_module

_HOOKS = tuple(name for name in vars(torch_module) if name.startswith("_global_") and name.endswith("_hooks"))
_SAVED = torch._C._autograd
_DEVICES = ("cpu", "cuda")


def hook_on_all_modules() -> bool:
    """Return True if a hook on all modules is set."""
    return any(getattr(torch_module, name) for name in _HOOKS)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Switch off hooks on all modules and saved tensors, autocast, function modes and `__torch_function__` within."""
    hooks = [(found, dict(found)) for name in _HOOKS if (found := getattr(torch_module, name))]
    modes, on_saved = overrides._get_current_function_mode_stack(), []
    with ExitStack() as autocasts:
        for device in filter(torch.is_autocast_enabled, _DEVICES):
            autocasts.enter_context(autocast(device, enabled=False))
        for found, _ in hooks:
            found.clear()
        for _ in modes:
            overrides._pop_mode()
        while (pair := _SAVED._top_saved_tensors_default_hooks(False)) is not None:
            on_saved.append(pair)
            _SAVED._pop_saved_tensors_default_hooks()
        try:
            with torch._C.DisableTorchFunctionSubclass():
                yield
        finally:
            for pair in reversed(on_saved):
                _SAVED._push_saved_tensors_default_hooks(*pair)
            for mode in modes:
                overrides._push_mode(mode)
            for found, kept in hooks:
                found.update(kept)
