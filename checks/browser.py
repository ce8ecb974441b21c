"""The built site in a headless Chromium: `python -m checks browser`.

Every page is opened from its folder at four widths, in light and dark, with its folded parts and the menu open. A page
may print nothing on the console, load nothing from a network, show no broken figure and not scroll sideways. Each link
has to lead to a file, and to a part of it. A verdict is on the screen. The search and both filtered tables are used.

Exit codes: 0 all is well or skipped without Playwright or Chromium, 1 something is wrong, 2 there is no site.
"""

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from runner.config import REPOSITORY
from runner.terminal import Line, Parser, one_line

WIDTHS = (390, 800, 1024, 1400)
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_TABLES = {"claims.html": "verdict", "leaderboard.html": "data set"}  # and a filter of each

_FAULTS = """() => [
  document.scrollingElement.scrollWidth > innerWidth && "scrolls sideways",
  [...document.images].some(image => image.checkVisibility() && !image.naturalWidth) && "has a broken figure",
  [...document.querySelectorAll("a.figure img")].some(image =>
    getComputedStyle(image).backgroundColor != "rgba(0, 0, 0, 0)") && "has a figure whose background is not the page's",
  [...document.querySelectorAll("td[data-label=verdict]")].some(cell => cell.checkVisibility() &&
    cell.textContent && cell.getBoundingClientRect().right > innerWidth + 1) && "has a verdict off the screen",
].filter(Boolean)"""

# Links of the menu's part that are not on the screen; inside a drawer each section is a part that slides in.
_MENU = """part => [...part.querySelectorAll(":scope > ul > li > .md-nav__link, :scope > ul > li > .md-nav__container")]
  .filter(link => link.checkVisibility({visibilityProperty: true})).filter(link => {
    const {left, right, width} = link.getBoundingClientRect();
    return !width || left < 0 || right > innerWidth;
  }).map(link => link.textContent.trim()).slice(0, 3)"""


@cache
def _ids(page: Path) -> set[str]:
    return {"", *re.findall(r"<[^<>]*\sid=[\"']?([^\"'\s>]+)", page.read_text(encoding="utf-8"))}


def faults(browser: Any, folder: Path, line: Line) -> Iterator[str]:
    """Check a site; yield a sentence for each fault."""
    from playwright.sync_api import Error

    paths = sorted(path for path in folder.rglob("*.html") if path.name != "404.html")
    for width in WIDTHS:
        tab, messages = browser.new_page(viewport={"width": width, "height": 844}), list[str]()
        tab.set_default_timeout(10_000)
        # Material keeps the scheme of the first page.
        tab.add_init_script("if (location.protocol === 'file:') localStorage.clear()")
        _listen(tab, messages)
        for number, path in enumerate(paths, 1):
            line.show(f"site: {width} pixels, page {number} of {len(paths)} ...")
            problems = list[str]()
            try:
                problems += _page(tab, path, path == folder / "index.html")
                if path.parent == folder and path.name in _TABLES:
                    problems += _table(tab, path)
                if path == folder / "index.html":
                    problems += _search(tab)
            except Error as error:
                problems.append(one_line(f"the check could not go on: {error}"))
            yield from (f"{path.relative_to(folder)}, {width} pixels: {text}" for text in [*problems, *messages])
            messages.clear()
        tab.close()
    line.clear()


def _listen(tab: Any, messages: list[str]) -> None:
    tab.on("console", lambda message: messages.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: messages.append(f"error: {error}"))
    tab.on("request", lambda sent: messages.extend([f"network: {sent.url}"] if sent.url.startswith("http") else []))


def _page(tab: Any, path: Path, first: bool) -> Iterator[str]:
    """Look at a page with all its folded parts open, in both schemes, and then with its menu open."""
    for scheme in ("dark", "light"):
        tab.emulate_media(color_scheme=scheme)
        tab.goto(path.as_uri())
        tab.add_style_tag(content="* { transition: none !important; animation: none !important; }")
        tab.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
        red = tab.evaluate("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")
        if (red < 128) != (scheme == "dark"):
            yield f"the background is not {scheme}"
        yield from tab.evaluate(_FAULTS)
    links = set(tab.eval_on_selector_all("a[href]", "links => links.map(link => link.href)"))
    for link in sorted(link for link in links if link.startswith("file:")):
        target, part = Path(unquote(urlsplit(link).path)), unquote(urlsplit(link).fragment)
        if not target.is_file() or (target.suffix == ".html" and "=" not in part and part not in _ids(target)):
            yield f"a dead link: {link}"
    yield from _menu(tab, first)


def _menu(tab: Any, sections: bool) -> Iterator[str]:
    """Open the menu, which is a drawer on a narrow screen, and on the first page each of its sections."""
    drawer, menu = tab.locator("header label[for=__drawer]"), tab.locator(".md-nav--primary")
    if drawer.is_visible():
        drawer.click()
    if not menu.locator(".md-nav__link:visible").count():
        yield "has no menu"
    yield from (f"off the screen, in the menu: {text}" for text in menu.evaluate(_MENU))
    for section in menu.locator(":scope > ul > li > nav").all() if sections else ():
        if drawer.is_visible():
            section.evaluate("part => { part.parentElement.querySelector('input').checked = true; }")
        yield from (f"off the screen, in a section of the menu: {text}" for text in section.evaluate(_MENU))
        section.evaluate("part => { part.parentElement.querySelector('input').checked = false; }")
    tab.evaluate("document.getElementById('__drawer').checked = false")


def _search(tab: Any) -> Iterator[str]:
    tab.evaluate("document.getElementById('__search').click()")
    tab.locator(".md-search__input").press_sequentially("tempered sigmoid")
    tab.wait_for_selector(".md-search-result__item a")
    if "results/tempered_sigmoid" not in tab.locator(".md-search-result__list").inner_html():
        yield "a search for a paper does not give its page"


def _table(tab: Any, path: Path) -> Iterator[str]:
    """Filter a table by a value, open the filtered address again, and sort it."""
    name, count = _TABLES[path.name], tab.locator("#filter-table > p")
    total_text, chooser = count.text_content(), tab.locator(f'select[name="{name}"]')
    value = chooser.locator("option").last.text_content()
    chooser.select_option(value)
    few, address = count.text_content(), tab.evaluate("location.hash")
    tab.goto("about:blank")
    tab.goto(path.as_uri() + address)
    if few == total_text or count.text_content() != few or chooser.input_value() != value:
        yield f"the address {address!r} does not bring the filter back"
    yield from tab.evaluate(_FAULTS)
    tab.locator("#filter-table button[type=reset]").click()
    if count.text_content() != total_text:
        yield f"cleared, it has {count.text_content()!r}"
    heading, first = tab.locator("#filter-table th button").nth(2), tab.locator("#filter-table tbody tr").first
    if heading.is_visible():
        before = first.text_content()
        heading.click()
        if first.text_content() == before:
            yield "a click on a heading does not sort"


def main(arguments: Sequence[str]) -> int:
    """Check a site, and print its faults. Return the exit code."""
    parser = Parser(prog="python -m checks browser", description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "site", help="of the site (default: site)")
    folder = parser.parse_args(arguments).folder.resolve()
    if not (folder / "index.html").is_file():
        raise ValueError(f"{folder} has no site: `make site` writes it.")
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        print("Skipped: without Playwright nobody looks at the site. pip install -e '.[browser]' brings it.")
        return 0
    with sync_playwright() as started:
        path = next(filter(None, map(shutil.which, _NAMES)), None)
        try:
            browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except Error:
            print("Skipped: there is no Chromium to look at the site. `playwright install chromium` brings it.")
            return 0
        problems = list(faults(browser, folder, Line()))
        browser.close()
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    pages = sum(1 for _ in folder.rglob("*.html"))
    print(f"{pages} pages, {', '.join(map(str, WIDTHS))} pixels wide, light and dark: {len(problems)} faults")
    return 1 if problems else 0
