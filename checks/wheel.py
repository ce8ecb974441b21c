"""Put conf/, sweeps/ and further files into the wheel, below runner/checkout. pyproject.toml names the class."""

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py

KEPT = (
    "conf",
    "sweeps",
    "studies",
    "results/leaderboard/leaderboard.csv",
    *map(str, Path().glob("results/*/*/claims.csv")),
)


class WithCheckout(build_py):  # type: ignore[misc]  # setuptools is not typed where there are no stubs
    """Copies the kept files. An editable installation finds them in the checkout."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name in KEPT:
                source, target = Path(name), Path(self.build_lib, "runner", "checkout", name)
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.is_dir():
                    shutil.copytree(source, target, dirs_exist_ok=True)
                else:
                    shutil.copyfile(source, target)
