"""The studies of this project, in studies/*.yaml, that have a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.config import REPOSITORY
from runner.config.checkout import scan
from runner.config.yaml_file import read_yaml
from runner.report.items import Statement, statement_of


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
