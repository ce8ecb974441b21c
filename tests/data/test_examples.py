"""Data sets that a user brings: of torchvision's kind in each layout, tensors, and sequences of images with labels."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor
from torch.utils.data import TensorDataset

from runner.data.examples import Examples, as_split, splits_of
from runner.training.loop import load
from runner.training.prepare import prepare

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


class Half:
    """Has all images in `data`, but only the first half of them as items."""

    data, targets = PIXELS.numpy(), LABELS

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return PIXELS[range(2)[place]], LABELS[place]


class Relabelled(Half):
    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return PIXELS[range(2)[place]], LABELS[place] + 5


def test_examples_are_the_items_where_a_class_has_its_own() -> None:
    assert (len(as_split(Half())), as_split(Relabelled()).targets.tolist()) == (2, [5, 7])
    torch.testing.assert_close(as_split(Half()).images, PIXELS[:2] / 255)


def test_sizes_are_those_of_the_examples() -> None:
    found = Examples.of(((PIXELS / 255, torch.tensor(LABELS)), (PIXELS[:2] / 255, torch.tensor([4, 0]))))
    assert (found.shape, found.classes, found.train_examples, found.test_examples) == ((3, 5, 6), 5, 4, 2)


@pytest.mark.parametrize(
    "wrong", [(PIXELS, torch.tensor(LABELS)), (1, 2), ((PIXELS, LABELS),), [None, None], [(PIXELS, torch.ones(1))] * 2]
)
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


def made(count: int) -> tuple[Tensor, Tensor]:
    """Images of grey levels that rise from 0 to 1, and labels."""
    return torch.linspace(0, 1, count).view(-1, 1, 1, 1).expand(-1, 1, 28, 28), torch.arange(count) % 7


def pairs() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return made(300), made(60)


class Kmnist:
    """As torchvision's KMNIST."""

    def __init__(self, root: str, train: bool = True) -> None:
        assert root == "/any/where"
        images, self.targets = made(300 if train else 60)
        self.data = (255 * images[:, 0]).round().byte()


@pytest.mark.parametrize("target", ["pairs", "Kmnist"])
def test_a_run_loads_what_a_function_or_a_class_gives(target: str, smoke: Callable[..., DictConfig]) -> None:
    config = smoke("experiment=tempered_sigmoid/mnist_tanh", "runtime.data_root=/any/where")
    with open_dict(config):
        config.dataset = OmegaConf.create({"_target_": f"tests.data.test_examples.{target}"})
    run = prepare(config)
    assert (run.mechanism.examples, run.dataset.classes) == (300, 7)
    for split, count in zip(load(run), (300, 60), strict=True):
        images, labels = made(count)
        torch.testing.assert_close(split.images, images, rtol=0, atol=1 / 255)
        assert torch.equal(split.targets, labels)
