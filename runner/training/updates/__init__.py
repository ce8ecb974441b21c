"""Update rules, which decide how a step's gradients change the weights.

`UpdateRule` is the static description, `Updates` the state while training, and `Schedule` the learning rate.

A rule wraps another one by wrapping its `Updates`. A rule that rejects a step undoes every change of the plain update,
a projection too.

The updates of SGD and Adam are pure functions here, for steps call by call and for graphs. Their equations and the
order of their operations equal torch.optim's, so on a CPU every digit is the same. A graph reads the learning rate from
the device, because it changes. Any other optimizer, and any other setting, stays torch's own.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import unwrap
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from runner.config import is_own
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.mechanism.dp_sgd import Mechanism
from runner.training.evaluate import Evaluation


class UpdateRule:
    """A rule's properties, known before training. By default every update is the optimizer's and is kept.

    Attributes:
        takes_back: True if a step may be rejected. A budget is then spent on kept steps, and the guarantee is the cost
            of the largest number of steps.
        share_name: the record's name for the share of the training time for decisions, or None without decisions.
        column_names: the columns that it adds to a history.
    """

    takes_back: ClassVar[bool] = False
    share_name: ClassVar[str | None] = None
    column_names: ClassVar[tuple[str, ...]] = ()

    def check(self, mechanism: Mechanism) -> None:
        """Check that the mechanism charges for this rule's steps.

        Raises:
            ValueError: it does not.
        """

    def most_steps(self, planned: int, paid_for: int | None) -> int:
        """Return the most of the planned steps that a run can take, which may also end at `paid_for` kept ones."""
        return planned

    def split(self, test: Split) -> tuple[Split, ...]:
        """Return the images of the test split to report on, then the images that this rule uses, if any."""
        return (test,)

    def due(self, run: Any, history: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Compute the rule's columns that follow from other columns of a history, for a prepared `Run`.

        For a count that is only bounded, this is the nearest value within the bounds.
        """
        return {}

    def updates(self, run: Any, objective: Objective, aside: Sequence[Split]) -> "Updates":
        """Return the updates of a prepared `Run`; `aside` are the images that `split` returned for this rule."""
        optimizer = run.optimizer(objective)
        return Updates(optimizer, objective.project, run.schedule(optimizer))


class Updates:
    """One run's updates while it trains: the optimizer's steps, each followed by `project`. All are kept.

    Args:
        optimizer: a step changes only its parameters and its state, so restoring these undoes the step.
        project: projects the weights onto their constraint.
        schedule: sets the learning rate; None keeps it constant.

    Attributes:
        seconds: the time spent on decisions.
    """

    seconds = 0.0

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        project: Callable[[], None] = lambda: None,
        schedule: "Schedule | None" = None,
    ) -> None:
        self.optimizer = optimizer
        self._project, self._schedule = project, schedule or Schedule(None)
        # A user's schedule may have changed the optimizer, or wait for its hooks.
        opaque = self._schedule.is_own or unsupported(optimizer)
        self._update = None if opaque else update_of(optimizer)

    @property
    def finished(self) -> bool:
        """Return True if as many steps are kept as the budget pays for."""
        return False

    def start_epoch(self) -> None:
        self._schedule.start_epoch()

    def step(self) -> bool:
        """Make the update from the gradients. Return True if it is kept."""
        self._schedule.start_step()
        if (update := self._update) is None:
            self.optimizer.step()
        else:
            (group,) = self.optimizer.param_groups
            with torch.no_grad():
                for parameter in group["params"]:
                    state = self.optimizer.state[parameter]
                    buffers = [state[name] for name in update.names] if state else update.initial_buffers(parameter)
                    weights, buffers = update(parameter, parameter.grad, buffers, group["lr"])
                    parameter.copy_(weights)
                    state.update(zip(update.names, buffers, strict=True))
        self._project()
        return True

    def columns(self, reported: Evaluation) -> dict[str, float]:
        """Return columns for the history, from the measurements of the last weights on the reported images.

        If steps may be rejected, `accepted` is the number of kept steps so far.
        """
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "schedule": self._schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._schedule.load_state_dict(state["schedule"])
        self.optimizer.load_state_dict(state["optimizer"])


class Schedule:
    """Steps a scheduler at the start of every epoch but the first, for which its constructor has set the rate.

    A scheduler whose class has `by_step = True` is stepped at the start of every step of the run but the first instead.
    """

    def __init__(self, scheduler: LRScheduler | None) -> None:
        self._scheduler, self._begun = scheduler, 0
        self.by_step = bool(getattr(scheduler, "by_step", False))
        self.is_own = scheduler is not None and is_own(scheduler)

    def start_epoch(self) -> None:
        """Set the learning rate of the epoch that begins, unless rates are set by step."""
        if not self.by_step:
            self._begin()

    def start_step(self) -> None:
        """Set the learning rate of the step that begins, if rates are set by step."""
        if self.by_step:
            self._begin()

    def _begin(self) -> None:
        if self._begun > 0 and self._scheduler is not None:
            with warnings.catch_warnings():  # steps need not call the optimizer
                warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
                self._scheduler.step()
        self._begun += 1

    def state_dict(self) -> dict[str, int]:
        """Return the number of epochs, or steps, that have begun, which determines the rate."""
        return {"begun": self._begun}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Begin as many epochs, or steps, again, as schedulers hold objects that no plain state stores."""
        for _ in range(state["begun"]):
            self._begin()


Number: TypeAlias = float | Tensor  # a Python number, or one without dimensions on the device


@dataclass(frozen=True)
class Sgd:
    """v <- momentum v + gradient; w <- w - lr v."""

    momentum: float

    settings: ClassVar[tuple[str, ...]] = ("momentum",)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its buffers in the state of torch's optimizer."""
        return ("momentum_buffer",) if self.momentum else ()

    def initial_buffers(self, weights: Tensor, steps: Number = 0.0) -> list[Any]:
        return [torch.zeros_like(weights) for _ in self.names]

    def __call__(
        self, weights: Tensor, gradient: Tensor, buffers: Sequence[Any], lr: Number
    ) -> tuple[Tensor, list[Any]]:
        velocity = self.momentum * buffers[0] + gradient if buffers else gradient
        if isinstance(lr, Tensor):
            weights = torch.addcmul(weights, velocity, lr.to(weights.dtype), value=-1)
        else:
            weights = torch.add(weights, velocity, alpha=-lr)
        return weights, [velocity for _ in buffers]


@dataclass(frozen=True)
class Adam:
    """Kingma and Ba (2015), algorithm 1, without weight decay. Bias corrections are computed in float64."""

    betas: tuple[float, float]
    eps: float

    settings: ClassVar[tuple[str, ...]] = ("betas", "eps")
    names: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq", "step")

    def initial_buffers(self, weights: Tensor, steps: Number = 0.0) -> list[Any]:
        """Return the buffers before the first step: two moments, and the number of `steps`, which is zero."""
        return [torch.zeros_like(weights), torch.zeros_like(weights), steps]

    def __call__(
        self, weights: Tensor, gradient: Tensor, buffers: Sequence[Any], lr: Number
    ) -> tuple[Tensor, list[Any]]:
        (beta1, beta2), (first, second, steps) = self.betas, buffers
        # torch.optim makes a tensor of a number that it loads.
        steps = (steps if isinstance(lr, Tensor) else float(steps)) + 1
        first = torch.lerp(first, gradient, 1 - beta1)
        second = torch.addcmul(second * beta2, gradient, gradient, value=1 - beta2)
        size, root = lr / (1 - beta1**steps), (1 - beta2**steps) ** 0.5
        if isinstance(size, Tensor):
            kind = weights.dtype
            weights = torch.addcdiv(weights, first * -size.to(kind), second.sqrt() / root.to(kind) + self.eps)
        else:
            weights = torch.addcdiv(weights, first, second.sqrt() / root + self.eps, value=-size)
        return weights, [first, second, steps]


Update: TypeAlias = Sgd | Adam
_UPDATES: dict[type, type[Sgd] | type[Adam]] = {torch.optim.SGD: Sgd, torch.optim.Adam: Adam}
_RATES = ("params", "lr", "initial_lr")

for _method in (torch.optim.Optimizer.add_param_group, torch.optim.Optimizer.state_dict):
    # At their first call PyTorch imports its compiler, in half a second and 120 MB, only to keep them out of what is
    # compiled. Nothing that is compiled here builds or saves an optimizer, so they are kept as they are.
    vars(unwrap(_method))["__dynamo_disable"] = unwrap(_method)


def unsupported(optimizer: torch.optim.Optimizer) -> str | None:
    """Return the reason why an optimizer's update is only its own, or None if `update_of` has it."""
    kind = type(optimizer)
    if kind not in _UPDATES:
        return f"the optimizer {kind.__name__} is not supported"
    if len(optimizer.param_groups) > 1:
        return "the optimizer has several groups of parameters"
    usual = kind([torch.zeros(1)]).param_groups[0]  # type: ignore[call-arg]
    for name, value in optimizer.param_groups[0].items():
        if name not in (*_RATES, *_UPDATES[kind].settings) and value != usual.get(name):
            return f"the optimizer's setting {name} is not supported"
    return None


def update_of(optimizer: torch.optim.Optimizer) -> Update:
    kind, group = _UPDATES[type(optimizer)], optimizer.param_groups[0]
    return kind(*(group[name] for name in kind.settings))
