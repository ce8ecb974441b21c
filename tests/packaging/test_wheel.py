"""The wheel, installed outside the checkout, in an environment that sees the libraries of this one."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from runner.config import REPOSITORY
from tests.tracked import tracked

SOURCES = ("conf", "sweeps", "studies", "runner", "pyproject.toml", "README.md", "LICENSE")
OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # without the checkout
# A run with an option of conf/ of the current folder, its numbers computed again, and a plan; then a refusal.
SEVERAL = """
import sys
from runner.cli.commands import carry_out
assert carry_out("verify", ["results/smoke"]) == 0
assert carry_out("reproduce", ["tempered-sigmoid", "--plan", "--items", "fig-3"]) == 0
assert carry_out("claims", ["--paper", "lipschitz"]) == 0
assert carry_out("leaderboard", []) == 0
assert carry_out("compare", ["tanh", "plain"]) == 0
sys.exit(carry_out("new-paper", ["mine"]))
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of a virtual environment with the wheel."""
    source, made = tmp_path / "source", tmp_path / "environment"
    source.mkdir()
    for name in SOURCES:
        whole = REPOSITORY / name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(whole, source / name, ignore=ignored) if whole.is_dir() else shutil.copy(whole, source)
    tables = [path.relative_to(REPOSITORY).as_posix() for path in tracked("results/*/*/claims.csv")]
    for name in ("checks/wheel.py", "results/leaderboard/leaderboard.csv", *tables):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, source / name)
    venv.create(made, with_pip=False)
    (site,) = (made / "lib").glob("python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
    install += ["--no-build-isolation", "--target", str(site), str(source)]
    subprocess.run(install, check=True, cwd=tmp_path, env=OUTSIDE)
    return made / "bin" / "python"


def test_a_folder_elsewhere_has_own_options_and_the_wheels_files(python: Path, tmp_path) -> None:
    here = tmp_path / "here"
    option = here / "conf" / "activation" / "mine.yaml"
    option.parent.mkdir(parents=True)
    option.write_text("_target_: mine.Mine\n", encoding="utf-8")
    (here / "mine.py").write_text("from torch import nn\nclass Mine(nn.Tanh): pass\n", encoding="utf-8")

    def ran(code: int, *arguments: str) -> str:
        command = [python, *arguments]
        done = subprocess.run(command, cwd=here, env=OUTSIDE, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    run = ("experiment=tempered_sigmoid/mnist_tanh", "scale=smoke", "epochs=1", "tracking=disabled", "activation=mine")
    ran(0, "-m", "runner", *run)
    assert len(list((here / "results" / "smoke" / "runs").iterdir())) == 1
    assert {path.name for path in here.iterdir()} <= {"conf", "mine.py", "results", "__pycache__"}
    said = ran(2, "-c", SEVERAL)
    for part in ("fig-3", " claims.", "CIFAR-10 ε ≤ 3", "the two are told apart", "checkout"):
        assert part in said
