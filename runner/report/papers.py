"""The papers by name, imported only on demand, and the studies of this project that have a page."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from traceback import extract_tb

from pydantic import ValidationError

from runner.claims.claim import Claim
from runner.config import PACKAGE, REPOSITORY
from runner.config.checkout import scan
from runner.config.yaml_file import read_yaml
from runner.records.schema import first_of
from runner.report.items import Paper, Statement, statement_of
from runner.terminal import nearest


def paper_names() -> list[str]:
    """List the names of papers, in order: the packages in runner/papers."""
    return [path.parent.name for path in scan(PACKAGE / "papers", "*/__init__.py")]


def load(name: str) -> Paper:
    """Import the paper of this name (`tempered_sigmoid`, or with a dash for the underscore).

    Raises:
        ValueError: there is no such paper; the message lists all. Or its files are wrong.
    """
    module = name.replace("-", "_")
    if module not in paper_names():
        raise ValueError(f"Unknown paper {name!r}. {nearest(module, paper_names())}")
    place = f"runner/papers/{module}/__init__.py"
    try:
        paper = getattr(import_module(f"runner.papers.{module}"), "PAPER", None)
    except Exception as error:  # any error of a paper's files
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename.endswith(place)]
        reason = f"{error.title}: {first_of(error)}" if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"{place}{f', line {lines[-1]}' if lines else ''}: {reason}.") from error
    if not isinstance(paper, Paper) or paper.name != module:
        raise ValueError(f"{place}: expected a PAPER of the name {module!r}.")
    return paper


def claims_of(name: str, **fields: str) -> list[Claim]:
    """Return the claims of a paper that have these values in these fields."""
    return [claim for claim in load(name).claims if claim.has(fields)]


def every_paper() -> list[Paper]:
    """List all papers, in the order of the pages: by `Paper.place`, then by name."""
    return sorted(map(load, paper_names()), key=lambda paper: (paper.place, paper.name))


@dataclass(frozen=True)
class StudyPage:
    """A study with a page in results/studies/<name>, and its finding."""

    name: str
    title: str
    statement: Statement | None


def study_files() -> list[Path]:
    """List the files of this project's studies."""
    return scan(REPOSITORY / "studies", "*.yaml")


def study_pages(results: Path) -> list[StudyPage]:
    """List this project's studies that have a page in a results folder."""
    pages = []
    for path in study_files():
        if (results / "studies" / path.stem / "README.md").exists():
            content = read_yaml(path).entries
            title = content["title"].text if "title" in content else path.stem
            statement = statement_of(content["finding"], {"study": path.stem}) if "finding" in content else None
            pages.append(StudyPage(path.stem, title, statement))
    return pages
