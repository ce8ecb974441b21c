"""ScatterNet features, the cache that never gives others than those asked for, and random views of images."""

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch

from runner.data import DataError
from runner.data.augmentation import Views
from runner.data.features import Pixels, ScatterNet, kept
from runner.terminal import Line


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "dp-repro-bench" / "features"


def pictures(channels: int = 1, size: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.rand(5, channels, size, size, generator=torch.Generator().manual_seed(seed))


def test_values() -> None:
    """Order 0 of a constant is the constant, wavelets see nothing in it; image channels stay apart and in order."""
    images = torch.stack([torch.full((28, 28), value) for value in (0.2, 0.5, 0.9)])[None]
    features = ScatterNet(2, 8, [0.1, 0.1, 0.1], [1.0, 2.0, 4.0])(images).view(3, 81, 7, 7)
    expected = torch.tensor([0.1, 0.2, 0.2]).view(3, 1, 1).expand(3, 7, 7)
    torch.testing.assert_close(features[:, 0], expected)
    torch.testing.assert_close(features[:, 1:], torch.zeros(3, 80, 7, 7), rtol=0, atol=1e-5)


def test_a_photograph_does_not_expand() -> None:
    """Sum over channels and positions of the squares is at most the image's energy over 2^2J (here with a margin)."""
    images = pictures(size=28)
    energy = ScatterNet(2, 8)(images).square().sum(dim=(1, 2, 3))
    assert (energy <= 1.1 * images.square().sum(dim=(1, 2, 3)) / 16).all()


def test_one_example_at_a_time_is_the_same() -> None:
    images, features = pictures(), ScatterNet(2, 4)
    together = features(images)
    assert list(together.shape) == [len(images), *features.shape(list(images.shape[1:]))]
    for i in range(len(images)):
        torch.testing.assert_close(features(images[i : i + 1])[0], together[i])


def test_computed_once_with_or_without_memory_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written into features stays in the process."""

    def no_map(*_: object, **__: object) -> None:
        raise RuntimeError("unable to mmap 1 bytes from file <x>: No such device (19)")

    features = ScatterNet(2, 4)(pictures())
    expected = features.clone()
    features.zero_()
    monkeypatch.setattr(ScatterNet, "_pieces", lambda *_: pytest.fail("computed again"))
    assert torch.equal(ScatterNet(2, 4)(pictures()), expected)
    monkeypatch.setattr(torch, "from_file", no_map)
    assert torch.equal(ScatterNet(2, 4)(pictures()), expected)


def test_every_other_question_is_another_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = pictures(3)
    changed[4, 2, 7, 7] += 1e-6
    asked = [
        (ScatterNet(2, 4), pictures(3)),
        (ScatterNet(1, 4), pictures(3)),
        (ScatterNet(2, 5), pictures(3)),
        (ScatterNet(2, 4, [0.5] * 3, [1.0] * 3), pictures(3)),
        (ScatterNet(2, 4), changed),
        (ScatterNet(2, 4), pictures(3)[:4]),
        (ScatterNet(2, 4), pictures(3).reshape(15, 1, 8, 8)),
    ]
    for features, images in asked:
        features(images)
    monkeypatch.setattr("kymatio.__version__", "0.3.99")
    ScatterNet(2, 4)(pictures(3))
    assert len(list(folder.glob("*.scatternet"))) == len(asked) + 1


@pytest.mark.parametrize("damage", ["a bit", "the end", "open to others"])
def test_a_damaged_file_is_computed_again(damage: str, folder: Path, capsys) -> None:
    features, images = ScatterNet(2, 4), pictures()
    first = features(images).clone()
    (path,) = folder.glob("*.scatternet")
    content = bytearray(path.read_bytes())
    if damage == "a bit":
        content[1000] ^= 1
    path.write_bytes(content[:-4] if damage == "the end" else content)
    if damage == "open to others":  # anybody could have written it, digest and all
        path.chmod(0o664)
    assert torch.equal(features(images), first)
    assert "damaged" in capsys.readouterr().err
    features(images)
    assert "damaged" not in capsys.readouterr().err


def test_an_interrupted_computation_leaves_nothing(folder: Path) -> None:
    def broken():
        yield torch.zeros(2, 3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept("some.rows", [4, 3], broken, Line())
    assert [path.name for path in folder.iterdir()] == ["some.lock"]
    assert torch.equal(kept("some.rows", [4, 3], lambda: [torch.ones(4, 3)], Line()), torch.ones(4, 3))


def test_a_folder_that_cannot_be_written_is_said_in_one_sentence(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(DataError, match="XDG_CACHE_HOME") as error:
        ScatterNet(2, 4)(pictures())
    assert "\n" not in str(error.value)


def _compute_in_a_process(log: Path, start, answers) -> None:
    def pieces():
        with log.open("a") as file:
            file.write("computed\n")
        for i in range(50):
            yield torch.full((100, 40), float(i))

    start.wait()
    answers.put(kept("some.rows", [5000, 40], pieces, Line()).sum().item())


def test_processes_at_once_compute_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    answers, start, log = context.Queue(), context.Event(), tmp_path / "log"
    processes = [context.Process(target=_compute_in_a_process, args=(log, start, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    start.set()
    assert {answers.get(timeout=60) for _ in processes} == {100.0 * 40 * sum(range(50))}
    for process in processes:
        process.join()
    assert log.read_text() == "computed\n"


def test_pixels_standardises_by_channel() -> None:
    images = torch.rand(4, 3, 2, 2)
    features = Pixels([0.1, 0.2, 0.3], [1.0, 2.0, 4.0])(images)
    torch.testing.assert_close(features[:, 1], (images[:, 1] - 0.2) / 2)
    assert Pixels()(images) is images


@pytest.mark.parametrize(
    ("part", "arguments"),
    [
        *((Pixels, arguments) for arguments in (([0.0], None), ([0.0], [0.0]), ([0.0, 1.0], [1.0]))),
        *((ScatterNet, arguments) for arguments in ((5, 8), (0, 8), (2, 8, [0.5], None))),
        *((Views, arguments) for arguments in ((0,), (1, -1), (1, 4, "x"))),
    ],
)
def test_odd_sizes_and_meaningless_settings_are_refused(part, arguments) -> None:
    with pytest.raises(ValueError, match=r"features\.|augmentation\."):
        part(*arguments).shape([1, 28, 28])


@pytest.mark.parametrize(("fill", "mode"), [("reflect", "reflect"), ("zeros", "constant")])
def test_a_view_is_a_crop_of_the_padded_image_reflected_or_not(fill: str, mode: str) -> None:
    views = Views(views=5, padding=2, fill=fill)
    images = torch.rand(4, 3, 8, 5)
    numbers = views.draw(4, torch.Generator().manual_seed(0))
    images_seen = views(images, numbers)
    assert images_seen.shape == (4, 5, 3, 8, 5)
    for example in range(4):
        padded = np.pad(images[example].numpy(), ((0, 0), (2, 2), (2, 2)), mode=mode)
        for view in range(5):
            row, column, flipped = numbers[example, view].tolist()
            expected = padded[:, row : row + 8, column : column + 5]
            np.testing.assert_array_equal(images_seen[example, view], expected[..., ::-1] if flipped else expected)
    assert views(images[:0], numbers[:0]).shape == (0, 5, 3, 8, 5)


def test_all_crops_and_reflections_are_drawn_alike() -> None:
    numbers = Views(views=2, padding=1).draw(20_000, torch.Generator().manual_seed(0)).flatten(0, 1)
    counts = torch.bincount((numbers[:, 0] * 3 + numbers[:, 1]) * 2 + numbers[:, 2], minlength=18)
    assert counts.min() > 0.9 * 40_000 / 18
    assert counts.max() < 1.1 * 40_000 / 18
    assert Views(views=2, flip=False).draw(100, torch.Generator())[..., 2].max() == 0
