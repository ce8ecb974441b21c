"""One step of a run on two sides: sums, norms, losses, the releases, and the new weights.

In 64 bits both sides compute the same function, so they agree to many digits. In 32 bits they agree to rounding, except
near a kink (of ReLU, of a maximum), where rounding may put a value on the other side. One such unit in a million
changes the fourth digit of a gradient. In deep networks this happens to one small batch in three, by chance, but too
few bits (TF32) affect all batches. So of some batches one has to agree.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.clipping import PerLayer, gradient_sum
from runner.config import Precision
from runner.gradients import ENGINES
from runner.speed.kernels import channels_last
from runner.training.graph.network import MaskedEngine, RecordedObjective
from runner.training.run import Run

AGREE = {torch.float64: 1e-9, torch.float32: 1e-4}  # rounding to 32 bits stays below, that to TF32 (10 bits) does not
EXAMPLES = 6
BATCHES = 8  # at most
_FLOOR = 1e-3  # of the largest norm: the tolerance for a gradient that is zero up to rounding
_SIGMAS = 6.0
_CONTRIBUTION = 2e-5  # relative error of one contribution, as a difference of two sums in 32 bits
_GRADIENT = 0.05  # relative error of a gradient in fewer bits
_LEARNING_RATE = 1.0


@dataclass(frozen=True)
class Side:
    """A way to compute a step: the device, the engine, the layout of images, and the number of examples at a time."""

    device: str
    engine: str = "one_pass"
    channels_last: bool = True
    pieces: int = EXAMPLES


CPU = Side("cpu")


@dataclass(frozen=True)
class Step:
    """`numbers` by kind and name, on the CPU in float64; `noise` in standard deviations, by parameter."""

    numbers: Mapping[str, Mapping[str, Tensor]]
    noise: Mapping[str, Tensor]


@dataclass(frozen=True, order=True)
class Difference:
    """The quantity in which two sides differ most, and the difference in units of the tolerance."""

    times: float
    what: str

    @property
    def wrong(self) -> bool:
        return self.times > 1


def difference(times: float, what: str) -> Difference:
    """Return a difference, which is infinite if it is no number."""
    return Difference(math.inf if math.isnan(times) else times, what)


def made_up(run: Run, examples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw random features of the run's shape, with the largest norm if one is stated, and targets."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(examples, *run.features.shape(run.dataset.shape), generator=generator)
    bound = run.initial.inputs
    if bound is not None and bound.norm is not None:
        inputs = inputs.renorm(2, 0, bound.norm)
    return inputs, torch.arange(examples) % run.dataset.classes


def take(run: Run, side: Side, dtype: torch.dtype = torch.float32, seed: int = 0) -> Step:
    """Take a step from the run's first weights, by plain SGD.

    Other optimizers amplify small gradients beyond rounding.
    """
    objective = run.new_objective().to(side.device, dtype)
    objective.start_epoch(0)
    inputs, targets = (tensor.to(side.device) for tensor in made_up(run, EXAMPLES, seed))
    inputs = inputs.to(dtype)
    inputs = channels_last(inputs) if side.channels_last and inputs.dim() == 4 else inputs
    mechanism = run.mechanism
    clipping = mechanism.applied(run.clipping, len(targets))
    engine = ENGINES[side.engine](objective)
    computed = gradient_sum(clipping, engine, inputs, targets, side.pieces, mechanism.noise_groups)
    seeds = [torch.Generator(side.device).manual_seed(0) for _ in range(2)]
    released = mechanism.release(computed.gradients, seeds[0])
    noise = mechanism.release({name: torch.zeros_like(total) for name, total in released.items()}, seeds[1])
    received = objective.received({name: total - noise[name] for name, total in released.items()})
    for name, parameter in objective.named_parameters():
        parameter.data -= _LEARNING_RATE * received[name]
    objective.project()
    parts: dict[str, dict[str, Tensor]] = {
        "sum of": computed.gradients,
        "weights": {name: parameter.data for name, parameter in objective.named_parameters()},
        "": {"losses": computed.losses} | ({} if computed.norms is None else {"norms": computed.norms}),
    }
    return Step(
        {kind: {name: _plain(tensor) for name, tensor in numbers.items()} for kind, numbers in parts.items()},
        {
            name: _plain(noise[name] * mechanism.denominator / mechanism.noise_std(group))
            for group in (mechanism.noise_groups if mechanism.private else ())
            for name in group.parameters
        },
    )


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().double().cpu()


def compared(run: Run, reference: Side, other: Side) -> Difference:
    """Return the largest difference of the step: in 64 bits, and in 32 bits on the batch that agrees best."""
    batches: list[Difference] = []
    while len(batches) < BATCHES and all(batch.wrong for batch in batches):
        batches.append(worst(run, reference, other, torch.float32, len(batches)))
    return max(worst(run, reference, other, torch.float64), min(batches))


def lowered(run: Run, device: str, precision: Precision) -> Difference:
    """Compare what an example of a batch moves with its bound, layer by layer, when passes are in fewer bits.

    It is taken out of its place. The others are to stay as they are, bit by bit. So it has to move the sum by the norm
    that it is clipped to, half of the smallest one of any example: see `runner.gradients.precision`.
    """
    objective = RecordedObjective(run.new_objective().to(device))
    inputs, targets = (tensor.to(device) for tensor in made_up(run, EXAMPLES))
    groups = [group.parameters for group in PerLayer(1.0).noise_groups(objective.objective)]

    def layers(members: Tensor, bounds: Tensor) -> list[Tensor]:
        engine = MaskedEngine(objective, objective.values, members)
        sums = engine.clipped_sum(inputs, targets, groups, lambda norms: (bounds / norms).clamp(max=1)).gradients
        return [torch.cat([_plain(sums[name]).flatten() for name in group]) for group in groups]

    places = torch.arange(EXAMPLES, device=device)
    unbounded = torch.full((len(groups),), torch.inf, device=device)
    exact = torch.cat(layers(places >= 0, unbounded))
    objective.compute_in(precision)
    apart = torch.cat(layers(places >= 0, unbounded)) - exact
    differences = [difference((apart.norm() / exact.norm()).item() / _GRADIENT, "gradient")]
    alone = [layers(places == place, unbounded) for place in range(EXAMPLES)]
    bounds = torch.stack([torch.stack([numbers.norm() for numbers in one]) for one in alone]).amin(0) / 2
    total = layers(places >= 0, bounds.to(inputs))
    for place in range(EXAMPLES):
        rest = layers(places != place, bounds.to(inputs))
        for group, bound, everyone, others in zip(groups, bounds.tolist(), total, rest, strict=True):
            times = abs((everyone - others).norm().item() - bound) / (bound * _CONTRIBUTION) if bound else 0.0
            differences.append(difference(times, f"what one example moves in {group[0]}"))
    return max(differences)


def worst(run: Run, reference: Side, other: Side, dtype: torch.dtype, seed: int = 0) -> Difference:
    expected, actual = (take(run, side, dtype, seed) for side in (reference, other))
    return max([*_differences(expected, actual, AGREE[dtype]), *_noise_difference(actual)])


def _differences(expected: Step, actual: Step, agree: float) -> Iterator[Difference]:
    for kind, numbers in expected.numbers.items():
        floor = _FLOOR * max(tensor.norm().item() for tensor in numbers.values())
        for name in numbers.keys() | actual.numbers[kind].keys():
            if name in numbers and name in actual.numbers[kind]:
                apart = (actual.numbers[kind][name] - numbers[name]).norm().item()
                let_pass = agree * max(numbers[name].norm().item(), floor)
                yield difference(apart / let_pass if let_pass else apart, f"{kind} {name}".strip())
            elif name != "norms":  # which an engine need not know
                yield Difference(math.inf, f"{kind} {name}, which one side has not")


def _noise_difference(actual: Step) -> Iterator[Difference]:
    """Check that the other side's own noise has the standard deviation that is charged."""
    if actual.noise:
        noise = torch.cat([numbers.flatten() for numbers in actual.noise.values()])
        let_pass = _SIGMAS * math.sqrt(2 / len(noise))
        yield difference(((noise.square().mean() - 1).abs() / let_pass).item(), "noise")
