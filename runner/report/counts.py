"""Counts of claims: by their words, and by the noise that their guaranteed epsilons rest on.

A guaranteed ε holds for exact Gaussian noise, but the runs' own was drawn in another way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.claims.claim import ANOTHER_READING, Claim
from runner.claims.judgement import ClaimRow, count_guarantees, count_words, counted
from runner.claims.verdicts import GUARANTEED, ON_EPSILON, WORDS
from runner.mechanism.normal import DRAWN, PRECISION
from runner.records.files import record_path
from runner.report.cells import wrong_epsilon
from runner.report.files import Table, enumerated, markdown
from runner.report.papers import load

_NO_EPSILON = "number holds or is not contradicted, ε refuted or not guaranteed"
_OLDER, _FORMULA = "float32", "formula"
_NOISE = {f'"noise": "{kind}"'.encode(): kind for kind in (DRAWN, PRECISION)}  # in a record


def totals(by_paper: Mapping[str, Sequence[ClaimRow]]) -> str:
    """Write the tables of counts, of the numbers and of the claimed ε: a row for each paper and one for all.

    The claims by a formula are in brackets.
    """
    numbers, epsilons = [], []
    everything = [row for rows in by_paper.values() for row in rows]
    for name, rows in {**by_paper, "**all**": everything}.items():
        words, formulas = count_words(rows), count_words([row for row in rows if row.computed])
        cells = [f"{words[w]} ({formulas[w]} by formula)" if formulas[w] else str(words[w]) for w in WORDS]
        numbers.append([name, *cells, str(len(counted(rows)))])
        guarantees, wrong = count_guarantees(rows), sum(map(wrong_epsilon, counted(rows)))
        epsilons.append([name, *(str(guarantees[word]) for word in ON_EPSILON), str(wrong)])
    headers = ("paper", *WORDS, "all"), ("paper, claimed ε", *ON_EPSILON, _NO_EPSILON)
    tables = [Table(header, rows) for header, rows in zip(headers, (numbers, epsilons), strict=True)]
    note = (
        "A claim is a number or a statement of a paper, and each counts once. If it has several readings, the first "
        f"counts. {_not_counted(everything)} `python -m runner claims --verdict fails` lists the claims with a word, "
        "and `--all` adds the rows that do not count."
    )
    return "\n".join(map(markdown, tables)) + f"\n{note}\n"


def _not_counted(rows: Sequence[ClaimRow]) -> str:
    """Say how many rows do not count, and which words the other readings have."""
    readings = [row for row in rows if row.claim.counted == ANOTHER_READING]
    words = Counter(row.verdict for row in readings)
    verdicts = ", ".join(f"{words[word]} *{word}*" for word in WORDS if words[word])
    context = sum(row.claim.contextual for row in rows)
    parts = [f"{len(readings)} of other readings" + (f" ({verdicts})" if verdicts else "")] * bool(readings)
    parts += [f"{context} for context"] * bool(context)
    return f"Rows that are shown, but not counted: {enumerated(parts)}." if parts else ""


def noise_text(folder: Path, scale: str, by_paper: Mapping[str, Sequence[ClaimRow]], limits: str) -> str:
    """Say of how many guaranteed claims the noise was drawn in float32, in a paragraph; "" if nothing is guaranteed.

    The noise of a claim is the worst of the runs of its experiments: "float32", then "float64", then "float64, rounded
    once". A claim whose number is computed, or that has no run, rests on a formula.

    limits: the address of the known limits, from the page of the text.
    """
    counts: Counter[str] = Counter()
    for paper, rows in by_paper.items():
        for row in counted(rows):
            if row.guarantee == GUARANTEED:
                records = [] if row.computed else _records(folder, scale, paper, row.claim)
                kinds = {next((kind for key, kind in _NOISE.items() if key in record), _OLDER) for record in records}
                counts[next((kind for kind in (_OLDER, DRAWN, PRECISION) if kind in kinds), _FORMULA)] += 1
    if not counts:
        return ""
    return (
        f"An ε is **guaranteed** for exact Gaussian noise, but [computed noise is not exact]({limits}). Of the "
        f"{counts.total()} claims with a guaranteed ε, {counts[_OLDER]} rest on runs whose noise was drawn in float32, "
        f"so coarsely that for some examples δ is near 1. Noise drawn in {DRAWN} is behind "
        f"{counts[DRAWN] + counts[PRECISION]} of them, and a formula without runs behind {counts[_FORMULA]}.\n"
    )


def _records(folder: Path, scale: str, name: str, claim: Claim) -> list[bytes]:
    """Read the records of a claim's experiments among the runs of its item, if that is aggregated."""
    if not (folder / name / claim.item).exists():
        return []
    paper = load(name)
    jobs = paper.planned(paper.item(claim.item), scale)
    paths = [record_path(folder, job.run_id) for job in jobs if job.experiment in claim.experiments]
    return [path.read_bytes() for path in paths if path.exists()]
