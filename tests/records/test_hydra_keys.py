"""A config file that somebody gave you cannot make Hydra run anything: what Hydra composes is judged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from runner.config import REPOSITORY, register
from runner.records.hydra_keys import Judge
from runner.records.options import check_options

CALLBACK = "callbacks: {evil: {_target_: torch.load, f: x.pt, weights_only: false}}"
GLOBAL = "# @package _global_\n"
SWEEP = "mode: MULTIRUN, sweeper: {params: {seed: '0,1'"
EVIL = {
    "callback": f"{GLOBAL}hydra: {{{CALLBACK}}}\n",
    "escaped": f'{GLOBAL}"\\x68ydra": {{{CALLBACK}}}\n',
    "a tag of OmegaConf's": f"{GLOBAL}tracking: {{tags: [!!python/object/apply:pathlib.PosixPath [x]]}}\n"
    f"hydra: {{{CALLBACK}}}\n",
    "package": f"# @package hydra\n{CALLBACK}\n",
    "package below": "#@package hydra.callbacks\nevil: {_target_: torch.load}\n",
    "package after another line end": "# @package _global_\u2028# @package hydra.callbacks\nevil: {_target_: a.B}\n",
    "environment": f"{GLOBAL}hydra: {{job: {{env_set: {{CXX: ./evil}}}}}}\n",
    "launcher by a default": f"{GLOBAL}defaults: [override /hydra/launcher: joblib]\n",
    "search path": f"{GLOBAL}hydra: {{searchpath: [file:///elsewhere]}}\n",
    "default into": f"{GLOBAL}defaults: [/activation@hydra.callbacks.evil: tanh]\n",
    "overrides": f"{GLOBAL}hydra: {{{SWEEP}}}}}, overrides: {{hydra: [+hydra.job.env_set.CXX=evil]}}}}\n",
    "a class in params": f"{GLOBAL}hydra: {{{SWEEP}, epochs: {{_target_: torch.load, f: x.pt}}}}}}}}\n",
    "params that are a class": f"{GLOBAL}hydra: {{mode: MULTIRUN, sweeper: {{params: {{_target_: os.mkdir}}}}}}\n",
    "params that are another node": f"{GLOBAL}accountant: {{_target_: os.mkdir}}\n"
    "hydra: {mode: MULTIRUN, sweeper: {params: '${accountant}'}}\n",
    "a class behind params": f"{GLOBAL}hydra: {{{SWEEP}, epochs: '${{accountant}}'}}}}}}\n",
}
OF_A_JOB = {  # what Hydra sees once it composes the jobs of the sweep
    "environment": f"{GLOBAL}hydra: {{{SWEEP}, +hydra.job.env_set.CXX: ./evil}}}}}}\n",
    "environment in a mapping": f"{GLOBAL}hydra: {{{SWEEP}, +hydra: '{{job:{{env_set:{{CXX:evil}}}}}}'}}}}}}\n",
    "launcher": f"{GLOBAL}hydra: {{{SWEEP}, hydra/launcher: joblib}}}}}}\n",
    "an option into": f"{GLOBAL}hydra: {{{SWEEP}, +activation@hydra.callbacks.evil: tanh}}}}}}\n",
}
HARMLESS = {
    "sweep": f"{GLOBAL}hydra: {{mode: MULTIRUN, sweeper: {{params: {{seed: 'range(0,3)', epochs: 2}}}}}}\n",
    "setting": f"{GLOBAL}# hydra is only mentioned\nseed: 3\n",
    "empty": GLOBAL,
}


def judging(folder: Path | None = None) -> Judge:
    register()
    path = create_config_search_path(str(REPOSITORY / "conf"))
    if folder is not None:  # as --config-dir
        path.prepend("command-line", f"file://{folder}", SearchPathQuery("schema"))
    return Judge(path)


def composed(folder: Path, text: str, *overrides: str) -> tuple[Judge, DictConfig]:
    file = folder / "experiment" / "given.yaml"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    loader = judging(folder)
    return loader, loader.load_configuration("config", ["experiment=given", *overrides], RunMode.MULTIRUN)


@pytest.mark.parametrize("name", EVIL)
def test_what_tells_hydra_more_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        (HydraException, OmegaConfBaseException),
        match=r"hydra\.[\w.]+ is refused|hydra\.searchpath is only|Cannot convert",
    ):
        composed(tmp_path, EVIL[name])


@pytest.mark.parametrize("name", OF_A_JOB)
def test_what_a_sweep_says_of_its_jobs_is_refused(tmp_path: Path, name: str) -> None:
    """Composed as `hydra.sweeper` composes jobs, before it launches one."""
    loader, config = composed(tmp_path, OF_A_JOB[name])
    job = [f"{key}={value}" for key, value in config.hydra.sweeper.params.items() if key != "seed"]
    with pytest.raises(HydraException, match="is refused"):
        loader.load_sweep_config(config, ["seed=0", *job])


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_not_is_not(tmp_path: Path, name: str) -> None:
    loader, config = composed(tmp_path, HARMLESS[name])
    loader.load_sweep_config(config, ["seed=1"])


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
    loader = judging(tmp_path)
    config = loader.load_configuration("config", overrides, RunMode.RUN)
    assert config.clipping == expected
    assert loader.load_sweep_config(config, [*overrides, "seed=1"]).clipping == expected


def test_an_option_here_keeps_what_an_experiment_says_of_its_group(tmp_path: Path) -> None:
    typed = ["experiment=tempered_sigmoid/mnist_tanh", "clipping=flat"]
    assert judging(tmp_path).load_configuration("config", typed, RunMode.RUN).clipping.norm == 1.0


@pytest.mark.parametrize(
    "name", ["loss/focal", "experiment/tempered_sigmoid/mnist_tanh", "sweeps/tempered_sigmoid/fig_3"]
)
def test_an_option_with_the_name_of_one_here_is_refused(tmp_path: Path, name: str) -> None:
    """Hydra would take the one of this package."""
    file = (tmp_path / name).with_suffix(".yaml")
    file.parent.mkdir(parents=True)
    file.write_text("_target_: mine.Focal\n")
    with pytest.raises(HydraException, match=f"{name.replace('/', '=', 1)} is an option of this package"):
        judging(tmp_path).load_configuration("config", [], RunMode.RUN)
    judging(REPOSITORY / "conf").load_configuration("config", [], RunMode.RUN)


def test_a_linked_folder_is_seen(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "given.yaml").write_text(EVIL["callback"])
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "experiment").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HydraException, match=r"hydra\.callbacks.* is refused"):
        judging(tmp_path / "conf").load_configuration("config", ["experiment=given"], RunMode.RUN)


def test_a_search_path_on_the_command_line_is_seen(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "given.yaml").write_text(EVIL["callback"])
    typed = [f"hydra.searchpath=[file://{REPOSITORY},file://{tmp_path}]"]
    assert judging().load_configuration("config", typed, RunMode.RUN).seed == 0
    with pytest.raises(HydraException, match=r"hydra\.callbacks.* is refused"):
        judging().load_configuration("config", [*typed, "experiment=given"], RunMode.RUN)


@pytest.mark.parametrize("name", ["hydra/launcher/basic", "hydra/config"])
def test_a_file_in_place_of_one_of_hydras_own_is_refused(tmp_path: Path, name: str) -> None:
    """Hydra's structured configs come last in its search path."""
    file = (tmp_path / name).with_suffix(".yaml")
    file.parent.mkdir(parents=True)
    file.write_text("_target_: mine.Launcher\n")
    with pytest.raises(HydraException):
        judging(tmp_path).load_configuration("config", [], RunMode.RUN)


def test_an_option_of_hydras_own_groups_may_be_typed_and_comes_from_no_folder(tmp_path: Path) -> None:
    typed = ["hydra/launcher=joblib", "hydra.job.env_set.A=b", "+hydra.job.env_set.C=d", "hydra.sweep.dir=x"]
    assert (
        judging(tmp_path).load_configuration("config", typed[:1] + typed[2:], RunMode.MULTIRUN).hydra.sweep.dir == "x"
    )
    (tmp_path / "hydra" / "job_logging").mkdir(parents=True)
    (tmp_path / "hydra" / "job_logging" / "given.yaml").write_text("version: 1\n")
    with pytest.raises(HydraException, match="given"):
        judging(tmp_path).load_configuration("config", ["hydra/job_logging=given"], RunMode.RUN)


def test_a_run_starts_from_the_primary_config_here(tmp_path: Path) -> None:
    with pytest.raises(HydraException, match="--config-name"):
        judging().load_configuration("experiment/tempered_sigmoid/mnist_tanh", [], RunMode.RUN)
    with pytest.raises(HydraException, match="--config-dir"):
        Judge(create_config_search_path(str(tmp_path)))
    with pytest.raises(ValueError, match="There is no --experimental-rerun"):
        check_options(["--experimental-rerun", "config.pickle"])


def test_the_command_judges_each_job_of_a_sweep(tmp_path: Path) -> None:
    """Before any of them is trained; one sentence, exit code 2."""
    folder = tmp_path / "given" / "experiment"
    folder.mkdir(parents=True)
    (folder / "b.yaml").write_text(f"{GLOBAL}seed: 1\n")
    (folder / "c.yaml").write_text(
        f"{GLOBAL}hydra: {{callbacks: {{x: {{_target_: os.mkdir, path: {tmp_path}/mark}}}}}}\n"
    )
    command = [
        sys.executable, "-m", "runner", "--multirun", "--config-dir", str(folder.parent), "experiment=b,c",
        "scale=smoke", "epochs=1", "tracking=disabled", f"runtime.results_root={tmp_path}/results",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, env=os.environ)
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("runner: ")]
    assert (done.returncode, "c.yaml: hydra.callbacks" in said) == (2, True), said
    assert not (tmp_path / "mark").exists()
    assert not (tmp_path / "results").exists()
