"""The studies of this project, in studies/*.yaml, that have a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runner.config import REPOSITORY
from runner.config.checkout import scan
from runner.report.items import Statement


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
    found = []
    for path in study_files():
        if (results / "studies" / path.stem / "README.md").exists():
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
            statement = statement_of(path.stem, content.get("finding"))
            found.append(StudyPage(path.stem, str(content.get("title", path.stem)), statement))
    return found


def statement_of(study: str, content: Mapping[str, Any] | None) -> Statement | None:
    """Return the finding in a study's file. Its numbers are the study's own, unless they name another one."""
    if content is None:
        return None
    numbers = {}
    for name, fields in content.get("numbers", {}).items():
        texts = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in fields.items()}
        numbers[name] = {"study": study, **texts}
    return Statement(content["text"], numbers, content.get("decided"), content.get("readme", False))
