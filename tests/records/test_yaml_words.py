"""Words of YAML 1.1 and values that no record can hold, in files of a user's: as on the command line, or refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from runner.config import ConfigError
from runner.records import files
from runner.records.hydra_errors import sentence
from runner.records.identity import identify, resolved
from runner.runs import execute as executing
from runner.runs.execute import execute
from runner.training.prepare import prepare
from tests.conftest import quietly, record_of
from tests.records.test_loader import loader_of

EXPERIMENT = "# @package _global_\ndefaults:\n- tempered_sigmoid/mnist_tanh\n"
GROUPS = {  # the fourth line of an experiment, and the message after its file and line
    "schedule: off": "line 4: schedule is a group and takes fields: choose an option of it in the list of defaults",
    "schedule: [linear]": "line 4: schedule is a group",
    "screening: no": r"line 4: screening is a group .* of annealing, none, or write null for none",
    "normalization: NO": "line 4: normalization is a group",
    "averaging: none": "line 4: averaging is a group",
    "augmentation: 0": "line 4: augmentation is a group",
    "constraint: ''": "line 4: constraint is a group",
    "activation: yes": "line 4: activation is a group",
    "activation:": "line 4: activation is a group",
    "tracking: off": "line 4: tracking is a group and takes fields: .* disabled, offline, online",
    "runtime: on": "line 4: runtime is a group",
    "- override /screening: no": "screening has no option 'no': choose from annealing, none",
    "- override /activation:": "line 4: activation cannot be without an option: choose from ",
    "tracking: {mode: off}": r"Invalid value 'off', expected one of .* \(.*line 4\)",
    "epochs: 0x1F": r"epochs: .*'0x1F' of type 'str' could not be converted to Integer \(.*line 4\)",
    "epochs: 1:30": r"'1:30' of type 'str' could not be converted to Integer \(.*line 4\)",
    "delta: yes": r"'yes' of type 'str' could not be converted to Float \(.*line 4\)",
    "nosuch: off": r"there is no field 'nosuch' \(.*line 4\)",
}
AS_TYPED = {
    "title: off": ("title", "off"),
    "title: 010": ("title", "010"),
    "title: 12:30": ("title", "12:30"),
    "epochs: 010": ("epochs", 10),
    "seed: 1_000": ("seed", 1000),
    "save_model: no": ("save_model", False),
    "tracking: {tags: [no, 0x1F, TRUE]}": ("tracking.tags", ["no", "0x1F", "True"]),
    "schedule:": ("schedule", None),
    "- override /activation: 010": ("activation._target_", "torch.nn.Softsign"),
    "- override /activation: 10": ("activation._target_", "torch.nn.Softsign"),
    "- override /activation: off": ("activation._target_", "torch.nn.Softsign"),
}
VALUES = {  # of an argument without a type
    "1" + 400 * "0": "is larger than any 32-bit number",
    "-1e39": "is larger than any 32-bit number",
    ".nan": "is out of range: it has to be a number",
    "[[.NaN]]": "is out of range: it has to be a number",
    "{1: a}": "has the name 1, and names are texts in a record: write it in quotes",
    '{1: a, "1": b}': "has the name 1,",
    "{true: a}": "has the name True,",
    "!!binary aGVsbG8=": "is a bytes, which no record can hold",
    "!!python/object/apply:pathlib.PosixPath [a]": "is a PosixPath, which no record can hold",
}
UNREADABLE = {
    "x: {null: a}": r"mine.yaml cannot be read: Incompatible key type 'NoneType'",
    "x: !!set {a}": r"mine.yaml cannot be read: Value 'set' is not a supported",
    f"x: {300 * '['}{300 * ']'}": "mine.yaml is nested too deeply",
    "": "mine.yaml: it names no class, so it needs a line `_target_: package.Class`",
}
HELD = ("off", "010", "0x1F", "2024-01-01", "1:30", ".inf", "-.inf", '"a\\0b"', '"\\ud800"', "{'1': [no, 2.0, null]}")


def composed(folder: Path, *overrides: str, **contents: str) -> DictConfig:
    """Compose a config with files of a user's, given by `group__option`."""
    for name, text in contents.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return loader_of(folder).load_configuration("config", list(overrides), RunMode.RUN)


def with_argument(config: DictConfig, folder: Path, value: str) -> DictConfig:
    """Return a config with an activation that has an argument of no type, read from a file."""
    path = folder / "mine.yaml"
    path.write_text(f"_target_: tests.choosing.AnyArgument\nx: {value}\n", encoding="utf-8")
    config.activation = OmegaConf.load(path)
    return config


@pytest.mark.parametrize("line", GROUPS)
def test_a_word_in_place_of_an_option_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(HydraException) as refused:
        composed(tmp_path, "experiment=mine", experiment__mine=f"{EXPERIMENT}{line}\n")
    said = sentence(refused.value)
    assert "mine.yaml" in said or "has no option" in said
    assert re.search(GROUPS[line], said), said


@pytest.mark.parametrize("line", AS_TYPED)
def test_a_word_is_a_text_or_a_number_as_typed(tmp_path: Path, line: str) -> None:
    options = {f"activation__{name}": "_target_: torch.nn.Softsign\n" for name in ("010", "10", "off")}
    config = composed(tmp_path, "experiment=mine", experiment__mine=f"{EXPERIMENT}{line}\n", **options)
    name, expected = AS_TYPED[line]
    assert OmegaConf.select(config, name) == expected


@pytest.mark.parametrize("value", VALUES)
def test_what_no_record_can_hold_is_refused_before_a_step(smoke, tmp_path: Path, value: str) -> None:
    config = with_argument(smoke(), tmp_path, value)
    for command in (identify, prepare):
        with pytest.raises(ConfigError, match=VALUES[value]):
            command(config)


@pytest.mark.parametrize("text", UNREADABLE)
def test_an_option_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(HydraException) as refused:
        composed(tmp_path, "activation=mine", activation__mine=text)
    assert UNREADABLE[text] in sentence(refused.value)


@pytest.mark.parametrize("value", HELD)
def test_what_a_record_can_hold_is_read_again(smoke, tmp_path: Path, value: str) -> None:
    config = resolved(with_argument(smoke("epochs=1"), tmp_path, value))
    assert execute(config, quietly) == "finished"
    assert record_of(config)["config"]["activation"]["x"] == OmegaConf.to_container(config)["activation"]["x"]


@pytest.mark.parametrize("value", [False, "", 0, [], "off"])
def test_a_group_is_null_or_a_class_however_it_was_set(smoke, value: object) -> None:
    config = smoke()
    config.schedule = value
    with pytest.raises(ConfigError, match="schedule names no class"):
        prepare(config)


def test_a_record_that_cannot_be_read_again_is_not_written(smoke, monkeypatch: pytest.MonkeyPatch) -> None:
    config = smoke("epochs=1")
    monkeypatch.setattr(executing, "final_metrics", lambda run, trained: {"odd": "text"})
    with pytest.raises(ValueError, match="final"):
        execute(config, quietly)
    (failure,) = Path(config.runtime.results_root).rglob("*.json")
    assert (failure.parent.name, json.loads(failure.read_text())["status"]) == ("failed", "failed")
    assert files.record_path(files.results_folder(config), failure.stem).exists() is False


def test_a_hidden_file_is_no_option(tmp_path: Path) -> None:
    with pytest.raises(HydraException) as refused:
        composed(tmp_path, "activation=none", activation___tanh="", **{"activation__._tanh": "x"})
    assert "choose from _tanh, group_sort" in sentence(refused.value)
