"""Data: the bundled digits, the real sets where this machine has them, and what is said where it has not."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from runner.data import BUNDLED_TEST, BUNDLED_TRAIN, DataError
from runner.data.datasets import ImageDataset, OwnDataset, Split, hold_out

MNIST = {"name": "MNIST", "shape": [1, 28, 28], "classes": 10, "train_examples": 60_000, "test_examples": 10_000}


@pytest.mark.parametrize("shape", [[1, 28, 28], [3, 32, 32]])
def test_bundled_digits(shape: list[int]) -> None:
    train, test = ImageDataset("MNIST", shape, 10, BUNDLED_TRAIN, BUNDLED_TEST, bundled=True).load("/nowhere")
    assert (len(train), len(test), train.images.dtype, train.targets.dtype) == (1438, 359, torch.float32, torch.int64)
    digits, tested = load_digits(), torch.arange(1797) % 5 == 4
    labels, pictures = torch.from_numpy(digits.target), torch.from_numpy(digits.images).float()[:, None] / 16
    enlarged = nn.functional.interpolate(pictures, shape[1:], mode="bilinear").expand(-1, *shape)
    for split, chosen in ((train, ~tested), (test, tested)):
        assert torch.equal(split.targets, labels[chosen])
        assert torch.equal(split.images, enlarged[chosen])
    pixels = torch.cat([train.images, test.images]).flatten(1)
    assert len(pixels.unique(dim=0)) == len(pixels), "no test image is a training image"


def _write_idx(path, array: torch.Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.dim()]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    path.write_bytes(header + array.numpy().tobytes())


def write_mnist_files(root, train: int, test: int, name: str = "KMNIST") -> None:
    for prefix, count in (("train", train), ("t10k", test)):
        pixels = torch.full((count, 28, 28), 51, dtype=torch.uint8)
        _write_idx(root / f"{name}/raw/{prefix}-images-idx3-ubyte", pixels)
        _write_idx(root / f"{name}/raw/{prefix}-labels-idx1-ubyte", torch.arange(count, dtype=torch.uint8) % 10)


def test_reads_the_original_files(tmp_path) -> None:
    write_mnist_files(tmp_path, 30, 20)
    train, test = ImageDataset("KMNIST", [1, 28, 28], 10, 30, 20).load(tmp_path)
    assert (len(train), len(test)) == (30, 20)
    torch.testing.assert_close(train.images[0], torch.full((1, 28, 28), 0.2))
    for split in (train, test):
        assert torch.equal(split.targets, torch.arange(len(split)) % 10)


@pytest.mark.parametrize(("name", "message"), [("KMNIST", "30 for training"), ("MNIST", "has 15696 of 7840016 bytes")])
def test_other_sizes_and_other_images_than_named_are_refused(tmp_path, name: str, message: str) -> None:
    """The sampling rate is B / N, so another size would be charged wrongly, and other images be judged as MNIST."""
    write_mnist_files(tmp_path, 30, 20, name)
    with pytest.raises(DataError, match=message):
        ImageDataset(**(MNIST | {"name": name})).load(tmp_path)


def test_processed_files_in_place_of_the_originals_are_refused(tmp_path) -> None:
    """torchvision looks for processed/training.pt before it looks for the original files."""
    write_mnist_files(tmp_path, 30, 20)
    processed = tmp_path / "KMNIST" / "processed"
    processed.mkdir()
    for split in ("training", "test"):
        torch.save((torch.zeros(30, 28, 28, dtype=torch.uint8), torch.zeros(30).long()), processed / f"{split}.pt")
    with pytest.raises(DataError, match=r"KMNIST/processed holds files .* move that folder away"):
        ImageDataset("KMNIST", [1, 28, 28], 10, 30, 20).load(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MNIST", r"MNIST/raw, or set DP_DATA_ROOT"),
        ("NoSuch", "torchvision has no data set named NoSuch"),
        ("ImageFolder", "ImageFolder has neither an argument train=True nor split='train'"),
        ("USPS", "USPS cannot be read from"),
        ("SVHN", "SVHN cannot be read from"),  # its argument is split="train"
    ],
)
def test_names_without_usable_images_are_refused_in_a_sentence(tmp_path, monkeypatch, name: str, message: str) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(DataError, match=message) as error:
        ImageDataset(**(MNIST | {"name": name})).load(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("change", [{"shape": [28, 28]}, {"classes": 0}, {"train_examples": 0}])
def test_impossible_sizes_are_refused(change: dict) -> None:
    with pytest.raises(ValueError, match=r"dataset\."):
        ImageDataset(**(MNIST | change))


def test_hold_out_takes_the_last_twelfth() -> None:
    train, held_out = hold_out(Split(torch.arange(60_000), torch.arange(60_000)))
    assert (len(train), len(held_out)) == (55_000, 5_000)
    assert held_out.targets[0] == 55_000


def own(**changes: object) -> SimpleNamespace:
    """A data set of 6,000 and 600 images sorted by their 10 classes, each filled with its number in the split."""
    sizes = {"shape": (1, 2, 2), "classes": 10, "train_examples": 6000, "test_examples": 600}

    def split(count: int) -> Split:
        return Split(torch.arange(float(count)).view(-1, 1, 1, 1).repeat(1, 1, 2, 2), torch.arange(count) * 10 // count)

    return SimpleNamespace(**(sizes | {"load": lambda root: (split(6000), split(600))} | changes))


def test_a_users_data_set_has_the_bundled_size_at_smoke_scale() -> None:
    """Of a split that is sorted by classes, every class has its share."""
    small = OwnDataset(own(), small=True)
    train, test = small.load("/nowhere")
    assert (len(train), len(test)) == (small.train_examples, small.test_examples) == (BUNDLED_TRAIN, BUNDLED_TEST)
    assert torch.bincount(train.targets).min() == BUNDLED_TRAIN // 10
    assert len(train.images.unique(dim=0)) == BUNDLED_TRAIN
    stated = OwnDataset(own(), small=False)
    assert (len(stated.load("/nowhere")[0]), stated.train_examples, stated.test_examples) == (6000, 6000, 600)


def test_a_data_set_of_ones_own_without_a_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'classes': a data set has `shape`"):
        OwnDataset(SimpleNamespace(shape=(1, 2, 2)), small=False)


class Pair(NamedTuple):
    images: torch.Tensor
    targets: torch.Tensor


@pytest.mark.parametrize("small", [False, True])
def test_a_split_of_ones_own_type_has_its_examples_once(small: bool) -> None:
    """Its length may be another: this pair has the length 2."""
    pairs = [Pair(*vars(split).values()) for split in own().load("")]
    images = OwnDataset(own(load=lambda root: pairs), small).load("")[0].images
    assert len(images.unique(dim=0)) == len(images) == (BUNDLED_TRAIN if small else 6000)


def loads(images: object) -> SimpleNamespace:
    split = Split(images, torch.zeros(6000, dtype=torch.int64))  # type: ignore[arg-type]
    return own(load=lambda root: (split, split), test_examples=6000)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (own(train_examples=7000), r"images \[6000, 1, 2, 2\] .* but it states \[7000, 1, 2, 2\]"),
        (own(shape=(3, 2, 2)), "but it states"),
        (own(classes=9), "not in 0 to 8"),
        (own(load=lambda root: None), "has to return the training and the test split: TypeError: cannot unpack"),
        (loads([1, 2]), "loads a list: expected a plain tensor"),
        (loads(torch.full((6000, 1, 2, 2), torch.nan)), "a training image, number 0, with a number that is not finite"),
    ],
)
def test_faults_in_a_users_data_set_are_explained_in_a_sentence(wrong: SimpleNamespace, message: str) -> None:
    """The sampling rate is B / N, so a training set of another size than stated would be charged wrongly."""
    with pytest.raises(DataError, match=message):
        OwnDataset(wrong, small=False).load("/nowhere")
