"""Hooks of MkDocs: the repository's Markdown as pages, its menu, and the two tables with filters (`make site`)."""

import json
import re
from functools import cache
from io import BytesIO
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

from runner.claims.claim import ANOTHER_READING, COUNTED, FOR_CONTEXT, dataset_name
from runner.claims.verdicts import ON_EPSILON, WORDS, ClaimRow
from runner.config import RESULTS
from runner.report import figures, plots
from runner.report.claim_rows import CLAIMED_EPSILON, cells_of, epsilon_text, method_text, rows_of, verdict_text
from runner.report.formats import bound_text, number, read_csv
from runner.report.leaderboard.methods import accuracy_text
from runner.report.papers import Paper, every_paper
from runner.study.board import board_of

ROOT = Path(__file__).parents[2]
_BOARD, _BOARD_PAGE = "results/leaderboard/leaderboard.csv", "results/leaderboard/README.md"
_TABLES = ("docs/site/claims.md", "docs/site/leaderboard.md")
_ASSETS = ("docs/site/iframe-worker.js", "docs/site/site.css", "docs/site/site.js")
_LINK = re.compile(r"(\]\(<?|(?:src|srcset|href)=\")([^)>\s#\"]+)")
_FOLDER = re.compile(r"(?<!!)\[([^\]]*)\]\(<?([^)>\s#]+)>?\)")
_PICTURE = re.compile(r"<picture>\s*<source[^>]*srcset=\"([^\"]+)\"[^>]*>\s*(<img[^>]*>)\s*</picture>")
_IMAGE = re.compile(r"(?<!\">)<img [^>]*?src=\"([^\"#]+)[^>]*>")
_PARAGRAPH = re.compile(r"^(?![#|!<>\-`\d]|\*[^*])(?:.+\n?)+", re.MULTILINE)
_ORDERED = {"verdict": WORDS, "counted": (COUNTED, ANOTHER_READING, FOR_CONTEXT), CLAIMED_EPSILON: ON_EPSILON}
COLUMNS = ("claim", "claimed (paper)", "here (what it is)", "verdict", "ε (paper → sound)")
BOARD_COLUMNS = ("method", "sound ε at most", "accuracy in % (runs)", "95% interval", "sound ε spent")
_EMPTY = ("", "–")
_PICTURE_OF_LINKS = "results/front.png"


def on_config(config: Any) -> Any:
    """Make the menu from the folders, so that a new paper or study needs no entry."""
    papers = [f"results/{paper.name}/README.md" for paper in every_paper()]
    checks = [path for path in _paths("results/*/README.md") if path not in papers and path != _BOARD_PAGE]
    config.nav = [
        {"Home": "README.md"},
        {"Results": "results/README.md"},
        {
            "Leaderboard": [
                {"All methods": _BOARD_PAGE},
                *({"Matrix of gains": path} for path in _paths("results/leaderboard/matrix.md")),
                *({"Settings that did best": path} for path in _paths("results/leaderboard/settings.md")),
            ]
        },
        {"Tables with filters": [{"Every claim": _TABLES[0]}, {"Leaderboard, all rows": _TABLES[1]}]},
        {"Papers": _entries(papers)},
        {
            "Guide": [
                *({_words(Path(path).stem): path} for path in _paths("docs/*.md")),
                {"Contributing": "CONTRIBUTING.md"},
            ]
        },
        {"Checks": _entries(checks)},
        {"Studies": [{_heading(path): path} for path in _paths("results/studies/*/README.md")]},
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Take the repository's files in place of those of `docs_dir`."""
    places = {path: PurePosixPath(path).with_suffix(".html").name for path in _TABLES}
    own = [File(path, str(ROOT), config.site_dir, False, dest_uri=places.get(path)) for path in _content()]
    for name, table in (("claims", claims_table()), ("leaderboard", leaderboard_table())):
        data = f"const ROWS = {json.dumps(table, ensure_ascii=False)};\n"
        own.append(File.generated(config, f"{name}.js", content=data))
    if config.site_url:  # links to pages can only have a picture with an address
        own.append(File.generated(config, _PICTURE_OF_LINKS, content=front_png()))
    return Files([*(file for file in files if file.src_dir != config.docs_dir), *own])


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Render folded parts, follow a link to a folder, and describe the page for those who link to it."""
    path = page.file.src_uri
    paragraph = _PARAGRAPH.search(re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE))
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[*`]", r"\1", paragraph[0] if paragraph else "")
    page.meta.setdefault("description", " ".join(plain.split())[:300])
    page.meta.setdefault("image", _PICTURE_OF_LINKS if config.site_url else "")
    text = _FOLDER.sub(lambda link: _folder(link, path, config.repo_url), markdown).replace(
        "<details>", '<details markdown="1">'
    )
    return _PICTURE.sub(_both, text)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Let a figure lead to its file, which opens in full."""
    return _IMAGE.sub(r'<a class="figure" href="\1">\g<0></a>', html)


def _paths(pattern: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))


def front_png() -> bytes:
    """Draw the front figure as a PNG, because a link's picture must not be an SVG."""
    with plots.style():
        figures.draw_front(RESULTS, *board_of(RESULTS)).savefig(content := BytesIO(), format="png", dpi=110)
        return content.getvalue()


def _heading(path: str) -> str:
    """Return the title of a page, which for a study is its question."""
    return (ROOT / path).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _entries(paths: list[str]) -> list[dict[str, str]]:
    return [{_words(Path(path).parent.name): path} for path in paths]


@cache
def _content() -> tuple[str, ...]:
    """Return the pages of the menu and all files that they lead to, and PNG versions of their figures."""
    waiting = [*_paths("*.md"), *_paths("docs/*.md"), *_paths("results/README.md"), *_paths("results/[!s]*/README.md")]
    waiting += [*_paths("results/studies/*/README.md"), *_TABLES, *_ASSETS, *_paths("results/*/*/claims.csv"), _BOARD]
    content: dict[str, None] = {}
    while waiting:
        path = waiting.pop()
        if path in content or not (ROOT / path).is_file():
            continue
        content[path] = None
        if path.endswith(".md"):
            waiting += [_target(path, link) for _, link in _LINK.findall((ROOT / path).read_text(encoding="utf-8"))]
        elif path.endswith(".svg"):
            waiting.append(path.replace(".svg", ".png"))
    return tuple(content)


def _target(path: str, link: str) -> str:
    return normpath(PurePosixPath(path).parent / unquote(link)) if "://" not in link else ""


def _folder(link: re.Match[str], path: str, repository: str | None) -> str:
    target = _target(path, link[2])
    if not target or not (ROOT / target).is_dir():
        return link[0]
    return f"[{link[1]}]({repository.rstrip('/')}/tree/HEAD/{target})" if repository else link[1]


def _both(picture: re.Match[str]) -> str:
    light = re.sub(r'src="([^"]+)"', r'src="\1#only-light"', picture[2])
    return light + re.sub(r'src="[^"]+"', f'src="{picture[1]}#only-dark"', picture[2])


def claims_table() -> dict[str, Any]:
    """Return every claim: `columns`, `filters` with their values, those `usual` at first, and `rows`."""
    rows = [_claim(row, paper) for paper in every_paper() for row in rows_of(ROOT / "results", paper)]
    return {"columns": COLUMNS, "filters": _values(rows), "usual": {"counted": COUNTED}, "rows": rows}


def leaderboard_table() -> dict[str, Any]:
    """Return every row of leaderboard.csv, in the form of `claims_table`."""
    rows = sorted(map(_entry, read_csv(ROOT / _BOARD)), key=lambda row: -row["order"][BOARD_COLUMNS[2]])
    return {"columns": BOARD_COLUMNS, "filters": _values(rows), "usual": {"sound ε at most": "3"}, "rows": rows}


def _values(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    values = {name: dict.fromkeys(filter(None, (row["filters"][name] for row in rows))) for name in rows[0]["filters"]}
    return {name: [word for word in _ORDERED.get(name, there) if word in there] for name, there in values.items()}


def _claim(row: ClaimRow, paper: Paper) -> dict[str, Any]:
    claim, cells, item = row.claim, cells_of(row), paper.item(row.claim.item)
    folder, dataset = f"results/{paper.name}", dataset_name(claim.dataset)
    more = {
        "why this verdict": row.rule, "difference [95%]": cells.difference, "margin": cells.margin,
        "why this margin": claim.because if cells.margin not in _EMPTY else "", "claimed at ε": cells.at_epsilon,
        "minimum / median / maximum": cells.spread, "best epoch": cells.best, "ε of the run": cells.epsilon,
        "sound ε of the run": cells.sound, CLAIMED_EPSILON: cells.guarantee, "in the paper": claim.source,
        "note": row.explanation,
    }  # fmt: skip
    page = f"{folder}/index.html{_part(f'{folder}/README.md', item.title)}"
    links = {item.title: page, "claims.csv": f"{folder}/{item.name}/claims.csv"}
    return {
        "cells": [method_text(claim), cells.claimed, cells.measured_of, verdict_text(row), epsilon_text(row)],
        "under": f"{dataset} · {paper.name.replace('_', ' ')}, {item.name}",
        "order": {COLUMNS[1]: claim.aim, COLUMNS[2]: row.measured, COLUMNS[4]: row.epsilon_sound},
        "filters": {"paper": paper.name.replace("_", " "), "data set": dataset, "verdict": row.verdict,
                    CLAIMED_EPSILON: row.guarantee, "counted": claim.counted},
        "more": {name: text for name, text in more.items() if text not in _EMPTY},
        "links": links if row.rule else {},
    }  # fmt: skip


@cache
def _part(page: str, title: str) -> str:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines() if page in _content() else []
    return "#" + slugify(case="lower")(title, "-") if f"## {title}" in lines else ""


def _entry(row: dict[str, str]) -> dict[str, Any]:
    mean, low, high = (float(row[name]) if row[name] else None for name in ("mean", "low", "high"))
    sound, at_most, dataset = (
        float(row["sound_epsilon"]),
        float(row["sound_epsilon_at_most"]),
        dataset_name(row["dataset"]),
    )
    interval = "–" if low is None else f"[{number(low, '%')}, {number(high, '%')}]"
    shown = ("dataset", "title", "mean", "std", "low", "high", "n", "sound_epsilon", "sound_epsilon_at_most")
    more = {name.replace("_", " "): text for name, text in row.items() if name not in shown and text not in _EMPTY}
    return {
        "cells": [row["title"], f"{at_most:g}", accuracy_text(row), interval, bound_text(sound)],
        "under": dataset,
        "order": dict(zip(BOARD_COLUMNS[1:], (at_most, mean, low, sound), strict=True)),
        "filters": {"data set": dataset, "sound ε at most": f"{at_most:g}", "ends at this ε": row["made_for_it"],
                    "settings of held-out images": row["held_out"]},
        "more": more,
        "links": {},
    }  # fmt: skip
