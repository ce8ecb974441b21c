"""The parts of a run that need no data, what follows from them, and what both ways of taking its steps share."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import torch
from omegaconf import DictConfig
from torch import nn

from runner.accounting import Ledger, sound_epsilon
from runner.accounting.calibration import Accountant
from runner.clipping import Clipping, NoClipping
from runner.config import EngineName, StepMode
from runner.data.augmentation import Augmentation
from runner.data.datasets import ImageDataset
from runner.data.features import Features
from runner.data.originals import private_statistics
from runner.gradients import ENGINES, Engine, Objective, fresh_copy
from runner.mechanism.dp_sgd import Mechanism, Normalization
from runner.speed.faster import examples_in_cache
from runner.training.averaging import Averaging
from runner.training.updates import Schedule, UpdateRule
from runner.trust.engine import IsolatedEngine
from runner.trust.mechanism import own_noise
from runner.trust.own_parts import OwnViews, assumptions

T = TypeVar("T")
State = dict[str, Any]  # tensors, numbers, texts, and lists and dicts of these; reading it runs no code


@dataclass(frozen=True)
class Run:
    """The parts of one run that need no data, which `runner.build.prepare` makes.

    Attributes:
        augmentation: the views that an example's gradient is averaged over, or None.
        initial: the network with its first weights, and its loss.
        isolation: the reason why its examples are computed one by one, or None if all of its modules are known.
        averaging: the average of the weights that is evaluated, or None for the last weights.
        paid_for: the number of kept steps, if any, at which the run ends before the last of its `epochs`.
        make_optimizer: called with a list of parameters.
        make_schedule: called with the optimizer and the number of steps.
    """

    config: DictConfig
    dataset: ImageDataset
    features: Features
    augmentation: Augmentation | OwnViews | None
    normalization: Normalization | None
    initial: Objective
    isolation: str | None
    activation_type: type[nn.Module]
    clipping: Clipping
    mechanism: Mechanism
    accountant: Accountant
    rule: UpdateRule
    averaging: Averaging | None
    epochs: int
    paid_for: int | None
    device: torch.device
    make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    make_schedule: Callable[[torch.optim.Optimizer, int], Schedule]

    def new_objective(self) -> Objective:
        """Return a projected copy of `initial` on the device, with weights that depend only on the seed."""
        objective = fresh_copy(self.initial)
        objective.isolated = self.isolated
        objective.project()
        return objective.to(self.device)

    @property
    def isolated(self) -> bool:
        """Return True if examples are computed one by one: a user wrote a part, and contributions are bounded."""
        return self.isolation is not None and not isinstance(self.clipping, NoClipping)

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.initial.parameters())

    @cached_property
    def physical_batch(self) -> int:
        """Return the examples per forward pass: as configured, else as many as fit into a fast memory.

        Engines that compute per-example gradients split batches themselves, so they get whole ones.
        """
        configured: int | None = self.config.runtime.physical_batch
        if configured is not None:
            return configured
        if self.clipping.needs_engine or self.isolation:
            return self.mechanism.examples
        images = examples_in_cache(self.new_objective().network, self.features.shape(self.dataset.shape))
        return images if self.augmentation is None else max(1, images // self.augmentation.views)

    def engine(self, objective: Objective) -> Engine:
        """Return the engine for an objective: the fast one if all of its modules are known."""
        if self.isolation or getattr(self.clipping, "needs_gradients", False):
            return IsolatedEngine(objective)
        return ENGINES[self.config.runtime.engine.value](objective)

    @property
    def most_steps(self) -> int:
        """Return the largest number of steps that the run can take, kept or not."""
        return self.rule.most_steps(self.epochs * self.mechanism.steps_per_epoch, self.paid_for)

    @property
    def rests_on(self) -> list[str]:
        """Return what the run's ε assumes of a user's parts, a text each: see `runner.trust.own_parts`."""
        if not self.mechanism.private:
            return []
        count = self.initial.frozen
        frozen = [f"{count:,} frozen parameters: taken as public"] if count else []
        return frozen + assumptions(self.config, self.dataset, self.accountant, self.rule)

    @property
    def unsound(self) -> str | None:
        """Return the reason why no sound epsilon is known, in one sentence, or None if the ledger has every release."""
        return self._uncharged or self._private_statistics

    @property
    def _uncharged(self) -> str | None:
        return own_noise(self.mechanism, self.normalization)

    @cached_property
    def _private_statistics(self) -> str | None:
        return private_statistics(self.config) if self.mechanism.private else None

    @property
    def decides(self) -> bool:
        """Return True if the data decide how many steps there are, as a budget is spent on kept ones."""
        return self.rule.takes_back and self.paid_for is not None

    @property
    def cost_column(self) -> str:
        """Return the name of the history's column for `spent_epsilon`.

        It is `epsilon_sound` if a run that is told beforehand to end after this epoch guarantees that number. If the
        data decide the number of steps, or the features are fitted to the data, it is `epsilon_spent`.
        """
        spent = not self._uncharged and (self.decides or self._private_statistics)
        return "epsilon_spent" if spent else "epsilon_sound"

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns that the history has for any update rule."""
        return ("epoch", "steps", "epsilon", self.cost_column, "train_loss", "test_loss", "test_accuracy")

    @cached_property
    def epsilon_at_most_steps(self) -> float | None:
        """Return the sound epsilon of `most_steps`, which the run guarantees before it starts. None: see `unsound`."""
        return self.sound_epsilon(self.mechanism.charges(self.most_steps))

    def sound_epsilon(self, ledger: Ledger) -> float | None:
        """Return the sound epsilon of a ledger of this run. None: see `unsound`."""
        return None if self.unsound else self.spent_epsilon(ledger)

    def spent_epsilon(self, ledger: Ledger) -> float | None:
        """Return the sound epsilon of the releases in a ledger of this run, or None if they are not the package's."""
        return None if self._uncharged else sound_epsilon(ledger.actual, self.config.delta)

    @property
    def step(self) -> StepMode:
        """Return the way in which steps are executed: `eager`, or as `graph` or `compiled`.

        `auto` is `graph` on CUDA, where an eager step of a small network waits for its launches. `GraphStep` compiles
        it if that pays. Passes in fewer bits need it on any device (`runner.gradients.precision`).
        """
        configured: StepMode = self.config.runtime.step
        if configured is not StepMode.auto:
            return configured
        graph = self.device.type == "cuda" and self.config.runtime.engine is EngineName.one_pass
        graph = graph or self.config.precision is not None
        return StepMode.graph if graph else StepMode.eager

    def optimizer(self, objective: Objective) -> torch.optim.Optimizer:
        """Build the optimizer of an objective. One with a method `take_noise` gets the noise of each parameter."""
        optimizer = self.make_optimizer(list(objective.parameters()))
        if hasattr(optimizer, "take_noise"):
            std = self.mechanism.noise_of_mean()
            optimizer.take_noise({parameter: std[name] for name, parameter in objective.named_parameters()})
        return optimizer

    def schedule(self, optimizer: torch.optim.Optimizer) -> Schedule:
        return self.make_schedule(optimizer, self.epochs * self.mechanism.steps_per_epoch)


class NotCapturableError(Exception):
    """No fixed sequence of calls can train this run; the message is the reason."""


class Stateful(Protocol):
    """A part of a run whose state can be saved and restored: a network or an optimizer, for example."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State, /) -> object: ...


class Pieces:
    """The number of examples at a time, `size`, which is halved if the GPU's memory is too small for them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def fitting(self, take: Callable[[int], T], examples: int) -> T:
        """Return `take(size)` for the largest tried size that fits, of at most `examples`.

        Raises:
            torch.OutOfMemoryError: one example does not fit.
        """
        while True:
            size = min(self.size, examples)
            try:
                return take(size)
            except torch.OutOfMemoryError as error:
                if size <= 1:
                    error.add_note("one example does not fit: compute fewer runs at a time, by JOBS")
                    raise
            self.size = math.ceil(size / 2)
            torch.cuda.empty_cache()
            print(
                f"memory: {size} examples at a time do not fit, so {self.size} are computed at a time "
                f"(runtime.physical_batch={self.size}).",
                file=sys.stderr,
            )
