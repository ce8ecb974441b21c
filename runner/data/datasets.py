"""Data sets as tensors, read once, held on the device, and gathered by index."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import distribution
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch

from runner.config.fields import expect
from runner.data import BUNDLED_TEST, BUNDLED_TRAIN, DataError
from runner.data.examples import SPLITS, as_splits, splits_of
from runner.data.examples import Split as Split
from runner.data.originals import FOLDERS, elsewhere, missing, standardised
from runner.data.reproducible import reproducible
from runner.terminal import one_line

_DARK = 0.5  # images without a brighter pixel hold something else, such as 12 of 16 bits, or 0 and 1 as whole numbers
_NAMED = 5  # classes that a sentence names
HOLDOUT_PARTS = 12  # evaluation=holdout sets aside the last twelfth: 5,000 of 60,000 images


@dataclass(frozen=True)
class ImageDataset:
    """A torchvision image classification data set, whose sizes are known before it is read.

    `bundled` replaces the images by scikit-learn's handwritten digits in the same shape (smoke scale).

    Raises:
        ValueError: a shape, a size or a number of classes is impossible.
    """

    name: str
    shape: list[int]
    classes: int
    train_examples: int
    test_examples: int
    bundled: bool = False

    def __post_init__(self) -> None:
        whole = len(self.shape) == 3 and min(self.shape) >= 1
        expect(whole, "dataset.shape = [channels, height, width]", self.shape)
        for name in ("classes", "train_examples", "test_examples"):
            expect(getattr(self, name) > 0, f"dataset.{name} > 0", getattr(self, name))

    def load(self, root: str | Path) -> tuple[Split, Split]:
        """Return the training and the test split, pixels in [0, 1].

        Raises:
            DataError: the files are neither under `root` nor can be downloaded, or are not the original images, or
                do not have the stated sizes.
        """
        train, test = (
            _bundled_digits(self.shape)
            if self.bundled
            else _torchvision(self.name, Path(root).expanduser(), self.shape)
        )
        sizes = (list(train.images.shape[1:]), len(train), len(test))
        if sizes != (list(self.shape), self.train_examples, self.test_examples):
            raise DataError(
                f"{self.name} under {root} has images of shape {sizes[0]}, {sizes[1]} for training and {sizes[2]} for "
                f"test, but the configuration says {list(self.shape)}, {self.train_examples} and {self.test_examples}."
            )
        if int(torch.maximum(train.targets.max(), test.targets.max())) >= self.classes:
            raise DataError(f"{self.name} has a label beyond dataset.classes={self.classes}.")
        return train, test


@dataclass(frozen=True)
class OwnDataset:
    """A data set written by a user, checked against the sizes that it states, which are read once.

    Raises:
        ValueError: a size is missing or impossible.
    """

    own: Any  # the user's object, with the same sizes as `ImageDataset`, and `load(root)`
    small: bool  # only as many images as the bundled data has are used, evenly spaced in each split
    stated: ImageDataset = field(init=False)  # the sizes of all images
    shape: list[int] = field(init=False)
    classes: int = field(init=False)
    train_examples: int = field(init=False)
    test_examples: int = field(init=False)
    standardised: bool = field(init=False, default=False, compare=False)  # by all images, of which few may be used
    _splits: list[Split] = field(init=False, default_factory=list, repr=False, compare=False)  # what was read

    def __post_init__(self) -> None:
        try:
            classes, train, test = self.own.classes, self.own.train_examples, self.own.test_examples
            stated = ImageDataset("", list(self.own.shape), index(classes), index(train), index(test))
        except (AttributeError, TypeError) as error:
            raise ValueError(
                f"{error}: a data set has `shape` = (channels, height, width), `classes`, `train_examples`, "
                f"`test_examples` and `load(root)`. Or it is a class like torchvision's, with root and train or split, "
                f"or a function that returns the training and the test examples."
            ) from error
        most = (BUNDLED_TRAIN, BUNDLED_TEST) if self.small else (stated.train_examples, stated.test_examples)
        vars(self).update(
            stated=stated,
            shape=stated.shape,
            classes=stated.classes,
            train_examples=min(most[0], stated.train_examples),
            test_examples=min(most[1], stated.test_examples),
        )

    def load(self, root: str | Path) -> tuple[Split, Split]:
        """Return the training and the test split, which are read once, under fixed seeds.

        Raises:
            DataError: they cannot be read, or are not of the stated sizes, or not finite float32 images and int64
                targets below `classes`.
        """
        if not self._splits:
            self._splits.extend(self._read(Path(root).expanduser()))
        return self._splits[0], self._splits[1]

    def notes(self, root: str | Path) -> list[str]:
        """Return what a person should know of the examples, a sentence each. Good ones have none.

        Raises:
            DataError: as `load`.
        """
        both = dict(zip(SPLITS, self.load(root), strict=True))
        counts = {name: torch.bincount(split.targets, minlength=self.classes) for name, split in both.items()}
        totals = torch.stack([*counts.values()]).sum(0)
        without = {"example": totals == 0} | {f"{n} example": (c == 0) & (totals > 0) for n, c in counts.items()}
        absent = {what: classes.nonzero().flatten().tolist() for what, classes in without.items()}
        notes = [*getattr(self.own, "notes", ())]
        notes += [f"{self.classes} classes, of which {_some(some)} no {what}" for what, some in absent.items() if some]
        train, test = both.values()
        if copies := len(train) - len(set(_hashed(train))):
            notes.append(f"{copies:,} training images are copies of others, and ε protects a single copy")
        if tested := shared(train, test):
            notes.append(f"{tested:,} of {len(test):,} test images are training images, too, so accuracy is too high")
        ranges: dict[str, list[str]] = {}
        for name, split in both.items():
            lowest, highest = (float(number) for number in split.images.aminmax())
            if lowest < 0 or highest > 1:
                wrong = "are used as they are, although other parts expect pixels of 0 to 1"
                ranges.setdefault(f"{lowest:.4g} to {highest:.4g}, and {wrong}", []).append(name)
            elif highest < _DARK:
                wrong = "white is 1: whole numbers are divided by 255, or by 65535 if one is above 255 or has 16 bits"
                ranges.setdefault(f"{lowest:.4g} to {highest:.4g}, where {wrong}", []).append(name)
        notes += [f"{' and '.join(names)} images have numbers from {text}" for text, names in ranges.items()]
        return notes

    def _read(self, root: Path) -> tuple[Split, Split]:
        try:
            with reproducible():
                train, test = self.own.load(root)
            train, test = Split(train.images, train.targets), Split(test.images, test.targets)
            self._check(train, self.stated.train_examples, SPLITS[0])
            self._check(test, self.stated.test_examples, SPLITS[1])
        except DataError:
            raise
        except Exception as error:  # any error of a user's code
            raise DataError(
                f"dataset: {type(self.own).__qualname__}.load has to return the training and the test split: "
                f"{type(error).__name__}: {error}"
            ) from error
        vars(self).update(standardised=standardised(train.images))
        return _evenly(train, self.train_examples), _evenly(test, self.test_examples)

    def _check(self, split: Split, size: int, split_name: str) -> None:
        name, images, targets = type(self.own).__qualname__, split.images, split.targets
        for kind in (type(images), type(targets)):
            if kind is not torch.Tensor:
                raise DataError(f"{name} loads a {kind.__qualname__}: expected a plain tensor.")
        actual = (list(images.shape), images.dtype, list(targets.shape), targets.dtype)
        if actual != ([size, *self.shape], torch.float32, [size], torch.int64):
            raise DataError(
                f"{name} loads {split_name} images {actual[0]} of {actual[1]} and targets {actual[2]} of {actual[3]}, "
                f"but it states {[size, *self.shape]} of float32 and {[size]} of int64."
            )
        for place in ((targets < 0) | (targets >= self.classes)).nonzero().flatten()[:1]:
            label = int(targets[place])
            raise DataError(
                f"{name} has a {split_name} example, number {int(place)}, with the target {label}, which is not in 0 "
                f"to {self.classes - 1}."
            )
        for place in (~images.isfinite().flatten(1).all(1)).nonzero().flatten()[:1]:
            raise DataError(f"{name} has a {split_name} image, number {int(place)}, with a number that is not finite.")


def shared(train: Split, others: Split) -> int:
    """Count the other images that are training images, too."""
    seen = set(_hashed(train))
    return sum(image in seen for image in _hashed(others))


def _hashed(split: Split) -> list[int]:
    return [hash(image.tobytes()) for image in split.images.cpu().numpy()]


def _some(classes: Sequence[int]) -> str:
    """Return a few numbers with their verb: `0 has`, `0, 3 and 2 others have`."""
    shown = ", ".join(map(str, classes[:_NAMED]))
    more = f" and {len(classes) - _NAMED} others" if len(classes) > _NAMED else ""
    return f"{shown}{more} {'has' if len(classes) == 1 else 'have'}"


def _evenly(split: Split, count: int) -> Split:
    """Return `count` evenly spaced examples of a split, which may be sorted by classes. It has no fewer."""
    if count == len(split):
        return split
    chosen = torch.arange(count) * len(split) // count
    return Split(split.images[chosen], split.targets[chosen])


def holdout_examples(train_examples: int) -> int:
    """Return the number of training examples that evaluation=holdout sets aside."""
    return train_examples // HOLDOUT_PARTS


def hold_out(train: Split) -> tuple[Split, Split]:
    """Return the training split without its last twelfth, and that twelfth."""
    count = len(train) - holdout_examples(len(train))
    fitted = Split(train.images[:count], train.targets[:count])
    return fitted, Split(train.images[count:], train.targets[count:])


def _torchvision(name: str, root: Path, shape: Sequence[int]) -> tuple[Split, Split]:
    import torchvision.datasets

    kind = getattr(torchvision.datasets, name, None)
    if not isinstance(kind, type):
        raise DataError(f"torchvision has no data set named {name}.")
    processed = root / name / "processed"
    if issubclass(kind, torchvision.datasets.MNIST) and list(processed.glob("*.pt")):
        # torchvision would read them instead of the original files. They are pickles, which can run any code.
        raise DataError(
            f"{processed} holds files of an older torchvision, which would be unpickled instead of the original files: "
            f"move that folder away, as the original files in {root / name / 'raw'} are enough."
        )
    absent = missing(name, root)
    if advice := elsewhere(name, root, absent):
        raise DataError(advice)
    place = root / FOLDERS.get(name, "")
    try:
        if not absent:
            with suppress(OSError, RuntimeError):  # torchvision raises them if files are missing or damaged
                return _read(kind, root, shape, download=False)
        splits = _read(kind, root, shape, download=True)
    except Exception as error:  # of every kind, by data set
        reason = f"{absent[0]} is missing" if absent else f"{name} cannot be read from {place}"
        raise DataError(
            f"{reason}, and it could not be downloaded ({one_line(f'{type(error).__name__}: {error}')}): put the "
            f"original files of {name} into {place}, or set DP_DATA_ROOT (or runtime.data_root) to another folder."
        ) from error
    missing(name, root)
    return splits


def _read(kind: Any, root: Path, shape: Sequence[int], download: bool) -> tuple[Split, Split]:
    with reproducible():
        pair = (kind(root=str(root), download=download, **arguments) for arguments in splits_of(kind))
        train, test = as_splits(pair, shape)
    return train, test


def _bundled_digits(shape: Sequence[int]) -> tuple[Split, Split]:
    """Return 1,438 + 359 handwritten digits of 8 x 8 pixels, enlarged to `shape` and repeated over its channels.

    They are scikit-learn's, read from its file, because importing it takes a second.
    """
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(str(file), delimiter=",")
    images = torch.from_numpy(rows[:, :-1]).float().view(-1, 1, 8, 8) / 16
    images = torch.nn.functional.interpolate(images, size=tuple(shape[1:]), mode="bilinear", align_corners=False)
    images = images.repeat(1, shape[0], 1, 1).contiguous()
    targets = torch.from_numpy(rows[:, -1]).long()
    test = torch.arange(len(targets)) % 5 == 4
    # Every fifth image is a test image: 359 of 1,797. Writers occur in both splits, which is acceptable at smoke scale.
    return Split(images[~test], targets[~test]), Split(images[test], targets[test])
