"""Options of a user: all that is said of their group, named as Hydra does, and refused where Hydra leaves them out."""

import shlex
from pathlib import Path

import pytest
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode

from runner.cli.epsilon import bounds
from runner.config import REPOSITORY, ConfigError, register
from runner.config.hydra_errors import sentence
from runner.config.loader import Loader
from runner.config.options import arranged, check_options, search_path
from runner.records.jobs import composed

GLOBAL = "# @package _global_\n"


def loader_of(folder: Path | None = None) -> Loader:
    register()
    path = create_config_search_path(str(REPOSITORY / "conf"))
    if folder is not None:  # as --config-dir
        path.prepend("command-line", f"file://{folder}", SearchPathQuery("schema"))
    return Loader(path)


MINE = {"_target_": "mine.Clip", "norm": 0.1}
OWN = [  # the option, what is typed, and what then holds
    ("_target_: mine.Clip\nnorm: 0.1\n", [], MINE),
    ("_target_: mine.Clip\nnorm: 0.1\n", ["clipping.norm=7"], MINE | {"norm": 7}),
    ("defaults: [flat, _self_]\nnorm: 0.1\n", [], {"_target_": "runner.clipping.Flat", "norm": 0.1}),
    (f"{GLOBAL}clipping: {{_target_: mine.Clip, norm: 0.1}}\n", [], MINE),
]


@pytest.mark.parametrize("experiment", ["tempered_sigmoid/mnist_tanh", "backprop_clipping/mnist_clipping"])
@pytest.mark.parametrize(("text", "typed", "expected"), OWN)
def test_an_option_of_ones_own_is_all_that_is_said_of_its_group(
    tmp_path: Path, text: str, typed: list[str], expected: dict[str, object], experiment: str
) -> None:
    """The experiments say norm=1 of flat clipping, and two bounds of another one."""
    (tmp_path / "clipping").mkdir()
    (tmp_path / "clipping" / "mine.yaml").write_text(text)
    overrides = [f"experiment={experiment}", "clipping=mine", *typed]
    loader = loader_of(tmp_path)
    config = loader.load_configuration("config", overrides, RunMode.RUN)
    assert config.clipping == expected
    assert loader.load_sweep_config(config, [*overrides, "seed=1"]).clipping == expected


def test_a_local_option_keeps_the_values_of_an_experiment(tmp_path: Path) -> None:
    typed = ["experiment=tempered_sigmoid/mnist_tanh", "clipping=flat"]
    assert loader_of(tmp_path).load_configuration("config", typed, RunMode.RUN).clipping.norm == 1.0


@pytest.mark.parametrize("name", ["loss/focal", "sweeps/tempered_sigmoid/fig_3"])
def test_an_option_with_the_name_of_one_here_is_refused(tmp_path: Path, name: str) -> None:
    """Hydra would take the one of this package."""
    file = (tmp_path / name).with_suffix(".yaml")
    file.parent.mkdir(parents=True)
    file.write_text("_target_: mine.Focal\n")
    with pytest.raises(HydraException, match=f"{name.replace('/', '=', 1)} is an option of this package"):
        loader_of(tmp_path).load_configuration("config", [], RunMode.RUN)
    loader_of(REPOSITORY / "conf").load_configuration("config", [], RunMode.RUN)


def test_a_run_starts_from_the_primary_config_here(tmp_path: Path) -> None:
    with pytest.raises(HydraException, match="--config-name"):
        loader_of().load_configuration("experiment/tempered_sigmoid/mnist_tanh", [], RunMode.RUN)
    with pytest.raises(HydraException, match="--config-dir"):
        Loader(create_config_search_path(str(tmp_path)))


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("--experimental-rerun", "There is no --experimental-rerun"),
        ("--experiment=tempered_sigmoid/mnist_tanh", "There is no --experiment: .* has no dashes"),
        ("-activation=tanh", "There is no -activation: .* has no dashes"),
        ("-m seed=range(3,1)", r"seed=range\(3,1\) has no values\."),
        ("--config-d=a", "There is no --config-d: .* has no dashes"),
        ("'experiment=tempered_sigmoid/mnist_tanh scale=smoke'", "give each as an argument of its own"),
    ],
)
def test_what_hydra_would_take_for_another_is_refused(typed: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_options(shlex.split(typed))


def test_hydras_options_may_stand_between_overrides(tmp_path: Path) -> None:
    folder = ["--config-dir", str(tmp_path)]
    assert arranged(["~a", "-m", "+b=1"]) == ["-m", "~a", "+b=1"]
    assert arranged(["a=1", *folder, "a=1", "--cfg", "job"]) == [*folder, "--cfg", "job", "a=1", "a=1"]
    with pytest.raises(ConfigError, match=r"--config-dir=.*: there is no such folder"):
        arranged(["seed=1", "-cd", __file__])


def test_the_folder_conf_of_ones_own_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert arranged(["seed=1"]) == ["seed=1"]
    (tmp_path / "conf").mkdir()
    assert arranged(["seed=1"]) == ["--config-dir=conf", "seed=1"]
    assert arranged(["-cd", "conf", "seed=1"]) == ["-cd", "conf", "seed=1"]


def test_bounds_knows_options_of_ones_own(tmp_path, monkeypatch, capsys, coarse):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "architecture").mkdir(parents=True)
    of_package = (REPOSITORY / "conf" / "architecture" / "lipschitz_mlp.yaml").read_text()
    (tmp_path / "conf" / "architecture" / "mine.yaml").write_text(of_package)
    tables = []
    for typed in (["architecture=mine"], ["--config-dir=conf", "architecture=mine"], ["architecture=lipschitz_mlp"]):
        assert bounds([*typed, "experiment=lipschitz/mnist_mlp", "architecture.units=[32]"]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1] == tables[2] != ""


@pytest.mark.parametrize("value", ["~/out", "it's"])
def test_a_value_that_needs_quotes_is_printed_with_them(value):
    with pytest.raises(ConfigError, match="needs quotes") as refused:
        check_options([f"title={value}"])
    (pasted,) = shlex.split(str(refused.value).partition("write ")[2].removesuffix("."))
    assert OverridesParser.create().parse_override(pasted).value() == value


@pytest.mark.parametrize("name", ["activation/Mine.yaml", "experiment/mine.yaml.txt"])
def test_a_file_that_is_no_option_by_its_name_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    path.write_text("_target_: torch.nn.Softsign\n")
    with pytest.raises(HydraException) as error:
        composed([*search_path(str(tmp_path)), f"{path.parent.name}=mine"])
    message = f"{path.parent.name} has no option 'mine', but {path} is there: its name has to be mine.yaml"
    assert sentence(error.value) == message
