"""Files in place of the original ones are named, with the difference."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from runner.data import DataError, originals

CONTENT = {"images": b"pixels" * 9, "labels": b"digits"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The whole files of a data set, next to another one whose images are the same length."""
    known = {"A": CONTENT, "B": {"images": b"prices" * 9}}
    hashed = {
        name: {file: (len(content), hashlib.sha256(content).hexdigest()) for file, content in files.items()}
        for name, files in known.items()
    }
    monkeypatch.setattr(originals, "_FILES", hashed)
    monkeypatch.setattr(originals, "FOLDERS", {"A": "a", "B": "b"})
    for file, content in CONTENT.items():
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / file).write_bytes(content)
    return tmp_path / "a"


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _unreadable(path: Path) -> None:
    path.unlink()
    path.symlink_to("/proc/self/mem")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(b""), "has 0 of 54 bytes"),
        (lambda path: path.write_bytes(CONTENT["images"] * 2), "has 108 of 54 bytes"),
        (lambda path: path.write_bytes(b"q" + CONTENT["images"][1:]), "its bytes differ"),
        (lambda path: path.write_bytes(CONTENT["labels"]), "is labels of A"),
        (lambda path: path.write_bytes(b"prices" * 9), "is images of B"),
        (_pipe, "it is not a file"),
        (_folder, "it is not a file"),
        (_unreadable, "cannot be read|0 of 54 bytes"),
    ],
)
def test_a_wrong_file_is_named_with_its_difference(folder: Path, damage: Any, said: str) -> None:
    damage(folder / "images")
    with pytest.raises(DataError, match=f"{folder}/images .*{said}.*: move it away"):
        originals.missing("A", folder.parent)


def test_whole_files_pass_and_absent_ones_are_listed(folder: Path) -> None:
    assert originals.missing("A", folder.parent) == []
    (folder / "labels").unlink()
    assert originals.missing("A", folder.parent) == [folder / "labels"]
    assert originals.missing("B", folder.parent) == [folder.parent / "b" / "images"]
    assert originals.missing("SVHN", folder.parent) == []
