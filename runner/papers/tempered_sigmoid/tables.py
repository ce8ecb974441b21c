"""Tables 3 and 4 in the paper's layout, what was claimed next to what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from runner.report.evidence import Evidence
from runner.report.files import Table, bound_text, number
from runner.report.markdown import claim_cells, measured_text
from runner.report.verdicts import Judged, explanation

TABLE_3_SEARCH = ("tempered_sigmoid/table_3_search",)
TABLE_4_SEARCH = ("tempered_sigmoid/table_4_search_sgd", "tempered_sigmoid/table_4_search_adam")


def table_3(evidence: Evidence, judged: Sequence[Judged]) -> Table:
    """Dataset and technique, accuracy and epsilon; below it, what the learning-rate search found."""
    accuracies = [j for j in judged if j.claim.quantity == "test_accuracy"]
    computed = [explanation(j) + "." for j in judged if j.claim.quantity == "epsilon"]
    header, rows = claim_cells(accuracies)
    return Table(header, rows, (*computed, *search_notes(evidence, TABLE_3_SEARCH)))


def table_4(evidence: Evidence, judged: Sequence[Judged]) -> Table:
    """A row an optimizer: learning rate and accuracy without and with differential privacy."""
    by_method = {j.claim.method: j for j in judged}
    header = ["optimizer"]
    for kind in ("non-private", "private"):
        header += [
            f"{kind}: learning rate",
            "claimed (%)",
            "measured (%)",
            "min / median / max",
            "n",
            "best epoch (%)",
        ]
    header += ["claimed ε", "ε of the run", "sound ε of the run", "claimed ε"]
    rows = []
    for optimizer in ("SGD", "Adam"):
        row = [optimizer]
        for kind in ("non-private", "DP"):
            j = by_method[f"{optimizer} {kind}"]
            row += [_learning_rate(evidence, j), j.claim.claimed_value, *measured_text(j)]
        private = by_method[f"{optimizer} DP"]
        row += [private.claim.privacy_epsilon, number(private.measured.epsilon)]
        rows.append([*row, bound_text(private.measured.epsilon_sound), private.privacy])
    return Table(header, rows, search_notes(evidence, TABLE_4_SEARCH))


def _learning_rate(evidence: Evidence, judged: Judged) -> str:
    planned = evidence.planned(judged.claim.sweep, judged.claim.experiment)
    return f"{planned[0].job.config.optimizer.lr:g}" if planned else "–"


def search_notes(evidence: Evidence, sweeps: Sequence[str]) -> tuple[str, ...]:
    """One sentence a technique: the best learning rate of the search, by accuracy on held-out images."""
    notes = []
    for sweep in sweeps:
        for experiment in dict.fromkeys(run.job.experiment for run in evidence.sweeps.get(sweep, [])):
            planned, recorded = evidence.planned(sweep, experiment), evidence.recorded(sweep, experiment)
            name = experiment.rpartition("/")[2]
            if not recorded:
                notes.append(f"Learning-rate search, {name}: not run.")
                continue
            best = max(recorded, key=lambda run: run.final("test_accuracy"))
            rate, accuracy = best.job.config.optimizer.lr, number(best.final("test_accuracy"), "%")
            notes.append(
                f"Learning-rate search, {name}: {rate:g} is the best of {len(recorded)} of {len(planned)}, "
                f"with {accuracy}% of held-out training images; "
                f"this table is at {_table_rate(evidence, experiment)}."
            )
    return tuple(notes)


def _table_rate(evidence: Evidence, experiment: str) -> str:
    rates = {
        float(run.job.config.optimizer.lr)
        for sweep, runs in evidence.sweeps.items()
        for run in runs
        if run.job.experiment == experiment and sweep not in (*TABLE_3_SEARCH, *TABLE_4_SEARCH)
    }
    return ", ".join(f"{rate:g}" for rate in sorted(rates)) or "no learning rate yet"
