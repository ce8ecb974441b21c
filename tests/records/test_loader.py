"""A user's option is all that is said of its group, and what Hydra would leave out without a word is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.errors import HydraException
from hydra.types import RunMode

from runner.config import REPOSITORY, register
from runner.records.loader import Loader
from runner.records.options import check_options

GLOBAL = "# @package _global_\n"


def loader_of(folder: Path | None = None) -> Loader:
    register()
    path = create_config_search_path(str(REPOSITORY / "conf"))
    if folder is not None:  # as --config-dir
        path.prepend("command-line", f"file://{folder}", SearchPathQuery("schema"))
    return Loader(path)


OWN = {  # the option, what is typed, and what then holds
    "plain": ("_target_: mine.Clip\nnorm: 0.1\n", [], {"_target_": "mine.Clip", "norm": 0.1}),
    "typed": ("_target_: mine.Clip\nnorm: 0.1\n", ["clipping.norm=7"], {"_target_": "mine.Clip", "norm": 7}),
    "based": ("defaults: [flat, _self_]\nnorm: 0.1\n", [], {"_target_": "runner.clipping.Flat", "norm": 0.1}),
    "of the run": (
        f"{GLOBAL}clipping: {{_target_: mine.Clip, norm: 0.1}}\n",
        [],
        {"_target_": "mine.Clip", "norm": 0.1},
    ),
}


@pytest.mark.parametrize(
    ("name", "experiment"),
    [*((name, "tempered_sigmoid/mnist_tanh") for name in OWN), ("based", "backprop_clipping/mnist_clipping")],
)
def test_an_option_of_ones_own_is_all_that_is_said_of_its_group(tmp_path: Path, name: str, experiment: str) -> None:
    """The experiments say norm=1 of flat clipping, and two bounds of another one."""
    text, typed, expected = OWN[name]
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


@pytest.mark.parametrize(
    "name", ["loss/focal", "experiment/tempered_sigmoid/mnist_tanh", "sweeps/tempered_sigmoid/fig_3"]
)
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
    with pytest.raises(ValueError, match="There is no --experimental-rerun"):
        check_options(["--experimental-rerun", "config.pickle"])
