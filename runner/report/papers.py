"""Which papers there are, and each by its name: by name only, so that nothing imports a paper."""

from importlib import import_module

from runner.config import REPOSITORY
from runner.report.items import Item, Paper

__all__ = ["Item", "Paper", "every_paper", "every_study", "known", "load", "papers_and_studies"]


def known() -> list[str]:
    """The names of papers and studies, in order: those of the folders of runner/papers that hold a package."""
    return sorted(path.parent.name for path in (REPOSITORY / "runner" / "papers").glob("*/__init__.py"))


def load(name: str) -> Paper:
    """The paper of this name (`tempered_sigmoid`; a dash will do for the underscore).

    Raises:
        ValueError: there is no such paper; the message lists those there are.
    """
    module = name.replace("-", "_")
    if module not in known():
        raise ValueError(f"Unknown paper {name!r}: choose from {', '.join(known())}.")
    paper = import_module(f"runner.papers.{module}").PAPER
    assert isinstance(paper, Paper)
    return paper


def every_paper() -> list[Paper]:
    """All papers, in the order that pages show them in: by `Paper.place`, then by name. Studies are not among them."""
    return [paper for paper in papers_and_studies() if not paper.study]


def every_study() -> list[Paper]:
    """The questions of this project's own, in the order that pages show them in, after the papers."""
    return [paper for paper in papers_and_studies() if paper.study]


def papers_and_studies() -> list[Paper]:
    """All that has a folder in runner/papers, papers first, by `Paper.place`, then by name."""
    return sorted((load(name) for name in known()), key=lambda paper: (paper.study, paper.place, paper.name))
