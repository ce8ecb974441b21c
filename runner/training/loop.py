"""The training loop: sample, sum, release, update, charge, evaluate. Steps are taken call by call, or as a graph."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Generator, Tensor

from runner.accounting import Ledger, epsilon_by
from runner.clipping import gradient_sum
from runner.config import ConfigError, EvaluationSplit, StepMode, is_own
from runner.data.augmentation import viewed
from runner.data.datasets import OwnDataset, Split, hold_out, shared
from runner.data.originals import standardised
from runner.data.reproducible import seed_others, seeded
from runner.gradients import GradientSum, Objective, OnePassEngine, fresh_copy
from runner.mechanism.dp_sgd import check_first_batch
from runner.mechanism.normal import PastNoise, derived_seed, generator
from runner.training.averaging import LAST, averaged, initial_average, weights_replaced
from runner.training.diagnostics import Batch, Diagnostics
from runner.training.evaluate import Predictions, evaluate
from runner.training.run import NotCapturableError, Pieces, Run, State, Stateful
from runner.training.updates import Updates

if TYPE_CHECKING:
    from runner.training.graph import GraphStep

OnEpoch = Callable[[dict[str, float]], bool | None]  # False: the run stops
OnStep = Callable[[int, int], None]  # the epoch and the number of its finished steps, both from 1
OnState = Callable[[Callable[[], State]], None]  # called after every epoch but the last with a function for the state
Training = Callable[[OnEpoch], "Trained"]
_NORMED = 4096  # images whose norms are taken at a time
_ROUNDING = 1e-5


def load(run: Run) -> tuple[Split, ...]:
    """Return the training and the evaluation split, and the update rule's images, as features on the device.

    The update rule's images come from the test split. With evaluation=holdout the reported images do not.

    Raises:
        ConfigError: features exceed the norm that they state, from which bounds on gradients may follow. Or statistics
            of the private images made them, or such images choose updates, and a sound epsilon would not know.
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
    promised = run.mechanism.private and not run.unsound
    if promised and (getattr(run.dataset, "standardised", False) or standardised(train.images)):
        raise ConfigError(
            "features: the training images are standardised or centred by their own statistics, which no ledger holds: "
            "take public constants, or pixels of 0 to 1 and normalization=private_statistics."
        )
    test, *aside = run.rule.split(test)
    if aside and run.mechanism.private and isinstance(run.dataset, OwnDataset) and (count := shared(train, aside[0])):
        raise ConfigError(
            f"screening: {count:,} of the images that choose updates are training images, and no ledger holds the "
            "choice: give the data set test images of its own."
        )
    if run.config.evaluation == EvaluationSplit.holdout:
        train, test = hold_out(train)
    return train, test, *aside


def train(run: Run, data: tuple[Split, ...], on_epoch: OnEpoch) -> "Trained":
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
            progress = Progress(run, steps, data, on_epoch, ahead)
            parts: dict[str, Stateful] = {**steps.parts, "progress": progress}
            if state is not None:
                put_back(state, parts, steps.generators, run.device)
            goes_on = True
            while goes_on:
                epoch = len(progress.trained.history["epoch"]) + 1
                seed_others(derived_seed(run.config.seed, f"layers of epoch {epoch}"))  # which the state does not have
                started = time.perf_counter()
                for step_in_epoch, accepted in enumerate(steps.epoch(epoch, progress.steps, progress.diagnostics)):
                    progress.charge_step(step_in_epoch, accepted)
                    if steps.mode is StepMode.eager:
                        on_step(epoch, step_in_epoch + 1)
                goes_on = progress.end_epoch(epoch, started)
                if goes_on:
                    on_state(lambda: state_of(parts, steps.generators, run.device))
            return progress.trained

    return train_it


@contextmanager
def _epsilons_ahead(run: Run) -> Iterator[Mapping[int, Future[float | None]]]:
    """Compute the cost of every epoch, by epoch, in a thread, so that `Run.spent_epsilon` knows it when the epoch ends.

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


def state_of(parts: Mapping[str, Stateful], generators: Mapping[str, Generator], device: torch.device) -> State:
    """Return the states of a run's parts, of its generators, and of PyTorch's generators, for layers that draw."""
    return {
        "parts": {name: part.state_dict() for name, part in parts.items()},
        "generators": {name: generator.get_state() for name, generator in generators.items()},
        "layers": torch.get_rng_state(),
        "layers_on_device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def put_back(
    state: State, parts: Mapping[str, Stateful], generators: Mapping[str, Generator], device: torch.device
) -> None:
    """Restore the saved states of a run's parts and generators, on freshly built ones."""
    for name, part in parts.items():
        part.load_state_dict(state["parts"][name])
    for name, stream in generators.items():
        stream.set_state(state["generators"][name])
    torch.set_rng_state(state["layers"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["layers_on_device"], device)


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
        pieces: the examples that pass the network at a time.
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
        self._parts: dict[str, Stateful] = {"objective": self.objective, "updates": self.updates}
        if isinstance(self._engine, OnePassEngine):
            self._parts["engine"] = self._engine
        self._average: list[Tensor] = []
        if run.averaging is not None:
            self._average = initial_average(list(self.objective.parameters()))
        self._past: list[PastNoise] = []
        if len(run.mechanism.coefficients) > 1:
            self._past.append(PastNoise(run.mechanism.coefficients))
            self._parts["past noise"] = self._past[0]
        self._unchecked, self.pieces = True, Pieces(run.physical_batch)
        self._losses, self._seen = 0.0, 0

    @property
    def parts(self) -> dict[str, Stateful]:
        return {**self._parts, "average": self} if self._average else self._parts

    @property
    def average(self) -> dict[str, Tensor] | None:
        """Return the averaged weights by parameter name, or None if the config asks for none."""
        names = (name for name, _ in self.objective.named_parameters())
        return dict(zip(names, self._average[1:], strict=True)) if self._average else None

    def seen(self) -> tuple[float, int]:
        """Return the sum of the losses of this epoch's examples, before each update, and their number."""
        return self._losses, self._seen

    def state_dict(self) -> State:
        return {"average": self._average}

    def load_state_dict(self, state: State) -> None:
        self._average = [
            saved.to(present.device) for saved, present in zip(state["average"], self._average, strict=True)
        ]

    def epoch(self, epoch: int, before: int, diagnostics: Diagnostics) -> Iterator[bool]:
        """Take the steps of an epoch, counted from 1, after `before` earlier ones. Yield after each if it is kept.

        None is taken after the one that exhausts a budget of kept steps.
        """
        run, objective, views = self._run, self.objective, self._run.augmentation
        for started in {objective, self._differentiated}:
            started.start_epoch(epoch - 1)
        self.updates.start_epoch()
        self._losses, self._seen = 0.0, 0
        for step, indices in enumerate(run.mechanism.batches(self.generators["sampling"]), before):
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
            noisy = run.mechanism.at(step).release(computed.gradients, self.generators["noise"], *self._past)
            gradients = objective.received(noisy)
            for name, parameter in objective.named_parameters():
                parameter.grad = gradients[name]
            accepted = self.updates.step()
            if accepted and run.averaging is not None:
                self._average = averaged(run.averaging, self._average, [p.detach() for p in objective.parameters()])
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
        return self.pieces.fitting(
            lambda size: gradient_sum(clipping, engine, inputs, targets, size, groups), len(targets)
        )


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
        self,
        run: Run,
        steps: "CallByCall | GraphStep",
        data: tuple[Split, ...],
        on_epoch: OnEpoch,
        ahead: Mapping[int, Future[float | None]],
    ) -> None:
        self._run, self._way, self._ahead = run, steps, ahead
        self._evaluation_split, self._on_epoch = data[1], on_epoch
        self.trained, self._kept = Trained(step=steps.mode.value, objective=steps.objective), list[bool]()
        self.trained.history = {name: [] for name in run.columns}
        self._ledger = Ledger()
        if run.normalization is not None:
            layer = steps.objective.network.get_submodule("normalization")
            stream = generator(run.config.seed, "normalization", run.device)
            images = data[0].images.clone() if is_own(run.normalization) else data[0].images
            run.normalization.fit(layer, images, stream, self._ledger)
        self.diagnostics = Diagnostics(run, steps.objective, data[0])
        self.diagnostics.start()
        self._captured: list[Predictions | None] = []  # on CUDA, after the first epoch of a graph

    @property
    def steps(self) -> int:
        """Return the number of steps taken, kept or not."""
        return len(self._kept)

    def charge_step(self, step_in_epoch: int, accepted: bool = True) -> None:
        """Count a step and charge it.

        Raises:
            ConfigError: the update rule has stated that there are fewer.
        """
        if self.steps == self._run.most_steps:
            raise ConfigError(f"screening: the run takes more steps than the {self.steps} of its rule's most_steps.")
        self._run.mechanism.at(self.steps).charge_step(self._ledger, step_in_epoch, kept=accepted)
        self._kept.append(accepted)

    def end_epoch(self, epoch: int, started: float) -> bool:
        """Evaluate after an epoch whose first step began at `started`. Return True if the run goes on.

        The run's accuracy is measured at its averaged weights, if there are any.

        Raises:
            ConfigError: a column of the update rule has the name of another, or is no number.
        """
        run, trained, updates, objective = self._run, self.trained, self._way.updates, self._way.objective
        losses, seen = self._way.seen()  # on CUDA this waits for the last step
        trained.seconds_training += time.perf_counter() - started
        trained.examples += seen
        trained.physical_batch = self._way.pieces.size
        split, average = self._evaluation_split, self._way.average
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
        goes_on = trained.status == "finished" and not ended
        if average is not None and not goes_on:
            with weights_replaced(objective, average):
                trained.objective = fresh_copy(objective)
        return goes_on

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
