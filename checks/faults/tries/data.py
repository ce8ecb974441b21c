"""Damaged, truncated, swapped and foreign files of data sets."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from checks.faults.tries.attempt import Try

_DATA = Path(os.environ.get("DP_DATA_ROOT") or "~/.cache/dp-data").expanduser()
_TRAIN = "train-images-idx3-ubyte"
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


def _other(path: Path, original: Path) -> None:
    path.symlink_to(_DATA / _folder("mnist") / original.name)


def _unreadable(path: Path, original: Path) -> None:
    path.symlink_to("/proc/self/mem")


def _running_code(path: Path, original: Path) -> None:
    path.write_text("cos\nsystem\n(S'touch ran'\ntR.", encoding="utf-8")


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
    add("mnist", _TRAIN, "is truncated", _truncated, bytes_)
    add("mnist", _TRAIN, "has a wrong byte", _flipped, "not the original")
    add("mnist", _TRAIN, "is a pipe", lambda path, original: os.mkfifo(path), "not a file")
    add("mnist", _TRAIN, "cannot be read", _unreadable, "read|not a file|bytes")
    add("fashion_mnist", _TRAIN, "holds MNIST", _other, "MNIST|not the original")
    add("cifar10", "test_batch", "is a pickle that runs code", _running_code, bytes_)
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
