"""What follows from measurements: intervals, and the words that are said."""

from mutants.mutant import Mutant

_INTERVALS = "claims/test_intervals.py"
_VERDICTS = "claims/test_verdicts.py"

MUTANTS = (
    Mutant(
        "claims/statistics.py",
        "stdev(values) * math.sqrt(1 / len(values) + 1 / runs)",
        "stdev(values) * math.sqrt(1 / len(values))",
        "a claimed number is taken to have no spread",
        _INTERVALS,
    ),
    Mutant(
        "claims/statistics.py",
        "stats.t.ppf((1 + level) / 2, freedom)",
        "stats.t.ppf(level, freedom)",
        "intervals are at 90%",
        _INTERVALS,
    ),
    Mutant(
        "claims/statistics.py",
        "half = _t(len(values) - 1, level) * stdev(values) / math.sqrt(len(values))",
        "half = _t(len(values), level) * stdev(values) / math.sqrt(len(values))",
        "one degree of freedom too many for a mean",
        f"{_INTERVALS} {_VERDICTS}",
    ),
    Mutant(
        "claims/statistics.py",
        "    freedom = variance**2 / sum(part**2 / freedom for part, freedom in parts)",
        "    freedom = sum(freedom for _, freedom in parts)",
        "two settings are taken to spread alike",
        _INTERVALS,
    ),
    Mutant(
        "claims/statistics.py",
        "stats.norm.cdf(means + q * spreads) ** runs)",
        "stats.norm.cdf(means + q * spreads))",
        "the best of several runs is taken for one",
        _INTERVALS,
    ),
    Mutant(
        "claims/statistics.py",
        "_difference(logs, others, 0.0, 1 / runs if runs else 0.0, level)",
        "_difference(logs, others, 0.0, 0.0, level)",
        "a claimed ratio is taken to have no spread",
        _INTERVALS,
    ),
    Mutant(
        "claims/statistics.py",
        "    step = stdev(values) * math.sqrt((runs - 1) / (2 * half))",
        "    step = stdev(values) / math.sqrt(runs)",
        "runs to come are taken to spread less than those there are",
        _INTERVALS,
    ),
    Mutant(
        "claims/intervals.py",
        "enough = len(values) >= claim.runs",
        "enough = bool(values)",
        "a best of ten is judged by two",
        _VERDICTS,
    ),
    Mutant(
        "claims/intervals.py",
        "len(values) < 2 or (len(values) < _ENOUGH and len(set(values)) == 1)",
        "len(values) < 2",
        "two runs that agree prove that there is no spread",
        _VERDICTS,
    ),
    Mutant(
        "claims/intervals.py",
        '        of_each = 1 if measured.statistic == "best" else claim.runs',
        "        of_each = 1_000_000",
        "a claimed difference is taken to have no spread",
        _VERDICTS,
    ),
    Mutant(
        "claims/verdicts.py",
        "    if interval.within(tolerance):\n",
        "    if low <= tolerance and high >= -tolerance:\n",
        "reproduced as soon as the interval touches the tolerance",
        _VERDICTS,
    ),
    Mutant(
        "claims/verdicts.py",
        '(low > 0, high < 0) if claim.direction == "above_other" else (high < 0, low > 0)',
        '(high > 0, high < 0) if claim.direction == "above_other" else (low < 0, low > 0)',
        "an order holds although its interval holds zero",
        _VERDICTS,
    ),
    Mutant(
        "claims/verdicts.py",
        '(low > 0, high <= 0) if claim.direction == "above" else (high < 0, low >= 0)',
        '(high > 0, high <= 0) if claim.direction == "above" else (low < 0, low >= 0)',
        "a level is passed by the end of the interval",
        _VERDICTS,
    ),
    Mutant(
        "claims/verdicts.py",
        "    if word == BETTER and measured.chosen_on_test:",
        "    if False:",
        "better by what was picked on test images",
        _VERDICTS,
    ),
    Mutant(
        "claims/verdicts.py",
        "    holds = measured.epsilon_sound < bound if strict else measured.epsilon_sound <= bound",
        "    holds = measured.epsilon < bound if strict else measured.epsilon <= bound",
        "an epsilon is guaranteed because the paper's own accounting says so",
        _VERDICTS,
    ),
    Mutant(
        "claims/verdicts.py",
        "    if measured.epsilon_least is not None and measured.epsilon_least > bound and at_no_smaller_delta:",
        "    if measured.epsilon_sound > bound:",
        "an upper bound shows a claim false",
        _VERDICTS,
    ),
    Mutant(
        "claims/verdicts.py",
        "return GUARANTEED if holds and not delta_exceeded(claim, measured) else NOT_GUARANTEED",
        "return GUARANTEED if holds else NOT_GUARANTEED",
        "an epsilon is guaranteed at a larger delta",
        _VERDICTS,
    ),
    Mutant(
        "claims/verdicts.py",
        "    for words in (_FAIL, (UNDECIDED,)):",
        "    for words in ((UNDECIDED,), _FAIL):",
        "what fails is undecided as long as something is",
        _VERDICTS,
    ),
    Mutant(
        "claims/verdicts.py",
        "wider = interval_of(claim, measured, level=1 - (1 - LEVEL) / statements)",
        "wider = interval_of(claim, measured)",
        "one of many statements fails by chance",
        _VERDICTS,
    ),
    Mutant(
        "claims/verdicts.py",
        "    if scale != PAPER_SCALE and not measured.computed:",
        "    if False:",
        "runs in small are judged",
        _VERDICTS,
    ),
)
