"""Tables 3 and 4 in the paper's layout, claimed next to measured values."""

from __future__ import annotations

from collections.abc import Sequence

from runner.claims.evidence import Evidence
from runner.claims.rows import ClaimRow
from runner.claims.runs import Runs, last_accuracy
from runner.report.files import Table, bound_text, number
from runner.report.markdown import cells_of, claim_cells

TABLE_3_SEARCH = ("tempered_sigmoid/table_3_search",)
TABLE_4_SEARCH = ("tempered_sigmoid/table_4_search_sgd", "tempered_sigmoid/table_4_search_adam")
_TABLE_3 = ("tempered_sigmoid/table_3_chosen", "tempered_sigmoid/table_3")  # the first with the experiment counts
_TABLE_4 = ("tempered_sigmoid/table_4",)  # at the paper's rates


def table_3(evidence: Evidence, judged: Sequence[ClaimRow]) -> Table:
    """Return dataset and technique, accuracy and epsilon; in the notes, the result of the learning-rate search."""
    accuracies = [j for j in judged if j.claim.quantity == "test_accuracy"]
    computed = [j.explanation + "." for j in judged if j.claim.quantity == "epsilon"]
    header, rows = claim_cells(accuracies)
    return Table(header, rows, (*computed, *search_notes(evidence, TABLE_3_SEARCH, _TABLE_3)))


def table_4(evidence: Evidence, judged: Sequence[ClaimRow]) -> Table:
    """Return a row per optimizer: learning rate and accuracy without and with differential privacy.

    The notes have the result of the search of this benchmark, and the accuracies at its choice.
    """
    accuracies = [j for j in judged if j.claim.quantity == "test_accuracy"]
    by_method = {j.claim.method: j for j in reversed(accuracies)}  # the first of several readings
    measured = ("claimed (%)", "measured (%)", "min / median / max", "n", "best epoch (%)")
    header = ["optimizer"]
    for kind in ("without privacy", "private"):
        header += [f"{kind}: {name}" for name in ("learning rate", *measured)]
    header += ["claimed ε", "ε of the run", "sound ε of the run", "the claimed ε is"]
    rows, in_table = [], []
    for optimizer in ("SGD", "Adam"):
        row = [optimizer]
        for method in (f"{optimizer} without privacy", f"DP-{optimizer}"):
            j = by_method[method]
            in_table.append(j)
            cells = cells_of(j)
            row += [_learning_rate(evidence, j), cells.claimed, cells.measured, cells.spread, cells.runs, cells.best]
        row += [j.claim.at_epsilon, number(j.epsilon), bound_text(j.epsilon_sound), j.guarantee]
        rows.append(row)
    chosen = [
        f"{j.claim.method}, {j.claim.reading}: {cells.measured} for {cells.claimed} (n = {cells.runs}), "
        f"{j.explanation}."
        for j in accuracies
        if j not in in_table
        for cells in [cells_of(j)]
    ]
    return Table(header, rows, (*search_notes(evidence, TABLE_4_SEARCH, _TABLE_4), *chosen))


def _learning_rate(evidence: Evidence, judged: ClaimRow) -> str:
    planned = evidence.planned(judged.claim.sweep, judged.claim.experiment)
    return f"{planned[0].field('optimizer.lr'):g}" if planned else "–"


def search_notes(evidence: Evidence, sweeps: Sequence[str], tables: Sequence[str]) -> tuple[str, ...]:
    """Return one sentence per technique: the best learning rate of the search, by accuracy on held-out images.

    Args:
        tables: the sweeps of a table; a technique is taken from the first one that has it.
    """
    notes = []
    for sweep in sweeps:
        for experiment, planned in Runs(evidence.sweeps.get(sweep, ())).by(lambda run: run.job.experiment).items():
            name, recorded = planned[0].name, planned.recorded
            if not recorded:
                notes.append(f"Learning-rate search, {name}: not run.")
                continue
            notes.append(
                f"Learning-rate search, {name}: {recorded.best.field('optimizer.lr'):g} is the best of "
                f"{planned.recorded_of}, with {number(last_accuracy(recorded.best), '%')}% of held-out "
                f"training images; this table is at {_table_rate(evidence, tables, experiment)}."
            )
    return tuple(notes)


def _table_rate(evidence: Evidence, tables: Sequence[str], experiment: str) -> str:
    for sweep in tables:
        rates = {float(run.field("optimizer.lr")) for run in evidence.planned(sweep, experiment)}
        if rates:
            return ", ".join(f"{rate:g}" for rate in sorted(rates))
    return "no learning rate yet"
