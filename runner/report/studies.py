"""The studies of this project, in studies/*.yaml, that have a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.config import REPOSITORY
from runner.config.checkout import scan
from runner.config.yaml_file import Entry, read_yaml
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
    pages = []
    for path in study_files():
        if (results / "studies" / path.stem / "README.md").exists():
            content = read_yaml(path).entries
            title = content["title"].text if "title" in content else path.stem
            statement = statement_of(path.stem, content["finding"]) if "finding" in content else None
            pages.append(StudyPage(path.stem, title, statement))
    return pages


def statement_of(study: str, finding: Entry) -> Statement:
    """Return the finding in a study's file. Its numbers are the study's own, unless they name another one."""
    content = finding.entries
    numbers = {name: {"study": study} for name in (content["numbers"].entries if "numbers" in content else ())}
    for name, fields in numbers.items():
        for key, entry in content["numbers"].entries[name].entries.items():
            decimal = entry.number if "." in entry.text else None  # 3.0 is ε = 3
            fields[key] = entry.text if decimal is None else f"{decimal:g}"
    decided = content["decided"].whole if "decided" in content else None
    return Statement(content["text"].text, numbers, decided, bool("readme" in content and content["readme"].flag))
