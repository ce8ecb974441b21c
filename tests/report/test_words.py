"""Words, counts and numbers of the committed pages: the same everywhere, and each number says what it is."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from runner.claims.runs import grouped
from runner.claims.statistics import Mean, Spread, best_less_claim, bests_less_claim
from runner.claims.verdicts import ON_EPSILON, RULES, WORDS, ClaimRow
from runner.cli.show import claims
from runner.config import REPOSITORY, RESULTS
from runner.papers.backprop_clipping import whole_run
from runner.papers.backprop_clipping.figures import first_update_epsilon
from runner.report.claim_rows import CLAIMED_EPSILON, rows_of
from runner.report.papers import claims_of, every_paper
from runner.report.statements import stated
from tests.tracked import committed_sources

KINDS = re.compile(
    r"(?:geometric )?means? of|bests? of|one run|by formula|share of"
    r"|(?:range|rank correlation) of \d+ (?:single runs|means of)"
    r"|value with the best of \d+ (?:single runs|means of)|lowest of|from \d+ runs|bound on the|of one set"
    r"|by \d+ of \d+ runs"
)
BEST = re.compile(r"\bbests? of \d")
Line = tuple[list[str], list[str]]  # the headings of a table, and the cells of one of its rows


@pytest.fixture(scope="module")
def rows(listed_runs) -> list[ClaimRow]:
    return [row for paper in every_paper() for row in rows_of(RESULTS, paper)]


def site_claims() -> dict[str, Any]:
    pytest.importorskip("material")
    hooks: dict[str, Any] = run_path(str(REPOSITORY / "docs" / "site" / "hooks.py"))
    table: dict[str, Any] = hooks["claims_table"]()
    return table


def tables(path: Path) -> Iterator[Line]:
    """Yield each row of the tables in a page."""
    heading, previous = list[str](), list[str]()
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if line.startswith("| ---"):
            heading = previous
        elif line.startswith("|") and heading:
            yield heading, cells
        else:
            heading = []
        previous = cells


@pytest.fixture(scope="module")
def shown(rows: list[ClaimRow]) -> list[tuple[ClaimRow, list[str]]]:
    """Each judged claim with the cells of its line in its item's page."""
    pairs: list[tuple[ClaimRow, list[str]]] = []
    for paper in every_paper():
        judged: list[ClaimRow] = []
        lines = [
            cells
            for item in paper.items
            for heading, cells in tables(RESULTS / paper.name / item.name / "README.md")
            if heading[2:3] == ["here (what it is)"] and not cells[0].startswith("**")
        ]
        for item in paper.items:
            claimed = [row for row in rows if row.claim in claims_of(paper.name, item=item.name)]
            judged += [row for group in grouped(claimed, lambda row: row.claim.dataset).values() for row in group]
        pairs += zip(judged, lines, strict=True)
    assert len(pairs) == len(rows)
    return pairs


def value_of(text: str) -> float:
    """Read a number as a page writes it."""
    return float(text.replace("−", "-").replace(",", "").replace("∞", "inf"))


def test_no_epsilon_on_a_page_is_below_that_of_the_csv(shown: list[tuple[ClaimRow, list[str]]]) -> None:
    """And no lower bound is above it."""
    measured = sound = least = 0
    for row, (claim, _, number_text, _, epsilons, difference, _) in shown:
        epsilon = row.claim.quantity.startswith("epsilon") or row.claim.unit == "epsilon"
        if epsilon and row.measured is not None and math.isfinite(row.measured):
            number = value_of(number_text.removeprefix("≥ ").split()[0])
            assert number <= row.measured if row.at_least else number >= row.measured, (claim, number_text)
            measured += 1
        if epsilon and row.computed and not row.at_least and row.claim.aim is not None:
            assert value_of(difference) >= row.difference, (claim, difference)
        if "→" in epsilons:
            assert value_of(epsilons.split(" ✓")[0].split(" ✗")[0].split()[-1]) >= row.epsilon_sound, (claim, epsilons)
            sound += 1
        if "≥" in epsilons:
            assert value_of(epsilons.partition("≥ ")[2].split(", ≤")[0]) <= row.epsilon_least, (claim, epsilons)
            least += 1
    assert measured > 60
    assert sound > 150
    assert least >= 3


def test_a_refuting_bound_is_of_what_the_row_measures(rows: list[ClaimRow]) -> None:
    """The bound is the number itself, or that of the very experiment whose accuracy is in the row."""
    refuted = [row for row in rows if row.guarantee == "refuted"]
    assert {row.claim.paper for row in refuted} == {"noise_screening", "backprop_clipping"}
    for row in refuted:
        if row.computed:
            assert row.at_least
            assert row.measured == row.epsilon_least
        else:
            if row.claim.alone == whole_run.EXPERIMENT:
                least = whole_run.least_epsilon(whole_run.totals(), 1e-5)
            else:
                least = first_update_epsilon("backprop_clipping/table_1", row.claim.alone)
            assert row.epsilon_least == pytest.approx(least, rel=1e-5)
    assert all(row.epsilon_least is None for row in rows if row.claim.alone.endswith("_printed"))


def test_a_claimed_best_is_called_one_and_no_mean_fails_alone(shown: list[tuple[ClaimRow, list[str]]]) -> None:
    bests = [(row, cells) for row, cells in shown if row.claim.is_best and row.claim.claimed]
    assert len(bests) > 30
    assert [cells for _, cells in bests if "best" not in cells[1]] == []
    failing = [row for row, _ in bests if row.verdict == "fails" and row.measured_is.startswith("mean of")]
    assert [row for row in failing if row.max >= row.claim.aim - row.claim.margin] == []


def test_the_interval_in_the_csv_is_that_of_the_difference(shown: list[tuple[ClaimRow, list[str]]]) -> None:
    """Of a threshold, too: the page adds the level to its ends."""
    passed = 0
    for row, cells in shown:
        if row.interval is None or row.difference is None or row.claim.statistic == "best":
            continue
        assert row.interval.low <= row.difference <= row.interval.high, cells
        if row.claim.level is not None and row.claim.direction in ("above", "below"):
            assert row.difference == pytest.approx(row.measured - row.claim.level, abs=1e-5)
            low, high = re.findall(r"[−\d.∞]+", cells[5])[:2]
            assert value_of(low) <= row.measured + 0.01
            assert value_of(high) >= row.measured - 0.01
            passed += 1
    assert passed > 30


def test_index_command_and_site_count_the_same(capsys) -> None:
    index: dict[str, int] = {}
    for heading, cells in tables(RESULTS / "README.md"):
        if cells[0] == "**all**":
            index |= {name: int(cell.split()[0]) for name, cell in zip(heading[1:], cells[1:], strict=True)}
    site = site_claims()
    shown = [row["filters"] for row in site["rows"] if site["usual"].items() <= row["filters"].items()]
    of_site = Counter(row["verdict"] for row in shown) + Counter(row[CLAIMED_EPSILON] for row in shown)
    for option, words in (("--verdict", WORDS), ("--guarantee", ON_EPSILON)):
        for word in words:
            claims([option, word])
            count = re.search(r"^(\d+) of (\d+) claims\.$", capsys.readouterr().out, re.MULTILINE)
            assert count
            assert (int(count[1]), of_site[word], int(count[2])) == (index[word], index[word], index["all"]), word
    assert sum(index[word] for word in WORDS) == index["all"] == len(shown) > 250


def test_every_claim_that_fails_has_its_reason(rows: list[ClaimRow]) -> None:
    bad = [row for row in rows if row.claim.counts and row.bad]
    assert len(bad) > 20
    assert [row.claim.method for row in bad if not row.claim.cause] == []
    for paper in every_paper():
        text = (RESULTS / paper.name / "README.md").read_text(encoding="utf-8")
        causes = [row.claim.cause for row in bad if row.claim.paper == paper.name]
        assert all(cause in text for cause in causes)


def test_a_papers_page_is_short_and_has_its_findings() -> None:
    sources = committed_sources()
    for paper in every_paper():
        text = (RESULTS / paper.name / "README.md").read_text(encoding="utf-8")
        assert len([word for word in text.split() if any(map(str.isalnum, word))]) <= 2_500
        for item in (item for item in paper.items if item.finding):
            finding = stated(paper.name, item.finding, sources)
            assert f"**{finding}**" in text, item.name
            assert finding, item.name


def test_a_word_has_its_rule_and_context_has_none(rows: list[ClaimRow]) -> None:
    by_text = {entry.text: entry.word for entry in RULES}
    assert all(row.verdict == by_text.get(row.rule, "") for row in rows)
    assert all((row.verdict == "") == row.claim.contextual for row in rows)
    assert {row.verdict for row in rows} == {*WORDS, ""}


def test_every_number_says_what_it_is_and_a_best_that_it_is_one(rows: list[ClaimRow]) -> None:
    measured = [row for row in rows if row.measured is not None]
    assert [row for row in measured if not KINDS.match(row.measured_is)] == []
    best = [row for row in measured if row.claim.statistic in ("best", "largest")]
    assert len(best) >= 10
    assert [row for row in best if not re.match(r"bests? of \d|one run$", row.measured_is)] == []
    pages = [path for path in RESULTS.rglob("*.md") if "runs" not in path.relative_to(RESULTS).parts]
    assert [
        name
        for path in pages
        for heading, cells in tables(path)
        for name, cell in zip(heading, cells, strict=True)
        if "mean" in name and BEST.search(cell)
    ] == []


def test_a_bests_interval_is_one_of_the_best(rows: list[ClaimRow]) -> None:
    """Computed again from the spreads; a difference of bests has its means' difference in words."""
    checked = set()
    for row in rows:
        sizes = [int(text) for text in (row.n_each or str(row.n)).split(" + ")]
        if row.claim.statistic != "best" or row.interval is None or min(sizes) < 3:
            continue  # with fewer runs, it has the spread of the data set's settings
        spreads = [Spread(float(text), n - 1) for text, n in zip(row.spread_each.split(" + "), sizes, strict=True)]
        by_means = row.mean if row.mean is not None else float(row.measured_is.rpartition(" by means ")[2])
        means = zip((by_means, 0.0), sizes, spreads, strict=False)
        single, *second = (Mean(mean, n, spread) for mean, n, spread in means)
        assert row.claim.aim is not None
        aim = row.claim.aim, row.claim.runs
        expected = bests_less_claim(single, second[0], *aim) if second else best_less_claim(single, *aim)
        assert (row.interval.low, row.interval.high) == pytest.approx((expected.low, expected.high), abs=0.01)
        checked.add(len(sizes))
    assert checked == {1, 2}


def test_what_does_not_count_is_marked_wherever_it_is_shown(rows: list[ClaimRow], capsys) -> None:
    readings = [row for row in rows if row.claim.counted == "no, another reading"]
    assert len(readings) > 50
    assert {row.claim.identity for row in readings} <= {row.claim.identity for row in rows if row.claim.counts}
    marked = "another reading, not counted"
    places = [RESULTS / paper.name / item.name / "README.md" for paper in every_paper() for item in paper.items]
    pages = "".join(place.read_text(encoding="utf-8").partition("\n## Claims")[2] for place in places)
    site = site_claims()
    claims([])
    shown = capsys.readouterr().out
    claims(["--all"])
    assert shown.count(marked) == 0
    assert [pages.count(marked), capsys.readouterr().out.count(marked)] == [len(readings)] * 2
    assert sum(marked in row["cells"][3] for row in site["rows"]) == len(readings)
    assert site["usual"] == {"counted": "yes"}
