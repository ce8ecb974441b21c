"""Examples in memory: of a data set of torchvision's kind, of tensors, or of any sequence of images with labels."""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

SPLITS = ("training", "test")
_WHITE, _DEEP = 255, 65535  # the brightest pixel of 8 and of 16 bits
_COLOURS, _CLASSES = 4, 1_000_000  # the largest number of channels of a picture, and of classes
_TRIED = 64  # examples that are read twice: a random one differs at least once in them


@dataclass(frozen=True)
class Split:
    """Examples of one split. `images`: [examples, channels, height, width], float32; `targets`: [examples], int64."""

    images: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Examples:
    """A data set that was read: a data set of a user, with the sizes of its splits.

    Attributes:
        notes: what a person should know of the reading, a sentence each.
    """

    splits: tuple[Split, Split]
    shape: tuple[int, ...]
    classes: int
    train_examples: int
    test_examples: int
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: Any) -> "Examples":
        """Take the training and the test examples from a pair, each as `as_splits` takes it.

        There is one class more than the largest label.

        Raises:
            ValueError: it is no such pair, or the two splits do not belong together.
        """
        try:
            train, test = map(_paired, source)
        except (TypeError, ValueError) as error:
            raise ValueError(_expected(f"got {_kind(source)}")) from error
        read = []
        for split_name, examples in zip(SPLITS, (train, test), strict=True):
            try:
                _check_shown(examples)
                split, white = _read(examples)
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                raise ValueError(_expected(f"{split_name} split: {error}")) from error
            except ValueError as error:
                raise ValueError(f"{split_name} split: {error}") from error
            if not len(split) or len(split.images) != len(split):
                raise ValueError(_expected(f"{split_name} split: {len(split.images)} images with {len(split)} labels"))
            read.append((split, white))
        _check_numbering(train, test)
        first, second = scaled(read)
        if first.images.shape[1:] != second.images.shape[1:]:
            sizes = (_size(split.images[0]) for split in (first, second))
            raise ValueError("training images are {} and test images {}: resize them".format(*sizes))
        classes = 1 + int(torch.maximum(first.targets.max(), second.targets.max()))
        if classes > _CLASSES:
            raise ValueError(f"{classes - 1} is no label: classes are numbered from 0, without large gaps")
        notes = [note for note in map(_drawn_once, (train, test)) if note][:1]
        return cls((first, second), tuple(first.images.shape[1:]), classes, len(first), len(second), tuple(notes))

    def load(self, root: str | Path) -> tuple[Split, Split]:
        """Return the splits."""
        return self.splits


def _expected(got: str) -> str:
    sources = "each a pair of images and labels, or a data set of PyTorch's kind"
    return f"expected the training and the test examples, {sources} ({got})"


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} of shape {list(shape)}" if shape is not None else type(value).__name__


def _size(image: Tensor) -> str:
    return " x ".join(map(str, image.shape))


def _check_numbering(train: Any, test: Any) -> None:
    """Check that a number means the same class in both splits, where both name their classes."""
    numbers: dict[str, int] = {}
    names: dict[int, tuple[str, str]] = {}
    for split_name, examples in zip(SPLITS, (train, test), strict=True):
        for name, number in _numbers(examples):
            other, where = names.get(number, ("no class", SPLITS[0]))
            if numbers.get(name, number) != number or other not in (name, "no class"):
                raise ValueError(
                    f"class {name!r} is number {number} in the {split_name} split, but in the {where} split {number} "
                    f"is {other!r}: give both splits a folder for every class, or one class_to_idx"
                )
            numbers[name], names[number] = number, (name, split_name)


def _numbers(examples: Any) -> Iterator[tuple[str, int]]:
    """Yield the classes of torchvision's data sets with their numbers, also of those inside another one."""
    if getattr(examples, "target_transform", None) is not None:
        return
    stated, names = getattr(examples, "class_to_idx", None), getattr(examples, "classes", None)
    if isinstance(stated, dict):
        yield from ((str(name), int(number)) for name, number in stated.items())
    elif isinstance(names, list | tuple):
        yield from ((str(name), number) for number, name in enumerate(names))
    else:
        yield from chain.from_iterable(map(_numbers, _inside(examples)))


def _inside(examples: Any) -> list[Any]:
    """Return the data sets that a subset or a concatenation is of."""
    if hasattr(examples, "indices"):
        return [getattr(examples, "dataset", None)]
    return list(getattr(examples, "datasets", [])) if hasattr(examples, "cumulative_sizes") else []


def _check_shown(examples: Any) -> None:
    """Check that no picture is hidden, as a copy of another program: it would be a class, or a person's data twice."""
    for part in _inside(examples):
        _check_shown(part)
    samples, root = getattr(examples, "samples", None), Path(getattr(examples, "root", None) or "")
    for sample in samples if isinstance(samples, list) else ():
        path = Path(sample[0]) if isinstance(sample, tuple) and isinstance(sample[0], str | Path) else Path()
        below = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
        for place, name in enumerate(below.parts):
            if name.startswith(".") and name != "..":
                hidden = path.parents[len(below.parts) - 2 - place] if place < len(below.parts) - 1 else path
                raise ValueError(f"{hidden} is hidden, so another program left it among the pictures: move it away")


def _paired(examples: Any) -> Any:
    """Return pairs of an image and a label for a list of images with as many labels, and other examples as they are."""
    lists = isinstance(examples, tuple | list) and len(examples) == 2 and isinstance(examples[0], list)
    if not (lists and len(examples[0]) == len(examples[1])):
        return examples
    label = next(iter(examples[1]), None)
    scalar = np.isscalar(label) or (isinstance(label, Tensor) and not label.dim())
    return list(zip(*examples, strict=True)) if scalar else examples


def _drawn_once(examples: Any) -> str | None:
    """Return what is to be said of examples whose images differ from one reading to the next, or None."""
    labelled = hasattr(examples, "targets") or hasattr(examples, "labels")
    if isinstance(examples, Split) or _is_pair(examples) or (labelled and _whole(examples)):
        return None  # they are not read item by item
    some = range(min(len(examples), _TRIED))
    first, again = ([_item(examples, place) for place in some] for _ in range(2))
    if all(torch.equal(image, other) for (image, _), (other, _) in zip(first, again, strict=True)):
        return None
    return (
        f"{type(examples).__name__} draws its images at random. This is applied once, at reading, so every epoch sees "
        f"the same draw: use augmentation for views that change"
    )


def splits_of(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments by which a class of torchvision's kind gives its training and its test split.

    Raises:
        ValueError: it has no such arguments.
    """
    parameters = inspect.signature(kind).parameters
    if "train" in parameters:
        return {"train": True}, {"train": False}
    if "split" in parameters:
        return {"split": "train"}, {"split": "test"}
    raise ValueError(f"{kind.__qualname__} has neither an argument train=True nor split='train'")


def as_splits(pair: Iterable[Any], shape: Sequence[int] | None = None) -> tuple[Split, ...]:
    """Return the examples of data sets of torchvision's kind, of pairs of arrays, or of pairs of image and label.

    Images of whole numbers are pixels: of 0 to 255, or, with 16 bits, of 0 to 65535. Every item is read, unless the
    items are torchvision's own, without a transform: then `data` and `targets` or `labels` have all of them.

    Args:
        shape: channels, height and width, where they are known.

    Raises:
        ValueError: an image has another size or type than the first, or its numbers are no pixels. Or a label is no
            whole number.
    """
    return scaled([_read(examples, shape) for examples in pair])


def _read(examples: Any, shape: Sequence[int] | None = None) -> tuple[Split, int]:
    """Return examples as in `as_splits`, but with pixels as they are, and the number of white, or 0 if they stay so."""
    if isinstance(examples, Split):
        return examples, 0
    labels = getattr(examples, "targets", getattr(examples, "labels", None))
    if labels is not None and _whole(examples):
        images, targets = _tensor(examples.data), _labels(labels)
    elif _is_pair(examples):
        images, targets = _tensor(examples[0]), _labels(examples[1])
    else:
        images, targets = _items(examples)
    if images.dim() == 3:
        images = images.unsqueeze(1)
    if images.dim() == 4 and list(images.shape[1:]) != list(shape or []):
        first, second, last = images.shape[1:]
        if first > _COLOURS and last != second and (last <= _COLOURS or first == second):  # the last are the channels
            images = images.permute(0, 3, 1, 2)
    if targets.dim() != 1:
        raise ValueError(f"labels of shape {list(targets.shape)}: give one number for each image")
    whole_labels = targets.long()
    if targets.is_floating_point() and not torch.equal(whole_labels.to(targets.dtype), targets):
        raise ValueError(f"labels have to be whole numbers, not {float(targets[whole_labels != targets][0]):g}")
    white = _white(images)
    return Split((images if white else images.float()).contiguous(), whole_labels), white


def _is_pair(examples: Any) -> bool:
    pair = isinstance(examples, tuple | list) and len(examples) == 2
    return pair and isinstance(examples[0], Tensor | np.ndarray)


def _whole(examples: Any) -> bool:
    """Return True if the examples have all images in `data`: they do without items, or with torchvision's own."""
    item = getattr(type(examples), "__getitem__", None)
    if item is None or not hasattr(examples, "data"):
        return hasattr(examples, "data")
    plain = all(getattr(examples, name, None) is None for name in ("transform", "target_transform"))
    return item.__module__.startswith("torchvision.") and plain and len(examples) == len(examples.data)


def _items(examples: Any) -> tuple[Tensor, Tensor]:
    images: list[Tensor] = []
    labels: list[float] = []
    for place in range(len(examples)):
        image, label = _item(examples, place)
        if images and (image.shape, image.dtype) != (images[0].shape, images[0].dtype):
            raise ValueError(
                f"image {place} is {_size(image)} of {image.dtype}, but image 0 is {_size(images[0])} of "
                f"{images[0].dtype}: give all images one size and type"
            )
        images.append(image)
        labels.append(label)
    return torch.stack(images) if images else torch.empty(0, 1, 1, 1), torch.tensor(labels, dtype=torch.float64)


def _item(examples: Any, place: int) -> tuple[Tensor, float]:
    """Return an image and its label. An error names the place of what is no such pair, or cannot be read."""
    if not hasattr(type(examples), "__getitem__"):
        raise TypeError(f"{type(examples).__name__} has no items")
    try:
        pair = examples[place]
        if isinstance(pair, tuple | list) and len(pair) == 2:
            return _tensor(pair[0]), float(pair[1])
    except Exception as error:  # any error of a user's code
        raise ValueError(f"example {place} cannot be read: {type(error).__name__}: {error}") from error
    raise TypeError(f"example {place} is {_kind(pair)}, and no pair of an image and a label")


def _tensor(values: Any) -> Tensor:
    """Return an array, or an image of PIL's, as a tensor. One of 16 bits keeps them, a palette becomes its colours."""
    if isinstance(values, Tensor):
        return values.detach().cpu()
    if hasattr(values, "getpalette"):  # PIL's
        values = values.convert({"P": "RGB", "PA": "RGBA"}.get(values.mode, values.mode))
        deep = values.mode.startswith("I")
        pixels = np.array(values)
        pixels = pixels.astype(np.uint16) if deep and 0 <= pixels.min() <= pixels.max() <= _DEEP else pixels
        return _tensor(pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1))[(None,) * (3 - pixels.ndim)]
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"numbers are expected, not {array.dtype.name}")
    return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "W"]))


def _labels(values: Any) -> Tensor:
    """Return labels as a tensor, also those that are digits in texts."""
    if not isinstance(values, Tensor) and (texts := np.asarray(values)).dtype.kind == "U":
        with suppress(ValueError):
            return torch.from_numpy(texts.astype(np.float64))
    return _tensor(values)


def _white(images: Tensor) -> int:
    """Return the number of white: 255, or 65535 for 16 bits or a number above 255. 0 if they are no pixels."""
    if images.is_floating_point() or images.dtype is torch.bool:
        return 0
    if images.dtype in (torch.uint8, torch.uint16):
        return _WHITE if images.dtype is torch.uint8 else _DEEP
    lowest, highest = (int(number) for number in images.long().aminmax())
    if lowest < 0 or highest > _DEEP:
        raise ValueError(f"images of whole numbers from {lowest} to {highest}, but pixels are 0 to {_WHITE} or {_DEEP}")
    return _DEEP if highest > _WHITE else _WHITE


def scaled(read: Sequence[tuple[Split, int]]) -> tuple[Split, ...]:
    """Return splits with images as float32, divided by the number of white, if there is one.

    Bytes have their own. In wider types the numbers tell it, so the widest split tells it for all of them.
    """
    wide = max((white for split, white in read if split.images.dtype is not torch.uint8), default=0)
    whites = [white and (white if split.images.dtype is torch.uint8 else wide) for split, white in read]
    return tuple(
        Split(split.images.float().div_(white), split.targets) if white else split
        for (split, _), white in zip(read, whites, strict=True)
    )
