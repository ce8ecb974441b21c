"""Optuna's part: the next values to try, and the trials to stop.

The study is a journal on disk, so that a search that was killed goes on. Trials that share the disk report to it
(`runner.search.judge`); others come back as records. Nothing depends on the journal: measurements are in records, and a
study without one is given every recorded trial again, epoch by epoch, as if it ran. Each trial is judged by one value:
the accuracy after the last epoch whose sound epsilon is within the budget. It is reported after every epoch. Hyperband
(Li et al., 2018) stops trials that are not among the best third of their bracket so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.config import ConfigError
from runner.data.files import locked, write_whole
from runner.records.jobs import Job
from runner.search.judge import Judge, pruner_of, report, storage_of
from runner.search.space import Space
from runner.search.trials import trial_at, trials_of

if TYPE_CHECKING:
    import optuna

DRAWS = 10  # trials before suggestions, as Optuna's sampler has it by default


@contextmanager
def study_of(space: Space, folder: Path, budget: float, draws: int = DRAWS) -> Iterator[Study]:
    """Open the study of a search whose records are in `folder`: one process on this machine at a time.

    Args:
        budget: the sound epsilon that trials are judged at.
        draws: how many of the sweep's own draws come before what is suggested.

    Raises:
        ConfigError: Optuna is not installed, or another process has the study.
    """
    name = space.sweep.replace("/", "-")
    path = (folder / ".search" / f"{name}.journal").absolute()
    with locked(path.with_suffix(".lock")) as alone:
        if not alone:
            raise ConfigError(f"{space.sweep} is being searched by another process.")
        _mend_journal(path)
        yield Study(space, folder, budget, draws, path)


def _mend_journal(path: Path) -> None:
    """Take away what a killed search left: its lock on the journal, and half a line."""
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    content = path.read_bytes() if path.exists() else b""
    if not content.endswith(b"\n"):
        write_whole(path, content[: content.rfind(b"\n") + 1], replace=True)


class Study:
    """The trials of a search as its sampler and its pruner see them. See `study_of`."""

    def __init__(self, space: Space, folder: Path, budget: float, draws: int, journal: Path) -> None:
        try:
            import optuna
        except ImportError as error:
            raise ConfigError("a search needs Optuna: pip install -e '.[search]'.") from error
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._folder, self._budget, self._names = space, folder, budget, set(space.dimensions)
        self._journal = journal
        self._states = optuna.trial.TrialState
        self._study = optuna.create_study(
            storage=storage_of(journal),
            study_name=f"{space.sweep} to a sound epsilon of {budget:g}",
            direction="maximize",
            load_if_exists=True,
        )
        # A search that goes on must not draw again what it drew after its last start.
        self._study.sampler = optuna.samplers.TPESampler(n_startup_trials=DRAWS, seed=len(self._study.trials))
        self._study.pruner = pruner_of(space.epochs)
        self._mend()
        known = trials_of(space, folder)  # one with more digits is none that the study could ask for
        self._queue([(trial.run_id, trial.values) for trial in known if trial.values == space.rounded(trial.values)])
        self._queue([(job.run_id, space.values(job.config)) for job in space.draws[:draws]])

    @property
    def taken(self) -> int:
        """Return how many trials were begun, without those that failed, or were killed, and wait to begin again."""
        begun = sum(trial.state not in (self._states.WAITING, self._states.FAIL) for trial in self._study.trials)
        return begun + len(self._ids(failed=True) - self._ids(failed=False) - {None})

    def _ids(self, *, failed: bool) -> set[str | None]:
        """Return the run ids of the trials that failed, or of the others."""
        trials = [trial for trial in self._study.trials if (trial.state is self._states.FAIL) == failed]
        return {trial.user_attrs.get("run_id") for trial in trials}

    def ask(self) -> tuple[optuna.trial.Trial, Job]:
        """Return the next trial: one that waits, else what the sampler suggests. Its job stops if it falls behind."""
        trial = self._study.ask()
        ranges = self._space.dimensions.items()
        values = {name: trial.suggest_float(name, of.low, of.high, log=of.log) for name, of in ranges}
        job = self._space.job(self._space.rounded(values))
        trial.set_user_attr("run_id", job.run_id)
        judge = Judge(self._journal, self._study.study_name, trial.number, self._budget, self._space.epochs)
        return trial, replace(job, goes_on=judge)

    def ended(self, trial: optuna.trial.Trial, outcome: str) -> None:
        """Say how a trial ended: stopped, failed, or with its last epoch."""
        if outcome == "failed":
            self._study.tell(trial, state=self._states.FAIL)
        elif outcome == "stopped" or "within" not in trial.user_attrs:
            self._study.tell(trial, state=self._states.PRUNED)
        else:
            self._study.tell(trial, trial.user_attrs["within"])

    def replay(self, trial: optuna.trial.Trial, job: Job, *, ran: bool = False) -> bool:
        """Take a trial from its record, if there is one: it is reported as when it ran, and ends as it did.

        A search with another budget may have stopped it, although this study would go on. Then it does not count,
        unless this study has just had it `ran`.
        """
        known = trial_at(self._space, self._folder, job.run_id)
        if known is None:
            return False
        history, goes_on = known.record["history"], True
        for place in range(len(history["epoch"])):
            goes_on = report(trial, {name: values[place] for name, values in history.items()}, self._budget)
        # A study that was killed may have begun the run, and so is the one that stopped it.
        if known.stopped and goes_on and not ran and job.run_id not in self._ids(failed=True):
            return False
        self.ended(trial, str(known.record["status"]))
        return True

    def _mend(self) -> None:
        """Have trials that were running when the search was killed, or that failed, wait to begin again."""
        for trial in self._study.trials:
            if trial.state is self._states.RUNNING:
                self._study.tell(trial.number, state=self._states.FAIL)
        failed = [trial for trial in self._study.trials if trial.state is self._states.FAIL]
        asked = [trial for trial in failed if "run_id" in trial.user_attrs and set(trial.params) == self._names]
        self._queue([(trial.user_attrs["run_id"], trial.params) for trial in asked])

    def _queue(self, runs: Iterable[tuple[str, Mapping[str, float]]]) -> None:
        """Have runs wait that have no trial but failed ones."""
        there = self._ids(failed=False)
        for run_id, values in runs:
            if run_id not in there:
                self._study.enqueue_trial(self._space.rounded(values), user_attrs={"run_id": run_id})
                there.add(run_id)
