"""Words of YAML 1.1 and values that no record can hold, in files of a user's: as on the command line, or refused."""

import json
import re
from pathlib import Path

import pytest
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from runner.build.prepare import prepare
from runner.config import ConfigError
from runner.config.hydra_errors import sentence
from runner.records import disk
from runner.records.identity import identify, resolved
from runner.runs import execute as executing
from runner.runs.execute import execute
from tests.conftest import quietly, record_of
from tests.records.test_loader import loader_of

EXPERIMENT = "# @package _global_\ndefaults:\n- tempered_sigmoid/mnist_tanh\n"
GROUPS = {  # the fourth line of an experiment, and the message after its file and line
    "screening: no": r"line 4: screening is a group .* of annealing, none, or write null for none",
    "activation:": "line 4: activation is a group",
    "tracking: off": "line 4: tracking is a group and takes fields: .* disabled, offline, online",
    "- override /screening: no": "screening has no option 'no': choose from annealing, none",
    "- override /activation:": "line 4: activation cannot be without an option: choose from ",
    "tracking: {mode: off}": r"Invalid value 'off', expected one of .* \(.*line 4\)",
    "epochs: 0x1F": r"epochs: .*'0x1F' of type 'str' could not be converted to Integer \(.*line 4\)",
    "diagnostics: off": r"diagnostics: .* is not a ListConfig, list or tuple\. \(.*line 4\)",
    "title: a: b": "mapping values are not allowed here .*line 4",
    "~: 1": "cannot be read: Incompatible key type 'NoneType'",
    "seed: 1\nseed: 2": "found duplicate key seed in .*line 5",
    "nosuch: off": r"there is no field 'nosuch' \(.*line 4\)",
}
AS_TYPED = f"""{EXPERIMENT}- override /activation: 010
title: off
epochs: 010
seed: 1_000
save_model: no
tracking: {{tags: [no, 0x1F, TRUE]}}
schedule:
optimizer: {{<<: {{lr: 1e-3}}}}
"""
ARGUMENTS = {  # of a class in an option's file
    "Softplus\nbeta: 010": r"activation\.beta='010' is text, but it has to be a number: write 10\.0 without quotes",
    "Softplus\nbeta:": r"activation\.beta=None is not of type float",
    "Softplus\nno: 1": r"activation\.no=1 is not an argument of torch\.nn\.Softplus. Choose from beta, threshold",
    "off": r"activation\._target_=torch\.nn\.off: torch\.nn has no off",
    "ELU\ninplace: off": r"activation\.inplace='off' is text, but it has to be true or false: write false without",
}
CONTENT = f"{EXPERIMENT}seed: 5\ntitle: Grüße\n"
FILES = {  # what an editor saves, and the message if it cannot be read
    "Windows": (CONTENT.replace("\n", "\r\n").encode("utf-8-sig"), ""),
    "old Macintosh": (CONTENT.replace("\n", "\r").encode(), ""),
    "UTF-16": (CONTENT.encode("utf-16"), "is not UTF-8: save it as UTF-8"),
    "a zero": (CONTENT.encode() + b"\0", "unacceptable character #x0000"),
    "empty": (b"", r"The first line of experiment/mine\.yaml has to be `# @package _global_`"),
    "a list": (b"- a\n", "mine\\.yaml"),
}
VALUES = {  # of an argument without a type
    "-1e39": "is larger than any 32-bit number",
    "1" + 400 * "0": "is larger than any 32-bit number",
    ".nan": "is out of range: it has to be a finite number",
    "{1: a}": "has the name 1, and names are texts in a record: write it in quotes",
    "!!binary aGVsbG8=": "is a bytes, which no record can hold",
}
UNREADABLE = {
    "x: {null: a}": r"mine.yaml cannot be read: Incompatible key type 'NoneType'",
    f"x: {300 * '['}{300 * ']'}": "mine.yaml is nested too deeply",
    "": "mine.yaml: it names no class, so it needs a line `_target_: package.Class`",
}
HELD = """{'1': [off, 010, 2024-01-01, no, 2.0, null], text: "a\\0b", half: "\\ud800"}"""


def composed(folder: Path, *overrides: str, **contents: str) -> DictConfig:
    """Compose a config with files of a user's, given by `group__option`."""
    for name, text in contents.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return loader_of(folder).load_configuration("config", list(overrides), RunMode.RUN)


def add_argument(config: DictConfig, folder: Path, value: str) -> DictConfig:
    """Return a config with an activation that has an argument of no type, read from a file."""
    path = folder / "mine.yaml"
    path.write_text(f"_target_: tests.choosing.AnyArgument\nx: {value}\n", encoding="utf-8")
    config.activation = OmegaConf.load(path)
    return config


@pytest.mark.parametrize("line", GROUPS)
def test_a_word_in_place_of_an_option_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(HydraException) as refused:
        composed(tmp_path, "experiment=mine", experiment__mine=f"{EXPERIMENT}{line}\n")
    message = sentence(refused.value)
    assert "mine.yaml" in message or "has no option" in message
    assert re.search(GROUPS[line], message), message


def test_a_word_is_a_text_or_a_number_as_typed(tmp_path: Path) -> None:
    option = {"activation__010": "_target_: torch.nn.Softsign\n"}
    config = composed(tmp_path, "experiment=mine", experiment__mine=AS_TYPED, **option)
    assert (config.title, config.epochs, config.seed, config.save_model) == ("off", 10, 1000, False)
    assert config.tracking.tags == ["no", "0x1F", "True"]
    assert (config.schedule, config.optimizer.lr) == (None, 1e-3)
    assert config.activation._target_ == "torch.nn.Softsign"


@pytest.mark.parametrize("text", ARGUMENTS)
def test_a_word_in_place_of_an_argument_is_refused(smoke, tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"_target_: torch.nn.{text}\n", encoding="utf-8")
    config = smoke()
    config.activation = OmegaConf.load(tmp_path / "mine.yaml")
    with pytest.raises(ConfigError, match=ARGUMENTS[text]):
        prepare(config)


@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_read_however_it_was_saved(tmp_path: Path, kind: str) -> None:
    content, message = FILES[kind]
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_bytes(content)
    if message:
        with pytest.raises(HydraException) as refused:
            composed(tmp_path, "experiment=mine")
        assert re.search(message, sentence(refused.value)), sentence(refused.value)
    else:
        config = composed(tmp_path, "experiment=mine")
        assert (config.seed, config.title) == (5, "Grüße")


@pytest.mark.parametrize("value", VALUES)
def test_what_no_record_can_hold_is_refused_before_a_step(smoke, tmp_path: Path, value: str) -> None:
    config = add_argument(smoke(), tmp_path, value)
    for command in (identify, prepare):
        with pytest.raises(ConfigError, match=VALUES[value]):
            command(config)


@pytest.mark.parametrize("text", UNREADABLE)
def test_an_option_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(HydraException) as refused:
        composed(tmp_path, "activation=mine", activation__mine=text)
    assert UNREADABLE[text] in sentence(refused.value)


def test_what_a_record_can_hold_is_read_again(smoke, tmp_path: Path) -> None:
    config = resolved(add_argument(smoke("epochs=1"), tmp_path, HELD))
    assert execute(config, quietly) == "finished"
    assert record_of(config)["config"]["activation"]["x"] == OmegaConf.to_container(config)["activation"]["x"]


@pytest.mark.parametrize("value", [False, [], "off"])
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
    assert disk.record_path(disk.results_folder(config), failure.stem).exists() is False


def test_a_hidden_file_is_no_option(tmp_path: Path) -> None:
    with pytest.raises(HydraException) as refused:
        composed(tmp_path, "activation=none", activation___tanh="", **{"activation__._tanh": "x"})
    assert "choose from _tanh, clipped_relu" in sentence(refused.value)
