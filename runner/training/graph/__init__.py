"""One training step as one fixed sequence of calls, on CUDA captured once and replayed as a graph.

`capture` compiles and captures it, `network` makes an objective a function of its weights that records its layers, and
has the bounded sums, and `batches` has the padded batches. A CPU takes steps call by call (`runner.training.loop`), by
an engine with kernels for processors. Results are tested against it on the CPU, and `python -m checks parity` compares
them on a GPU.

`GraphStep.body` is a pure function from a state, a padded batch with its mask, and noise to the next state. It never
asks the device for a value, and batches have one of two lengths, so a replay equals the step. State and batch lie in
buffers with fixed addresses. A graph also draws the noise, from a generator that is registered with it, with the same
numbers as `Mechanism.release` draws call by call. Before its capture the step is compiled, if that pays.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce

import torch
from torch import Tensor

from runner.config import StepMode
from runner.data.augmentation import viewed
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.gradients.precision import LONGER
from runner.gradients.terms import agrees_at, is_gradient
from runner.mechanism.dp_sgd import Mechanism, check_first_batch
from runner.mechanism.normal import anchor, correlated, generator, rounded_once
from runner.networks.lipschitz.course import COUNT, counting_course
from runner.training.averaging import averaged, initial_average
from runner.training.diagnostics import Diagnostics, diagnostics
from runner.training.graph.batches import EpochBatches, draw_epoch, draw_views, enough, usual
from runner.training.graph.capture import captured, compiled, compiling_pays
from runner.training.graph.network import MaskedEngine, RecordedObjective, numbers_per_example
from runner.training.run import NotCapturableError, Pieces, Run, State, Stateful
from runner.training.updates import UpdateRule, unsupported, update_of
from runner.trust.own_parts import OwnViews

_SLICE_BYTES = {"cpu": 64 << 20, "cuda": 4 << 30}  # memory of a slice's examples in the layers
_COPIES = 3  # of that memory at a time: the layers, autograd and the sums
_AGREE, _ROUNDING = 1e-2, 1e-5  # tolerance of a replay: relative to the change, and to the numbers
_FOLLOWED = ("applied", "at", "batches", "release")  # methods of a mechanism that are done here as in `Mechanism`


class GraphStep:
    """The step of a run, from its objective, which holds the weights afterwards.

    Args:
        data: on the device of the objective.

    Attributes:
        mode: `compiled` if the step is, else `graph`.
        generators: for the batches, the noise and the views, by name.
        lengths: those that batches are padded to, the longest last. A step takes the first one that its batch fits.
        state: all that a step changes: weights [numbers], the sum of losses, the optimizer's buffers, the average, if
            any, and earlier noise [b - 1, numbers], float64, if noise is correlated. Only the share after private
            counts is elsewhere, in the loss that it belongs to.

    Raises:
        NotCapturableError: the step cannot be one fixed sequence of calls.
    """

    updates = None

    def __init__(self, run: Run, objective: Objective, data: Split) -> None:
        if type(run.rule).updates is not UpdateRule.updates:
            raise NotCapturableError(f"the update rule {type(run.rule).__qualname__} makes the updates")
        for name in run.config.diagnostics:
            if diagnostics()[name].measures_steps:
                raise NotCapturableError(f"the diagnostic {name} reads every step")
        if run.isolation:
            raise NotCapturableError(run.isolation)
        if isinstance(run.augmentation, OwnViews):
            raise NotCapturableError("the views are made of one image at a time")
        self.mode, self._steps = StepMode.graph, run.epochs * run.mechanism.steps_per_epoch
        self._configured: StepMode = run.config.runtime.step
        self._may_compile = self._configured is StepMode.auto and run.config.precision is None
        self._clipping, self._mechanism, self._data = run.clipping, run.mechanism, data
        self._augmentation, self._averaging = run.augmentation, run.averaging
        clipping, mechanism, augmentation = run.clipping, run.mechanism, run.augmentation
        optimizer = self._optimizer = run.optimizer(objective)
        self._schedule = run.schedule(optimizer)
        if not clipping.sums_by_engine:
            raise NotCapturableError(f"the clipping {type(clipping).__name__} does more than rescale by norms")
        for name in _FOLLOWED:
            if getattr(type(mechanism), name, None) is not getattr(Mechanism, name):
                raise NotCapturableError(f"the mechanism {type(mechanism).__qualname__} overrides `{name}`")
        if reason := unsupported(optimizer):
            raise NotCapturableError(reason)
        self.objective = objective
        self.recorded = RecordedObjective(objective, 1 if augmentation is None else augmentation.views)
        values = self.recorded.values
        course = counting_course(objective.loss)
        self._shares = [] if course is None else [course.share]
        self._weights = len(values)
        self._released = dict(self.recorded.parts)
        if course is not None:
            self._released[COUNT] = slice(self._weights, self._weights + 1), torch.Size()
        mechanism.check_partition(self._released)
        zero = torch.zeros((), dtype=torch.float64, device=values.device)
        self._noise, self._std, self._anchor = (zero.repeat(self._weights + len(self._shares)) for _ in range(3))
        for group in mechanism.noise_groups if mechanism.private else ():
            for name in group.parameters:
                place, std = self._released[name][0], mechanism.noise_std(group)
                self._std[place], self._anchor[place] = std, anchor(std)
        self._noise_views = {name: self._noise[place].view(shape) for name, (place, shape) in self._released.items()}
        self._lr = zero + optimizer.param_groups[0]["lr"]
        self._rates: list[float] = []  # of every step of an epoch, if they differ
        self._update = update_of(optimizer)
        buffers = self._update.initial_buffers(values, zero.clone())
        average = [] if run.averaging is None else initial_average([values])
        earlier = len(mechanism.coefficients) - 1
        past = [self._noise.repeat(earlier, 1)] if earlier else []
        self.state: list[Tensor] = [values, zero.clone(), *buffers, *average, *past]
        self._lengths = len(buffers), len(average)
        self._seen, self._unchecked = 0, True
        device = torch.device("cpu") if values.is_meta else values.device
        self.generators = {name: generator(run.config.seed, name, device) for name in ("sampling", "noise")}
        if augmentation is not None:
            self.generators["augmentation"] = generator(run.config.seed, "augmentation", torch.device("cpu"))
        self._indices = torch.zeros(0, dtype=torch.long, device=values.device)
        self._mask = self._indices.bool()
        self._numbers: list[Tensor] = []  # the numbers of a batch's views, if there are any
        self.lengths: tuple[int, ...] = (0,)
        self._replays: dict[int, Callable[[], None]] = {}
        self._unproven = set[int]()
        try:
            for images, targets in zip(data.images[:2, None], data.targets[:2, None], strict=True):
                if not agrees_at(self._is_gradient, (images, targets)):
                    raise NotCapturableError("its gradients are not those of its layers")
        except (RuntimeError, TypeError, ValueError) as error:
            raise NotCapturableError(str(error).partition("\n")[0]) from error
        self._held = numbers_per_example(self.recorded.layers.values())
        self.recorded.compute_in(run.config.precision)  # after the trials, which are exact
        needed = _COPIES * values.element_size() * self._held
        fitting = max(1, _SLICE_BYTES.get(values.device.type, 1 << 30) // needed)
        self.pieces = Pieces(run.config.runtime.physical_batch or fitting)

    @property
    def losses(self) -> Tensor:
        """Return the sum of the losses of every example seen, before each step's update: no dimensions, float64."""
        return self.state[1]

    def _is_gradient(self, images: Tensor, targets: Tensor) -> bool:
        """Return True if one example's gradient agrees with ordinary autograd; on the meta device, always."""
        cuda = self.losses.device.type == "cuda"
        random_state = partial(torch.cuda.get_rng_state, self.losses.device) if cuda else torch.get_rng_state
        before = random_state()
        inputs = images
        if self.recorded.views > 1:  # equal ones
            inputs = images.unsqueeze(1).expand(-1, self.recorded.views, *images.shape[1:])
        engine = MaskedEngine(self.recorded, self.recorded.values, torch.ones_like(targets, dtype=torch.bool))
        computed = engine.clipped_sum(inputs, targets, [list(self.recorded.parts)], torch.ones_like)
        assert computed.norms is not None
        if not torch.equal(before, random_state()):
            raise NotCapturableError("a layer draws random numbers")
        sums = {name: g.view(self.recorded.parts[name][1]) for name, g in computed.gradients.items()}
        return is_gradient(self.objective, images, targets, sums, computed.norms[0])

    def make_room(self, *lengths: int) -> None:
        """Expect batches padded to these `lengths` from now on, with new buffers, and on CUDA new graphs.

        Without any, they are the two that are enough for the steps of the run, or one for passes in fewer bits.

        Raises:
            NotCapturableError: the step cannot be captured.
            torch.OutOfMemoryError: not even one example fits into the GPU's memory.
        """
        if not lengths and self.recorded.precision is None:
            lengths = usual(self._mechanism, enough(self._mechanism, self._steps))
        elif not lengths:
            lengths = (enough(self._mechanism, self._steps, LONGER),)
        if lengths == self.lengths:
            return
        self.lengths, length, device = lengths, lengths[-1], self.losses.device
        self._indices = torch.zeros(length, dtype=torch.long, device=device)
        self._mask = torch.zeros(length, dtype=torch.bool, device=device)
        if self._augmentation is not None:
            like = self._augmentation.draw(0, self.generators["augmentation"])
            self._numbers = [torch.zeros(length, *like.shape[1:], dtype=like.dtype, device=device)]
        if device.type == "cuda":
            try:
                self.pieces.fitting(self._capture, length)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise NotCapturableError(f"it cannot be captured ({str(error).partition(chr(10))[0]})") from error

    def epoch(self, epoch: int, before: int, measures: Diagnostics) -> Iterator[bool]:
        """See `runner.training.loop.CallByCall.epoch`. No diagnostic may read single steps."""
        self.start_epoch(epoch - 1)
        shuffled = self.recorded.precision is not None
        batches = draw_epoch(self._mechanism, self.generators["sampling"], self.lengths[-1], shuffled=shuffled)
        self.make_room(*self.lengths[:-1], batches.indices.shape[1])
        if self._augmentation is not None:
            batches = draw_views(batches, self._augmentation, self.generators["augmentation"])
        self.losses.zero_()
        self._seen = sum(batches.sizes)
        if self._unchecked:
            self._unchecked = False
            self._check_first(batches)
        for step in range(len(batches.indices)):
            self.take(batches, step)
            yield True

    def seen(self) -> tuple[float, int]:
        return self.losses.item(), self._seen

    @property
    def average(self) -> dict[str, Tensor] | None:
        if self._averaging is None:
            return None
        return self.recorded.weights(self._parts_of(self.state)[3][1])

    @property
    def parts(self) -> dict[str, Stateful]:  # an attribute would be a cycle, which keeps the memory of graphs
        """Return what the next epoch depends on."""
        return {"objective": self.objective, "step": self}

    def state_dict(self) -> State:
        return {"buffers": self.state[2:], "schedule": self._schedule.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Continue from a state. Tensors keep their addresses, which a graph may know."""
        self._schedule.load_state_dict(state["schedule"])
        for tensor, saved in zip(self.state[2:], state["buffers"], strict=True):
            tensor.copy_(saved)

    def take(self, batches: EpochBatches, step: int) -> None:
        """Take step number `step` of an epoch, with noise from the generator."""
        length = next(length for length in self.lengths if length >= batches.sizes[step] or length == self.lengths[-1])
        self._indices[:length].copy_(batches.indices[step, :length])
        self._mask[:length].copy_(batches.mask[step, :length])
        if batches.numbers is not None:
            self._numbers[0][:length].copy_(batches.numbers[step, :length])
        if self._rates:
            self._lr.fill_(self._rates[step])
        if length in self._unproven:
            self._prove_replay(length)
        self._step(length)

    def _step(self, length: int) -> None:
        """Take a step on the first places of the buffers: by the replay of a graph, if there is one."""
        replay = self._replays.get(length)
        if replay is None:
            self._draw()
            self.advance(length)
        else:
            replay()

    def start_epoch(self, epoch: int) -> None:
        """Pass the epoch that begins, counted from 0, to the objective, and set its learning rates."""
        self.objective.start_epoch(epoch)
        self._schedule.start_epoch()
        (group,) = self._optimizer.param_groups
        self._lr.fill_(group["lr"])
        if self._schedule.by_step:
            self._rates = []
            for _ in range(self._mechanism.steps_per_epoch):
                self._schedule.start_step()
                self._rates.append(float(group["lr"]))

    def body(
        self, state: Sequence[Tensor], indices: Tensor, mask: Tensor, noise: Tensor, *numbers: Tensor
    ) -> list[Tensor]:
        """Return the next state, from a batch [P], and standard normal numbers [numbers], float64.

        `numbers` are those of the examples' views [P, views, ...], if there are any.
        """
        values, losses, buffers, average, past = self._parts_of(state)
        if past:
            noise, past[0] = correlated(self._mechanism.coefficients, noise, past[0])
        sums, added = self._sum(values, indices, mask, *numbers)
        losses = losses + added.masked_fill(~mask, 0).sum()
        denominator = self._mechanism.denominator
        if self._mechanism.private:
            means = rounded_once(sums, noise, self._std, self._anchor, denominator)
        else:
            means = sums / denominator
        gradient, unit = means[: self._weights], self.objective.unit
        if isinstance(unit, Tensor) or unit != 1:
            gradient = unit * gradient
        if self._shares:  # a count changes the unit of the next step
            self.objective.received({COUNT: means[self._weights]})
        values, buffers = self._update(values, gradient, buffers, self._lr)
        self.recorded.project(values)
        self.recorded.forget()
        if self._averaging is not None:
            average = averaged(self._averaging, average, [values])
        return [values, losses, *buffers, *average, *past]

    def _parts_of(self, state: Sequence[Tensor]) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor], list[Tensor]]:
        values, losses, *more = state
        buffers, average = self._lengths
        return values, losses, more[:buffers], more[buffers : buffers + average], more[buffers + average :]

    @torch.no_grad()
    def advance(self, length: int | None = None) -> None:
        """Replace the state by the next one, from the noise and the first places of the buffers with the batch."""
        batch = [tensor[:length] for tensor in (self._indices, self._mask)]
        numbers = [tensor[:length] for tensor in self._numbers]
        after = self.body(self.state, *batch, self._noise, *numbers)
        for tensor, following in zip(self.state, after, strict=True):
            tensor.copy_(following)

    def _draw(self) -> None:
        if self._mechanism.private:
            noise = self._mechanism.draw_noise(self._noise_views, self.generators["noise"])
            torch.cat([noise[name].flatten() for name in self._noise_views], out=self._noise)

    def _sum(self, values: Tensor, indices: Tensor, mask: Tensor, *numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounded sums [numbers] over examples [P], and their losses [P], float64."""
        sums, losses = [], []
        batch = (tensor.split(self.pieces.size) for tensor in (indices, mask, *numbers))
        for places, members, *views in zip(*batch, strict=True):
            inputs, targets = self._data.images[places], self._data.targets[places]
            inputs = inputs.masked_fill(~members.reshape(-1, *[1] * (inputs.dim() - 1)), 0)
            if self._augmentation is not None:
                inputs = viewed(self._augmentation, inputs, *views)  # [P, views, ...]
            computed = self._clipping.sum_contributions(MaskedEngine(self.recorded, values, members), inputs, targets)
            parts = [
                computed.gradients[name].flatten() if name in computed.gradients else values.new_zeros(shape.numel())
                for name, (_, shape) in self._released.items()
            ]
            sums.append(torch.cat(parts))
            losses.append(computed.losses.double())
        return reduce(torch.add, sums), torch.cat(losses)

    def _check_first(self, batches: EpochBatches) -> None:
        indices, mask, values = batches.indices[0], batches.mask[0], self.recorded.values
        numbers = [] if batches.numbers is None else [batches.numbers[0]]

        def sums(members: Tensor) -> dict[str, Tensor]:
            computed, _ = self._sum(values, indices, mask.masked_scatter(mask, members), *numbers)
            return {name: computed[place] for name, (place, _) in self._released.items()}

        _, losses = self._sum(values, indices, mask, *numbers)
        check_first_batch(self._mechanism, sums, losses[mask])

    def _capture(self, per_slice: int) -> None:
        """Capture the step for each length, compiled if that pays. State and generators are as before afterwards."""
        self._replays = {}  # frees the memory of earlier graphs
        before = self._saved()
        drawing = [self.generators["noise"]] if self._mechanism.private else []
        side, pool = torch.cuda.Stream(self.losses.device), torch.cuda.graph_pool_handle()
        pays = self._may_compile and compiling_pays(self._steps, self._held * self.lengths[-1], len(self.lengths))
        self.mode = StepMode.compiled if pays or self._configured is StepMode.compiled else StepMode.graph
        replays = {}
        try:
            for length in reversed(self.lengths):  # the longest first, whose memory is enough for the others
                advance = partial(self.advance, length)
                if self.mode is StepMode.compiled:
                    from torch._dynamo.exc import TorchDynamoException  # its import takes seconds

                    try:
                        replays[length] = captured(self._draw, compiled(advance), drawing, side, pool)
                        continue
                    except TorchDynamoException as error:
                        why = str(error).strip().partition("\n")[0]
                        note = f"step: it cannot be compiled ({why}), so its kernels are the library's."
                        print(note, file=sys.stderr)
                        self.mode = StepMode.graph
                replays[length] = captured(self._draw, advance, drawing, side, pool)
            self._step(self.lengths[-1])  # as the first step will be, next to the memory of the graphs
            self._replays, self._unproven = replays, set(replays)
        finally:
            self.recorded.forget()
            self._restore(before)

    def _prove_replay(self, length: int) -> None:
        """Take the first step after a capture of a length by calls and by replay, and compare weights and losses.

        Raises:
            RuntimeError: they differ. A replay without the noise or the batch would otherwise go unnoticed.
        """
        before = self._saved()
        self._draw()
        self.advance(length)
        called = self._saved()
        self._restore(before)
        self._step(length)
        again = self._saved()
        for expected, replayed, was in zip(called[0], again[0], before[0], strict=True):
            scale = (expected - was).norm() + _ROUNDING * expected.norm()
            if torch.isfinite(scale) and (replayed - expected).norm() > _AGREE * scale:
                raise RuntimeError("The replayed CUDA graph is not the step that was captured: use runtime.step=eager.")
        if not torch.equal(called[1], again[1]):
            raise RuntimeError("The replayed CUDA graph does not draw its noise: use runtime.step=eager.")
        self._restore(before)
        self._unproven.remove(length)

    def _saved(self) -> tuple[list[Tensor], Tensor]:
        return [tensor.clone() for tensor in (*self.state, *self._shares)], self.generators["noise"].get_state()

    def _restore(self, saved: tuple[Sequence[Tensor], Tensor]) -> None:
        for tensor, before in zip((*self.state, *self._shares), saved[0], strict=True):
            tensor.copy_(before)
        self.generators["noise"].set_state(saved[1])
