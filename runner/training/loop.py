"""The training loop, and the steps taken call by call: sample, sum, release, update, charge, evaluate."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor

from runner.clipping import gradient_sum
from runner.config import ConfigError, EvaluationSplit, StepMode
from runner.data.augmentation import viewed
from runner.data.datasets import Split, hold_out
from runner.data.reading import seed_others, seeded
from runner.gradients import GradientSum, OnePassEngine, fresh_copy
from runner.mechanism.normal import PastNoise, derived_seed, generator
from runner.training.averaging import Average
from runner.training.diagnostics import Batch, Diagnostics
from runner.training.progress import Ahead, OnEpoch, Progress, Trained
from runner.training.run import Run
from runner.training.steps import (
    NotCapturableError,
    OnState,
    Pieces,
    State,
    Stateful,
    check_first_batch,
    put_back,
    state_of,
)
from runner.training.updates import Updates

OnStep = Callable[[int, int], None]  # the epoch and the number of its finished steps, both from 1
Training = Callable[[OnEpoch], Trained]
_NORMED = 4096  # images whose norms are taken at a time
_ROUNDING = 1e-5


def load(run: Run) -> tuple[Split, ...]:
    """Return the training and the evaluation split, and the update rule's images, as features on the device.

    The update rule's images come from the test split. With evaluation=holdout the reported images do not.

    Raises:
        ConfigError: features exceed the norm that they state, from which bounds on gradients may follow.
        DataError: the data set cannot be read.
    """
    train, test = (
        Split(run.features(split.images.to(run.device)), split.targets.to(run.device))
        for split in run.dataset.load(run.config.runtime.data_root)
    )
    bound = run.initial.inputs
    if bound is not None and bound.norm is not None:
        pieces = train.images.split(_NORMED)
        norm = torch.stack([torch.linalg.vector_norm(piece.flatten(1), dim=1).max() for piece in pieces]).max()
        if not norm <= bound.norm * (1 + _ROUNDING):
            raise ConfigError(f"features: they have the norm {norm:.6g}, but state a largest norm of {bound.norm:.6g}.")
    test, *aside = run.rule.split(test)
    if run.config.evaluation == EvaluationSplit.holdout:
        train, test = hold_out(train)
    return train, test, *aside


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
    graph = None
    if way is not StepMode.eager:
        from runner.training.graph import GraphStep  # a CPU does without

        configured = run.config.runtime.step
        try:
            graph = GraphStep(run, run.new_objective(), data[0])
            graph.make_room()
        except NotCapturableError as reason:
            if configured in (StepMode.graph, StepMode.compiled) or run.config.precision is not None:
                setting = f"runtime.step={configured.value}" if run.config.precision is None else "precision"
                raise ConfigError(f"{setting} is not possible here: {reason}.") from reason
            print(f"step: {reason}, so it is taken call by call, not as a graph.", file=sys.stderr)
            graph = None

    def train_it(on_epoch: OnEpoch) -> Trained:
        cuda = [run.device] if run.device.type == "cuda" else []
        # For parts that draw random numbers.
        with seeded(derived_seed(run.config.seed, "layers"), cuda), _epsilons_ahead(run) as ahead:
            steps = graph or CallByCall(run, data)
            progress = Progress(run, steps.objective, data, on_epoch, ahead)
            progress.trained.step = steps.mode.value
            parts: dict[str, Stateful] = {**steps.parts, "progress": progress}
            if state is not None:
                put_back(state, parts, steps.generators, run.device)
            epoch, goes_on = progress.epochs, True
            while goes_on:
                epoch += 1
                seed_others(derived_seed(run.config.seed, f"layers of epoch {epoch}"))  # which the state does not have
                started = time.perf_counter()
                for step_in_epoch, accepted in enumerate(steps.epoch(epoch, progress.steps, progress.diagnostics)):
                    progress.charge_step(step_in_epoch, accepted)
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
            return progress.trained

    return train_it


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


class CallByCall:
    """The steps of a run, taken call by call, for any clipping, mechanism, update rule and diagnostic.

    `runner.training.graph.GraphStep` has the same attributes and methods. Views pass through a copy of the objective,
    whose loss is the mean over them.

    Attributes:
        mode: the name of the way in records.
        objective: the objective, with its weights.
        updates: the update rule, or None if every update is kept.
        parts: what the next epoch depends on, apart from `generators`.
        generators: the run's generators, by stream.
    """

    mode = StepMode.eager

    def __init__(self, run: Run, data: tuple[Split, ...]) -> None:
        self._training, _, *aside = data
        self._run = run
        self.objective = self._differentiated = run.new_objective()
        streams = {"sampling": run.device, "noise": run.device}
        if run.augmentation is not None:
            self._differentiated = fresh_copy(self.objective)
            self._differentiated.views = run.augmentation.views
            streams["augmentation"] = torch.device("cpu")
        self.generators = {name: generator(run.config.seed, name, device) for name, device in streams.items()}
        self._engine = run.engine(self._differentiated)
        self.updates = run.rule.updates(run, self.objective, aside)
        if not isinstance(self.updates, Updates):
            raise ConfigError(f"screening: updates() has to return `Updates`, not {type(self.updates).__qualname__}.")
        self.parts: dict[str, Stateful] = {"objective": self.objective, "updates": self.updates}
        if isinstance(self._engine, OnePassEngine):
            self.parts["engine"] = self._engine
        self._average = None if run.averaging is None else Average(run.averaging, self.objective)
        if self._average is not None:
            self.parts["average"] = self._average
        self._past: list[PastNoise] = []
        if len(run.mechanism.coefficients) > 1:
            self._past.append(PastNoise(run.mechanism.coefficients))
            self.parts["past noise"] = self._past[0]
        self._unchecked, self._pieces = True, Pieces(run.physical_batch)
        self._losses, self._seen = 0.0, 0

    @property
    def physical_batch(self) -> int:
        """Return the number of examples that pass the network at a time."""
        return self._pieces.size

    @property
    def average(self) -> dict[str, Tensor] | None:
        """Return the averaged weights by parameter name, or None if the config asks for none."""
        return None if self._average is None else self._average.weights

    def seen(self) -> tuple[float, int]:
        """Return the sum of the losses of this epoch's examples, before each update, and their number."""
        return self._losses, self._seen

    def epoch(self, epoch: int, before: int, diagnostics: Diagnostics) -> Iterator[bool]:
        """Take the steps of an epoch, counted from 1, after `before` earlier ones. Yield after each if it is kept.

        None is taken after the one that exhausts a budget of kept steps.
        """
        mechanism, objective, views = self._run.mechanism, self.objective, self._run.augmentation
        for started in {objective, self._differentiated}:
            started.start_epoch(epoch - 1)
        self.updates.start_epoch()
        self._losses, self._seen = 0.0, 0
        for step, indices in enumerate(mechanism.batches(self.generators["sampling"]), before):
            inputs, targets = self._training.images[indices], self._training.targets[indices]
            if views is not None:
                self._differentiated.take_values_of(objective)
                numbers = views.draw(len(inputs), self.generators["augmentation"])
                inputs = viewed(views, inputs, numbers.to(inputs.device))  # [batch, views, ...]
            computed = self._sum(inputs, targets)
            if self._unchecked and len(targets) > 1:
                self._unchecked = False
                self._check_first(inputs, targets, computed)
            diagnostics.step(step, epoch, Batch(self._engine, inputs, targets, computed))
            self._losses += computed.losses.double().sum().item()
            self._seen += len(targets)
            noisy = mechanism.at(step).release(computed.gradients, self.generators["noise"], *self._past)
            gradients = objective.received(noisy)
            for name, parameter in objective.named_parameters():
                parameter.grad = gradients[name]
            accepted = self.updates.step()
            if accepted and self._average is not None:
                self._average.update()
            yield accepted
            if self.updates.finished:
                return

    def _check_first(self, inputs: Tensor, targets: Tensor, computed: GradientSum) -> None:
        norms = computed.losses if computed.norms is None else computed.norms
        check_first_batch(self._run.mechanism, lambda m: self._sum(inputs[m], targets[m]).gradients, norms)

    def _sum(self, inputs: Tensor, targets: Tensor) -> GradientSum:
        """Return the bounded sum over one logical batch: inputs [batch, ...], targets [batch]."""
        run, engine = self._run, self._engine
        clipping, groups = run.mechanism.applied(run.clipping, len(targets)), run.mechanism.noise_groups
        return self._pieces.fitting(
            lambda size: gradient_sum(clipping, engine, inputs, targets, size, groups), len(targets)
        )
