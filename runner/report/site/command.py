"""`python -m runner site`: the README, results and docs as a website in a folder, which needs no network.

It has a page for each Markdown file that the README leads to, a table of all claims and one of the leaderboard. Both
tables have filters, which their addresses keep. It is made from the last aggregation and needs the extra `report`.

Exit codes: 0 written, 2 bad input (a run that is not recorded, a folder of somebody else's) with one sentence.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.config import PLACE, REPOSITORY
from runner.report.files import write_text
from runner.terminal import Parser

OUTPUT = "site"
_MARK = ".made-by-runner-site"


def check_folder(folder: Path) -> None:
    """Refuse a folder that has files and is no site that this command wrote.

    Raises:
        ValueError: it is such a folder, or a file, or below a file.
    """
    for above in folder.parents:
        if above.exists() and not above.is_dir():
            raise ValueError(f"{folder} cannot be a folder, as {above} is none. Name another with --output.")
    if folder.exists() and not (folder.is_dir() and ((folder / _MARK).exists() or not any(folder.iterdir()))):
        raise ValueError(f"{folder} is no site that this command wrote. Name another folder with --output.")


def write(folder: Path, content: Mapping[str, str | Path]) -> None:
    """Write the files of a site into a folder, in place of the site that it has.

    Raises:
        ValueError: the folder has other files (see `check_folder`).
    """
    check_folder(folder)
    write_text(folder / _MARK, "")
    for old in folder.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
        elif old.name != _MARK:
            old.unlink()
    for path, of in content.items():
        if isinstance(of, str):
            write_text(folder / path, of)
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(of, folder / path)


def main(arguments: Sequence[str]) -> int:
    """Write the site, and return the exit code."""
    parser = Parser(prog="python -m runner site", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=PLACE / OUTPUT, help=f"the folder (default: {OUTPUT})")
    parser.add_argument("--runs", default="", help="ids of runs, or beginnings (9f3a,12c0), that get a page each")
    parser.add_argument("--repository", default="", help="address of the repository's files, for links to folders")
    chosen = parser.parse_args(arguments)
    check_folder(chosen.output)
    from runner.report.site.pages import site  # here, because --help needs no PyTorch

    content = site(REPOSITORY, [run for run in chosen.runs.split(",") if run], chosen.repository)
    write(chosen.output, content)
    pages = sum(path.endswith(".html") for path in content)
    print(f"{chosen.output / 'index.html'}: {pages} pages")
    return 0
