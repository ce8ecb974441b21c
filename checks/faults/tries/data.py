"""Damaged, truncated, swapped and foreign files of data sets."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from checks.faults.tries.attempt import Try

_DATA = Path(os.environ.get("DP_DATA_ROOT") or "~/.cache/dp-data").expanduser()
_TRAIN, _LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
_TEST, _TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
_BATCH = "data_batch_2"
RUN = (
    "experiment=tempered_sigmoid/{data}_tanh", "epochs=1", "tracking=disabled",
    "runtime.results_root={here}/results", "runtime.data_root={here}/data",
)  # fmt: skip
Damage = Callable[[Path, Path], None]  # given the file's place, and the original


def _folder(data: str) -> str:
    return {"mnist": "MNIST/raw", "fashion_mnist": "FashionMNIST/raw", "cifar10": "cifar-10-batches-py"}[data]


def _damaged(data: str, name: str, damage: Damage) -> Callable[[Path], None]:
    """Give the try a data set whose file `name` is damaged. The others are links."""

    def before(here: Path) -> None:
        folder = here / "data" / _folder(data)
        folder.mkdir(parents=True)
        for path in (_DATA / _folder(data)).iterdir():
            if path.name == name:
                damage(folder / name, path)
            else:
                (folder / path.name).symlink_to(path)

    return before


def _truncated(path: Path, original: Path) -> None:
    path.write_bytes(original.read_bytes()[:-1000])


def _flipped(path: Path, original: Path) -> None:
    content = bytearray(original.read_bytes())
    content[5000] ^= 255
    path.write_bytes(content)


def _longer(path: Path, original: Path) -> None:
    path.write_bytes(original.read_bytes() + b"x")


def _packed(path: Path, original: Path) -> None:
    path.write_bytes(gzip.compress(original.read_bytes()[:10000]))


def _said(text: str) -> Damage:
    def damage(path: Path, original: Path) -> None:
        path.write_text(text, encoding="utf-8")

    return damage


def _other(name: str, data: str = "") -> Damage:
    def damage(path: Path, original: Path) -> None:
        path.symlink_to((_DATA / _folder(data) if data else original.parent) / name)

    return damage


def _unreadable(path: Path, original: Path) -> None:
    path.symlink_to("/proc/self/mem")


def tries() -> list[Try]:
    """List the tries."""
    there = all((_DATA / _folder(data)).is_dir() for data in ("mnist", "fashion_mnist", "cifar10"))
    why_not = "" if there else f"takes MNIST, FashionMNIST and CIFAR-10 in {_DATA}"
    found: list[Try] = []

    def add(data: str, name: str, what: str, damage: Damage, says: str) -> None:
        arguments = tuple(text.replace("{data}", data) for text in RUN)
        says = rf"{name}\b[^\n]*({says})"
        before = _damaged(data, name, damage)
        found.append(Try("data", f"{data}: {name} {what}", arguments, 2, says, 0, before, why_not=why_not))

    def _absent(path: Path, original: Path) -> None:
        """Leave it out."""

    bytes_ = r"\d+ of \d+ bytes|\d+ bytes.*\d+"
    add("mnist", _TRAIN, "is empty", _said(""), "0 of")
    add("mnist", _TRAIN, "is truncated", _truncated, bytes_)
    add("mnist", _TRAIN, "is a byte longer", _longer, bytes_)
    add("mnist", _TRAIN, "has a wrong byte", _flipped, "not the original")
    add("mnist", _TRAIN, "is still packed", _packed, bytes_)
    add("mnist", _TRAIN, "is a web page", _said("<html>not found</html>"), bytes_)
    add("mnist", _TRAIN, "is missing", _absent, "missing|not there")
    add("mnist", _TRAIN, "is a folder", lambda path, original: path.mkdir(), "folder|not a file")
    add("mnist", _TRAIN, "is a pipe", lambda path, original: os.mkfifo(path), "not a file")
    add("mnist", _TRAIN, "cannot be read", _unreadable, "read|not a file|bytes")
    add("mnist", _TRAIN, "is t10k-images", _other(_TEST), f"{_TEST}|bytes")
    add("mnist", _LABELS, "is train-images", _other(_TRAIN), f"{_TRAIN}|bytes")
    add("mnist", _TEST_LABELS, "is train-labels", _other(_LABELS), f"{_LABELS}|bytes")
    add("mnist", _TEST, "holds FashionMNIST", _other(_TEST, "fashion_mnist"), "FashionMNIST|not the original")
    add("fashion_mnist", _TRAIN, "holds MNIST", _other(_TRAIN, "mnist"), "MNIST|not the original")
    add("fashion_mnist", _LABELS, "is truncated", _truncated, bytes_)
    add("cifar10", _BATCH, "is cut", _truncated, bytes_)
    add("cifar10", _BATCH, "is empty", _said(""), "0 of")
    add("cifar10", _BATCH, "is missing", _absent, "missing|not there")
    add("cifar10", _BATCH, "is data_batch_1", _other("data_batch_1"), "data_batch_1|not the original")
    add("cifar10", "test_batch", "is a pickle that runs code", _said("cos\nsystem\n(S'touch ran'\ntR."), bytes_)
    add("cifar10", "batches.meta", "is missing", _absent, "missing|not there")
    run = tuple(text.replace("{data}", "mnist") for text in RUN)
    of = partial(Try, "data", code=2, records=0)
    found += [
        of("no folder, no network", run, says=r"MNIST.*/data.*DP_DATA_ROOT"),
        of("a file in place of the folder", run, says=r"/data.*(DP_DATA_ROOT|data_root)",
           before=lambda here: (here / "data").touch()),
        of("a folder of an older torchvision", run, says="processed",
           before=lambda here: _older(here / "data" / "MNIST" / "processed")),
        of("packed files that are cut, no network", run, says=r"MNIST.*(DP_DATA_ROOT|data_root)", before=_cut_packed),
        of("a class that torchvision lacks", (*run, "dataset.name=NoSuch"), says="no data set named NoSuch"),
        of("a class without train and test", (*run, "dataset.name=ImageFolder"), says="ImageFolder"),
        of("a made-up class", (*run, "dataset.name=FakeData"), says="FakeData"),
        of("a class that needs a download", (*run, "dataset.name=USPS"), says="USPS"),
        of("a function", (*run, "dataset.name=wrap_dataset_for_transforms_v2"), says="no data set named"),
        of("a class of videos", (*run, "dataset.name=UCF101"), says="UCF101"),
    ]  # fmt: skip
    return found


def _older(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "training.pt").touch()


def _cut_packed(here: Path) -> None:
    folder = here / "data" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / f"{_TRAIN}.gz").write_bytes(gzip.compress(b"x" * 9999)[:-5])
