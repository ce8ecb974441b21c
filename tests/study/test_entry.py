"""An entry from its study to the leaderboard: packed, checked, and refused with a reason."""

import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hydra._internal import hydra as of_hydra
from omegaconf import DictConfig

from runner.build.prepare import prepare
from runner.claims.evidence import Runs
from runner.cli import aggregate
from runner.cli import study as command
from runner.config import ConfigError
from runner.records.disk import dumps, read_record
from runner.report.formats import read_csv
from runner.report.leaderboard import methods
from runner.report.leaderboard.entries import entries
from runner.report.leaderboard.methods import Entrant, read_entrant
from runner.study import board
from runner.study.board import entered_runs
from runner.training.run import Run
from runner.trust.own_parts import OwnClipping
from tests.small import coarse_grid, run_here
from tests.trust import test_clipping

STUDY = """
base: architecture=lipschitz_mlp architecture.units=[16] epochs=1 batch_size=256 optimizer.lr=0.5
arms:
  flat clipping: clipping=flat
  mine: clipping=mine_of_an_entry
datasets: [digits_of_an_entry]
epsilon: 3
seeds: 5
search: {optimizer.lr: [0.25, 0.5]}
widen: false
"""
DATA = """
from dataclasses import dataclass

import torch

from runner.clipping import Flat


def digits():
    images, targets = torch.arange(640).view(10, 64).repeat(100, 1) / 640, torch.arange(10).repeat(100)
    return (images.view(-1, 1, 8, 8), targets), (images[:100].view(-1, 1, 8, 8), targets[:100])


@dataclass(frozen=True)
class Halved(Flat):
    def factors(self, norms):
        return super().factors(norms) / 2
"""
ENTRANT = "method: Halved (2027)\narm: mine\nclass: from scratch\nby: a test\nsummary: Half of the gradient.\n"


@pytest.fixture(scope="module", autouse=True)
def _coarse() -> Iterator[None]:
    with coarse_grid():
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study, its classes and the records of its runs, packed as an entry."""
    folder = tmp_path_factory.mktemp("entries") / "halved"
    for name, text in {
        "halved.yaml": STUDY,
        "halved_of_an_entry.py": DATA,
        "entry.yaml": ENTRANT,
        "options/dataset/digits_of_an_entry.yaml": "_target_: halved_of_an_entry.digits\n",
        "options/clipping/mine_of_an_entry.yaml": "_target_: halved_of_an_entry.Halved\nnorm: 1.0\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.setattr(command, "run_jobs", lambda _, work, line: run_here(work))
        patch.setattr("runner.study.page.board", lambda *_: "")  # of all records, which takes long
        patch.setattr(of_hydra, "ConfigLoaderImpl", of_hydra.ConfigLoaderImpl)  # which --config-dir replaces
        root = f"runtime.results_root={folder.parent / 'results'}"
        assert command.main(["halved.yaml", "--config-dir", "options", "--enter", root, "tracking=disabled"]) == 0
    return folder


@pytest.fixture
def entrant(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entrant:
    folder = tmp_path / "halved"
    shutil.copytree(trained, folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "board", lambda *_: "")
    monkeypatch.setattr(of_hydra, "ConfigLoaderImpl", of_hydra.ConfigLoaderImpl)
    monkeypatch.setattr("sys.path", list(sys.path))
    return read_entrant(folder)


def with_mechanism(config: DictConfig) -> Run:
    """The run with the clipping of a `DPMechanism`."""
    run = prepare(config)
    return replace(run, clipping=OwnClipping(test_clipping._Clipping(1.0), run.new_objective()))


def test_trials_and_final_runs_are_packed(
    entrant: Entrant, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = read_csv(entrant.folder / "runs.csv")
    assert [sum(row["split"] == split for row in rows) for split in ("holdout", "test")] == [4, 10]
    assert len(list((entrant.folder / "runs").glob("*.json"))) == 14
    monkeypatch.setattr(command, "prepare", with_mechanism)
    assert command.enter([str(entrant.folder)]) == 0
    shown = capsys.readouterr().out
    assert "_Normalised states 1 times as much at first and 0.5 at last." in shown
    assert "is in order. Somebody still has to read its classes." in shown


@pytest.fixture
def listed(entrant: Entrant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Entrant]:
    """An entry whose class cannot be imported any more, among the methods as a checkout with it reads them."""
    (entrant.folder / "halved_of_an_entry.py").unlink()
    monkeypatch.setattr("runner.config.REPOSITORY", tmp_path)
    (tmp_path / "entries").mkdir()
    shutil.move(entrant.folder, tmp_path / "entries" / "halved")
    anew = runpy.run_path(methods.__file__)
    for name in ("ENTERED", "LOOKS", "FRONT"):
        for key in anew[name].keys() - getattr(methods, name).keys():
            monkeypatch.setitem(getattr(methods, name), key, anew[name][key])
    methods.NAMES.append(anew["NAMES"][-1])
    yield read_entrant(tmp_path / "entries" / "halved")
    methods.NAMES.pop()


def test_the_leaderboard_reads_records_alone(listed: Entrant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "REPOSITORY", tmp_path)
    (merged,) = map(read_entrant, methods.entered_folders())
    assert merged == listed
    runs = entered_runs(merged)
    commands = [run.field("tracking.command") for run in runs]
    assert all("--config-dir options" in text and "file://" not in text for text in commands), "no machine's folder"
    (row,) = entries(runs, [3.0])
    assert (row.method, row.held_out, len(row.accuracies)) == ("Halved (2027)", True, 5)
    assert 2.9 < row.sound <= 3.0
    on_mnist = [replace(row, dataset="MNIST"), replace(row, dataset="MNIST", method=methods.NAMES[0], title="plain")]
    monkeypatch.setattr("runner.report.figures.stars", lambda *_: {})
    names = {path.name for path in aggregate.write_leaderboard(tmp_path, on_mnist, Runs(runs), 0)}
    assert names == {"README.md", "matrix.md", "settings.md", "leaderboard.csv", "front.svg"}
    for name in ("leaderboard/README.md", "leaderboard/matrix.md", "front.svg"):
        assert "Halved (2027)" in (tmp_path / name).read_text(encoding="utf-8")
    svg = (tmp_path / "front.svg").read_text(encoding="utf-8")
    assert svg.index("prefers-color-scheme: dark") < svg.index("<path"), "text is light where the system is dark"


def test_an_entry_stands_once_among_the_methods(
    entrant: Entrant, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arm is shown as the entrant's own, so not by its name on the leaderboard, too."""
    name = "Halved (2027), public data"
    (row,) = entries(entered_runs(entrant), [3.0])
    listed = [replace(row, dataset="digits_of_an_entry", method=method) for method in (name, methods.NAMES[0])]
    monkeypatch.setattr(command, "board", board.board)
    monkeypatch.setattr(board, "board_of", lambda _: (listed, None))
    for sweep, shown in (("entry/halved", False), ("entry/another", True)):
        monkeypatch.setattr(board, "ENTERED", {sweep: name})
        assert command.enter([str(entrant.folder)]) == 0
        text = capsys.readouterr().out
        assert (name in text, methods.NAMES[0] in text, "**mine** (*yours*)" in text) == (shown, True, True)


def change_records(folder: Path) -> None:
    """Alter the record of one final run, give another a frozen network, take a third away, and add one."""
    altered, frozen, missing = (folder / "runs" / f"{row['run_id']}.json" for row in read_csv(folder / "runs.csv")[-3:])
    record = read_record(altered)
    record["final"]["epsilon_sound"] = record["history"]["epsilon_sound"][-1] = 1.0
    altered.write_text(dumps(record))
    record = read_record(frozen)
    record["provenance"]["epsilon_rests_on"] = ["12 frozen parameters: taken as public"]
    frozen.write_text(dumps(record))
    missing.unlink()
    missing.with_name("0123456789ab.json").write_text("{}")


def change_list(folder: Path) -> None:
    lines = (folder / "runs.csv").read_text().splitlines()
    (folder / "runs.csv").write_text("\n".join(lines[:-1]) + "\n")


def change_study(folder: Path) -> None:
    text = (folder / "halved.yaml").read_text().replace("seeds: 5", "seeds: 2")
    (folder / "halved.yaml").write_text(text.replace("search: {optimizer.lr: [0.25, 0.5]}", "search: {}"))
    text = ENTRANT.replace("arm: mine", "arm: flat clipping").replace("Halved (2027)", methods.NAMES[0])
    (folder / "entry.yaml").write_text(text)


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (
            change_records,
            [
                "epsilon_sound after epoch 1 is 1.0, and should be",
                "a network with frozen parameters is not from scratch",
                "have no record in",
                "0123456789ab.json is no run of the study",
            ],
        ),
        (change_list, ["runs.csv does not list the runs of the study"]),
        (
            change_study,
            [
                "an entry has at least 5",
                "is no arm after the first one, the baseline: mine",
                "is on the leaderboard: give yours another name",
                "searches its settings on held-out images",
            ],
        ),
    ],
)
def test_an_entry_that_breaks_rules_is_refused_with_each_reason(
    change: Callable[[Path], None], reasons: list[str], entrant: Entrant, capsys: pytest.CaptureFixture[str]
) -> None:
    change(entrant.folder)
    assert command.enter([str(entrant.folder)]) == 1
    text = capsys.readouterr().out
    assert [reason for reason in reasons if reason not in text] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ENTRANT.replace("from scratch", "best"), "expected one of from scratch, synthetic pre-training, public data"),
        (ENTRANT.replace("by: a test\n", ""), "by is missing"),
        (ENTRANT + "accuracy: 99\n", "there is no such key"),
        (ENTRANT.replace("Halved (2027)", "a | b"), "method: expected a name in one line"),
    ],
)
def test_a_wrong_entry_file_is_refused(text: str, reason: str, entrant: Entrant, tmp_path: Path, monkeypatch) -> None:
    (entrant.folder / "entry.yaml").write_text(text)
    with pytest.raises(ConfigError, match=reason):
        read_entrant(entrant.folder)
    monkeypatch.setattr("runner.config.REPOSITORY", tmp_path)
    entrant.folder.rename(tmp_path / "entries")  # where a command reads it as it begins
    (tmp_path / "entries" / "halved").mkdir()
    for name in ("entry.yaml", "runs.csv"):
        shutil.copy(tmp_path / "entries" / name, tmp_path / "entries" / "halved")
    with pytest.raises(ConfigError, match=reason):
        runpy.run_path(methods.__file__)


def test_a_folder_without_an_entry_is_refused_before_work(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(STUDY)
    with pytest.raises(ConfigError, match=r"has no entry\.yaml"):
        command.main([str(tmp_path / "mine.yaml"), "--enter"])
