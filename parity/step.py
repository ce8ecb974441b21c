"""One step of a run on one side and on the other: sums, norms, losses, what is released of them, the new weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from parity.cases import Case
from runner.clipping import gradient_sum
from runner.gradients import ENGINES
from runner.mechanism.dp_sgd import Mechanism
from runner.speed.slices import channels_last
from runner.training.instantiation import input_bound
from runner.training.prepare import Run

AGREE = 1e-4  # of two norms: rounding to 32 bits stays below, rounding to TF32 (10 bits) does not
EXAMPLES = 12
_SIGMAS = 6.0
_LEARNING_RATE = 1.0


@dataclass(frozen=True)
class Side:
    """Where and how a step is computed: the device, the engine, the layout of images, examples at a time."""

    device: str
    engine: str = "one_pass"
    channels_last: bool = True
    pieces: int = EXAMPLES


CPU = Side("cpu")
OTHERWISE = Side("cpu", "vmap", channels_last=False, pieces=5)  # the same step, in another way


@dataclass(frozen=True)
class Step:
    """`numbers` by name, on the CPU in float64; `noise` in standard deviations, by parameter."""

    numbers: Mapping[str, Tensor]
    noise: Mapping[str, Tensor]


@dataclass(frozen=True)
class Difference:
    """How far two sides are apart in what, in units of `AGREE` of its norm, or of the noise's own spread."""

    what: str
    times: float

    @property
    def wrong(self) -> bool:
        return not self.times <= 1


def made_up(run: Run, examples: int, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
    """Random features of the run's shape, of the largest norm where that is stated, and targets."""
    generator = generator or torch.Generator().manual_seed(0)
    inputs = torch.randn(examples, *run.features.shape(run.dataset.shape), generator=generator)
    largest = input_bound(run.features, run.dataset).norm
    if largest is not None:
        inputs = inputs.renorm(2, 0, largest)
    return inputs, torch.arange(examples) % run.dataset.classes


def take(run: Run, side: Side) -> Step:
    """A step from the run's first weights, by plain SGD: what an optimizer makes of small gradients is no rounding."""
    objective = run.new_objective().to(side.device)
    objective.start_epoch(0)
    inputs, targets = (tensor.to(side.device) for tensor in made_up(run, EXAMPLES))
    inputs = channels_last(inputs) if side.channels_last and inputs.dim() == 4 else inputs
    mechanism = run.mechanism
    clipping = mechanism.applied(run.clipping, len(targets))
    engine = ENGINES[side.engine](objective)
    computed = gradient_sum(clipping, engine, inputs, targets, side.pieces, mechanism.noise_groups)
    seeds = [torch.Generator(side.device).manual_seed(0) for _ in range(2)]
    released = mechanism.release(computed.gradients, seeds[0])
    noise = mechanism.release({name: torch.zeros_like(total) for name, total in released.items()}, seeds[1])
    without = {name: total - noise[name] for name, total in released.items()}
    received = objective.received(without)
    with torch.no_grad():
        for name, parameter in objective.named_parameters():
            parameter -= _LEARNING_RATE * received[name]
    objective.project()
    numbers = {f"released {name}": total for name, total in computed.gradients.items()}
    numbers |= {f"weights {name}": parameter for name, parameter in objective.named_parameters()}
    numbers |= {"losses": computed.losses} | ({} if computed.norms is None else {"norms": computed.norms})
    return Step(
        {name: number.detach().double().cpu() for name, number in numbers.items()},
        {name: drawn.detach().double().cpu() for name, drawn in _standardised(mechanism, noise).items()},
    )


def _standardised(mechanism: Mechanism, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if not mechanism.private:
        return {}
    return {
        name: noise[name] * mechanism.denominator / mechanism.noise_std(group)
        for group in mechanism.noise_groups
        for name in group.parameters
    }


def compared(case: Case, reference: Side, other: Side) -> Iterator[Difference]:
    """Every number of the step, and the noise of the other side, whose numbers are its own."""
    expected, found = take(case.run, reference), take(case.run, other)
    for name in expected.numbers.keys() | found.numbers.keys():
        if name not in found.numbers or name not in expected.numbers:
            if name != "norms":  # which an engine need not know
                yield Difference(f"{name}: on one side only", math.inf)
            continue
        apart = (found.numbers[name] - expected.numbers[name]).norm()
        yield Difference(name, (apart / (AGREE * expected.numbers[name].norm().clamp_min(1e-6))).item())
    drawn = [numbers.flatten() for numbers in found.noise.values()]
    if drawn:
        every = torch.cat(drawn)
        spread = _SIGMAS * math.sqrt(2 / len(every))
        yield Difference("noise", ((every.square().mean() - 1).abs() / spread).item())
        if torch.allclose(every, every[0]):
            yield Difference("noise: all of one value", math.inf)
