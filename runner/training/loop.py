"""The training loop: sample, sum, release, update, charge, evaluate."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from runner.accounting import Ledger, epsilon_by
from runner.config import ConfigError, EvaluationSplit, StepMode
from runner.config.origin import is_own
from runner.data.datasets import Split, hold_out
from runner.gradients import Objective, fresh_copy
from runner.mechanism.seeds import derived_seed, generator
from runner.training.averaging import LAST, with_weights
from runner.training.call_by_call import CallByCall
from runner.training.diagnostics import Diagnostics
from runner.training.evaluate import evaluate
from runner.training.graph import GraphStep, NotCapturableError, enough
from runner.training.run import Run, graph_step
from runner.training.state import OnState, State, Stateful, put_back, state_of
from runner.training.updates import Updates

_AT_ONCE = 4096  # images
_ROUNDING = 1e-5


@dataclass
class Trained:
    """The measurements of a run. `history` holds equal-length lists by name, one entry per finished epoch.

    `status`: "finished", "diverged", or "stopped" if `on_epoch` ended it before its last epoch. `step`: the way in
    which steps were executed. `physical_batch`: the most examples that could pass the network at a time in the end.
    `seconds_deciding`, the time for decisions on updates, is part of `seconds_training`. `objective`: the trained
    objective, with the averaged weights if there are any. They are then evaluated in `test_loss` and `test_accuracy`,
    and the last weights in `LAST`.
    """

    status: Literal["finished", "diverged", "stopped"] = "finished"
    step: str = StepMode.eager.value
    physical_batch: int = 1
    history: dict[str, list[float]] = field(default_factory=dict)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    examples: int = 0
    seconds_training: float = 0.0
    seconds_deciding: float = 0.0
    objective: Objective | None = None


def load(run: Run) -> tuple[Split, ...]:
    """Return the training and the evaluation split, and the update rule's images, as features on the device.

    The update rule's images come from the test split. With evaluation=holdout the reported images do not.

    Raises:
        DataError: the data set cannot be read.
    """
    train, test = (
        Split(run.features(split.images.to(run.device)), split.targets.to(run.device))
        for split in run.dataset.load(run.config.runtime.data_root)
    )
    _check_norms(run, train)
    test, *aside = run.rule.split(test)
    if run.config.evaluation == EvaluationSplit.holdout:
        train, test = hold_out(train)
    return train, test, *aside


def _check_norms(run: Run, train: Split) -> None:
    """Check that features keep to their largest norm, from which bounds on gradients may follow."""
    bound = run.initial.inputs
    if bound is None or bound.norm is None:
        return
    norms = torch.stack(
        [torch.linalg.vector_norm(piece.flatten(1), dim=1).max() for piece in train.images.split(_AT_ONCE)]
    )
    if not norms.max() <= bound.norm * (1 + _ROUNDING):
        raise ConfigError(
            f"features: they have the norm {norms.max():.6g}, but state a largest norm of {bound.norm:.6g}."
        )


OnEpoch = Callable[[dict[str, float]], bool | None]  # False: the run stops
OnStep = Callable[[int, int], None]  # the epoch and the number of its finished steps, both from 1
Ahead = Mapping[int, Future[float | None]]  # by epoch, from 1
Training = Callable[[OnEpoch], Trained]


def train(run: Run, data: tuple[Split, ...], on_epoch: OnEpoch) -> Trained:
    """Train one run to its last epoch, or until a weight or a loss is no longer finite (status "diverged").

    `on_epoch` gets each epoch's row of the history at once, and may end the run by returning False (status "stopped").
    Layers that draw from PyTorch's global generator get a stream of the run's seed. The generator is restored after.
    """
    return training(run, data)(on_epoch)


def training(
    run: Run,
    data: tuple[Split, ...],
    on_step: OnStep = lambda epoch, step: None,
    on_state: OnState = lambda state: None,
    state: State | None = None,
) -> Training:
    """Return a function that trains a run, called with its `on_epoch`.

    `on_step` is called after each step that is taken call by call, as an epoch may be long there. `on_state` can take
    the state after every epoch but the last. From a `state` the run continues in the same way, with the same digits as
    without an interruption. On CUDA the order of some sums is open, and with it the last digits.

    Raises:
        ConfigError: the run cannot be trained as `runtime.step` asks.
    """
    way = run.step
    if state is not None:
        way = StepMode.graph if "step" in state["parts"] else StepMode.eager
    graph = None if way is StepMode.eager else _graph(run, data[0])

    def train_it(on_epoch: OnEpoch) -> Trained:
        cuda = [run.device] if run.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):  # for layers that draw random numbers
            torch.manual_seed(derived_seed(run.config.seed, "layers"))
            steps = graph or CallByCall(run, data)
            with _epsilons_ahead(run) as ahead:
                progress = Progress(run, steps.objective, data, on_epoch, ahead)
                _train(steps, progress, run.device, on_step, on_state, state)
                return progress.trained

    return train_it


def _graph(run: Run, training: Split) -> GraphStep | None:
    """Return the step as a graph, or None if it has to be taken call by call."""
    try:
        step = graph_step(run, run.new_objective(), training)
        step.make_room(enough(run.mechanism, run.epochs * run.mechanism.steps_per_epoch))
    except NotCapturableError as reason:
        asked = run.config.runtime.step
        if asked in (StepMode.graph, StepMode.compiled):
            raise ConfigError(f"runtime.step={asked.value} is not possible here: {reason}.") from reason
        print(f"step: {reason}, so it is taken call by call, not as a graph.", file=sys.stderr)
        return None
    return step


class Progress:
    """One run's ledger, measurements and history, step by step and epoch by epoch.

    It begins with the releases before the first step: the statistics that normalise the features. `ahead` computes
    epsilons while it goes on.
    """

    def __init__(
        self, run: Run, objective: Objective, data: tuple[Split, ...], on_epoch: OnEpoch, ahead: Ahead
    ) -> None:
        self._ahead = ahead
        history: dict[str, list[float]] = {name: [] for name in run.columns}
        self.trained, self._kept = Trained(objective=objective, history=history), list[bool]()
        self._ledger = Ledger()
        if run.normalization is not None:
            layer = objective.network.get_submodule("normalization")
            stream = generator(run.config.seed, "normalization", run.device)
            images = data[0].images.clone() if is_own(run.normalization) else data[0].images
            run.normalization.fit(layer, images, stream, self._ledger)
        self.diagnostics = Diagnostics(run.config, run.epochs, run.activation_type, objective, data[0])
        self.diagnostics.start()
        self._run, self._objective, self._evaluation_split, self._on_epoch = run, objective, data[1], on_epoch

    @property
    def steps(self) -> int:
        """Return the number of steps taken, kept or not."""
        return len(self._kept)

    @property
    def epochs(self) -> int:
        """Return the number of epochs that have ended."""
        return len(self.trained.history["epoch"])

    def charge_step(self, step_in_epoch: int, kept: bool = True) -> None:
        """Count a step and charge it.

        Raises:
            ConfigError: the update rule has stated that there are fewer.
        """
        if self.steps == self._run.most_steps:
            raise ConfigError(f"screening: the run takes more steps than the {self.steps} of its rule's most_steps.")
        self._run.mechanism.at(self.steps).charge_step(self._ledger, step_in_epoch, kept=kept)
        self._kept.append(kept)

    def end_epoch(
        self,
        epoch: int,
        losses: float,
        seen: int,
        seconds: float,
        updates: Updates | None = None,
        average: Mapping[str, Tensor] | None = None,
    ) -> bool:
        """Evaluate after an epoch with `seen` examples and the sum of their losses. Return True if the run goes on.

        The run's accuracy is measured at its averaged weights, if there is an `average`.
        """
        run, objective, trained = self._run, self._objective, self.trained
        trained.examples += seen
        trained.seconds_training += seconds
        last = measured = evaluate(objective, self._evaluation_split, run.dataset.classes)
        if average is not None:
            with with_weights(objective, average):
                measured = evaluate(objective, self._evaluation_split, run.dataset.classes)
        self.diagnostics.epoch(epoch, measured)
        if epoch in self._ahead:
            self._ahead[epoch].result()
        epsilon = epsilon_by(run.accountant, self._ledger.claimed, run.config.delta)
        costs = epoch, self.steps, epsilon, run.spent_epsilon(self._ledger)
        losses_and_accuracy = losses / seen if seen else math.nan, measured.loss, measured.accuracy
        row: dict[str, Any] = dict(zip(run.columns, (*costs, *losses_and_accuracy), strict=True))
        if average is not None:
            row |= dict(zip(LAST, (last.loss, last.accuracy), strict=True))
        if updates is not None:
            row |= _numbers(updates.columns(last), taken=row)
            trained.seconds_deciding = updates.seconds
        for name, value in row.items():
            trained.history.setdefault(name, []).append(value)
        trained.diagnostics = self.diagnostics.values
        if self._on_epoch(row) is False and epoch < run.epochs:
            trained.status = "stopped"
        if not (math.isfinite(measured.loss) and all(torch.isfinite(p).all() for p in objective.parameters())):
            trained.status = "diverged"
        ended = epoch == run.epochs or (updates is not None and updates.finished)
        return trained.status == "finished" and not ended

    def keep_average(self, average: Mapping[str, Tensor]) -> None:
        """Keep a copy of the objective with its averaged weights."""
        with with_weights(self._objective, average):
            self.trained.objective = fresh_copy(self._objective)

    def state_dict(self) -> State:
        """Return the measurements up to the end of an epoch, and the kept steps, from which the ledger follows."""
        trained = self.trained
        return {
            "history": trained.history,
            "examples": trained.examples,
            "seconds": [trained.seconds_training, trained.seconds_deciding],
            "kept": torch.tensor(self._kept),
            "diagnostics": self.diagnostics.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a state instead of the start, and charge its steps again as before.

        Raises:
            ValueError: their cost differs from the state's epsilon.
        """
        trained = self.trained
        trained.history, trained.examples = state["history"], state["examples"]
        trained.seconds_training, trained.seconds_deciding = state["seconds"]
        kept = state["kept"].tolist()
        for begin, end in pairwise([0, *trained.history["steps"]]):
            for step_in_epoch, each in enumerate(kept[int(begin) : int(end)]):
                self.charge_step(step_in_epoch, each)
        cost = trained.history.get(self._run.cost_column, [None])[-1]
        if self._run.spent_epsilon(self._ledger) != cost:
            raise ValueError("The steps of this state cost another epsilon than it records.")
        self.diagnostics.load_state_dict(state["diagnostics"])
        trained.diagnostics = self.diagnostics.values


def _numbers(columns: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, float]:
    """Return an update rule's columns as Python's numbers.

    Raises:
        ConfigError: a column has the name of another, or is no number.
    """
    for name in columns.keys() & taken.keys():
        raise ConfigError(f"screening: columns() has {name!r}, which every history has.")
    try:
        return {name: value if isinstance(value, int) else float(value) for name, value in columns.items()}
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"screening: columns() has to return a number by name: {error}") from error


@contextmanager
def _epsilons_ahead(run: Run) -> Iterator[Ahead]:
    """Compute the cost of every epoch in a thread, so that `Run.spent_epsilon` knows it when the epoch ends.

    Nothing is computed ahead if the data decide the charges, or on a CPU, which takes the steps itself.
    """
    known = run.device.type == "cuda" and not run.rule.takes_back
    with ThreadPoolExecutor(1) as pool:
        try:
            yield {
                epoch: pool.submit(run.spent_epsilon, run.mechanism.charges_of_epochs(epoch))
                for epoch in range(1, 1 + run.epochs * known)
            }
        finally:
            pool.shutdown(cancel_futures=True)


def _train(
    steps: CallByCall | GraphStep,
    progress: Progress,
    device: torch.device,
    on_step: OnStep,
    on_state: OnState,
    state: State | None,
) -> None:
    """Take steps and end epochs until the run ends."""
    progress.trained.step = steps.mode.value
    parts: dict[str, Stateful] = {**steps.parts, "progress": progress}
    if state is not None:
        put_back(state, parts, steps.generators, device)
    epoch, goes_on = progress.epochs, True
    while goes_on:
        epoch += 1
        started = time.perf_counter()
        for step_in_epoch, kept in enumerate(steps.epoch(epoch, progress.steps, progress.diagnostics)):
            progress.charge_step(step_in_epoch, kept)
            if steps.mode is StepMode.eager:
                on_step(epoch, step_in_epoch + 1)
        losses, seen = steps.seen()
        seconds = time.perf_counter() - started
        average = steps.average
        goes_on = progress.end_epoch(epoch, losses, seen, seconds, steps.updates, average)
        if goes_on:
            on_state(lambda: state_of(parts, steps.generators, device))
        elif average is not None:
            progress.keep_average(average)
    progress.trained.physical_batch = steps.physical_batch
