"""The papers' data sets: their original files, and the statistics of their training images' channels.

A run is identified by its config, which names its data. So a name must always mean the same images: a damaged,
truncated, swapped or foreign file is named.
"""

import gzip
import hashlib
import shlex
import zlib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.data import DataError
from runner.files import content_of

if TYPE_CHECKING:  # pages are made without PyTorch
    from torch import Tensor

FOLDERS = {"MNIST": "MNIST/raw", "FashionMNIST": "FashionMNIST/raw", "CIFAR10": "cifar-10-batches-py"}
_FILES = {  # bytes and SHA-256 of each file
    "MNIST": {
        "t10k-images-idx3-ubyte": (7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        "t10k-labels-idx1-ubyte": (10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
        "train-images-idx3-ubyte": (47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        "train-labels-idx1-ubyte": (60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    },
    "FashionMNIST": {
        "t10k-images-idx3-ubyte": (7840016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
        "t10k-labels-idx1-ubyte": (10008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
        "train-images-idx3-ubyte": (47040016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
        "train-labels-idx1-ubyte": (60008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    },
    "CIFAR10": {
        "batches.meta": (158, "f962466ef690d46b226450fb9aadc74ba4bc64a76aa526b5827fe4bc5c7125cb"),
        "data_batch_1": (31035704, "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd"),
        "data_batch_2": (31035320, "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8"),
        "data_batch_3": (31035999, "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9"),
        "data_batch_4": (31035696, "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b"),
        "data_batch_5": (31035623, "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154"),
        "test_batch": (31035526, "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831"),
    },
}


# By torchvision's name, of the training images: each channel's mean and deviation. On CIFAR-10 the third is the mean
# over images of an image's own deviation, which is as common.
CHANNELS = {
    "MNIST": ([0.1307], [0.3081]),
    "FashionMNIST": ([0.2860], [0.3530]),
    "CIFAR10": ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616], [0.2023, 0.1994, 0.2010]),
}
_NOTHING, _CENTRED = 0.01, 1e-5  # of a mean: of a part of the images, or, relative to the largest number, of all
_CLOSE = 0.002  # constants that differ by no more are the same statistic, written with fewer digits


def known(name: str) -> bool:
    """Return True if the original files of a data set are known, so that its name always means the same images."""
    return name in _FILES


def missing(name: str, root: Path) -> list[Path]:
    """Check the files of a data set.

    Returns:
        The original files that are not there. None of a data set that has no known files.

    Raises:
        DataError: there is another file in place of an original one.
    """
    absent = []
    for file, (size, digest) in _FILES.get(name, {}).items():
        path = root / FOLDERS[name] / file
        if (path / file).is_file():  # some archives have a folder for each file, of the same name
            absent.append(path)
            continue
        try:
            content = content_of(path)
        except (FileNotFoundError, NotADirectoryError):
            absent.append(path)
            continue
        except OSError as error:
            reason = f"cannot be read ({error.strerror})"
        else:
            actual = hashlib.sha256(content).hexdigest()
            if actual == digest:
                continue
            reason = "is not the original file: its bytes differ"
            if len(content) != size:
                reason = f"has {len(content)} of {size} bytes"
            for other, files in _FILES.items():
                for original in (original for original, (_, sha) in files.items() if sha == actual):
                    reason = f"is {original} of {other}"
        raise DataError(
            f"{path} {reason}: move it away, and the next run downloads {name} again, or put the original file there."
        )
    return absent


def elsewhere(name: str, root: Path, absent: Sequence[Path]) -> str | None:
    """Return the commands that put original files into place which lie near it under other names, or None.

    Other distributions have `train-images.idx3-ubyte`, a folder for each file, or files that were compressed again.
    All files below the data set's folder and those in `root` count, by their content. Links are followed.

    Args:
        absent: the original files that are missing.
    """
    if not absent:
        return None

    def digest(path: Path) -> str | None:
        """Return the SHA-256 of a file's content, unpacked if it is compressed. None if no original has that size."""
        try:
            if path.suffix == ".gz" and path.is_file():
                with gzip.open(path) as file:
                    content = file.read(max(sizes) + 1)
            else:
                content = content_of(path) if path.is_file() and path.stat().st_size in sizes else b""
        except (OSError, EOFError, zlib.error):
            return None
        return hashlib.sha256(content).hexdigest() if len(content) in sizes else None

    sizes = {size for size, _ in _FILES[name].values()}
    near = [*root.glob("*"), *root.glob("*/*"), *(root / Path(FOLDERS[name]).parts[0]).glob("**/*")]
    paths = {digest(path): path for path in near}
    commands = []
    for path in absent:
        if (other := paths.get(_FILES[name][path.name][1])) is None:
            continue
        if other.is_relative_to(path):  # a folder with the name of the file
            aside = path.with_name(f"{path.name}.folder")
            commands.append(f"mv {shlex.quote(str(path))} {shlex.quote(str(aside))}")
            other = aside / other.relative_to(path)
        elif not path.parent.is_dir():
            commands.append(f"mkdir -p {shlex.quote(str(path.parent))}")
        unpacked, copied = ("gzip -cd", " > ") if other.suffix == ".gz" else ("cp", " ")
        commands.append(f"{unpacked} {shlex.quote(str(other))}{copied}{shlex.quote(str(path))}")
    if not commands:
        return None
    return (
        f"{absent[0]} is missing, but files of {name} are there under other names. This puts them into place: "
        f"{' && '.join(commands)}"
    )


def private_statistics(config: Mapping[str, Any]) -> str | None:
    """Return the reason why features cost privacy that no ledger holds, in one sentence, or None.

    A map of single images costs nothing if its constants are public. If a `mean` or `std` of features or network is a
    statistic of the training images, a neighbouring data set has another one, and nothing is charged for its release.
    The values tell such statistics, so this holds for recorded configs, too. Of data sets that are not in `CHANNELS`
    the images tell them (`standardised`). A class of torchvision counts by its own name.

    >>> config = {"features": {"mean": [0.1307], "std": [0.3081]}, "architecture": {}, "dataset": {"name": "MNIST"}}
    >>> private_statistics(config)
    "The features have statistics of MNIST's training images as constants, which no ledger holds."
    >>> print(private_statistics(config | {"dataset": {"name": "FashionMNIST"}}))
    None
    """
    dataset = config["dataset"]
    name = dataset.get("name") or str(dataset["_target_"]).rpartition(".")[2]
    constants = [
        config.get(group, {}).get(field) for group in ("features", "architecture") for field in ("mean", "std")
    ]
    if not any(_close(*pair) for pair in product(constants, CHANNELS.get(name, ()))):
        return None
    return f"The features have statistics of {name}'s training images as constants, which no ledger holds."


def standardised(images: "Tensor") -> bool:
    """Return True if images [examples, channels, ...] are standardised, or centred, by their own statistics.

    That is, by what all of them have together: each image may be standardised by itself.
    """
    by_image = images.flatten(2).mean(2) if images.dim() > 2 else images
    if by_image.std(0).max() > _NOTHING and by_image.mean(0).abs().max() <= _NOTHING:
        deviations = images.std([place for place in range(images.dim()) if place != 1])
        if ((deviations == 0) | ((deviations - 1).abs() <= _NOTHING)).all():
            return True
    return bool(0 < images.mean(0).abs().max() <= _CENTRED * images.abs().max())


def _close(constants: Any, statistic: list[float]) -> bool:
    constants = [constants] if isinstance(constants, float) else constants
    try:
        return all(abs(constant - number) <= _CLOSE for constant, number in zip(constants, statistic, strict=True))
    except (TypeError, ValueError):  # of a user's class: no numbers, or other channels
        return False
