"""The built site in a headless Chromium: `python -m checks browser`.

Every page is opened from its folder, 390 and 1440 pixels wide, light and dark. A page may print nothing on the console
and load nothing from a network. It must fit the screen and follow the colours that are asked for. Links from the first
page have to lead to every other one. The two tables are filtered, sorted and opened by clicks.

Exit codes: 0 all is well, 1 something is wrong, 2 no site, no Playwright or no Chromium, with one sentence.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from runner.config import REPOSITORY
from runner.terminal import Line, Parser, one_line

WIDTHS = (390, 1440)
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_TABLES = {"claims.html": "verdict", "leaderboard.html": "data set"}  # and a filter of each
_CONTRAST = 4.5  # of text, the least that WCAG's level AA allows

# Elements that reach off the screen and are in no box that scrolls.
_OUTSIDE = """() => [...document.querySelectorAll("body *")].filter(element => {
  const {left, right, width} = element.getBoundingClientRect();
  const scrolls = box => box &&
    (["auto", "scroll"].includes(getComputedStyle(box).overflowX) || scrolls(box.parentElement));
  return width && (left < -1 || right > innerWidth + 1) && !scrolls(element.parentElement) && element.checkVisibility();
}).map(element => `${element.tagName.toLowerCase()} ${element.textContent.trim().slice(0, 40)}`).slice(0, 3)"""

# The lowest contrast of a text with its background, and the luminance of the page's background.
_COLOURS = """() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const linear = c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map(c => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = element => {
    const colour = rgb(getComputedStyle(element).backgroundColor);
    return (colour[3] ?? 1) > .99 || !element.parentElement ? colour : behind(element.parentElement);
  };
  const texts = [...document.querySelectorAll("body *")].filter(element => element.checkVisibility() &&
    !element.closest("option, :disabled, .disabled") &&
    [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()));
  const contrasts = texts.map(element => {
    const [low, high] = [rgb(getComputedStyle(element).color), behind(element)].map(light).sort((a, b) => a - b);
    return [(high + .05) / (low + .05), element.textContent.trim().slice(0, 40)];
  });
  return {background: light(behind(document.body)), worst: contrasts.sort((a, b) => a[0] - b[0])[0]};
}"""

_WITH_VALUE = """([source, name, value]) => {
  const page = new DOMParser().parseFromString(source, "text/html");
  const asked = [...page.querySelectorAll("select")].map(of => [of.name, of.name === name ? value : of.value]);
  return [...page.querySelectorAll("tbody tr")].filter(row => {
    const of = JSON.parse(row.dataset.filters);
    return asked.every(([name, value]) => ["", of[name]].includes(value));
  }).length;
}"""


@contextmanager
def _browser() -> Iterator[Any]:
    """Start a Chromium: an installed one, else the one that Playwright downloaded.

    Raises:
        ValueError: there is none.
    """
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as started:
        path = next(filter(None, map(shutil.which, _NAMES)), None)
        try:
            browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except Error as error:
            raise ValueError("No Chromium was found: `playwright install chromium` brings it.") from error
        yield browser
        browser.close()


def faults(folder: Path, line: Line) -> Iterator[str]:
    """Check a site.

    Yields:
        A sentence for each fault.
    """
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))
    with _browser() as browser:
        for width in WIDTHS:
            tab, said = browser.new_page(viewport={"width": width, "height": 844}), list[str]()
            tab.set_default_timeout(10_000)
            _listen(tab, said)
            for number, path in enumerate(paths, 1):
                line.show(f"site: {width} pixels, page {number} of {len(paths)} ...")
                found = [*_tried(_page(tab, folder / path)), *said]
                said.clear()
                yield from (f"{path}, {width} pixels: {fault}" for fault in found)
                if path in _TABLES:
                    yield from (f"{path}, {width} pixels: {fault}" for fault in _tried(_table(tab, folder / path)))
        line.show("site: links ...")
        reached = _reached(browser.new_page(), folder)
    line.clear()
    yield from (f"{path}: no link from the first page leads to it" for path in paths if path not in reached)
    yield from (f"{path}: is linked to, and no page" for path in sorted(reached) if path not in paths)


def _tried(found: Iterator[str]) -> Iterator[str]:
    """Yield faults, and as the last one that the browser failed at the next."""
    from playwright.sync_api import Error

    try:
        yield from found
    except Error as error:
        yield one_line(f"the check could not go on: {error}")


def _listen(tab: Any, said: list[str]) -> None:
    """Note what a tab says on its console, and each request that no file answers."""
    tab.on("console", lambda message: said.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: said.append(f"error: {error}"))
    tab.on("requestfailed", lambda request: said.append(f"not loaded: {request.url[:100]}"))
    tab.on(
        "request",
        lambda request: (
            None if request.url.startswith(("file:", "data:", "blob:")) else said.append(f"network: {request.url}")
        ),
    )


def _open(tab: Any, path: Path, part: str = "") -> None:
    """Open a page, and wait for its table if it has one."""
    tab.goto("about:blank")
    tab.goto(path.resolve().as_uri() + part)
    if path.name in _TABLES:
        tab.wait_for_selector("#rows.dataTable button.open")


def _page(tab: Any, path: Path) -> Iterator[str]:
    """Open a page, and check its width, also with all its folded parts open, and its colours in both schemes."""
    _open(tab, path)
    yield from _off_the_screen(tab, "")
    for number in range(tab.locator("details").count()):
        tab.locator("details").nth(number).evaluate("fold => { fold.open = true; }")
        yield from _off_the_screen(tab, f", part {number} unfolded")
    for colours in ("dark", "light"):
        tab.emulate_media(color_scheme=colours)
        if path.name in _TABLES:
            tab.wait_for_timeout(200)  # DataTables hears of it by an event
        seen = tab.evaluate(_COLOURS)
        if (seen["background"] < 0.2) != (colours == "dark"):
            yield f"the background is not {colours}"
        contrast, text = seen["worst"]
        if contrast < _CONTRAST:
            yield f"{colours}: a contrast of {contrast:.1f}, below {_CONTRAST}: {text}"


def _off_the_screen(tab: Any, when: str) -> Iterator[str]:
    yield from (f"off the screen{when}: {text}" for text in tab.evaluate(_OUTSIDE))
    if tab.evaluate("document.scrollingElement.scrollWidth > innerWidth"):
        yield f"the page scrolls sideways{when}"


def _table(tab: Any, path: Path) -> Iterator[str]:
    """Filter a table by a value, open the filtered address again, sort it, and open and close a row."""
    _open(tab, path)
    name = _TABLES[path.name]
    every, chooser = _shown(tab), tab.locator(f'select[name="{name}"]')
    value = chooser.locator("option").last.text_content()
    chooser.select_option(value)
    few = _shown(tab)
    if f"of {_count(tab, name, value)}" not in few or few == every:
        yield f"{name}={value}: it says {few!r}, and {every!r} before"
    address = tab.evaluate("location.hash")
    _open(tab, path, address)
    if not address or _shown(tab) != few or chooser.input_value() != value:
        yield f"the address {address!r} does not bring the filter back"
    opener = tab.locator("button.open").first
    opener.click()
    if not tab.locator("td.opened dl").is_visible():
        yield "a click opens no row"
    yield from _off_the_screen(tab, ", a row open")
    opener.click()
    if tab.locator("td.opened").count():
        yield "a second click does not close the row"
    tab.locator("button[type=reset]").click()
    tab.wait_for_timeout(50)
    if _shown(tab) != every:
        yield f"cleared, it says {_shown(tab)!r}"
    heading, first = tab.locator("#rows thead th").nth(2), tab.locator("#rows tbody tr").first
    if heading.is_visible():
        before = first.text_content()
        heading.click()
        heading.click()
        if first.text_content() == before:
            yield "a click on a heading does not sort"


def _shown(tab: Any) -> str:
    return str(tab.locator(".dt-info").text_content())


def _count(tab: Any, name: str, value: str) -> int:
    """Count the rows with this value of a filter in the file of an open page, which has all rows."""
    source = Path(unquote(urlsplit(tab.url).path)).read_text(encoding="utf-8")
    count = tab.evaluate(_WITH_VALUE, [source, name, value])
    return int(count)


def _reached(tab: Any, folder: Path) -> set[str]:
    """Return the pages to which links lead from the first page, as the browser reads them."""
    root, waiting, reached = folder.resolve(), ["index.html"], {"index.html"}
    while waiting:
        path = folder / waiting.pop()
        if path.is_file():
            _open(tab, path)
            links = tab.eval_on_selector_all("a[href]", "links => links.map(link => link.href)")
            places = {Path(unquote(urlsplit(link).path)) for link in links if link.startswith("file:")}
            found = {place.relative_to(root).as_posix() for place in places if place.suffix == ".html"}
            waiting += found - reached
            reached |= found
    return reached


def main(arguments: Sequence[str]) -> int:
    """Check a site, and print its faults. Return the exit code."""
    parser = Parser(prog="python -m checks browser", description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "site", help="of the site (default: site)")
    folder = parser.parse_args(arguments).folder
    if not (folder / "index.html").is_file():
        raise ValueError(f"{folder} has no site: `make site` writes it.")
    found = list(faults(folder, Line()))
    for fault in found:
        print(fault, file=sys.stderr)
    pages = sum(1 for _ in folder.rglob("*.html"))
    print(f"{pages} pages, {' and '.join(map(str, WIDTHS))} pixels wide, light and dark: {len(found)} faults")
    return 1 if found else 0
