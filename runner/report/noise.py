"""By which noise the guaranteed epsilons hold: of exact Gaussian noise, but the runs' own was drawn in another way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.claims.claim import Claim
from runner.claims.judgement import ClaimRow, counted
from runner.claims.verdicts import GUARANTEED
from runner.mechanism.normal import DRAWN, PRECISION
from runner.records.files import record_path
from runner.report.papers import load

OLDER, FORMULA = "float32", "formula"
_NAMED = {f'"noise": "{kind}"'.encode(): kind for kind in (DRAWN, PRECISION)}  # in a record


def by_noise(folder: Path, scale: str, by_paper: Mapping[str, Sequence[ClaimRow]]) -> Counter[str]:
    """Count the claims whose epsilon is guaranteed by the noise of their runs.

    The kind is that of the worst noise of the runs of the claim's experiments: "float32", then "float64", then
    "float64, rounded once". It is "formula" if the number is computed, or there is no run.
    """
    counts: Counter[str] = Counter()
    for paper, rows in by_paper.items():
        for row in counted(rows):
            if row.guarantee == GUARANTEED:
                paths = () if row.computed else _records(folder, scale, paper, row.claim)
                kinds = {_kind(path.read_bytes()) for path in paths}
                counts[next((kind for kind in (OLDER, DRAWN, PRECISION) if kind in kinds), FORMULA)] += 1
    return counts


def _records(folder: Path, scale: str, paper: str, claim: Claim) -> list[Path]:
    """List the records of a claim's experiments among the runs of its item, if that is aggregated."""
    if not (folder / paper / claim.item).exists():
        return []
    loaded = load(paper)
    jobs = loaded.planned(loaded.item(claim.item), scale)
    paths = [record_path(folder, job.run_id) for job in jobs if job.experiment in claim.experiments]
    return [path for path in paths if path.exists()]


def _kind(record: bytes) -> str:
    return next((kind for named, kind in _NAMED.items() if named in record), OLDER)


def noise_text(folder: Path, scale: str, by_paper: Mapping[str, Sequence[ClaimRow]], limits: str) -> str:
    """Say of how many guaranteed claims the noise was drawn in float32, in a paragraph; "" if nothing is guaranteed.

    limits: the address of the known limits, from the page of the text.
    """
    counts = by_noise(folder, scale, by_paper)
    if not counts:
        return ""
    return (
        f"An ε is **guaranteed** for exact Gaussian noise, but [computed noise is not exact]({limits}). Of the "
        f"{counts.total()} claims with a guaranteed ε, {counts[OLDER]} rest on runs whose noise was drawn in float32, "
        f"so coarsely that it can reveal an example. Noise drawn in {DRAWN} is behind "
        f"{counts[DRAWN] + counts[PRECISION]} of them, and a formula without runs behind {counts[FORMULA]}.\n"
    )
