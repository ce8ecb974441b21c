"""Words, counts and bounds of the committed pages: the same everywhere, and each bound stays one."""

import math
import re
from collections import Counter
from runpy import run_path
from typing import Any

import pytest

from runner.claims.verdicts import ON_EPSILON, WORDS, ClaimRow
from runner.cli.show import claims
from runner.config import REPOSITORY, RESULTS
from runner.papers.backprop_clipping import whole_run
from runner.papers.backprop_clipping.figures import first_update_epsilon
from runner.report.claim_rows import CLAIMED_EPSILON, cells_of, epsilon_text, rows_of
from runner.report.papers import every_paper


@pytest.fixture(scope="module")
def rows(listed_runs) -> list[ClaimRow]:
    return [row for paper in every_paper() for row in rows_of(RESULTS, paper)]


def site_claims() -> dict[str, Any]:
    pytest.importorskip("material")
    hooks: dict[str, Any] = run_path(str(REPOSITORY / "docs" / "site" / "hooks.py"))
    table: dict[str, Any] = hooks["claims_table"]()
    return table


def value_of(text: str) -> float:
    """Read a number as a page writes it."""
    return float(text.replace("−", "-").replace(",", "").replace("∞", "inf"))


def test_no_epsilon_on_a_page_is_below_that_of_the_csv(rows: list[ClaimRow]) -> None:
    """And no lower bound is above it."""
    measured = sound = least = 0
    for row in rows:
        cells, epsilons = cells_of(row), epsilon_text(row)
        epsilon = row.claim.quantity.startswith("epsilon") or row.claim.unit == "epsilon"
        if epsilon and row.measured is not None and math.isfinite(row.measured):
            number = value_of(cells.measured.removeprefix("≥ ").split()[0])
            assert number <= row.measured if row.at_least else number >= row.measured, cells
            measured += 1
        if epsilon and row.computed and not row.at_least and row.claim.aim is not None:
            assert value_of(cells.difference) >= row.difference, cells
        if "→" in epsilons:
            assert value_of(epsilons.split(" ✓")[0].split(" ✗")[0].split()[-1]) >= row.epsilon_sound, epsilons
            sound += 1
        if "≥" in epsilons:
            assert value_of(epsilons.partition("≥ ")[2].split(", ≤")[0]) <= row.epsilon_least, epsilons
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


def test_index_command_and_site_count_the_same(capsys) -> None:
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    totals = " ".join(line for line in text.splitlines() if line.startswith("| **all** |"))
    counts = map(int, re.findall(r"\| (\d+)", totals))
    index = dict(zip([*WORDS, "all", *ON_EPSILON], counts, strict=False))
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
    bad = [row.claim for row in rows if row.claim.counts and row.bad]
    assert len(bad) > 20
    assert [claim.method for claim in bad if not claim.cause] == []


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
