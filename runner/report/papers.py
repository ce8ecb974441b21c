"""Which papers there are, and each by its name: by name only, so that nothing imports a paper."""

from importlib import import_module

from runner.report.items import Item, Paper

KNOWN = ("tempered_sigmoid", "losing_less", "noise_screening", "backprop_clipping")

__all__ = ["KNOWN", "Item", "Paper", "load"]


def load(name: str) -> Paper:
    """The paper of this name (`tempered_sigmoid`; a dash will do for the underscore).

    Raises:
        ValueError: there is no such paper; the message lists those there are.
    """
    module = name.replace("-", "_")
    if module not in KNOWN:
        raise ValueError(f"Unknown paper {name!r}: choose from {', '.join(KNOWN)}.")
    paper = import_module(f"runner.papers.{module}").PAPER
    assert isinstance(paper, Paper)
    return paper
