"""The files of a checkout, and what git says of it."""

import os
import subprocess
from pathlib import Path


def scan(folder: Path, *patterns: str) -> list[Path]:
    """List the files below a folder that match a pattern, sorted, without hidden ones and those in hidden folders.

    Other programs leave hidden files next to those that they know: macOS `._name`, editors `.#name`, Jupyter a folder
    of copies. A link without a target, a folder or a pipe is no file whatever its name.

    >>> [path.name for path in scan(Path(__file__).parent, "check*.py")]
    ['checkout.py']
    """
    paths = {path for pattern in patterns for path in folder.glob(pattern)}
    shown = [path for path in paths if not any(p.startswith(".") for p in path.relative_to(folder).parts)]
    return sorted(path for path in shown if path.is_file())


def git(folder: Path, *arguments: str) -> str | None:
    """Return what a git command prints in the root of a checkout, or None without git or in another folder.

    Variables like GIT_DIR, which git sets for a hook, would make it speak of another repository, so it gets none. Nor
    does it look above the folder, where the repository of somebody else may be.
    """
    command = ["git", "-C", str(folder), *arguments]
    redirects = {name for name in os.environ if name.startswith("GIT_") and not name.startswith("GIT_CONFIG")}
    environment = {name: value for name, value in os.environ.items() if name not in redirects}
    environment["GIT_CEILING_DIRECTORIES"] = str(folder.resolve().parent)
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20, env=environment).stdout
    except (OSError, subprocess.SubprocessError):
        return None
