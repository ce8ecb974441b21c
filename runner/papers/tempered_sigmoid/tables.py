"""The networks of tables 1 and 2, and the searches of learning rates behind tables 3 and 4."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from runner.claims.claim import dataset_name
from runner.claims.runs import Evidence, Runs, last_accuracy
from runner.claims.verdicts import ClaimRow
from runner.papers.tempered_sigmoid.figures import FIG_3, PAPER
from runner.report.files import Table, bound_text, mean_text, number
from runner.report.tables import network_table

TABLE_3_SEARCH = ("tempered_sigmoid/table_3_search", "tempered_sigmoid/table_3_cifar10_search")
TABLE_4_SEARCH = ("tempered_sigmoid/table_4_search_sgd", "tempered_sigmoid/table_4_search_adam")
_TABLE_3 = (  # the first with the experiment counts
    *("tempered_sigmoid/table_3_chosen", "tempered_sigmoid/table_3_cifar10_chosen", "tempered_sigmoid/table_3"),
)
_TABLE_4 = ("tempered_sigmoid/table_4",)  # at the paper's rates
_HEADER = (
    *("dataset", "technique", "paper (%)", "here (%)", "n", "ε of the paper", "sound ε", "learning rate"),
    *("rates searched", "best rate", "accuracy on held-out images (%)"),
)
_SHOWN = tuple(name for name in _HEADER[:8] if name != "ε of the paper")


table_1 = partial(
    network_table,
    FIG_3,
    f"{PAPER}/mnist_tanh",
    "The paper gives neither paddings nor the stride of the poolings. Here the first convolution has SAME padding: "
    "3 on every side, as an 8x8 kernel with stride 2 on 28 pixels needs 6 in total. The poolings have stride 1. The "
    "second convolution has no padding.",
)
table_2 = partial(
    network_table,
    FIG_3,
    f"{PAPER}/cifar10_tanh",
    "The paper gives no padding. It has to be SAME: without padding the feature map would vanish before the last "
    "layer. The last convolution has no activation.",
)


def searched(sweeps: Sequence[str], tables: Sequence[str], evidence: Evidence, judged: Sequence[ClaimRow]) -> Table:
    """Return the paper's table with the accuracies here, and beside it the search of each learning rate.

    `tables`: the sweeps of the paper's table. A technique is taken from the first one that has it.
    """
    rows = []
    claims = {row.claim.alone: row.claim for row in reversed(judged) if row.claim.quantity == "test_accuracy"}
    for sweep in sweeps:
        for experiment, planned in Runs(evidence.sweeps.get(sweep, ())).by(lambda run: run.job.experiment).items():
            best = planned.recorded.best if planned.recorded else None
            rate = f"{best.field('optimizer.lr'):g}" if best else "–"
            accuracy = number(last_accuracy(best) if best else None, "%")
            final = next((runs for table in tables if (runs := evidence.planned(table, experiment))), Runs())
            rates = (
                ", ".join(f"{rate:g}" for rate in sorted({float(run.field("optimizer.lr")) for run in final})) or "–"
            )
            runs, claim = final.recorded, claims.get(experiment)
            here = mean_text(runs.finals("test_accuracy"), "%") if runs else "–"
            costs = [bound_text(runs.largest(name)) if runs else "–" for name in ("epsilon", "epsilon_sound")]
            labels = dataset_name(planned[0].field("dataset.name")), planned[0].field("title")
            told = [claim.claimed.text if claim else "", here, final.recorded_of, *costs, rates]
            rows.append((*labels, *told, planned.recorded_of, rate, accuracy))
    notes = (
        "Accuracies here are after the last epoch, at the learning rate named. The search of each rate is in the CSV, "
        "on held-out images: training images that it does not train on.",
    )
    return Table(_HEADER, rows, notes, _SHOWN)


table_3, table_4 = partial(searched, TABLE_3_SEARCH, _TABLE_3), partial(searched, TABLE_4_SEARCH, _TABLE_4)
