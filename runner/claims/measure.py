"""Measure a claim: choose its runs and their epochs, read a number of each, and compare.

A formula measures a claim in another way, by its name: a function of the claim and the evidence. Papers have more of
them. Some need no run, such as the charges of an experiment, which follow from its config alone.

For mean accuracies by the values of a swept field, let s be the spread of the data set's settings, and n_i the number
of runs of setting i.

- The range of the true means has Tukey and Kramer's simultaneous interval. All differences m_i - m_j of measured means
  are within q s sqrt((1/n_i + 1/n_j) / 2) of the true ones, with q the quantile of the studentized range. So the true
  range lies between the largest of the lower ends and the largest of the upper ends.
- The interval of the best value and of the correlation is between quantiles of a parametric bootstrap. Each mean is
  drawn again with its standard error, s / sqrt(n_i). A claimed number of k runs adds their own, s / sqrt(k): both
  are draws of the same sweep. If the best value may be the least or the largest one tried, a
  value beyond may be better. The interval is then unbounded on that side.

A setting with fewer than three runs confirms nothing.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from statistics import fmean
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # its modules are imported at their first use
from numpy.typing import NDArray

from runner.claims.claim import ORDERS, OVER_VALUES, SEARCH_CHOICE, THRESHOLDS, Claim
from runner.claims.evidence import Evidence, PlannedRun, Runs, RunsAt, decides
from runner.claims.intervals import Interval, Spread, between, redrawn
from runner.claims.measurement import FEWEST_RUNS, Measured, Sample, charged, compare_samples, measure_sample
from runner.claims.numbers import FIFTHS, epochs_of, reader_of
from runner.records.disk import upper_bound
from runner.records.jobs import sweep_jobs
from runner.terminal import bound_text

if TYPE_CHECKING:
    from runner.accounting import Releases
    from runner.training.run import Run

_LEARNING_RATE = "optimizer.lr"
_FEW = 6  # runs, up to which each is named
_WORDS = {"difference": "less", "ratio": "over", "order": "and"}
_MISSING = object()
_TOO_FEW = f"some value has fewer than {FEWEST_RUNS} runs"
_KINDS = {"best_value": "value with the best of", "spread": "range of", "correlation": "rank correlation of"}
_NUMBERS: dict[str, Callable[[Sequence[float], NDArray[np.float64]], float]] = {
    "best_value": lambda values, means: values[int(np.argmax(means))],
    "spread": lambda _, means: float(np.ptp(means)),
    "correlation": lambda values, means: float(scipy.stats.spearmanr(values, means).statistic),
}


class Formula(partial[Measured]):
    """A function of a claim and the evidence, found by its name, for claims beyond readers and comparisons."""


def measure(claim: Claim, evidence: Evidence, formulas: Mapping[str, Formula]) -> Measured:
    """Measure a claim; the result is empty if its runs are not recorded."""
    if claim.number.name in formulas:
        return formulas[claim.number.name](claim, evidence)
    searched, planned, texts = claim.where == SEARCH_CHOICE, dict[str, Runs](), list[str]()
    for name in claim.experiments:
        if not searched:
            planned[name] = planned_for(claim, evidence, name)
            continue
        planned[name], text = chosen_by_search(claim, evidence, name)
        texts.append(text if claim.alone else f"{name.rpartition('/')[2]}: {text}")
    lacking = tuple(name.rpartition("/")[2] for name, runs in planned.items() if not runs.recorded)
    runs = Runs(run for of_setting in planned.values() for run in of_setting)
    if claim.statistic in OVER_VALUES:
        measured = over_values(claim, evidence, list(planned.values()))
    elif lacking and searched:
        measured = Measured(explanation="; ".join(texts))
        runs = Runs(run for name in planned for run in evidence.planned(claim.sweeps, name))
    else:
        measured = _compared(claim, evidence, planned, "; ".join(texts))
    return counted(runs, replace(measured, lacking=lacking) if measured.value is not None else measured)


def planned_for(claim: Claim, evidence: Evidence, experiment: str) -> Runs:
    """Return the planned runs of one of a claim's experiments that its `where` selects, unless by a search.

    They come from the first of the claim's sweeps that has the experiment.
    """
    planned = evidence.planned(claim.sweeps, experiment)
    if claim.selection is None:
        return planned
    field, value = claim.selection
    return Runs(run for run in planned if field_of(claim, run, field) in (value, None))  # none: without privacy


def chosen_by_search(claim: Claim, evidence: Evidence, experiment: str) -> tuple[Runs, str]:
    """Find the planned runs of an experiment at the learning rate that its search chose.

    The search consists of all runs of the experiment in `Claim.searches`.

    Returns:
        The runs, none until the whole search has run, and in words how they were chosen.
    """
    planned, trained = evidence.planned(claim.sweep, experiment), experiment.removesuffix("_norms")
    searched = Runs(run for sweep in claim.searches for run in evidence.planned(sweep, trained))
    accuracies, fixed = planned.finals("test_accuracy"), ""
    if accuracies:
        mean, n = fmean(accuracies), len(accuracies)
        fixed = f". At one fixed setting the mean after the last epoch is {mean:.2f} (n = {n})"
    done = len(searched.recorded)
    if done < len(searched) or not searched:
        return Runs(), f"the search has not run ({done} of {len(searched)} settings){fixed}"
    best = searched.best.field(_LEARNING_RATE)
    chosen = planned.where(_LEARNING_RATE, best)
    if not chosen.recorded:
        return chosen, f"the search chose the learning rate {best:g}: not run{fixed}"
    seeds = "" if len({run.seed for run in searched}) > 1 else ", one seed each"  # so that chance had a part in it
    rates = [run.field(_LEARNING_RATE) for run in searched]
    edge = "least" if best == min(rates) else "largest" if best == max(rates) else None
    warning = f", the {edge} of them: one beyond may do better" if edge else ""
    return chosen, f"at {best:g}, the best of {len(searched)} learning rates on held-out images{seeds}{warning}"


def _compared(claim: Claim, evidence: Evidence, settings: Mapping[str, Runs], how: str) -> Measured:
    """Measure the claim's statement about each pair, epoch and number; the value is the least favourable one."""
    # A setting that is compared with several needs records of all of them.
    incomplete = {pair[0] for pair in claim.pairs if not all(settings[name].recorded for name in pair)}
    statements, used, texts = [], RunsAt(), []
    for pair in claim.pairs:
        if pair[0] in incomplete:
            continue
        planned = [settings[name] for name in pair]
        pair_statements = []
        for epoch in epochs_of(claim):
            samples = [runs.at(epoch) for runs in planned]
            if all(samples):
                used = RunsAt((*used, *(run_at for sample in samples for run_at in sample)))
                pair_statements += _statements(claim, evidence, planned, samples)
        if pair_statements:
            statements += pair_statements
            texts.append(_text(claim, [runs.at(epochs_of(claim)[-1]) for runs in planned], pair_statements))
    if not statements:
        above = claim.at.name in ("below", "within") and all(runs.recorded for runs in settings.values())
        return Measured(explanation=f"no epoch of these runs stays {claim.at} {claim.bound:g}" if above else "")

    def support(statement: Measured) -> float:
        value = math.nan if statement.value is None else statement.value
        sign = -1 if claim.direction in ("below", "below_other") else 1
        return -math.inf if math.isnan(value) else sign * (value - (statement.reference or 0.0))

    shown = min(statements, key=support)
    how = "; ".join(filter(None, (how, *texts)))
    if len(statements) > 1:
        how += "; the least favourable counts"
    return replace(charged(shown, used), statements=tuple(statements) if len(statements) > 1 else (), explanation=how)


def _statements(claim: Claim, evidence: Evidence, planned: Sequence[Runs], runs_at: Sequence[RunsAt]) -> list[Measured]:
    """Measure each of the numbers that the claim's reader returns, over one setting or two that are compared."""
    read = reader_of(claim.number)
    accuracies = claim.number.name == "test_accuracy"
    on_test = len(runs_at) == 1 and any(run.field("screening.images") == "test" for run, _ in runs_at[0])
    typical = None
    if accuracies and claim.compare != "ratio":
        typical = evidence.spread(runs_at[0][0][0].field("dataset.name"))
    sizes = tuple(map(len, planned))
    statements = []
    for samples in zip(*(_samples(read(run, epoch) for run, epoch in runs) for runs in runs_at), strict=True):
        if len(samples) == 2:
            statement = compare_samples(claim.compare, claim.statistic, *samples)  # type: ignore[arg-type]
            if claim.direction in ORDERS and claim.compare == "difference":
                statement = replace(statement, reference=0.0)
        else:
            (sample,), best = samples, None
            if accuracies:
                best_epochs = [max(run.history("test_accuracy")[: epoch + 1]) for run, epoch in runs_at[0]]
                best = max(best_epochs) if claim.statistic == "largest" else fmean(best_epochs)
            if claim.statistic == "largest":  # the paper gives no number of runs: no sample to compare
                kind = f"best of {len(sample)} runs"
                statement = Measured(max(sample), sample, best=best, chosen_on_test=True, kind=kind)
            else:
                statement = measure_sample(claim.statistic, sample, best=best)  # type: ignore[arg-type]
                statement = replace(statement, chosen_on_test=on_test)
        n = sum(map(len, runs_at))
        statements.append(replace(statement, n=n, planned=sum(sizes), planned_each=sizes, typical=typical))
    return statements


def _samples(numbers: Iterable[float | Sequence[float]]) -> list[Sample]:
    """Return a sample for each number that a reader returns: [numbers][runs]."""
    by_run = [[number] if isinstance(number, (int, float)) else number for number in numbers]
    return list(zip(*by_run, strict=True))


def _text(claim: Claim, runs_at: Sequence[RunsAt], statements: Sequence[Measured]) -> str:
    """Describe what was compared, and the values of the statements."""
    if len(runs_at) == 1:
        return _setting_text(claim, runs_at[0])
    values = [statement.value or 0.0 for statement in statements]
    if claim.compare == "order":
        values = [(statement.value or 0.0) - (statement.reference or 0.0) for statement in statements]
    middles, (first, *more) = ["", ""], statements
    if not more and first.sample is not None and first.against is not None:
        samples, statistic = (first.sample, first.against), first.statistic or "mean"
        middles = [f" {measure_sample(statistic, sample).value:.4g}" for sample in samples]
    names = f" {_WORDS[claim.compare]} ".join(
        f"{runs[0][0].name}{middle} (n = {len(runs)})" for runs, middle in zip(runs_at, middles, strict=True)
    )
    epochs = dict.fromkeys(str(runs.epochs) for runs in runs_at)
    when = f"after epoch {' and '.join(epochs)}: " if claim.at.name in ("below", "within", "quarter") else ""
    if claim.at.name == "each_fifth":
        when = "after each fifth of the epochs: "
    if not more:
        return f"{when}{names}" + ("" if claim.compare == "order" else f" is {values[0]:.3g}")
    if len(statements) <= FIFTHS:
        return f"{when}{names}: {', '.join(f'{value:.3g}' for value in values)}"
    level = claim.aim or 0.0
    above = f"{sum(value > level for value in values)} of {len(values)} above {level:g}"
    return f"{when}{names}: {min(values):.3g} to {max(values):.3g}, {above}"


def _setting_text(claim: Claim, runs_at: RunsAt) -> str:
    runs, best = runs_at.runs, "the best of the runs " if claim.statistic == "best" else ""
    if claim.statistic == "largest":
        if len(runs) > _FEW:
            return f"the largest of {len(runs)} runs"
        read = reader_of(claim.number)
        numbers = _samples(read(run, epoch) for run, epoch in runs_at)[0]
        labels = [run.job.label.partition(" ")[2] for run in runs]
        return ", ".join(f"{number:.4g} ({label})" for number, label in zip(numbers, labels, strict=True))
    if claim.at.name == "within" and all(decides(run) for run in runs):
        tries, accepted, forced = (sum(runs.finals(name)) for name in ("tries", "accepted", "forced"))
        costs = runs.finals("epsilon_spent")
        return (
            f"{tries / accepted:.2f} attempts a kept update, {100 * forced / accepted:.1f}% of the kept by force only. "
            f"All attempts made would cost {bound_text(fmean(costs))} (mean, at most {bound_text(max(costs))}) had "
            f"their number been fixed beforehand. The most allowed cost {bound_text(runs.largest('epsilon_sound'))}"
        )
    if claim.at.name in ("below", "within"):
        end = f"; the whole run ends at {bound_text(runs.largest('epsilon'))}" if claim.at.name == "below" else ""
        return f"{best}after epoch {runs_at.epochs}, the last {claim.at} {claim.bound:g}{end}"
    return best and f"{best}after epoch {runs_at.epochs}"


def counted(planned: Runs, measured: Measured) -> Measured:
    """Add the numbers of planned, recorded and diverged runs, and their cost unless it is already there."""
    n, n_planned = measured.n or len(planned.recorded), measured.planned or len(planned)
    counts = replace(measured, n=n, planned=n_planned, diverged=planned.diverged)
    return counts if measured.value is None or measured.delta is not None else charged(counts, planned.last)


def over_values(claim: Claim, evidence: Evidence, experiments: Sequence[Runs]) -> Measured:
    """Measure a number made of the accuracies of all settings of a sweep.

    Of several experiments, the least favourable counts. An experiment counts once half of its values, and at least two,
    have a run. For the best value two settings are enough.
    """
    least = -math.inf if claim.among is None else claim.among
    chosen = [Runs(run for run in runs if float(field_of(claim, run, claim.by)) >= least) for runs in experiments]
    measured, texts = list[Measured](), list[str]()
    for runs in chosen:
        settings = list(runs.recorded.by(lambda run: run.job.setting_id).values())
        values = runs.recorded.groups_by(claim.by)
        samples = {value: recorded.finals("test_accuracy") for value, recorded in values.items()}
        if claim.statistic == "best_value":
            enough = len(settings) > 1
        else:
            enough = len(samples) >= max(2, len(runs.groups_by(claim.by)) / 2)
        if enough:
            measured.append(_measured(claim, settings, evidence.spread(runs[0].field("dataset.name"))))
            if len(settings) > len(samples):  # a grid
                best = max(fmean(setting.finals("test_accuracy")) for setting in settings)
                texts.append(f"{best:.2f}% with the best of {runs.recorded_of} settings")
            else:
                means = ", ".join(f"{value:g}: {fmean(sample):.2f}" for value, sample in samples.items())
                texts.append(f"{runs[0].name}, {measured[-1].value:.3g} by {claim.by} ({means})")
    if not measured:
        return Measured(explanation="less than half of the values have run")
    falling = claim.direction in ("below", "below_other")
    shown = (max if falling else min)(measured, key=lambda experiment: experiment.value or 0.0)
    planned = Runs(run for runs in chosen for run in runs)
    n = len(planned.recorded)
    return charged(replace(shown, values=(), explanation="; ".join(texts), n=n, planned=len(planned)), planned.last)


def field_of(claim: Claim, run: PlannedRun, name: str) -> Any:
    """Return a field of a run's config.

    Raises:
        ValueError: there is no such field.
    """
    value = run.job.field(name, _MISSING)
    if value is _MISSING:
        raise ValueError(f"{claim.place}: {run.job.experiment} has no field {name!r}.")
    return value


def _measured(claim: Claim, settings: Sequence[Runs], spread: Spread | None) -> Measured:
    settings = sorted(settings, key=lambda runs: float(runs[0].field(claim.by)))
    means = [fmean(runs.finals("test_accuracy")) for runs in settings]
    if claim.statistic == "lowest":
        lowest = measure_sample("mean", tuple(settings[means.index(min(means))].finals("test_accuracy")))
        return replace(lowest, kind=f"lowest of {len(means)} values, {lowest.what}")
    values = [float(runs[0].field(claim.by)) for runs in settings]  # the smallest first
    number = partial(_NUMBERS[claim.statistic], values)
    value = float(number(np.array(means)))
    sizes = [*map(len, settings)]
    kind = f"{_KINDS[claim.statistic]} {_means_text(sizes)}"
    if spread is None:
        return Measured(value, kind=kind)
    if claim.statistic == "spread":
        interval_at = partial(_range, means, sizes, spread)
    else:
        theirs = 0.0 if claim.direction in THRESHOLDS else 1 / claim.runs
        draws = redrawn(number, means, [spread.std * math.sqrt(1 / size + theirs) for size in sizes])
        tried = (values[0], values[-1]) if claim.statistic == "best_value" else None
        interval_at = partial(_quantiles, draws, tried)
    return Measured(value, interval_at=interval_at, lacks="" if min(sizes) >= FEWEST_RUNS else _TOO_FEW, kind=kind)


def _means_text(sizes: Sequence[int]) -> str:
    """Say how many means there are, and of how many runs.

    >>> _means_text([1, 3]), _means_text([3, 3]), _means_text([1, 1])
    ('2 means of 1 to 3 runs', '2 means of 3 runs', '2 single runs')
    """
    least, most = min(sizes), max(sizes)
    if most == 1:
        return f"{len(sizes)} single runs"
    return f"{len(sizes)} means of {least if least == most else f'{least} to {most}'} runs"


def _range(means: Sequence[float], sizes: Sequence[int], spread: Spread, level: float) -> Interval:
    """Return Tukey and Kramer's simultaneous interval of the range of the true means."""
    q = float(scipy.stats.studentized_range.ppf(level, len(means), spread.freedom))
    all_means, variances = np.array(means), 1 / np.array(sizes)
    half = q * spread.std * np.sqrt((variances[:, None] + variances) / 2)
    differences = all_means[:, None] - all_means
    return Interval(max(float((differences - half).max()), 0.0), float((differences + half).max()))


def _quantiles(draws: NDArray[np.float64], tried: tuple[float, float] | None, level: float) -> Interval:
    interval = between(draws, level)
    if tried is None:
        return interval
    low, high = interval.low, interval.high
    return Interval(-math.inf if low <= tried[0] else low, math.inf if high >= tried[1] else high)


class Computed(Formula):
    """A formula that needs no run."""


def formulas_in(module: ModuleType) -> Mapping[str, Formula]:
    """Return the formulas of a module by their names."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Formula)}


def computed(formula: Callable[[Claim], Measured]) -> Computed:
    """Make a formula that needs no run."""
    return Computed(lambda claim, evidence: replace(formula(claim), computed=True))


def run_formula(formula: Callable[[Claim, Runs], Measured]) -> Formula:
    """Make a formula of the planned runs of the claim's experiment, if any of them is recorded."""

    def measured(claim: Claim, evidence: Evidence) -> Measured:
        planned = planned_for(claim, evidence, claim.experiment)
        return counted(planned, formula(claim, planned) if planned.recorded else Measured())

    return Formula(measured)


@lru_cache
def prepared(sweep: str, experiment: str) -> "Run":
    """Prepare an experiment's first run in a sweep, on the CPU and without reading data."""
    from runner.build.prepare import prepare  # here, because plans need no PyTorch

    job = next(job for job in sweep_jobs(sweep) if job.experiment == experiment)
    config = copy.deepcopy(job.config)
    config.runtime.device = "cpu"
    return prepare(config)


@lru_cache
def ledger_of(sweep: str, experiment: str) -> "tuple[Run, Releases, Releases]":
    """Return an experiment's first run in a sweep, its charges as the paper counts, and its actual releases."""
    run = prepared(sweep, experiment)
    ledger = run.mechanism.charges_of_epochs(run.epochs)
    return run, ledger.claimed, ledger.actual


@computed
def charged_epsilon(claim: Claim) -> Measured:
    """Compute epsilon of the claim's experiment by its own accountant, and the sound epsilon.

    If there is no sound one, also what the steps cost.
    """
    from runner.accounting import epsilon_by

    run, claimed, _ = ledger_of(claim.sweep, claim.experiment)
    ledger, delta = run.mechanism.charges_of_epochs(run.epochs), run.config.delta
    epsilon = epsilon_by(run.accountant, claimed, delta)
    return Measured(
        value=epsilon,
        epsilon=epsilon,
        epsilon_sound=upper_bound(run.sound_epsilon(ledger)),
        epsilon_spent=run.spent_epsilon(ledger) if run.unsound else None,
        delta=delta,
        explanation=f"{type(run.mechanism).__name__}, for {run.mechanism.neighbouring_relation} neighbours",
    )


_planned: "dict[str, Run]" = {}  # by setting


def guaranteed_for(run: PlannedRun, steps: int) -> float:
    """Compute the sound epsilon of all that a run could have released, told to end after `steps` kept steps."""
    from runner.build.prepare import prepare

    setting = run.job.setting_id
    if setting not in _planned:
        _planned[setting] = prepare(run.job.config)
    planned = _planned[setting]
    most = planned.rule.most_steps(planned.most_steps, steps)
    return upper_bound(planned.sound_epsilon(planned.mechanism.charges(most)))
