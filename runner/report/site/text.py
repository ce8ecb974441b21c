"""Markdown of the repository as HTML of the site, with links from page to page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from os.path import normpath, relpath
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from markdown_it.token import Token

_FOLDS = re.compile(r"(?:</?details>|<summary>[^<]*</summary>|<!--.*?-->|\s)*", re.DOTALL)


@dataclass
class Text:
    """A Markdown file as HTML.

    title: its first heading; "" without one.
    html: its content.
    links: the files that it links to or shows, by their paths in the repository.
    anchors: the ids of its headings.
    """

    title: str = ""
    html: str = ""
    links: list[str] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)


def page_path(path: str) -> str:
    """Return the place in the site of a file of the repository.

    >>> page_path("results/README.md"), page_path("docs/running.md"), page_path("results/leaderboard/figure.svg")
    ('results/index.html', 'docs/running.html', 'results/leaderboard/figure.svg')
    """
    place = PurePosixPath(path)
    if place.suffix != ".md":
        return path
    return str(place.with_name("index.html") if place.name == "README.md" else place.with_suffix(".html"))


def relative(target: str, page: str) -> str:
    """Return the address of a file of the site from a page of the site."""
    return quote(relpath(target, PurePosixPath(page).parent))


def anchor(heading: str) -> str:
    """Return the id of a heading, as GitHub makes it.

    >>> anchor("Weights & Biases"), anchor("Table 3: the smallest ε")
    ('weights--biases', 'table-3-the-smallest-ε')
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def render(source: str, path: str, root: Path, base: str = "") -> Text:
    """Convert a Markdown file.

    Raw HTML is shown as text, but for comments and folded parts (`details`).

    Args:
        source: its text.
        path: its path in the repository.
        root: the repository's folder.
        base: the address of the repository's files, for links to folders. Without it they are plain text.

    Raises:
        ValueError: a link leads to no file of the repository; the message has the file and the link.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.add_render_rule("table_open", lambda *_: '<div class="wide" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    for kind in ("html_block", "html_inline"):
        parser.add_render_rule(kind, _folds_only)
    tokens, found = parser.parse(source), Text()
    _name_headings(tokens, found)
    for token in (inline for block in tokens for inline in block.children or ()):
        _follow(token, path, root, base, found)
    found.html = parser.renderer.render(tokens, parser.options, {})
    return found


def _folds_only(_: object, tokens: Sequence[Token], place: int, *__: object) -> str:
    content = tokens[place].content
    return content if _FOLDS.fullmatch(content) else escape(content)


def _name_headings(tokens: Sequence[Token], found: Text) -> None:
    """Give each heading its id, with a number after an id that another heading has."""
    count: Counter[str] = Counter()
    for opening, inside in pairwise(tokens):
        if opening.type == "heading_open":
            heading = "".join(child.content for child in inside.children or ())
            name = anchor(heading)
            opening.attrSet("id", f"{name}-{count[name]}" if count[name] else name)
            found.anchors.append(str(opening.attrGet("id")))
            found.title = found.title or heading
            count[name] += 1


def _follow(token: Token, path: str, root: Path, base: str, found: Text) -> None:
    """Let a link or an image lead to a file of the site, and note the file."""
    name = {"link_open": "href", "image": "src"}.get(token.type, "")
    link = str(token.attrGet(name) or "")
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or not parts.path:
        return
    target = normpath(PurePosixPath(path).parent / unquote(parts.path))
    if (root / target).is_dir() and not target.startswith(".."):
        token.attrs.pop(name)  # a link without an address is plain text
        if base:
            token.attrSet(name, f"{base.rstrip('/')}/{quote(target)}")
        return
    if not (root / target).is_file() or target.startswith(".."):
        raise ValueError(f"{path} links to {link}, which is no file of the repository.")
    found.links.append(target)
    token.attrSet(name, relative(page_path(target), page_path(path)) + (f"#{parts.fragment}" if parts.fragment else ""))
