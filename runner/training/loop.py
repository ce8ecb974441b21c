"""The training loop: sample, sum, release, update, charge, evaluate."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from runner.config import ConfigError, EvaluationSplit, StepMode
from runner.data.datasets import Split, hold_out
from runner.data.reading import seed_others, seeded
from runner.mechanism.seeds import derived_seed
from runner.training.call_by_call import CallByCall
from runner.training.graph import GraphStep, NotCapturableError, enough
from runner.training.progress import Ahead, OnEpoch, Progress, Trained
from runner.training.run import Run, graph_step
from runner.training.steps import OnState, State, Stateful, put_back, state_of

OnStep = Callable[[int, int], None]  # the epoch and the number of its finished steps, both from 1
Training = Callable[[OnEpoch], Trained]
_AT_ONCE = 4096  # images
_ROUNDING = 1e-5


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


def train(run: Run, data: tuple[Split, ...], on_epoch: OnEpoch) -> Trained:
    """Train one run to its last epoch, or until a weight or a loss is no longer finite (status "diverged").

    `on_epoch` gets each epoch's row of the history at once, and may end the run by returning False (status "stopped").
    Parts that draw from the global generators of PyTorch, NumPy and `random` get a stream of the run's seed. The
    generators are restored after.
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
        with seeded(derived_seed(run.config.seed, "layers"), cuda):  # for parts that draw random numbers
            steps = graph or CallByCall(run, data)
            with _epsilons_ahead(run) as ahead:
                progress = Progress(run, steps.objective, data, on_epoch, ahead)
                _train(steps, progress, run, on_step, on_state, state)
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


@contextmanager
def _epsilons_ahead(run: Run) -> Iterator[Ahead]:
    """Compute the cost of every epoch in a thread, so that `Run.spent_epsilon` knows it when the epoch ends.

    Nothing is computed ahead if the data decide the charges, or on a CPU, which takes the steps itself.
    """
    computable = run.device.type == "cuda" and not run.rule.takes_back
    with ThreadPoolExecutor(1) as pool:
        try:
            yield {
                epoch: pool.submit(run.spent_epsilon, run.mechanism.charges_of_epochs(epoch))
                for epoch in range(1, 1 + run.epochs * computable)
            }
        finally:
            pool.shutdown(cancel_futures=True)


def _train(
    steps: CallByCall | GraphStep,
    progress: Progress,
    run: Run,
    on_step: OnStep,
    on_state: OnState,
    state: State | None,
) -> None:
    """Take steps and end epochs until the run ends."""
    progress.trained.step = steps.mode.value
    parts: dict[str, Stateful] = {**steps.parts, "progress": progress}
    if state is not None:
        put_back(state, parts, steps.generators, run.device)
    epoch, goes_on = progress.epochs, True
    while goes_on:
        epoch += 1
        seed_others(derived_seed(run.config.seed, f"layers of epoch {epoch}"))  # which the state does not have
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
            on_state(lambda: state_of(parts, steps.generators, run.device))
        elif average is not None:
            progress.keep_average(average)
    progress.trained.physical_batch = steps.physical_batch
