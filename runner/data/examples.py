"""Examples in memory: of a data set of torchvision's kind, of tensors, or of any sequence of images with labels."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Examples of one split. `images`: [examples, channels, height, width], float32; `targets`: [examples], int64."""

    images: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Examples:
    """A data set that was read: a data set of a user, with the sizes of its splits."""

    splits: tuple[Split, Split]
    shape: tuple[int, ...]
    classes: int
    train_examples: int
    test_examples: int

    @classmethod
    def of(cls, found: Any) -> Examples:
        """Take the training and the test examples from a pair, each as `as_split` takes it.

        There is one class more than the largest label.

        Raises:
            ValueError: it is no such pair.
        """
        try:
            train, test = map(as_split, found)
            for each in (train, test):
                if len(each.images) != len(each):
                    raise ValueError(f"{len(each.images)} images with {len(each)} labels")
            classes = 1 + int(torch.maximum(train.targets.max(), test.targets.max()))
            return cls((train, test), tuple(train.images.shape[1:]), classes, len(train), len(test))
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise ValueError(
                f"expected the training and the test examples, each a pair of images and labels, or a data set of "
                f"PyTorch's kind ({error})"
            ) from error

    def load(self, root: str | Path) -> tuple[Split, Split]:
        """Return the splits."""
        return self.splits


def splits_of(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments by which a class of torchvision's kind gives its training and its test split.

    Raises:
        ValueError: it has no such arguments.
    """
    taken = inspect.signature(kind).parameters
    if "train" in taken:
        return {"train": True}, {"train": False}
    if "split" in taken:
        return {"split": "train"}, {"split": "test"}
    raise ValueError(f"{kind.__qualname__} has neither an argument train=True nor split='train'")


def as_split(examples: Any, shape: Sequence[int] | None = None) -> Split:
    """Return the examples of a data set of torchvision's kind, or of pairs of an image and a label.

    Images of whole numbers are pixels of 0 to 255. Every item is read, unless the items are torchvision's own, without
    a transform: then `data` and `targets` or `labels` have all of them.

    Args:
        shape: channels, height and width, where they are known.
    """
    if isinstance(examples, Split):
        return examples
    labels = getattr(examples, "targets", getattr(examples, "labels", None))
    if labels is not None and _whole(examples):
        images, targets = torch.as_tensor(examples.data), torch.as_tensor(labels)
    elif isinstance(examples, tuple | list) and len(examples) == 2 and isinstance(examples[0], Tensor):
        images, targets = examples
    else:
        every = [examples[place] for place in range(len(examples))]
        images = torch.stack([_tensor(image) for image, _ in every])
        targets = torch.tensor([int(label) for _, label in every])
    if images.dim() == 3:
        images = images.unsqueeze(1)
    last = images.shape[-1] in (1, 3, 4) and images.shape[1] not in (1, 3, 4)
    if images.dim() == 4 and list(images.shape[1:]) != list(shape or []) and last:  # the channels
        images = images.permute(0, 3, 1, 2)
    pixels = not images.is_floating_point()
    return Split((images.float().div_(255) if pixels else images.float()).contiguous(), targets.long())


def _whole(examples: Any) -> bool:
    """Return True if the examples have all images in `data`: they do without items, or with torchvision's own."""
    item = getattr(type(examples), "__getitem__", None)
    if item is None or not hasattr(examples, "data"):
        return hasattr(examples, "data")
    plain = all(getattr(examples, name, None) is None for name in ("transform", "target_transform"))
    return item.__module__.startswith("torchvision.") and plain and len(examples) == len(examples.data)


def _tensor(image: Any) -> Tensor:
    if isinstance(image, Tensor):
        return image
    from torchvision.transforms.functional import pil_to_tensor

    pixels: Tensor = pil_to_tensor(image)
    return pixels
