"""Data sets that a user brings: of torchvision's kind in each layout, tensors, and sequences of images with labels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from runner.data.examples import Examples, as_split, splits_of

LABELS = [0, 2, 1, 2]
PIXELS = torch.arange(4 * 3 * 5 * 6, dtype=torch.uint8).view(4, 3, 5, 6)


@pytest.mark.parametrize(
    ("examples", "shape"),
    [
        (SimpleNamespace(data=PIXELS.numpy(), labels=np.array(LABELS)), (3, 5, 6)),  # as SVHN
        (SimpleNamespace(data=PIXELS.permute(0, 2, 3, 1).numpy(), targets=LABELS), (3, 5, 6)),  # as CIFAR-10
        (SimpleNamespace(data=PIXELS[:, 0], targets=torch.tensor(LABELS)), (1, 5, 6)),  # as KMNIST
        ((PIXELS / 255, torch.tensor(LABELS)), (3, 5, 6)),
        (TensorDataset(PIXELS / 255, torch.tensor(LABELS)), (3, 5, 6)),
        ([(image, label) for image, label in zip(PIXELS, LABELS, strict=True)], (3, 5, 6)),
    ],
)
def test_every_layout_gives_the_same_pixels_and_labels(examples: Any, shape: tuple[int, ...]) -> None:
    split = as_split(examples)
    assert tuple(split.images.shape[1:]) == shape
    torch.testing.assert_close(split.images, PIXELS[:, : shape[0]] / 255)
    assert split.targets.tolist() == LABELS
    assert split.targets.dtype == torch.int64


def test_sizes_are_those_of_the_examples() -> None:
    found = Examples.of(((PIXELS / 255, torch.tensor(LABELS)), (PIXELS[:2] / 255, torch.tensor([4, 0]))))
    assert (found.shape, found.classes, found.train_examples, found.test_examples) == ((3, 5, 6), 5, 4, 2)


@pytest.mark.parametrize("wrong", [(PIXELS, torch.tensor(LABELS)), (1, 2), ((PIXELS, LABELS),), [None, None]])
def test_what_is_no_pair_of_splits_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="expected the training and the test examples"):
        Examples.of(wrong)


class Train:
    def __init__(self, root: str, train: bool = True) -> None: ...


class Whole:
    def __init__(self, root: str) -> None: ...


class Parts:
    def __init__(self, root: str, split: str = "train") -> None: ...


def test_the_arguments_of_each_split_follow_from_the_signature() -> None:
    assert splits_of(Train) == ({"train": True}, {"train": False})
    assert splits_of(Parts) == ({"split": "train"}, {"split": "test"})
    with pytest.raises(ValueError, match="neither"):
        splits_of(Whole)
