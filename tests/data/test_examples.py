"""Data sets that a user brings: of torchvision's kind in each layout, tensors, and sequences of images with labels."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from PIL import Image
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset
from torchvision.datasets import ImageFolder

from runner.build.prepare import prepare
from runner.data.datasets import OwnDataset
from runner.data.examples import Examples
from runner.training.loop import load

LABELS = [0, 2, 1, 2]
PIXELS = torch.arange(4 * 3 * 5 * 6, dtype=torch.uint8).view(4, 3, 5, 6)


class Half:
    """Has all images in `data`, but only the first half of them as items, with other labels."""

    data, targets = PIXELS.numpy(), LABELS

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return PIXELS[range(2)[place]], LABELS[place] + 5


def test_examples_are_the_items_where_a_class_has_its_own() -> None:
    split = Examples.of((Half(), Half())).splits[0]
    assert split.targets.tolist() == [5, 7]
    torch.testing.assert_close(split.images, PIXELS[:2] / 255)


@pytest.mark.parametrize(
    "wrong", [(PIXELS, torch.tensor(LABELS)), (1, 2), ((PIXELS, LABELS),), [None, None], [(PIXELS, torch.ones(1))] * 2]
)
def test_what_is_no_pair_of_splits_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="expected the training and the test examples"):
        Examples.of(wrong)


class Items:
    """Items one by one, as from files."""

    def __init__(self, images: Any, labels: Sequence[int], **attributes: Any) -> None:
        self.images, self.marks = images, labels
        vars(self).update(attributes)

    def __len__(self) -> int:
        return len(self.marks)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return self.images[place], self.marks[place]


GREY = np.arange(24, dtype=np.uint16).reshape(4, 1, 6) * 2849  # 0 to 65527
EIGHT = (GREY // 257).astype(np.uint8)


@pytest.mark.parametrize(
    "images",
    [
        *(GREY, GREY.astype(">u2"), GREY.astype(np.int64), torch.from_numpy(GREY)),
        *(EIGHT, EIGHT.astype(np.int64), (EIGHT / 255).astype(np.float16)),
    ],
)
def test_pixels_have_the_scale_of_their_type(images: Any) -> None:
    split = Examples.of(((images, LABELS), (images, np.array(LABELS)))).splits[0]
    torch.testing.assert_close(split.images, torch.from_numpy(GREY / 65535).float()[:, None], rtol=0, atol=1 / 255)
    assert split.images.is_contiguous()
    assert split.targets.tolist() == LABELS


U8 = np.arange(256, dtype=np.uint8).repeat(3)[: 40 * 16].reshape(40, 4, 4)
U8[0, 0, 0] = 255
Y = np.arange(40) % 5
COLOUR = np.stack([U8, U8, U8], -1)


def pictures(mode: str, numbers: Any = U8) -> Items:
    return Items([Image.fromarray(image).convert(mode) for image in numbers], Y)


READ = {  # examples, the shape of an image, the range that is trained on
    "torchvision's SVHN": (SimpleNamespace(data=COLOUR.transpose(0, 3, 1, 2), labels=Y), (3, 4, 4), (0, 1)),
    "torchvision's CIFAR-10": (SimpleNamespace(data=COLOUR.repeat(2, 1), targets=Y.tolist()), (3, 8, 4), (0, 1)),
    "torchvision's KMNIST": (
        SimpleNamespace(data=torch.from_numpy(U8), targets=torch.from_numpy(Y)),
        (1, 4, 4),
        (0, 1),
    ),
    "tensors": (TensorDataset(torch.from_numpy(U8 / 255), torch.from_numpy(Y)), (1, 4, 4), (0, 1)),
    "int16": ((U8.astype(np.int16), Y), (1, 4, 4), (0, 1)),
    "truth values": ((U8 > 127, Y), (1, 4, 4), (0, 1)),
    "floats to 255": ((U8.astype(np.float64), Y), (1, 4, 4), (0, 255)),
    "standardized": (((U8 / 255 - 0.13) / 0.31, Y), (1, 4, 4), (-0.4194, 2.806)),
    "a gradient": ((torch.from_numpy(U8 / 255).requires_grad_(), Y), (1, 4, 4), (0, 1)),
    "mirrored views": ((U8[:, ::-1, ::-1], Y[::1]), (1, 4, 4), (0, 1)),
    "channels last": ((np.repeat(COLOUR, 2, 1), Y), (3, 8, 4), (0, 1)),
    "16 small maps": ((np.repeat(U8[:, None], 16, 1), Y), (16, 4, 4), (0, 1)),
    "channels first": ((COLOUR.transpose(0, 3, 1, 2), Y), (3, 4, 4), (0, 1)),
    "mode P": (pictures("P"), (3, 4, 4), (0, 1)),
    "mode PA": (pictures("PA"), (4, 4, 4), (0, 1)),
    "mode I;16": (Items(list(map(Image.fromarray, U8.astype(np.uint16) * 257)), Y), (1, 4, 4), (0, 1)),
    "two lists": ((U8.tolist(), Y.tolist()), (1, 4, 4), (0, 1)),
    "concatenated": (ConcatDataset([Items(U8, Y), Items(U8, Y)]), (1, 4, 4), (0, 1)),
    "texts of digits": ((U8, [str(label) for label in Y]), (1, 4, 4), (0, 1)),
    "labels as floats": ((U8, Y.astype(float)), (1, 4, 4), (0, 1)),
    "labels as tensors": (Items(U8, torch.from_numpy(Y)), (1, 4, 4), (0, 1)),
}


@pytest.mark.parametrize("kind", READ)
def test_examples_are_read_as_they_are_meant(kind: str) -> None:
    source, shape, (lowest, highest) = READ[kind]
    dataset = OwnDataset(Examples.of((source, source)), small=False)
    for split in dataset.load("/nowhere"):
        assert tuple(split.images.shape[1:]) == shape
        limits = [float(number) for number in split.images.aminmax()]
        assert limits == pytest.approx([lowest, highest], abs=1e-3)
        assert split.targets[:40].tolist() == Y.tolist()
        assert not split.images.requires_grad
    told = [note for note in dataset.notes("/nowhere") if " training images" not in note]  # train and test are alike
    usual = lowest >= 0 and 0.5 <= highest <= 1
    assert [" images have numbers from " in note for note in told] == ([] if usual else [True])


NAMED = {name: number for number, name in enumerate("abcde")}
MOVED = {name: number for number, name in enumerate("bcde")}
REFUSED = [
    ((U8.astype(np.complex64), Y), "numbers are expected, not complex64"),
    ((U8, np.array(list("abcde"))[Y]), "numbers are expected, not str32"),
    (Items(U8, ["cat"] * 40), "example 0 cannot be read: .*'cat'"),
    (Items(U8, [0.5] * 40), r"labels have to be whole numbers, not 0\.5"),
    ((U8, np.eye(5)[Y]), r"labels of shape \[40, 5\]: give one number for each image"),
    ((U8, Y + 10**12), "1000000000004 is no label: classes are numbered from 0"),
    ((U8, Y[:-1]), "40 images with 39 labels"),
    (Items([*pictures("L").images, pictures("RGB").images[0]], [*Y, 0]), "image 40 is 3 x 4 x 4"),
    (DataLoader(TensorDataset(torch.from_numpy(U8), torch.from_numpy(Y))), "DataLoader has no items"),
    (TensorDataset(*map(torch.from_numpy, (U8, Y, Y))), "example 0 is tuple, and no pair"),
    (
        ConcatDataset([Items(U8, Y, class_to_idx=NAMED), Items(U8, Y, class_to_idx=MOVED)]),
        "class 'b' is number 0 in the training split, but in the training split 0 is 'a'",
    ),
]


@pytest.mark.parametrize(
    ("place", "hidden"),
    [
        ("a/.ipynb_checkpoints/0.png", "a/.ipynb_checkpoints"),
        ("a/._0.png", "a/._0.png"),
    ],
)
def test_hidden_copies_among_pictures_are_named(place: str, hidden: str, tmp_path: Path) -> None:
    """They would be a further class, or a person's data twice."""
    root = tmp_path / ".cache"  # a hidden folder above does not matter, nor what has no picture's name
    for path in (root / "train/a/0.png", root / "train/b/0.png", root / "test/a/0.png", root / "test/b/0.png"):
        path.parent.mkdir(parents=True)
        Image.fromarray(U8[0]).save(path)
        (path.parent / "Thumbs.db").write_bytes(b"\x00\xb0")
    train, test = (ImageFolder(str(root / split_name)) for split_name in ("train", "test"))
    assert Examples.of((train, test)).train_examples == 2
    (root / "test" / place).parent.mkdir(exist_ok=True)
    Image.fromarray(U8[0]).save(root / "test" / place)
    copies = Subset(ImageFolder(str(root / "test")), [0])
    with pytest.raises(ValueError, match=rf"test split: .*/test/{hidden} is hidden, so another .*: move it away"):
        Examples.of((train, copies))


@pytest.mark.parametrize("kind", [np.int16, np.uint32])
def test_both_splits_have_one_white(kind: Any) -> None:
    """A dark test split of 16 bits would be 257 times too bright, and one of bytes is none."""
    deep, dark = (GREY // 2).astype(kind), EIGHT.astype(kind)
    for pair, whites in (((deep, dark), (65535, 65535)), ((dark, deep), (65535, 65535)), ((deep, EIGHT), (65535, 255))):
        splits = Examples.of([(images, LABELS) for images in pair]).splits
        for split, images, white in zip(splits, pair, whites, strict=True):
            torch.testing.assert_close(split.images[:, 0], torch.from_numpy(images.astype(np.float32)) / white)


X = torch.zeros(4, 1, 5, 5)
BOTH = {"a": 0, "b": 1, "c": 2}


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        *((source, source, message) for source, message in REFUSED),
        ((torch.full((4, 5, 5), 70_000), LABELS), None, "training split: .* from 70000 to 70000, but pixels are 0 to"),
        (None, (torch.full((4, 5, 5), -1), LABELS), "test split: images of whole numbers from -1 to -1"),
        (None, Items([X[0], X[0, :, :4]], [0, 1]), "test split: image 1 is 1 x 4 x 5 .* but image 0 is 1 x 5 x 5"),
        (Items([X[0], X[0].byte()], [0, 1]), None, r"training split: image 1 is .* of torch\.uint8, but image 0"),
        (None, (X[..., :4], LABELS), "training images are 1 x 5 x 5 and test images 1 x 5 x 4"),
        (None, (X[:0], LABELS[:0]), "test split: 0 images with 0 labels"),
        (
            Items(X, LABELS, class_to_idx=BOTH),
            Subset(ConcatDataset([Items(X, LABELS, class_to_idx={"b": 0, "c": 1})]), range(4)),
            "class 'b' is number 0 in the test split, but in the training split 0 is 'a'",
        ),
        (
            Items(X, LABELS, classes=["a", "b", "c"]),
            Subset(Items(X, LABELS, classes=["a", "c", "b"]), range(4)),
            "class 'c' is number 1 in the test split, but in the training split 1 is 'b'",
        ),
    ],
)
def test_examples_that_mean_something_else_are_refused(train: Any, test: Any, message: str) -> None:
    good = X, torch.tensor(LABELS)
    with pytest.raises(ValueError, match=message):
        Examples.of((train or good, test or good))


def test_a_test_folder_may_lack_the_last_classes() -> None:
    train, test = Items(X, LABELS, class_to_idx=BOTH), Items(X, [0, 0, 0, 0], class_to_idx={"a": 0})
    assert Examples.of((train, test)).classes == 3


@pytest.mark.parametrize(
    ("train", "test", "notes"),
    [
        ((X + 1, [1, 2, 1, 2]), None, ["3 classes, of which 0 has no example"]),
        ((X + 1, [0, 1, 2, 2]), (X + 1, [1] * 4), ["3 classes, of which 0, 2 have no test example"]),
        ((X + 1, [9] * 4), None, ["10 classes, of which 0, 1, 2, 3, 4 and 4 others have no example"]),
        ((X + 254.5, LABELS), None, ["training and test images have numbers from 254.5 to 254.5, and are used as"]),
        ((X + 1, LABELS), (X + 200, LABELS), ["test images have numbers from 200 to 200, and are used as they are"]),
        ((X.byte() + 1, LABELS), None, ["training and test images have numbers from 0.003922 to 0.003922"]),
        ((X + 1, LABELS), None, []),
    ],
)
def test_what_is_unusual_in_examples_is_one_line(train: Any, test: Any, notes: list[str]) -> None:
    told = OwnDataset(Examples.of((train, test or train)), small=False).notes("/nowhere")
    told = [line for line in told if " training images" not in line]  # all images are alike
    assert len(told) == len(notes)
    assert all(line.startswith(note) for line, note in zip(told, notes, strict=True)), told


def test_copies_of_images_are_counted() -> None:
    images, labels = made(30)
    twice = Subset(TensorDataset(images, labels), [*range(20), 3, 3])
    test = Subset(TensorDataset(images, labels), range(18, 30))
    copies, tested = OwnDataset(Examples.of((twice, test)), small=False).notes("/nowhere")[:2]
    assert copies == "2 training images are copies of others, and ε protects a single copy"
    assert tested == "2 of 12 test images are training images, too, so accuracy is too high"


def made(count: int) -> tuple[Tensor, Tensor]:
    """Images of grey levels that rise from 0 to 1, and labels."""
    return torch.linspace(0, 1, count).view(-1, 1, 1, 1).expand(-1, 1, 28, 28), torch.arange(count) % 7


class Kmnist:
    """As torchvision's KMNIST."""

    def __init__(self, root: str, train: bool = True) -> None:
        assert root == "/any/where"
        images, self.targets = made(300 if train else 60)
        self.data = (255 * images[:, 0]).round().byte()


def test_a_run_loads_what_a_users_class_gives(smoke: Callable[..., DictConfig]) -> None:
    config = smoke("experiment=tempered_sigmoid/mnist_tanh", "runtime.data_root=/any/where")
    with open_dict(config):
        config.dataset = OmegaConf.create({"_target_": "tests.data.test_examples.Kmnist"})
    run = prepare(config)
    assert (run.mechanism.examples, run.dataset.classes) == (300, 7)
    for split, count in zip(load(run), (300, 60), strict=True):
        images, labels = made(count)
        torch.testing.assert_close(split.images, images, rtol=0, atol=1 / 255)
        assert torch.equal(split.targets, labels)
