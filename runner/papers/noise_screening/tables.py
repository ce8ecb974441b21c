"""Tables 1 to 3, and the table at a sound epsilon."""

import math
from collections.abc import Sequence
from statistics import fmean

from runner.claims.claim import dataset_name
from runner.claims.evidence import Evidence, Runs
from runner.claims.verdicts import ClaimRow
from runner.papers.noise_screening import measures
from runner.papers.noise_screening.measures import DATASETS, claimed_at, delta, screened
from runner.report.formats import Table, bound_text, delta_text, mean_text, number, plus_minus, spread_text

SEARCHES = ("noise_screening/sound_search", "noise_screening/sound_search_no_momentum")
METHODS = {  # experiment, with {} for the data set: its name in table 1
    "noise_screening/{}_relu": "DP-SGD, ReLU",
    "losing_less/{}_ce": "DP-SGD, tanh",
    "noise_screening/{}_auto": "DP-SGD, AUTO-S",
    "noise_screening/{}_screened_momentum": "screening, momentum 0.9",
    "noise_screening/{}_screened_momentum_kept": "screening, momentum 0.9, not restored on rejection",
    "noise_screening/{}_screened": "screening, no momentum",
    "noise_screening/{}_free": "screening, its own settings",
    "noise_screening/{}_screened_public": "screening, no momentum",
    "noise_screening/{}_screened_momentum_public": "screening, momentum 0.9",
    "noise_screening/{}_free_public": "screening, its own settings",
    "losing_less/{}_sgd": "without privacy",
}


def table_1(evidence: Evidence, judged: Sequence[ClaimRow]) -> Table:
    claimed = {j.claim.alone: j.claim.claimed for j in judged}
    header = (
        *("dataset", "method", "screened by", "claimed (%)", "mean accuracy (%)", "on images that did not screen (%)"),
        *("n", "attempts a kept update", "kept by force only (% of kept updates)", "ε of kept updates"),
        *("sound ε of all attempts (mean; largest)", "sound ε guaranteed"),
    )
    rows = []
    for dataset, title in DATASETS.items():
        for pattern, method in METHODS.items():
            experiment = pattern.format(dataset)
            planned = measures.planned(evidence, experiment)
            if not planned:
                continue
            by = "–"
            if screened(planned[0]):
                by = "half of the test images" if experiment.endswith("_public") else "all test images"
            rows.append([dataset_name(title), method, by, claimed.get(experiment, ""), *_measured(planned)])
    shown = (*header[:3], "mean accuracy (%)", "n", "ε of kept updates", "sound ε guaranteed")
    return Table(header, rows, shown=shown)


def _measured(planned: Runs) -> list[str]:
    runs = planned.recorded
    private = runs.at(lambda run: run.last_within(claimed_at(), "epsilon"))
    if not runs:
        return ["–", "–", planned.recorded_of, *["–"] * 5]
    if not private:  # training without privacy
        return [mean_text(runs.finals("test_accuracy"), "%")] * 2 + [planned.recorded_of, "–", "–", "∞", "∞", "∞"]
    text = mean_text(private.values("test_accuracy"), "%")
    epsilon, sound = (bound_text(private.largest(name)) for name in ("epsilon", "epsilon_spent"))
    if not screened(runs[0]):
        return [text, text, planned.recorded_of, "–", "–", epsilon, sound, sound]
    unscreened = runs.finals("unscreened_accuracy")
    unscreened_text = "none left" if any(map(math.isnan, unscreened)) else mean_text(unscreened, "%")
    tries, forced = _mean_ratio(runs, "tries", "accepted"), 100 * _mean_ratio(runs, "forced", "accepted")
    mean = bound_text(fmean(private.values("epsilon_spent")))
    costs = [epsilon, f"{mean}; {sound}", bound_text(runs.largest("epsilon_sound"))]
    return [text, unscreened_text, planned.recorded_of, f"{tries:.2f}", f"{forced:.1f}", *costs]


def _mean_ratio(runs: Runs, numerator: str, denominator: str) -> float:
    return fmean(run.final(numerator) / run.final(denominator) for run in runs)


def table_2(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    rows = []
    for dataset in DATASETS.values():
        config, rule = measures.screened_run(dataset).config, measures.screening(dataset)
        rows.append(
            {
                "dataset": dataset_name(dataset),
                "learning rate": config.optimizer.lr,
                "batch size": config.batch_size,
                "clipping norm": config.clipping.norm,
                "noise multiplier": config.noise_multiplier,
                "Q0": rule.initial_temperature,
                "mu0": rule.rejection_threshold,
                "kept updates": measures.kept_steps(dataset),
            }
        )
    note = f"Kept updates: what classic RDP allows at ε = {claimed_at():g}, {delta_text(delta())}."
    return Table.of(rows, (note,), [name for name in rows[0] if name != "clipping norm"])


def table_3(evidence: Evidence, judged: Sequence[ClaimRow]) -> Table:
    header = (
        *("dataset", "accuracy (%)", "method", "claimed ε", "mean ε", "reached by", "n"),
        *("steps until then, sound ε", "guaranteed, sound ε", "verdict", "the claimed ε is", "counted"),
    )
    rows = []
    further: dict[str, None] = {}  # the longer runs, each once, in the order of the rows
    for j in judged:
        if j.claim.number.name != "epsilon_at_accuracy":
            continue
        accuracy, claimed = float(j.claim.number.argument), j.claim.claimed.replace(">6", "not within 6")
        method = ", ".join(filter(None, (j.claim.method, j.claim.reading)))
        recorded = measures.carried_on(j.claim, evidence, j.claim.experiment, accuracy).recorded
        for run in recorded:
            if run.job.experiment != j.claim.experiment:
                further[f"{dataset_name(j.claim.dataset)}, {method}, seed {run.seed}"] = None
        reached = recorded.at(measures.reaches(accuracy))
        text = "not reached" if recorded else "–"
        costs = ["–", "–"]
        if reached:
            text = mean_text(reached.values("epsilon"))
            if len(reached) < len(recorded):  # the mean of the runs that reach it is too small
                text = f"{plus_minus(j.measured, None, at_least=j.at_least)} (of those that do: {text})"
            costs = [bound_text(cost) for cost in measures.reached_costs(reached)]
        count = f"{j.n} of {j.n_planned}"
        by = f"{len(reached)} of {len(recorded)}" if recorded else "–"
        mark = "" if j.claim.counts else " (another reading, not counted)"
        labels = [dataset_name(j.claim.dataset), f"{accuracy:g}", method + mark]
        rows.append([*labels, claimed, text, by, count, *costs, j.verdict, j.guarantee, j.claim.counted])
    carried = f" ({'; '.join(further)})" if further else " (none here)"
    notes = (
        "Mean ε: at the first epoch whose test accuracy is at least the one named, mean of the runs. If some do not "
        "reach it, this is a lower bound on the mean, with the ε that these have spent. "
        "DP-SGD with ReLU runs to ε = 6, the paper's limit, where a run that does not reach it counts as infinite. The "
        "others run to about 3. A run that ends there needs more. How much more is known only of the runs carried on "
        f"to 6{carried}. Screened runs count attempts as epochs. ε is the paper's, which charges kept "
        "updates only. Steps until then: the largest cost of all steps up to that epoch, had their number been fixed "
        "beforehand. Guaranteed: the same. It does not cover a run that stops where its accuracy is reached, as the "
        "data choose that epoch. Screened runs can only fix the number of kept updates beforehand, so theirs is the "
        "cost of the most attempts that this number may take.",
    )
    shown = (*header[:5], "reached by", "guaranteed, sound ε")
    return Table(header, rows, notes, shown)


def sound(evidence: Evidence, _: Sequence[ClaimRow]) -> Table:
    header = (
        *("method", "mean accuracy (%)", "min / median / max", "best epoch (%)", "n", "kept of attempts", "sound ε"),
        *("noise multiplier", "learning rate", "momentum", "epochs of attempts"),
    )
    methods = {
        "screened_kept": "screened, momentum not restored on rejection",
        "screened": "screened, momentum restored",
        "plain": "DP-SGD with tanh, not screened",
    }
    rows = []
    for name, label in methods.items():
        planned = evidence.planned("noise_screening/sound", f"noise_screening/mnist_sound_{name}")
        config, runs = planned[0].job.config, planned.recorded
        settings = [config.optimizer.lr, config.optimizer.momentum, config.epochs]
        if not runs:
            rows.append([label, "–", "–", "–", planned.recorded_of, "–", "–", "–", *settings])
            continue
        accuracies = runs.finals("test_accuracy")
        accuracy = [mean_text(accuracies, "%"), spread_text(accuracies, "%")]
        best, kept_share = fmean(runs.finals("best_test_accuracy")), _mean_ratio(runs, "accepted", "tries")
        costs = [bound_text(runs.largest("epsilon_sound")), number(runs[0].final("noise_multiplier"))]
        rows.append([label, *accuracy, number(best, "%"), planned.recorded_of, f"{kept_share:.3f}", *costs, *settings])
    notes = [
        "MNIST. All report on the 5,000 test images that do not screen. The number of attempts is fixed beforehand, "
        "and the noise is calibrated to it. So the sound ε holds (PLD, "
        f"{delta_text(delta())}, training images private, screening images public).",
        *_search_notes(evidence),
    ]
    shown = ("method", "mean accuracy (%)", "n", "kept of attempts", "sound ε", "noise multiplier", "learning rate")
    return Table(header, rows, notes, shown)


def _search_notes(evidence: Evidence) -> list[str]:
    notes = []
    for name, label in (("screened", "screening that restores the momentum"), ("plain", "DP-SGD")):
        experiment = f"noise_screening/mnist_sound_{name}"
        planned = Runs(run for sweep in SEARCHES for run in evidence.planned(sweep, experiment))
        recorded = planned.recorded
        if not recorded:
            notes.append(f"Search for {label}: not run; its settings are those of table 2.")
            continue
        most = recorded.largest("test_accuracy")
        best = [run.job.config for run in recorded if run.final("test_accuracy") == most]
        settings = [
            f"learning rate {c.optimizer.lr:g}, momentum {c.optimizer.momentum:g}, {c.epochs} epochs" for c in best
        ]
        notes.append(
            f"Search for {label}, {planned.recorded_of} settings: best on held-out training images "
            f"({number(most, '%')}%) at {'. Equal at '.join(settings)}. It is charged nowhere."
        )
    return notes
