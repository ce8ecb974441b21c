"""Losses that make a job fail, for tests of what happens to the others."""

import os

import torch
from torch import Tensor, nn


class RaisesInTraining(nn.CrossEntropyLoss):
    """Works on the meta device, where configs are checked, and raises on data."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if logits.device.type != "meta":
            raise RuntimeError("made to fail")
        return super().forward(logits, targets)


class Dies(nn.CrossEntropyLoss):
    """Ends its process without a word, as the kernel does when memory runs out."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if logits.device.type != "meta" and torch.is_tensor(logits):
            os._exit(7)
        return super().forward(logits, targets)
