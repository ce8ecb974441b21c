"""Faults in studies: their statistics, their search, and the runs that count."""

from checks.mutants.mutant import Mutant

_CONTRASTS = "claims/test_contrasts.py"
_SEARCH = "study/test_search.py"
_STUDY = "study/test_study.py::test_the_search_the_choice_the_finals_and_the_page"

MUTANTS = (
    Mutant(
        "claims/contrasts.py",
        "(len(values) - rank) * values[place]",
        "values[place]",
        "p-values of several arms are not corrected",
        _CONTRASTS,
    ),
    Mutant(
        "claims/contrasts.py",
        "2 * scipy.special.stdtr(n - 1",
        "scipy.special.stdtr(n - 1",
        "the paired test is one-sided",
        _CONTRASTS,
    ),
    Mutant(
        "study/search.py",
        "seed=len(trials), n_startup",
        "seed=id(trials), n_startup",
        "arms draw different values, and a study does not go on as it began",
        _SEARCH,
    ),
    Mutant(
        "study/search.py",
        "point or _between(*arm)",
        "point",
        "only the arm at the edge of its range gets another trial",
        _SEARCH,
    ),
    Mutant(
        "study/plan.py",
        "self._job(values, SEARCH_SEED, EvaluationSplit.holdout)",
        "self._job(values, SEARCH_SEED, EvaluationSplit.test)",
        "test images choose the settings",
        _STUDY,
    ),
    Mutant(
        "claims/runs.py",
        "if spent <= epsilon",
        "if spent",
        "an arm counts with an epoch beyond epsilon",
        _STUDY,
    ),
    Mutant("study/plan.py", ', "max_epsilon=null"', "", "the base's budget ends the runs of some arms earlier", _STUDY),
)
