"""Passes without gradients: in evaluation mode, in pieces that suit the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from runner.speed.slices import channels_last

_BATCH = {"cpu": 250, "cuda": 2500}  # images: on a CPU as many as fit its cache, channels last


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode, without gradients."""
    modes = [(each, each.training) for each in module.modules()]
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for each, training in modes:
            each.training = training


def batches(images: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a split in batches of a size that suits its device: copies, which a network may change, channels last."""
    size = _BATCH[images.device.type]
    for some_images, some_targets in zip(images.split(size), targets.split(size), strict=True):
        yield channels_last(some_images.clone()), some_targets
