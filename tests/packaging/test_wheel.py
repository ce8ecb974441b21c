"""The wheel, installed outside the checkout, in an environment that sees the libraries of this one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from runner.config import REPOSITORY

pytestmark = pytest.mark.slow
SOURCES = ("conf", "sweeps", "runner", "pyproject.toml", "README.md", "LICENSE")
ONE = ("experiment=tempered_sigmoid/mnist_tanh", "scale=smoke", "epochs=1", "tracking=disabled")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment with the wheel."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("environment")
    for name in SOURCES:
        whole = REPOSITORY / name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(whole, source / name, ignore=ignored) if whole.is_dir() else shutil.copy(whole, source)
    for name in ("checks/wheel.py", "results/leaderboard/leaderboard.csv", "results/record.schema.json"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(made), str(source)]
    subprocess.run(build, check=True, cwd=made, env=outside())
    venv.create(made / "venv", with_pip=False)
    (site,) = (made / "venv" / "lib").glob("python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    (wheel,) = made.glob("*.whl")
    subprocess.run([*pip, "install", "-q", "--no-deps", "--target", str(site), str(wheel)], check=True, env=outside())
    return made / "venv" / "bin" / "python"


def outside() -> dict[str, str]:
    """The environment without the checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DP_REPRO_TRUST")}


def runner(python: Path, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "runner", *arguments]
    return subprocess.run(command, cwd=place, env=outside(), capture_output=True, text=True, timeout=300)


def test_results_go_to_the_folder_that_one_stands_in(python: Path, tmp_path: Path) -> None:
    ran = runner(python, tmp_path, *ONE)
    assert ran.returncode == 0, ran.stderr
    (record,) = (tmp_path / "results" / "smoke" / "runs").iterdir()
    run_id = json.loads(record.read_text(encoding="utf-8"))["run_id"]
    assert {path.name for path in tmp_path.iterdir()} == {"results"}
    shown = runner(python, tmp_path, "show")
    assert run_id in shown.stdout
    assert run_id in runner(python, tmp_path, "explain", run_id).stdout
    assert runner(python, tmp_path, "verify", "results/smoke").returncode == 0


@pytest.mark.parametrize("typed", [("--config-dir", "options"), ()])
def test_options_of_ones_own_are_found(python: Path, tmp_path: Path, typed: tuple[str, ...]) -> None:
    """In the folder that --config-dir names, or else in conf/ of the current folder."""
    option = tmp_path / (typed[1] if typed else "conf") / "activation" / "mine.yaml"
    option.parent.mkdir(parents=True)
    option.write_text("_target_: mine.Mine\n", encoding="utf-8")
    (tmp_path / "mine.py").write_text("from torch import nn\nclass Mine(nn.Tanh): pass\n", encoding="utf-8")
    ran = runner(python, tmp_path, *typed, *ONE, "activation=mine")
    assert ran.returncode == 0, ran.stderr
    assert len(list((tmp_path / "results" / "smoke" / "runs").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--help",), 0, "sweeps/tempered_sigmoid"),
        (("reproduce", "tempered-sigmoid", "--plan", "--items", "fig-3"), 0, "fig-3"),
        (("claims", "--paper", "lipschitz"), 2, "no aggregated claims"),
        (("new-paper", "mine"), 2, "checkout"),
        (("explain", "tempered_sigmoid/fig-3"), 0, "--items fig-3"),
    ],
)
def test_commands_find_their_files(
    python: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ran = runner(python, tmp_path, *arguments)
    assert ran.returncode == code, ran.stderr
    assert said in ran.stdout + ran.stderr
