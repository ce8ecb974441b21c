"""The files of the site: pages by their paths, and the files that they link to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from runner.report.explain import found, run_sections
from runner.report.papers import Paper, every_paper
from runner.report.site.tables import claims_table, leaderboard_table, paper_name
from runner.report.site.text import Text, page_path, relative, render

Content = str | Path  # of a file: its text, or the file to copy
CLAIMS, BOARD = "claims.html", "leaderboard.html"
_BOARD_TEXT = "results/leaderboard/README.md"
_BOARD_CSV = "results/leaderboard/leaderboard.csv"
_ASSETS = ("style.css", "table.js")


@dataclass(frozen=True)
class Link:
    """A link to a page of the site, from its root."""

    text: str
    page: str


def site(root: Path, runs: Sequence[str] = (), base: str = "") -> dict[str, Content]:
    """Make the site of a repository.

    Args:
        root: the repository's folder.
        runs: ids of recorded runs, or their beginnings, that get a page each.
        base: the address of the repository's files, for links to folders.

    Returns:
        The content of each file by its path in the site.

    Raises:
        ValueError: there is no such run, a link is dead, or another version aggregated the results.
        ImportError: a library of the extra is not installed.
    """
    results = root / "results"
    explained = {path.stem: run_sections(path, results) for path in (found(results, run) for run in runs)}
    texts, copied = _read(root, base)
    menu = _menu(texts) | {"Runs": [Link(run, f"runs/{run}.html") for run in explained]}
    show = partial(_page, _templates(), menu)
    made: dict[str, Content] = {path: root / path for path in copied}
    pages = {page_path(path) for path in texts} | {CLAIMS, BOARD}
    papers = every_paper()
    claims = claims_table(results, papers, lambda path: path in pages or path in made)
    made[CLAIMS] = show(CLAIMS, "claims.html", "Every claim", table=claims)
    if _BOARD_CSV in made:
        made[BOARD] = show(BOARD, "board.html", "Leaderboard with filters", table=leaderboard_table(root / _BOARD_CSV))
    more = _more(papers)
    for path, text in texts.items():
        made[page_path(path)] = show(
            page_path(path), "text.html", text.title or path, html=text.html, more=more.get(path, [])
        )
    for run, sections in explained.items():
        page = f"runs/{run}.html"
        made[page] = show(page, "run.html", f"Run {run}", sections=sections)
    return made | _assets()


def _read(root: Path, base: str) -> tuple[dict[str, Text], list[str]]:
    """Convert the README, the pages of docs, and every Markdown file that they lead to.

    Returns:
        The texts by path, and the other files that they link to.
    """
    texts: dict[str, Text] = {}
    copied: dict[str, None] = {}
    waiting = ["README.md", *(path.relative_to(root).as_posix() for path in sorted(root.glob("docs/*.md")))]
    while waiting:
        path = waiting.pop(0)
        if path.endswith(".md") and path not in texts:
            texts[path] = render((root / path).read_text(encoding="utf-8"), path, root, base)
            waiting += texts[path].links
        elif not path.endswith(".md"):
            copied[path] = None
    return texts, list(copied)


def _menu(texts: Mapping[str, Text]) -> dict[str, list[Link]]:
    papers = {f"results/{paper.name}/README.md": paper_name(paper) for paper in every_paper()}
    studies = {
        path: text.title for path, text in texts.items() if PurePosixPath(path).match("results/studies/*/README.md")
    }
    docs = {path: text.title for path, text in texts.items() if PurePosixPath(path).parent.name == "docs"}
    first = {_BOARD_TEXT: "Leaderboard", "results/README.md": "Results"}
    parts = {
        name: [Link(text, page_path(path)) for path, text in of.items() if path in texts]
        for name, of in {"": first, "Papers": papers, "Studies": studies, "Docs": docs}.items()
    }
    parts[""].insert(1, Link("Claims", CLAIMS))
    return parts


def _more(papers: Sequence[Paper]) -> dict[str, list[Link]]:
    """Return links that a page has besides the links of its Markdown, by the path of the Markdown."""
    return {
        "results/README.md": [Link("All claims, with filters", CLAIMS)],
        _BOARD_TEXT: [Link("All rows, with filters", BOARD)],
        **{
            f"results/{paper.name}/README.md": [
                Link("These claims, with filters", f"{CLAIMS}#paper={quote(paper_name(paper))}")
            ]
            for paper in papers
        },
    }


def _templates() -> Any:
    import jinja2

    folder = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    return jinja2.Environment(loader=folder, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)


def _page(templates: Any, menu: Mapping[str, Sequence[Link]], page: str, template: str, title: str, **of: Any) -> str:
    text: str = templates.get_template(template).render(
        page=page, title=title, menu=menu, to=partial(_address, page), **of
    )
    return text


def _address(page: str, target: str) -> str:
    """Return the address of a place in the site, with its part behind a #, from a page."""
    path, mark, part = target.partition("#")
    return relative(path, page) + mark + part


def _assets() -> dict[str, Content]:
    """Return the styles and scripts, with DataTables as a script that a page in a folder can load.

    A browser loads no module from a file, but an address of data.
    """
    from base64 import b64encode

    bundle = files("itables") / "html"
    code = b64encode((bundle / "dt_bundle.js").read_bytes()).decode("ascii")
    own = Path(__file__).parent / "templates"
    return {
        **{f"assets/{name}": own / name for name in _ASSETS},
        "assets/datatables.css": (bundle / "dt_bundle.css").read_text(encoding="utf-8"),
        "assets/datatables.js": f'const DATATABLES = "data:text/javascript;base64,{code}";\n',
    }
