"""The searches of learning rates behind tables 3 and 4."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from runner.claims.claim import dataset_name
from runner.claims.judgement import ClaimRow
from runner.claims.runs import Evidence, Runs, last_accuracy
from runner.report.files import Table, number

TABLE_3_SEARCH = ("tempered_sigmoid/table_3_search",)
TABLE_4_SEARCH = ("tempered_sigmoid/table_4_search_sgd", "tempered_sigmoid/table_4_search_adam")
_TABLE_3 = ("tempered_sigmoid/table_3_chosen", "tempered_sigmoid/table_3")  # the first with the experiment counts
_TABLE_4 = ("tempered_sigmoid/table_4",)  # at the paper's rates
_HEADER = (
    *("dataset", "technique", "rates searched", "best rate"),
    *("accuracy on held-out images (%)", "rate of the final runs"),
)


def searched(sweeps: Sequence[str], tables: Sequence[str], evidence: Evidence, _: Sequence[ClaimRow]) -> Table:
    """Return a table of searches: for each technique, the best learning rate by accuracy on held-out images.

    `tables`: the sweeps of the paper's table. A technique is taken from the first one that has it.
    """
    rows = []
    for sweep in sweeps:
        for experiment, planned in Runs(evidence.sweeps.get(sweep, ())).by(lambda run: run.job.experiment).items():
            best = planned.recorded.best if planned.recorded else None
            rate = f"{best.field('optimizer.lr'):g}" if best else "–"
            accuracy = number(last_accuracy(best) if best else None, "%")
            used = _table_rate(evidence, tables, experiment)
            labels = dataset_name(planned[0].field("dataset.name")), planned[0].field("title")
            rows.append((*labels, planned.recorded_of, rate, accuracy, used))
    return Table(_HEADER, rows, ("Held-out images are training images that the search does not train on.",))


table_3, table_4 = partial(searched, TABLE_3_SEARCH, _TABLE_3), partial(searched, TABLE_4_SEARCH, _TABLE_4)


def _table_rate(evidence: Evidence, tables: Sequence[str], experiment: str) -> str:
    for sweep in tables:
        rates = {float(run.field("optimizer.lr")) for run in evidence.planned(sweep, experiment)}
        if rates:
            return ", ".join(f"{rate:g}" for rate in sorted(rates))
    return "–"
