"""The measurements of a run while it trains: its ledger, its history, and the final metrics of its record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from runner.accounting import Ledger, epsilon_by
from runner.config import ConfigError, StepMode, is_own
from runner.data.datasets import Split
from runner.gradients import Objective, fresh_copy
from runner.mechanism.normal import generator
from runner.training.averaging import LAST, weights_replaced
from runner.training.diagnostics import Diagnostics
from runner.training.evaluate import Predictions, evaluate
from runner.training.run import Run
from runner.training.steps import State
from runner.training.updates import Updates

OnEpoch = Callable[[dict[str, float]], bool | None]  # False: the run stops
Ahead = Mapping[int, Future[float | None]]  # by epoch, from 1


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


class Progress:
    """One run's ledger, measurements and history, step by step and epoch by epoch.

    It begins with the releases before the first step: the statistics that normalise the features. `ahead` computes
    epsilons while it goes on.
    """

    def __init__(
        self, run: Run, objective: Objective, data: tuple[Split, ...], on_epoch: OnEpoch, ahead: Ahead
    ) -> None:
        self._ahead = ahead
        self.trained, self._kept = Trained(objective=objective), list[bool]()
        self.trained.history = {name: [] for name in run.columns}
        self._ledger = Ledger()
        if run.normalization is not None:
            layer = objective.network.get_submodule("normalization")
            stream = generator(run.config.seed, "normalization", run.device)
            images = data[0].images.clone() if is_own(run.normalization) else data[0].images
            run.normalization.fit(layer, images, stream, self._ledger)
        self.diagnostics = Diagnostics(run, objective, data[0])
        self.diagnostics.start()
        self._run, self._objective, self._evaluation_split, self._on_epoch = run, objective, data[1], on_epoch
        self._captured: list[Predictions | None] = []  # on CUDA, after the first epoch of a graph

    @property
    def steps(self) -> int:
        """Return the number of steps taken, kept or not."""
        return len(self._kept)

    @property
    def epochs(self) -> int:
        """Return the number of epochs that have ended."""
        return len(self.trained.history["epoch"])

    def charge_step(self, step_in_epoch: int, accepted: bool = True) -> None:
        """Count a step and charge it.

        Raises:
            ConfigError: the update rule has stated that there are fewer.
        """
        if self.steps == self._run.most_steps:
            raise ConfigError(f"screening: the run takes more steps than the {self.steps} of its rule's most_steps.")
        self._run.mechanism.at(self.steps).charge_step(self._ledger, step_in_epoch, kept=accepted)
        self._kept.append(accepted)

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

        Raises:
            ConfigError: a column of the update rule has the name of another, or is no number.
        """
        run, objective, trained = self._run, self._objective, self.trained
        trained.examples += seen
        trained.seconds_training += seconds
        split = self._evaluation_split
        if not self._captured and trained.step != StepMode.eager.value and split.images.device.type == "cuda":
            from runner.training.graph.capture import captured_predictions  # a CPU does without

            self._captured = [captured_predictions(objective, split)]
        evaluated = partial(evaluate, objective, split, run.dataset.classes, *self._captured)
        last = measured = evaluated()
        if average is not None:
            with weights_replaced(objective, average):
                measured = evaluated()
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
            for name, number in updates.columns(last).items():
                if name in row:
                    raise ConfigError(f"screening: columns() has {name!r}, which every history has.")
                try:
                    row[name] = number if isinstance(number, int) else float(number)
                except (RuntimeError, TypeError, ValueError) as error:
                    raise ConfigError(f"screening: columns() has to return a number by name: {error}") from error
            trained.seconds_deciding = updates.seconds
        for name, value in row.items():
            trained.history.setdefault(name, []).append(value)
        trained.diagnostics = self.diagnostics.values
        if self._on_epoch(row) is False and epoch < run.epochs:
            trained.status = "stopped"
        finite = torch.stack([torch.isfinite(p).all() for p in objective.parameters()]).all()  # one wait
        if not (math.isfinite(measured.loss) and finite):
            trained.status = "diverged"
        ended = epoch == run.epochs or (updates is not None and updates.finished)
        return trained.status == "finished" and not ended

    def keep_average(self, average: Mapping[str, Tensor]) -> None:
        """Keep a copy of the objective with its averaged weights."""
        with weights_replaced(self._objective, average):
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
        accepted = state["kept"].tolist()
        for begin, end in pairwise([0, *trained.history["steps"]]):
            for step_in_epoch, is_kept in enumerate(accepted[int(begin) : int(end)]):
                self.charge_step(step_in_epoch, is_kept)
        cost = trained.history.get(self._run.cost_column, [None])[-1]
        if self._run.spent_epsilon(self._ledger) != cost:
            raise ValueError("The steps of this state cost another epsilon than it records.")
        self.diagnostics.load_state_dict(state["diagnostics"])
        trained.diagnostics = self.diagnostics.values


def final_metrics(run: Run, trained: Trained) -> dict[str, Any]:
    """Return the last epoch's metrics, and separately the best epoch's, chosen on the evaluation split."""
    history = trained.history
    best = max(range(len(history["epoch"])), key=lambda e: history["test_accuracy"][e])
    metrics: dict[str, Any] = {name: values[-1] for name, values in history.items()}
    # If the number of steps depends on the data, the guarantee is the sound epsilon of `max_tries`, the most that there
    # could have been. A run that ended early is such a run: the data decided its end, by a rule or by a person who
    # watched.
    if trained.status != "finished" or history["steps"][-1] != run.most_steps or run.decides:
        spent = history[run.cost_column][-1]
        metrics |= {"max_tries": run.most_steps, "epsilon_sound": run.epsilon_at_most_steps}
        metrics |= {} if spent is None else {"epsilon_spent": spent}
    else:
        metrics.setdefault("epsilon_sound", None)
    return {
        **metrics,
        "best_test_accuracy": history["test_accuracy"][best],
        "best_epoch": history["epoch"][best],
        "noise_multiplier": run.mechanism.noise_multiplier,
        "neighbouring_relation": run.mechanism.neighbouring_relation,
        "sampling_rate": float(run.mechanism.sampling_rate),
        "parameters": run.parameters,
    }
