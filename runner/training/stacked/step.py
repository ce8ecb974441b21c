"""One training step of R runs as one fixed sequence of calls, on CUDA captured once and replayed as a graph.

`StackedStep.body` is a pure function from a state, a padded batch with its mask, and noise to the next state. It never
asks the device for a value, and no shape in it depends on data, so a replay equals the step. State and batch lie in
buffers with fixed addresses. A graph also draws the noise, from generators that are registered with it, with the same
numbers as `Mechanism.release` draws for a single run. Before its capture the step is compiled, if that pays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import torch
from torch import Generator, Tensor

from runner.clipping import Clipping, Numbers, OfNorms, is_of_norms
from runner.config import StepMode
from runner.data.augmentation import Augmentation, viewed
from runner.data.datasets import Split
from runner.gradients import Objective, undisturbed
from runner.gradients.terms import is_gradient
from runner.mechanism.correlated import correlated
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.seeds import generator
from runner.networks.lipschitz.course import COUNT, counting_course
from runner.training.averaging import Averaging, averaged, begun
from runner.training.diagnostics import Diagnostics
from runner.training.first_batch import Sums, check_first_batch
from runner.training.pieces import Pieces
from runner.training.stacked.batches import EpochBatches, draw_epoch, with_views
from runner.training.stacked.capture import captured, compiled_and_captured, compiling_pays
from runner.training.stacked.layers import NotStackableError, numbers_per_example
from runner.training.stacked.network import StackedObjectives
from runner.training.stacked.sums import StackedEngine
from runner.training.stacked.updates import update
from runner.training.state import State, Stateful
from runner.training.updates import Schedule

_SLICE_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}  # memory of a slice's examples in the layers
_COPIES = 3  # of that memory at a time: the layers, autograd and the sums
_AGREE, _ROUNDING = 1e-2, 1e-5  # tolerance of a replay: relative to the change, and to the numbers
_FOLLOWED = ("applied", "at", "batches", "release")  # methods of a mechanism that are done here as in `Mechanism`


class StackedStep:
    """The step of R runs, from their objectives, which hold the weights afterwards, and their training settings.

    Args:
        data: on the device of the objectives.
        per_slice: examples of a run that pass the network at a time; None: as many as fit.
        schedules: the schedules of the optimizers' learning rates, one per run; if empty, rates are constant.
        seeds: of every run.
        averaging: the average of the weights, if any.
        augmentation: the views of each example, if a step uses any.
        asked: `compiled`, or `auto` to compile if that pays for `steps` steps. Only a captured step is compiled.

    Attributes:
        mode: `compiled` if the step is, else `graph`.
        sampling, noise, augmenting: the generators of every run's batches, noise and views.
        state: all that a step changes: weights [R, numbers], the sums of losses [R], the optimizers' buffers, the
            average, if any, and earlier noise [b - 1, R, numbers] if noise is correlated. Only the shares after private
            counts are elsewhere, in the losses that they belong to.

    Raises:
        NotStackableError: the runs cannot be stacked.
    """

    updates = None

    @undisturbed()
    def __init__(
        self,
        objectives: Sequence[Objective],
        clippings: Sequence[Clipping],
        mechanisms: Sequence[Mechanism],
        optimizers: Sequence[torch.optim.Optimizer],
        data: Split,
        per_slice: int | None = None,
        schedules: Sequence[Schedule] = (),
        seeds: Sequence[int] = (0,),
        averaging: Averaging | None = None,
        augmentation: Augmentation | None = None,
        asked: StepMode = StepMode.graph,
        steps: int = 0,
    ) -> None:
        self.mode, self._asked, self._steps = StepMode.graph, asked, steps
        self._augmentation = augmentation
        self.stacked = StackedObjectives(objectives, 1 if augmentation is None else augmentation.views)
        self.objectives = self.stacked.objectives
        self._mechanisms, self._data = mechanisms, data
        self._optimizers, self._schedules = optimizers, schedules
        self._denominator = mechanisms[0].denominator
        if len({(each.examples, each.batch_size, each.sampling) for each in mechanisms}) > 1:
            raise NotStackableError("they draw their batches differently")
        if any(each.is_own for each in schedules) and any(each.constraint is not None for each in objectives):
            raise NotStackableError("a user's schedule may change weights, which are then projected again")
        self._coefficients = mechanisms[0].coefficients
        if any(each.coefficients != self._coefficients for each in mechanisms):
            raise NotStackableError("they correlate their noise differently")
        for each in {type(mechanism) for mechanism in mechanisms}:
            own = [name for name in _FOLLOWED if getattr(each, name, None) is not getattr(Mechanism, name)]
            if own:
                raise NotStackableError(f"the mechanism {each.__qualname__} overrides `{own[0]}`")
        values = self.stacked.values
        self._clipping, self._numbers = _clipping_of(clippings, values)
        self._update = update(optimizers, values)
        self._released, self._shares = dict(self.stacked.parts), _shares_after_counts(objectives)
        self._weights = values.shape[1]
        if self._shares:
            self._released[COUNT] = slice(self._weights, self._weights + 1), torch.Size()
        size = len(objectives), self._weights + bool(self._shares)
        self._noise, self._std = (values.new_zeros(size) for _ in range(2))
        for mechanism, std in zip(mechanisms, self._std, strict=True):
            mechanism.check_partition(self._released)
            for group in mechanism.noise_groups if mechanism.private else ():
                for name in group.parameters:
                    std[self._released[name][0]] = mechanism.noise_std(group)
        self._noise_views = [
            {name: noise[columns].view(shape) for name, (columns, shape) in self._released.items()}
            for noise in self._noise
        ]
        losses = torch.zeros(len(objectives), dtype=torch.float64, device=values.device)
        self._averaging, self._average = averaging, [] if averaging is None else begun([values])
        earlier = len(self._coefficients) - 1
        self._past = [values.new_zeros(earlier, *size)] if earlier else []
        self.state = [values, losses, *self._update.state, *self._average, *self._past]
        self._seen, self._unchecked = [0] * len(objectives), True
        self._rates: Tensor | None = None  # of every step of an epoch, by step [steps, R, 1]
        device = torch.device("cpu") if values.is_meta else values.device
        self.sampling, self.noise = (
            [generator(seed, name, device) for seed in seeds] for name in ("sampling", "noise")
        )
        self._indices = torch.zeros(len(objectives), 0, dtype=torch.long, device=values.device)
        self._mask = self._indices.bool()
        self.augmenting = [generator(seed, "augmentation", torch.device("cpu")) for seed in seeds]
        self._drawn: list[Tensor] = []  # the numbers of a batch's views, if there are any
        self._take: Callable[[], None] = self._drawn_and_taken
        self._unproven = False
        self._try()
        self._held = numbers_per_example(list(self.stacked.layers.values())) * len(objectives)
        needed = _COPIES * values.element_size() * self._held
        self._pieces = Pieces(per_slice or max(1, _SLICE_BYTES.get(values.device.type, 1 << 30) // needed))

    @property
    def losses(self) -> Tensor:
        """Return the sum of the losses of every example seen, before each step's update: [R], float64."""
        return self.state[1]

    def _try(self) -> None:
        """Check sums of two examples' gradients in every run against ordinary autograd, except on the meta device."""
        try:
            for example in range(min(2, len(self._data))):
                self._try_one(example)
        except (RuntimeError, TypeError, ValueError) as error:
            raise NotStackableError(str(error).partition("\n")[0]) from error

    def _try_one(self, example: int) -> None:
        one = slice(example, example + 1)
        before = _random_state(self.losses.device)
        sums, norms = self._unclipped(one)
        if not torch.equal(before, _random_state(self.losses.device)):
            raise NotStackableError("a layer draws random numbers")
        for run, objective in enumerate(self.stacked.objectives):
            found = {name: g[run] for name, g in sums.items()}
            if not is_gradient(objective, self._data.images[one], self._data.targets[one], found, norms[run, 0]):
                raise NotStackableError("its gradients are not those of its layers")

    def _unclipped(self, some: slice) -> tuple[dict[str, Tensor], Tensor]:
        """Return sums [R, *shape] and norms [R, examples] of the same examples' gradients in every run."""
        runs, images, targets = len(self.losses), self._data.images[some], self._data.targets[some]
        if self.stacked.views > 1:  # equal ones
            images = images.unsqueeze(1).expand(-1, self.stacked.views, *images.shape[1:])
        inputs = images.repeat(runs, *[1] * (images.dim() - 1)), targets.repeat(runs)
        mask = torch.ones(runs, len(targets), dtype=torch.bool, device=self.losses.device)
        found = StackedEngine(self.stacked, self.stacked.values, mask).clipped_sum(
            *inputs, [list(self.stacked.parts)], torch.ones_like
        )
        assert found.norms is not None
        return found.gradients, found.norms

    @property
    def physical_batch(self) -> int:
        """Return the number of a run's examples that pass the network at a time."""
        return self._pieces.size

    @property
    def length(self) -> int:
        """Return P, the length to which batches are padded."""
        return self._indices.shape[1]

    @undisturbed()
    def make_room(self, length: int) -> None:
        """Expect batches padded to `length` from now on, with new buffers, and on CUDA a new graph.

        Raises:
            NotStackableError: the step cannot be captured.
            torch.OutOfMemoryError: not even one example fits into the GPU's memory.
        """
        if length == self.length:
            return
        runs, device = len(self.losses), self.losses.device
        self._indices = torch.zeros(runs, length, dtype=torch.long, device=device)
        self._mask = torch.zeros(runs, length, dtype=torch.bool, device=device)
        if self._augmentation is not None:
            like = self._augmentation.draw(0, self.augmenting[0])
            self._drawn = [torch.zeros(runs, length, *like.shape[1:], dtype=like.dtype, device=device)]
        if device.type == "cuda":
            try:
                self._pieces.fitting(self._capture, length)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise NotStackableError(f"it cannot be captured ({str(error).partition(chr(10))[0]})") from error

    def epoch(self, epoch: int, before: int, diagnostics: Diagnostics) -> Iterator[bool]:
        """See `runner.training.call_by_call.CallByCall.epoch`. No diagnostic may read single steps."""
        self.start_epoch(epoch - 1)
        batches = draw_epoch(self._mechanisms[0], self.sampling, self.length)
        self.make_room(batches.length)
        if self._augmentation is not None:
            batches = with_views(batches, self._augmentation, self.augmenting)
        self.losses.zero_()
        self._seen = batches.seen
        if self._unchecked:
            self._unchecked = False
            for mechanism, sums, norms in self.first_batch(batches):
                check_first_batch(mechanism, sums, norms)
        for step in range(len(batches.indices)):
            self.take(batches, step)
            yield True

    def seen(self) -> tuple[list[float], list[int]]:
        return self.losses.tolist(), self._seen

    @property
    def averages(self) -> list[dict[str, Tensor]]:
        if not self._average:
            return []
        _, average = self._average
        return [
            {name: row[columns].view(shape) for name, (columns, shape) in self.stacked.parts.items()} for row in average
        ]

    @property
    def parts(self) -> dict[str, Stateful]:
        """Return what the next epoch of a single run depends on: see `runner.training.state`."""
        return {"objective": self.objectives[0], "step": self} if len(self.objectives) == 1 else {}

    @property
    def generators(self) -> dict[str, Generator]:
        drawing = {} if self._augmentation is None else {"augmentation": self.augmenting[0]}
        return {"sampling": self.sampling[0], "noise": self.noise[0], **drawing}

    def state_dict(self) -> State:
        """Return the state of the optimizers, of the average, of correlated noise, and of the schedules."""
        return {"buffers": self.state[2:], "schedules": [each.state_dict() for each in self._schedules]}

    def load_state_dict(self, state: State) -> None:
        """Continue from a state. Tensors keep their addresses, which a graph may know."""
        for schedule, counted in zip(self._schedules, state["schedules"], strict=True):
            schedule.load_state_dict(counted)
        for tensor, saved in zip(self.state[2:], state["buffers"], strict=True):
            tensor.copy_(saved)

    @undisturbed()
    def take(self, batches: EpochBatches, step: int) -> None:
        """Take step number `step` of an epoch. Every run draws its noise from its generator."""
        self._indices.copy_(batches.indices[step])
        self._mask.copy_(batches.mask[step])
        if batches.drawn is not None:
            self._drawn[0].copy_(batches.drawn[step])
        if self._rates is not None:
            self._update.take_rates(self._rates[step])
        if self._unproven:
            self._prove_replay()
        self._take()

    def start_epoch(self, epoch: int) -> None:
        """Pass the epoch that begins, counted from 0, to the objectives, and set its learning rates."""
        self.stacked.start_epoch(epoch)
        for schedule in self._schedules:
            schedule.start_epoch()
        self._update.take_rates(self._update.rates(self._optimizers))
        if any(schedule.by_step for schedule in self._schedules):
            rates = []
            for _ in range(self._mechanisms[0].steps_per_epoch):
                for schedule in self._schedules:
                    schedule.start_step()
                rates.append(self._update.rates(self._optimizers))
            self._rates = torch.stack(rates)

    def body(
        self, state: Sequence[Tensor], indices: Tensor, mask: Tensor, noise: Tensor, *drawn: Tensor
    ) -> list[Tensor]:
        """Return the next state, from a batch [R, P], and standard normal numbers [R, numbers].

        `drawn` are the numbers of the examples' views [R, P, views, ...], if there are any.
        """
        values, losses, *others = state
        buffers, others = others[: len(self._update.state)], others[len(self._update.state) :]
        average, past = others[: len(self._average)], others[len(self._average) :]
        if past:
            noise, past[0] = correlated(self._coefficients, noise, past[0])
        sums, added = self._sum(values, indices, mask, *drawn)
        losses = losses + added.masked_fill(~mask, 0).sum(1)
        means = (
            sums + self._std * noise if any(each.private for each in self._mechanisms) else sums
        ) / self._denominator
        gradients = means[:, : self._weights]
        units = [each.unit for each in self.objectives]
        if any(isinstance(unit, Tensor) or unit != 1 for unit in units):
            same = [unit if isinstance(unit, Tensor) else means.new_full((), unit) for unit in units]
            gradients = torch.stack(same).to(means.dtype)[:, None] * gradients
        if self._shares:  # a count changes the units of the next step
            for objective, mean in zip(self.objectives, means, strict=True):
                objective.received({COUNT: mean[self._weights]})
        values, buffers = self._update(values, gradients, buffers)
        self.stacked.project(values)
        self.stacked.forget()
        if self._averaging is not None:
            average = averaged(self._averaging, average, [values])
        return [values, losses, *buffers, *average, *past]

    @torch.no_grad()
    def advance(self) -> None:
        """Replace the state by the next one, from the buffers with the batch and the noise."""
        after = self.body(self.state, self._indices, self._mask, self._noise, *self._drawn)
        for kept, made in zip(self.state, after, strict=True):
            kept.copy_(made)

    def _draw(self) -> None:
        for mechanism, views, noise in zip(self._mechanisms, self._noise_views, self.noise, strict=True):
            if mechanism.private:
                mechanism.draw_noise(views, noise)

    def _drawn_and_taken(self) -> None:
        self._draw()
        self.advance()

    def _sum(self, values: Tensor, indices: Tensor, mask: Tensor, *drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounded sums [R, numbers] over examples [R, P], and their losses [R, P], float64."""
        batch = (each.split(self.physical_batch, 1) for each in (indices, mask, *drawn))
        pieces = [self._sum_of_piece(values, *piece) for piece in zip(*batch, strict=True)]
        return reduce(torch.add, [sums for sums, _ in pieces]), torch.cat([losses for _, losses in pieces], dim=1)

    def _sum_of_piece(self, values: Tensor, indices: Tensor, mask: Tensor, *drawn: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = self._gathered(indices, mask, *drawn)
        found = self._clipping.sum_with(StackedEngine(self.stacked, values, mask), inputs, targets, self._numbers)
        of_parts = [
            found.gradients[name].reshape(len(mask), -1)
            if name in found.gradients
            else values.new_zeros(len(mask), shape.numel())
            for name, (_, shape) in self._released.items()
        ]
        return torch.cat(of_parts, dim=1), found.losses.view(mask.shape).double()

    def first_batch(self, batches: EpochBatches) -> Iterator[tuple[Mechanism, Sums, Tensor]]:
        """Yield for each run its mechanism, the sums over some of an epoch's first batch, and that batch's losses."""
        indices, mask, values = batches.indices[0], batches.mask[0], self.stacked.values
        drawn = [] if batches.drawn is None else [batches.drawn[0]]
        _, losses = self._sum(values, indices, mask, *drawn)

        def sums_of(run: int) -> Sums:
            def sums(kept: Tensor) -> dict[str, Tensor]:
                changed = mask.clone()
                changed[run, : len(kept)] = kept
                found, _ = self._sum(values, indices, changed, *drawn)
                return {name: found[run, columns] for name, (columns, _) in self._released.items()}

            return sums

        for run, mechanism in enumerate(self._mechanisms):
            yield mechanism, sums_of(run), losses[run, : int(mask[run].sum())]

    def _gathered(self, indices: Tensor, mask: Tensor, *drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs [R P, ...] or their views [R P, views, ...], zero outside the mask, and targets [R P]."""
        inputs, targets = self._data.images[indices.flatten()], self._data.targets[indices.flatten()]
        inputs = inputs.masked_fill(~mask.reshape(-1, *[1] * (inputs.dim() - 1)), 0)
        if self._augmentation is not None:
            inputs = viewed(self._augmentation, inputs, drawn[0].flatten(0, 1))
        return inputs, targets

    def _capture(self, per_slice: int) -> None:
        """Capture the step, compiled if that pays. State and generators are as before afterwards."""
        self._take = self._drawn_and_taken  # frees the memory of an earlier graph
        before = self._saved()
        drawing = [noise for noise, each in zip(self.noise, self._mechanisms, strict=True) if each.private]
        try:
            calls = self._draw, self.advance, drawing, self.losses.device
            compiled = compiled_and_captured(*calls) if self._compiles() else None
            self._take, self.mode = compiled or captured(*calls), StepMode.compiled if compiled else StepMode.graph
            self._drawn_and_taken()  # as the first step will be, next to the memory of the graph
            self._unproven = True
        finally:
            self.stacked.forget()
            self._restore(before)

    def _compiles(self) -> bool:
        pays = compiling_pays(self._steps, self._held * self.length)
        return self._asked is StepMode.compiled or (self._asked is StepMode.auto and pays)

    def _prove_replay(self) -> None:
        """Take the first step after a capture by calls and by replay, and compare weights and losses.

        Raises:
            RuntimeError: they differ. A replay without the noise or the batch would otherwise go unnoticed.
        """
        before = self._saved()
        self._drawn_and_taken()
        called = self._saved()
        self._restore(before)
        self._take()
        found = self._saved()
        for expected, replayed, was in zip(called[0], found[0], before[0], strict=True):
            scale = (expected - was).norm() + _ROUNDING * expected.norm()
            if torch.isfinite(scale) and (replayed - expected).norm() > _AGREE * scale:
                raise RuntimeError("The replayed CUDA graph is not the step that was captured: use runtime.step=eager.")
        if any(not torch.equal(one, other) for one, other in zip(called[1], found[1], strict=True)):
            raise RuntimeError("The replayed CUDA graph does not draw its noise: use runtime.step=eager.")
        self._restore(before)
        self._unproven = False

    def _saved(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return copies of all tensors that a step changes, and the states of the generators of noise."""
        return [tensor.clone() for tensor in self._changed()], [each.get_state() for each in self.noise]

    def _restore(self, saved: tuple[Sequence[Tensor], Sequence[Tensor]]) -> None:
        for tensor, kept in zip(self._changed(), saved[0], strict=True):
            tensor.copy_(kept)
        for noise, state in zip(self.noise, saved[1], strict=True):
            noise.set_state(state)

    def _changed(self) -> list[Tensor]:
        return [*self.state, *self._shares]


def _shares_after_counts(objectives: Sequence[Objective]) -> list[Tensor]:
    """Return the bounds that counts change, as shares of the first ones, if the runs' losses ask for a count."""
    courses = [counting_course(each.loss) for each in objectives]
    if any((course is None) != (courses[0] is None) for course in courses):
        raise NotStackableError("some release a count, others do not")
    return [course.share for course in courses if course is not None]


def _clipping_of(strategies: Sequence[Clipping], like: Tensor) -> tuple[OfNorms, Numbers]:
    """Return the strategy of R runs and its numbers: [R, 1, 1], for norms [R, P, groups], if the runs differ in one."""
    first = strategies[0]
    if any(type(strategy) is not type(first) for strategy in strategies):
        raise NotStackableError("they clip in different ways")
    if not is_of_norms(first):
        raise NotStackableError(f"the clipping {type(first).__name__} does more than rescale by norms")
    numbers: dict[str, float | Tensor] = {}
    for name, value in vars(first).items():
        values = [getattr(strategy, name) for strategy in strategies]
        same = all(other == value for other in values)
        numbers[name] = value if same else torch.tensor(values, dtype=like.dtype, device=like.device).view(-1, 1, 1)
    return first, numbers


def _random_state(device: torch.device) -> Tensor:
    """Return the state of PyTorch's global generator."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
