"""Files in place of the original ones are named; constants are told to be statistics of the training images."""

import gzip
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from runner.config import REPOSITORY
from runner.data import DataError, originals
from runner.data.originals import CHANNELS, private_statistics, standardised

CONTENT = {"images": b"pixels" * 9, "labels": b"digits"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The whole files of a data set, next to another one whose images are the same length."""
    data_sets = {"A": CONTENT, "B": {"images": b"prices" * 9}}
    hashed = {
        name: {file: (len(content), hashlib.sha256(content).hexdigest()) for file, content in files.items()}
        for name, files in data_sets.items()
    }
    monkeypatch.setattr(originals, "_FILES", hashed)
    monkeypatch.setattr(originals, "FOLDERS", {"A": "a", "B": "b"})
    for file, content in CONTENT.items():
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / file).write_bytes(content)
    return tmp_path / "a"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b""), "has 0 of 54 bytes"),
        (lambda path: path.write_bytes(b"q" + CONTENT["images"][1:]), "its bytes differ"),
        (lambda path: path.write_bytes(b"prices" * 9), "is images of B"),
        (lambda path: (path.unlink(), path.mkdir()), "it is not a file"),
    ],
)
def test_a_wrong_file_is_named_with_its_difference(folder: Path, damage: Any, message: str) -> None:
    damage(folder / "images")
    with pytest.raises(DataError, match=f"{folder}/images .*{message}.*: move it away"):
        originals.missing("A", folder.parent)


@pytest.mark.parametrize("place", ["a/images/images", "other/images", "a/deep/er/images.gz"])
def test_a_file_under_another_name_is_put_into_place(folder: Path, place: str) -> None:
    """Other distributions rename the files, compress them again, or have a folder for each."""
    (folder / "images").unlink()
    other = folder.parent / place
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_bytes(gzip.compress(CONTENT["images"]) if place.endswith(".gz") else CONTENT["images"])
    absent = [folder / "images"]
    assert originals.missing("A", folder.parent) == absent
    advice = originals.elsewhere("A", folder.parent, absent)
    assert advice is not None
    assert "files of A are there under other names" in advice
    subprocess.run(advice.partition("into place: ")[2], shell=True, check=True)
    assert originals.missing("A", folder.parent) == []


def test_foreign_files_are_no_advice(folder: Path) -> None:
    (folder / "images").rename(folder / "pictures")
    (folder / "pictures").write_bytes(b"q" + CONTENT["images"][1:])
    (folder / "broken.gz").write_bytes(b"no archive")
    assert originals.elsewhere("A", folder.parent, [folder / "images"]) is None
    assert originals.elsewhere("SVHN", folder.parent, []) is None


def test_whole_files_pass_and_absent_ones_are_listed(folder: Path) -> None:
    assert originals.missing("A", folder.parent) == []
    (folder / "labels").unlink()
    assert originals.missing("A", folder.parent) == [folder / "labels"]
    assert originals.missing("B", folder.parent) == [folder.parent / "b" / "images"]
    assert originals.missing("SVHN", folder.parent) == []


MNIST, OWN = {"name": "MNIST"}, {"_target_": "torchvision.datasets.CIFAR10", "root": "x"}


@pytest.mark.parametrize(
    ("mean", "std", "dataset", "private"),
    [
        ([0.1307], [0.3081], MNIST, True),
        ([0.5], [0.31], MNIST, True),  # one of the two is enough, with fewer digits
        ([0.5], [0.5], MNIST, False),
        (None, None, MNIST, False),
        ([0.1307], [0.3081], {"name": "FashionMNIST"}, False),  # another data set's
        ([0.4914, 0.4822, 0.4465], [1.0, 1.0, 1.0], OWN, True),  # torchvision's own class
        (["a", "b", "c"], [0.4914], {"name": "CIFAR10"}, False),
        (0.1307, 0.3081, MNIST, True),  # a number for the only channel
    ],
)
def test_which_constants_are_statistics_of_training_images(mean, std, dataset, private: bool) -> None:
    constants = {"mean": mean, "std": std}
    for features, architecture in ((constants, {}), ({}, constants)):
        config = {"features": features, "architecture": architecture, "dataset": dataset}
        assert bool(private_statistics(config)) == private


IMAGES = torch.rand(300, 2, 6, 6, generator=torch.Generator().manual_seed(0)) ** 3
BY_CHANNEL, EXAMPLES, BY_IMAGE = (0, 2, 3), 0, (2, 3)


@pytest.mark.parametrize(
    ("images", "by", "private"),
    [
        (IMAGES, BY_CHANNEL, True),
        (IMAGES.flatten(1), EXAMPLES, True),  # as scikit-learn's StandardScaler does
        (IMAGES, EXAMPLES, True),  # the mean image, too
        (IMAGES, BY_IMAGE, False),  # each image by itself
    ],
)
def test_images_tell_that_their_own_statistics_were_used(images, by, private: bool) -> None:
    centred = images - images.mean(by, keepdim=True)
    assert standardised(centred / images.std(by, keepdim=True)) == private
    assert not standardised(images)
    assert standardised(centred) == (by == EXAMPLES)


@pytest.mark.parametrize("path", sorted((REPOSITORY / "conf" / "dataset").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_data_set_has_the_statistics_of_its_images(path: Path) -> None:
    """They are measured where this machine has the images."""
    option = OmegaConf.load(path)
    stated = CHANNELS[option.name]
    try:
        train, _ = instantiate(option, _convert_="all").load(os.environ.get("DP_DATA_ROOT", "~/.cache/dp-data"))
    except DataError:
        pytest.skip(f"{option.name} is not here")
    deviations = train.images.std((0, 2, 3)), train.images.std((2, 3)).mean(0)
    for measured, statistic in zip((train.images.mean((0, 2, 3)), *deviations), stated, strict=False):
        assert measured.tolist() == pytest.approx(statistic, abs=1e-4)
