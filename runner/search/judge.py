"""The end of a search that is with a trial: it reports epochs to the study, and asks whether the trial goes on.

The process that trains a trial, on this machine or a node of a cluster, opens the journal of the study for that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.records.files import upper_bound

if TYPE_CHECKING:
    import optuna

_ETA = 3  # one trial in three is kept at each rung


def storage_of(journal: Path) -> optuna.storages.JournalStorage:
    """Open a journal."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    # Not its usual lock, which is a symbolic link.
    return JournalStorage(JournalFileBackend(str(journal), JournalFileOpenLock(str(journal))))


def pruner_of(epochs: int) -> optuna.pruners.BasePruner:
    """Return the pruner of trials of `epochs` epochs."""
    import optuna

    return optuna.pruners.HyperbandPruner(1, epochs, _ETA)


def report(trial: optuna.trial.Trial, row: Mapping[str, Any], budget: float) -> bool:
    """Report an epoch, given the row of its history, unless it was reported. Returns whether the trial goes on."""
    if upper_bound(row.get("epsilon_sound")) <= budget:
        trial.set_user_attr("within", float(row["test_accuracy"]))
    epoch = int(row["epoch"])
    if epoch not in trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values:
        trial.report(trial.user_attrs.get("within", math.nan), epoch)
    return not trial.should_prune()


@dataclass(frozen=True)
class Judge:
    """Decides after each epoch whether a trial goes on: see `Job.goes_on`."""

    journal: Path
    study: str
    number: int  # of the trial
    budget: float  # the sound epsilon that trials are judged at
    epochs: int  # of a whole trial

    def __call__(self, row: Mapping[str, Any]) -> bool:
        """Report an epoch. Returns whether the trial goes on, as it does if its search has given it up meanwhile."""
        import optuna

        try:
            return report(_trial(self), row, self.budget)
        except optuna.exceptions.UpdateFinishedTrialError:
            return True


@cache
def _trial(judge: Judge) -> optuna.trial.Trial:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = storage_of(judge.journal)
    study = optuna.load_study(study_name=judge.study, storage=storage, pruner=pruner_of(judge.epochs))
    identity = storage.get_trial_id_from_study_id_trial_number(
        storage.get_study_id_from_name(judge.study), judge.number
    )
    return optuna.trial.Trial(study, identity)
