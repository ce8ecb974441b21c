"""A user's data set gives the same examples in every process, or is refused, and their hash is a part of the run."""

import copy
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import DictConfig

from runner.build.groups import Group
from runner.build.parts import build_dataset
from runner.build.prepare import prepare
from runner.cli.reproduce import check_data
from runner.config import ConfigError
from runner.data.datasets import Split
from runner.data.reproducible import digest
from runner.records import identity as examples
from runner.records.disk import results_folder
from runner.records.identity import check_examples, identify, identify_recorded, recorded_config, resolved
from runner.records.jobs import Job
from runner.runs.execute import execute
from runner.training.loop import load
from tests.conftest import quietly, record_of
from tests.data.test_datasets import write_mnist_files
from tests.trust.test_sources import forget

PARTS = """
import os, random, time
from os import listdir
from pathlib import Path
import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset, random_split
X = torch.linspace(0, 1, 40)[:, None, None, None].expand(-1, 1, 4, 4).contiguous()
Y = torch.arange(40) % 2
SPLIT = [30, 10]
def both(order):
    order = torch.tensor([int(place) for place in order])
    return (X[order[:30]], Y[order[:30]]), (X[order[30:]], Y[order[30:]])
def files(names):
    names = [Path(name).name for name in names if str(name).endswith(".txt")]
    return both([int(name.partition(".")[0]) for name in names])
class Items(Dataset):
    def __init__(self, change): self.change = change
    def __len__(self): return 20
    def __getitem__(self, i): return self.change(X[i]), int(Y[i])
"""
ALIKE = {
    "random_split": "def data(): return random_split(TensorDataset(X, Y), SPLIT)",
    "NumPy and random": "def data(): return both(np.random.permutation(random.sample(range(40), 40)))",
    "flips by torch": "def data(): return Items(lambda x: x + (torch.rand(()) < 0.5)), Items(lambda x: x)",
    "from os import listdir": "def data(): return files(listdir('pictures'))",
    "os.scandir": "def data(): return files([each.path for each in os.scandir('pictures')])",
    "Path.glob": "def data(): return files(Path('pictures').glob('*.txt'))",
    "at the top": "ORDER = torch.randperm(40)\ndef data(): return both(ORDER)",
    "a class like torchvision's": "class data:\n    def __init__(self, root, train=True):\n"
    "        self.data, self.targets = (both(torch.randperm(40))[0 if train else 1])",
    "load": "from runner.data.datasets import Split\nclass data:\n    shape, classes = (1, 4, 4), 2\n"
    "    train_examples, test_examples = 30, 10\n"
    "    def load(self, root): return tuple(Split(*pair) for pair in both(torch.randperm(40)))",
}
UNLIKE = {
    "the clock": "def data(): return both(np.random.default_rng(time.time_ns()).permutation(40))",
    "shuffled in place": "ORDER = list(range(40))\ndef data():\n    random.shuffle(ORDER)\n    return both(ORDER)",
}
PICTURES = "def data(): return files(os.listdir('pictures'))"
Listed = Callable[..., DictConfig]


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smoke) -> Iterator[Listed]:
    """`listed(source)`: the config of a run with the data set `data` of a source, as a new process composes it."""
    folder = tmp_path / "started here"
    (folder / "pictures").mkdir(parents=True)
    for number in range(10, 50):
        (folder / "pictures" / f"{number - 10:02}.txt").touch()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend("")

    def make(source: str, *overrides: str) -> DictConfig:
        (folder / "own_data.py").write_text(PARTS + source)
        forget()
        examples._hashes.clear()
        random.seed()
        np.random.seed()
        torch.seed()
        of_net = ("architecture=lipschitz_mlp", "architecture.units=[4]")
        of_run = ("epochs=1", "batch_size=8", "delta=0.01", *of_net, *overrides)
        return smoke("~dataset", "+dataset._target_=own_data.data", *of_run)

    yield make
    forget()


@pytest.mark.parametrize("way", ALIKE)
def test_every_process_reads_the_same_examples(way: str, listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    first = listed(ALIKE[way])
    names, entries = os.listdir, os.scandir

    class Backwards(list):  # of another file system
        def __init__(self, *place: str) -> None:
            super().__init__(sorted(entries(*place), key=lambda entry: entry.name, reverse=True))

        def __enter__(self) -> "Backwards":
            return self

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(os, "listdir", lambda *place: sorted(names(*place), reverse=True))
    monkeypatch.setattr(os, "scandir", Backwards)
    again = listed(ALIKE[way])
    assert first.examples == again.examples
    assert len(first.examples) == 64
    assert identify(first) == identify(again)


@pytest.mark.parametrize("way", UNLIKE)
def test_examples_that_change_by_themselves_are_refused(way: str, listed: Listed) -> None:
    config = listed(UNLIKE[way])
    with pytest.raises(ConfigError, match=r"own_data\.data gives other images or labels than a moment ago"):
        execute(config, quietly)


def test_reading_leaves_the_generators_as_they_were(listed: Listed) -> None:
    config = listed(ALIKE["random_split"])
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    examples._hashes.clear()
    assert examples.examples_of(config) == config.examples
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


def test_the_hash_of_the_examples_is_in_the_record_and_its_id(listed: Listed) -> None:
    config = listed(ALIKE["random_split"])
    assert execute(config, quietly) == "finished"
    recorded = record_of(config)["config"]
    assert recorded["examples"] == config.examples
    assert identify_recorded(recorded) != identify_recorded(recorded | {"examples": "0" * 64})
    assert execute(listed(ALIKE["random_split"]), quietly) == "skipped"


def test_other_content_under_the_same_name_is_refused(listed: Listed) -> None:
    """As where a folder gets a picture between two commands of a study or a sweep."""
    first = listed(PICTURES)
    assert execute(first, quietly) == "finished"
    (Path("pictures") / "00.txt").rename(Path("pictures") / "07.5.txt")
    again = listed(PICTURES)
    assert identify(again) != identify(first)
    for use in (lambda: execute(again, quietly), lambda: check_data([Job.of("study/mine", {}, again)])):
        with pytest.raises(
            ConfigError, match=rf"other images or labels than in .*{identify(first)[0]}\.json, so .*=FOLDER"
        ):
            use()


def test_files_of_an_unknown_set_are_a_part_of_the_run(smoke: Callable[..., DictConfig], tmp_path: Path) -> None:
    """KMNIST is read from any files of its format, so that other files have to be another run."""

    def config(root: str, *overrides: str) -> DictConfig:
        sizes = ("dataset.name=KMNIST", "dataset.train_examples=30", "dataset.test_examples=20", "batch_size=8")
        return smoke(*sizes, f"runtime.data_root={tmp_path / root}", "epochs=1", "delta=0.01", *overrides)

    for root in ("one", "two", "other"):
        write_mnist_files(tmp_path / root, 30, 20)
    labels = tmp_path / "other/KMNIST/raw/t10k-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-1] + b"\0")
    first, two, other = (config(root, "scale.bundled_data=false") for root in ("one", "two", "other"))
    assert len(first.examples) == 64
    assert identify(first) == identify(two)
    assert not set(identify(first)) & set(identify(other))
    assert config("one").examples is None, "the bundled images are known"


def test_records_of_another_scale_are_no_other_data(listed: Listed) -> None:
    """The smoke scale takes fewer examples of the same data."""
    source = "X, Y = X.repeat(50, 1, 1, 1), Y.repeat(50)\ndef data(): return (X, Y), (X, Y)"
    small = listed(source)
    small.delta = 1e-5
    assert execute(small, quietly) == "finished"
    full = copy.deepcopy(small)
    full.scale.bundled_data, full.examples = False, None
    full = resolved(full)
    assert full.examples != small.examples
    check_examples(full, results_folder(full), build_dataset(Group(full, "dataset"), full))


def test_images_less_their_mean_are_refused_at_any_scale(listed: Listed) -> None:
    """The smoke scale takes some of them, whose mean is another one."""
    source = "X = torch.rand(2000, 1, 4, 4)\nY = torch.arange(2000) % 2\ndef data(): return (X - X.mean(0), Y), (X, Y)"
    with pytest.raises(ConfigError, match="centred by their own statistics"):
        load(prepare(listed(source, "delta=1e-4")))


def test_training_images_choose_no_updates(listed: Listed) -> None:
    """Nothing charges for a choice by the training images, so a private run is refused that tests on some of them."""
    source = "def data(): return (X[:30], Y[:30]), (X[10:], Y[10:])"
    screened = listed(source, "screening=annealing", "screening.images=test")
    with pytest.raises(ConfigError, match="screening: 20 of the images that choose updates are training images"):
        load(prepare(screened))
    load(prepare(listed(source)))


def test_an_edited_source_may_give_other_examples(listed: Listed) -> None:
    assert execute(listed(PICTURES), quietly) == "finished"
    backwards = "def data(): return files(os.listdir('pictures')[::-1])"
    assert execute(listed(backwards), quietly) == "finished"


def test_what_is_unusual_is_said_once(listed: Listed, capsys: pytest.CaptureFixture[str]) -> None:
    config = listed(ALIKE["flips by torch"])
    assert capsys.readouterr().err.splitlines() == [
        "dataset: Items draws its images at random. This is applied once, at reading, so every epoch sees the same "
        "draw: use augmentation for views that change.",
        "dataset: 7 of 20 test images are training images, too, so accuracy is too high.",
        "dataset: training images have numbers from 0.02564 to 1.487, and are used as they are, although other parts "
        "expect pixels of 0 to 1.",
        "dataset: test images have numbers from 0 to 0.4872, where white is 1: whole numbers are divided by 255, or by "
        "65535 if one is above 255 or has 16 bits.",
    ]
    assert examples.examples_of(config) == config.examples
    assert capsys.readouterr().err == ""


def test_the_hash_cannot_be_set_and_built_in_sets_have_none(composed: Callable[..., DictConfig]) -> None:
    assert composed().examples is None
    assert "examples" not in recorded_config(composed())
    with pytest.raises(ConfigError, match="examples cannot be set"):
        composed("examples=abc")


def test_the_hash_counts_images_labels_shapes_and_splits() -> None:
    x, y = torch.zeros(2, 1, 2, 2), torch.tensor([0, 1])
    first = Split(x, y)
    changed = [Split(x, y.flip(0)), Split(x + 1, y), Split(x.view(2, 1, 4, 1), y), Split(x[:1], y[:1])]
    pairs = [(first, first), *((first, second) for second in changed), *((second, first) for second in changed)]
    hashes = {digest(pair) for pair in pairs}
    assert len(hashes) == 9
