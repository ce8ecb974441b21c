"""The papers by name, imported only on demand."""

from importlib import import_module
from traceback import extract_tb

from pydantic import ValidationError

from runner.claims.claim import Claim
from runner.config import PACKAGE
from runner.config.checkout import scan
from runner.records.schema import first_of
from runner.report.items import Item, Paper
from runner.terminal import nearest

__all__ = ["Item", "Paper", "claims_of", "every_paper", "known", "load"]


def known() -> list[str]:
    """List the names of papers, in order: the packages in runner/papers."""
    return [path.parent.name for path in scan(PACKAGE / "papers", "*/__init__.py")]


def load(name: str) -> Paper:
    """Import the paper of this name (`tempered_sigmoid`, or with a dash for the underscore).

    Raises:
        ValueError: there is no such paper; the message lists all. Or its files are wrong.
    """
    module = name.replace("-", "_")
    if module not in known():
        raise ValueError(f"Unknown paper {name!r}. {nearest(module, known())}")
    place = f"runner/papers/{module}/__init__.py"
    try:
        paper = getattr(import_module(f"runner.papers.{module}"), "PAPER", None)
    except Exception as error:  # any error of a paper's files
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename.endswith(place)]
        said = f"{error.title}: {first_of(error)}" if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"{place}{f', line {lines[-1]}' if lines else ''}: {said}.") from error
    if not isinstance(paper, Paper) or paper.name != module:
        raise ValueError(f"{place}: expected a PAPER of the name {module!r}.")
    return paper


def claims_of(name: str, **fields: str) -> list[Claim]:
    """Return the claims of a paper that have these values in these fields."""
    return [claim for claim in load(name).claims if claim.has(fields)]


def every_paper() -> list[Paper]:
    """List all papers, in the order of the pages: by `Paper.place`, then by name."""
    return sorted((load(name) for name in known()), key=lambda paper: (paper.place, paper.name))
