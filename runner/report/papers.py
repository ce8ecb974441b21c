"""The papers and studies by name, imported only on demand."""

from importlib import import_module

from runner.config import PACKAGE
from runner.report.items import Item, Paper

__all__ = ["Item", "Paper", "every_paper", "every_study", "known", "load", "papers_and_studies"]


def known() -> list[str]:
    """List the names of papers and studies, in order: the packages in runner/papers."""
    return sorted(path.parent.name for path in (PACKAGE / "papers").glob("*/__init__.py"))


def load(name: str) -> Paper:
    """Import the paper of this name (`tempered_sigmoid`, or with a dash for the underscore).

    Raises:
        ValueError: there is no such paper; the message lists all.
    """
    module = name.replace("-", "_")
    if module not in known():
        raise ValueError(f"Unknown paper {name!r}: choose from {', '.join(known())}.")
    paper = import_module(f"runner.papers.{module}").PAPER
    assert isinstance(paper, Paper)
    return paper


def every_paper() -> list[Paper]:
    """List all papers without the studies, in the order of the pages: by `Paper.place`, then by name."""
    return [paper for paper in papers_and_studies() if not paper.study]


def every_study() -> list[Paper]:
    """List the studies, this project's own questions, in the order of the pages."""
    return [paper for paper in papers_and_studies() if paper.study]


def papers_and_studies() -> list[Paper]:
    """List all papers, then all studies, each by `Paper.place`, then by name."""
    return sorted((load(name) for name in known()), key=lambda paper: (paper.study, paper.place, paper.name))
