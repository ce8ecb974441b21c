"""Tables: the sum of gains, the cells, the effects, the methods added to the best cell, and the searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from runner.claims.contrasts import Cell, Estimate, estimate
from runner.claims.evidence import Evidence
from runner.claims.rows import ClaimRow
from runner.claims.runs import Runs
from runner.papers.composition.choices import (
    DATASETS,
    EPSILONS,
    FIELDS,
    PAPER,
    RATE,
    Setting,
    best_cell,
    choices,
    searches,
    setting_of,
)
from runner.papers.composition.design import (
    CELLS,
    PARTS,
    SUM_OF_GAINS,
    by_cell,
    effect_of,
    effects,
    errors_left,
    pairs_of,
    words,
)
from runner.papers.composition.measures import accuracies_of, cells_at, of_seeds
from runner.report.files import Table, bound_text, mean_text, number
from runner.report.items import Tabulate
from runner.report.markdown import cells_of, difference_text, sound_text

_POINTS = "%"  # two decimals, as for accuracies
_NOTHING = "–"
_CLIPPING = PARTS[2]
_WHOLE, _MORE, _ALONE = "gain_of_all", "more_than_parts", "gain_of_one"  # measures
_HELD_OUT = (
    "Learning rates are chosen by the accuracy on held-out training images (seed 0), never on test images. A cell "
    "counts once all its rates have been searched and its runs are at the chosen one."
)
_SCREENED = (
    "Where updates are screened, every second test image screens them, in the search, too. No accuracy here uses it."
)


def adds_up(evidence: Evidence, judged: Sequence[ClaimRow]) -> Table:
    """Return a row per data set and epsilon: each part's gain alone, their sum, all together, and the difference."""
    rows = []
    for dataset, name in DATASETS.items():
        for epsilon in EPSILONS:
            of = [j for j in judged if j.claim.dataset == name and j.claim.epsilon == (epsilon, False)]
            whole, more = (_of(of, name) for name in (_WHOLE, _MORE))
            alone = {j.claim.method.removesuffix(", alone"): j for j in of if j.claim.number == _ALONE}
            accuracies = accuracies_of(cells_at(evidence, f"{PAPER}/{dataset}", epsilon))
            left = errors_left(accuracies)
            rows.append(
                {
                    "data set": name,
                    "target ε": f"{epsilon:g}",
                    **{f"{part.step}, alone": _gain(alone[part.step]) for part in PARTS},
                    "sum of the four": _effect(estimate(accuracies, SUM_OF_GAINS)),
                    "all four together": _gain(whole),
                    "together less the sum": _gain(more),
                    "does it add up?": _answer(more),
                    "errors left, over those of independent shares": _ratio(left),
                    "runs": cells_of(more).runs,
                    "ε of the runs": number(more.epsilon),
                    "sound ε": bound_text(more.epsilon_sound),
                }
            )
    note = (
        "Gains in points of test accuracy over the cell in which all four are old: ReLU, cross-entropy, flat clipping, "
        "pixels, and in brackets 95% intervals (Student's, of the numbers of each seed)."
    )
    shares = (
        "Near 100% a point is harder to gain. So, in the column of errors, what all four leave together over what they "
        "would leave, did each remove the share of errors that it removes alone: 1 if they did; above 1, together they "
        "remove less than that, too."
    )
    shown = (
        *("data set", "target ε", "sum of the four", "all four together", "together less the sum", "does it add up?"),
        "runs",
    )
    return Table.of(rows, (note, shares, _HELD_OUT, *_reasons(judged)), shown)


def _of(judged: Sequence[ClaimRow], name: str) -> ClaimRow:
    return next(j for j in judged if j.claim.number == name)


def _gain(judged: ClaimRow) -> str:
    value = judged.measured
    return _NOTHING if value is None else difference_text(value, _POINTS, judged.interval)


def _ratio(found: Estimate | None) -> str:
    if found is None:
        return _NOTHING
    interval = found.interval
    return f"{found.value:.2f}" + (f" [{interval.low:.2f}, {interval.high:.2f}]" if interval else "")


def _answer(more: ClaimRow) -> str:
    value, interval = more.measured, more.interval
    if value is None:
        return "not run"
    if interval is None:
        return "one run of a cell cannot tell"
    if interval.low <= 0 <= interval.high:
        return "yes, as far as these runs tell"
    return "no, together they gain " + ("more" if value > 0 else "less")


def _reasons(judged: Sequence[ClaimRow]) -> list[str]:
    """Return the reasons for missing numbers or intervals, and the spread of runs, each once."""
    found = [
        f"{j.claim.dataset}, ε = {j.claim.at_epsilon}, {j.claim.method}: {j.how}."
        for j in judged
        if j.how and j.claim.number != _ALONE
    ]
    return list(dict.fromkeys(found))


def cells(dataset: str) -> Tabulate:
    """Return the table of a data set's sixteen cells at each epsilon, the best first, cells without a run last."""
    sweep = f"{PAPER}/{dataset}"

    def table(evidence: Evidence, _: Sequence[ClaimRow]) -> Table:
        chosen = choices(evidence, searches(evidence, sweep))
        rows = []
        for epsilon in EPSILONS:
            planned = by_cell(Runs(evidence.sweeps[sweep]).where("target_epsilon", epsilon))
            counted = cells_at(evidence, sweep, epsilon)
            there = [cell for cell in CELLS if cell in planned]
            for cell in sorted(there, key=lambda c: -fmean(counted[c].sample().values) if c in counted else 1.0):
                runs, choice = counted.get(cell, Runs()), chosen.get(setting_of(planned[cell][0]))
                ran = bool(runs)
                rows.append(
                    {
                        "target ε": f"{epsilon:g}",
                        **{part.group: name for part, name in zip(PARTS, words(cell), strict=True)},
                        "accuracy (%)": mean_text(runs.sample().values, _POINTS),
                        "runs": f"{len(runs)} of {len(planned[cell])}",
                        "ε of the runs": number(runs.largest("epsilon") if ran else None),
                        "sound ε": bound_text(runs.largest("epsilon_sound") if ran else None),
                        "learning rate": choice.text if choice else "not searched",
                        "on held-out images (%)": number(choice.accuracy if choice else None, _POINTS),
                    }
                )
        if not rows:
            return Table(("accuracy (%)",), (), ("No cell is planned.",))
        lacking = [f"{len(CELLS) - len(there)} of 16 cells are not planned at this scale."] if len(there) < 16 else []
        notes = ("Mean ± standard deviation of the last epoch's test accuracy.", _HELD_OUT, *lacking)
        return Table.of(rows, notes, ("target ε", *(part.group for part in PARTS), "accuracy (%)", "sound ε"))

    return table


def effects_of(dataset: str) -> Tabulate:
    """Return the table of a data set's effects, single parts first, then their interactions."""
    sweep = f"{PAPER}/{dataset}"

    def table(evidence: Evidence, judged: Sequence[ClaimRow]) -> Table:
        by_epsilon = {epsilon: cells_at(evidence, sweep, epsilon) for epsilon in EPSILONS}
        rows = []
        for parts in effects():
            row = {"parts": " × ".join(part.step for part in parts)}
            for epsilon, counted in by_epsilon.items():
                found = estimate(accuracies_of(counted), effect_of(parts))
                row[f"target ε {epsilon:g}"] = _effect(found)
                row[f"target ε {epsilon:g}: runs, ε, sound ε"] = _cost(counted, found)
            rows.append(row)
        note = (
            "Points of test accuracy [95%]. The effect of one part is the mean of the eight cells that have its new "
            "level, less the mean of the eight with its old level. The effect of two parts is half of the gain of the "
            "one's effect when the other becomes new; 0 means that they add up. Three and four parts continue this. "
            "An effect is shown if all sixteen cells have run. One in twenty intervals at 95% misses by chance."
        )
        rates = (_rates(epsilon, counted) for epsilon, counted in by_epsilon.items())
        return Table.of(rows, (note, _HELD_OUT, *filter(None, rates), *_reasons(judged[:1])))

    return table


def _effect(found: Estimate | None) -> str:
    return _NOTHING if found is None else difference_text(found.value, _POINTS, found.interval)


def _cost(cells: Mapping[Cell, Runs], found: Estimate | None) -> str:
    """Return the number of runs behind an effect, their epsilon and sound epsilon."""
    if found is None:
        return _NOTHING
    runs = of_seeds((run for of in cells.values() for run in of), found.seeds)
    return f"{len(runs)}, {number(runs.largest('epsilon'))}, {bound_text(runs.largest('epsilon_sound'))}"


def _rates(epsilon: float, cells: Mapping[Cell, Runs]) -> str:
    """Return the effect of clipping at one learning rate, and over the other pairs of cells, in words.

    Flat and automatic clipping to a norm below most gradients' are nearly equal, so a search may choose different rates
    by a hair. Their difference is then a difference of rates. Return "" if a cell has not run, or all pairs are equal.
    """
    if set(cells) != set(CELLS):
        return ""
    rate = {cell: float(runs[0].field(RATE)) for cell, runs in cells.items()}
    pairs = pairs_of(_CLIPPING)
    same = [pair for pair in pairs if rate[pair[0]] == rate[pair[1]]]
    others = [pair for pair in pairs if pair not in same]
    if not same or not others:
        return ""
    accuracies = accuracies_of(cells)
    shown = []
    for of in (same, others):
        weights = {cell: sign / len(of) for pair in of for cell, sign in zip(pair, (1, -1), strict=True)}
        shown.append(_effect(estimate(accuracies, weights)))
    return (
        f"At a target ε of {epsilon:g} flat and automatic clipping are at the same learning rate in {len(same)} of "
        f"{len(pairs)} pairs of cells. Over these the effect of automatic clipping is {shown[0]}, over the others, "
        f"where it is one of learning rates too, {shown[1]}."
    )


def measured(_: Evidence, judged: Sequence[ClaimRow]) -> Table:
    """Return a row per number, with its cost; there is no claim to compare it with."""
    rows = [
        {
            "data set": j.claim.dataset,
            "target ε": j.claim.at_epsilon,
            "what": j.claim.method,
            "accuracy (%), or points": _gain(j) if j.claim.unit == "points" else cells_of(j).measured,
            "runs": cells_of(j).runs,
            "ε of the runs": number(j.epsilon),
            "sound ε": sound_text(j.epsilon_sound, j.epsilon_tries),
        }
        for j in judged
    ]
    comments = (f"{j.claim.method}: {j.claim.because}." for j in judged)
    return Table.of(rows, tuple(dict.fromkeys((*comments, *_reasons(judged)))))


def searched(sweeps: Sequence[str]) -> Tabulate:
    """Return the table of the searches: a row per setting, with its accuracies on held-out images."""

    def table(evidence: Evidence, _: Sequence[ClaimRow]) -> Table:
        rows, found = [], choices(evidence, sweeps)
        for setting, choice in found.items():
            of = dict(zip(FIELDS, setting, strict=True))
            dataset, epsilon = of.pop("dataset.name"), of.pop("target_epsilon")
            at = (f"{rate:g}: {number(choice.accuracies.get(rate), _POINTS)}" for rate in choice.rates)
            rows.append(
                {
                    "data set": dataset,
                    "setting": ", ".join(_short(name, value) for name, value in of.items() if value is not None),
                    "target ε": f"{epsilon:g}",
                    "accuracy (%) by learning rate": ", ".join(at),
                    "chosen": choice.text,
                }
            )
        cell = best_cell(evidence)
        best = "not known until all cells have been searched" if cell is None else ", ".join(words(cell))
        best = f"The best cell, by the mean over both data sets and both ε: {best}."
        screened = [_SCREENED] if any(map(_temperature, found)) else []
        return Table.of(rows, (best, _HELD_OUT, *screened))

    return table


def _temperature(setting: Setting) -> float:
    """Return the temperature at which updates are screened, or 0 if they are not."""
    return dict(zip(FIELDS, setting, strict=True))["screening.initial_temperature"] or 0.0


def _short(name: str, value: object) -> str:
    """Return a class by its bare name, and a number with the name of its field."""
    last = str(value if isinstance(value, str) else name).rpartition(".")[2].replace("_", " ")
    return f"{last} {value:g}" if isinstance(value, float) else last
