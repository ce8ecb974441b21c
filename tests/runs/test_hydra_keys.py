"""A config file that somebody gave you cannot make Hydra run anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.config import ConfigError
from runner.runs.hydra_keys import check_files

CALLBACK = "callbacks: {evil: {_target_: torch.load, f: x.pt, weights_only: false}}"
EVIL = {
    "callback": f"# @package _global_\nhydra: {{{CALLBACK}}}\n",
    "escaped": f'# @package _global_\n"\\x68ydra": {{{CALLBACK}}}\n',
    "package": f"# @package hydra\n{CALLBACK}\n",
    "package below": "#@package hydra.callbacks\nevil: {_target_: torch.load}\n",
    "logging": "# @package _global_\nhydra: {job_logging: {handlers: {x: {(): os.system, command: ls}}}}\n",
    "launcher": "# @package _global_\nhydra: {launcher: {_target_: mine.Launcher}}\n",
    "sweeper": "# @package _global_\nhydra: {mode: MULTIRUN, sweeper: {_target_: mine.Sweeper, params: {seed: 1}}}\n",
    "search path": "# @package _global_\nhydra: {searchpath: [file:///elsewhere]}\n",
    "default": "defaults:\n  - override /hydra/job_logging: mine\n",
    "default into": "defaults:\n  - other@hydra.callbacks: mine\n",
    "no mapping": "# @package _global_\nhydra: all\n",
}
HARMLESS = {
    "sweep": "# @package _global_\nhydra: {mode: MULTIRUN, sweeper: {params: {seed: 'range(0,3)'}}}\n",
    "setting": "# hydra is only mentioned\n_target_: torch.nn.ReLU\n",
    "empty": "",
    "broken": "a: [",
}


def test_the_files_here_say_no_more_than_they_may():
    check_files([])


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("option", ["--config-dir", "-cd", "--config-path"])
def test_what_tells_hydra_more_is_refused(tmp_path: Path, name: str, option: str):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "evil.yaml").write_text(EVIL[name])
    with pytest.raises(ConfigError, match=r"evil\.yaml: .*mode and the sweeper's params, no more"):
        check_files(["seed=1", option, str(tmp_path)])
    with pytest.raises(ConfigError, match="no more"):
        check_files([f"{option}={tmp_path}"])


def test_a_group_of_hydras_own_is_refused(tmp_path: Path):
    (tmp_path / "hydra").mkdir()
    (tmp_path / "hydra" / "mine.yml").write_text("a: 1\n")
    with pytest.raises(ConfigError, match="no more"):
        check_files(["--config-dir", str(tmp_path)])


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_not_is_not(tmp_path: Path, name: str):
    (tmp_path / "fine.yaml").write_text(HARMLESS[name])
    check_files(["--config-dir", str(tmp_path)])
