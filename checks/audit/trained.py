"""Real runs under attack, by canaries: the settings, planted faults, and the table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from checks.audit.canaries import Attack, Outcome, Plant, carry_out, exact
from checks.audit.faults import NoiseHalved, remade
from checks.audit.one_run import SHARES, allowed_by, approximate_dp, charged_curve, guess, refuted
from runner.accounting import Releases
from runner.accounting.ledger import SampledGaussian, sampled_gaussians
from runner.clipping import Flat
from runner.mechanism.dp_sgd import Mechanism
from runner.report.formats import write_csv
from runner.training.graph import GraphStep
from runner.training.run import Run

TABLE = "canaries.csv"
CONFIDENCE = 0.95  # that all bounds of the runs hold together, and all of the faults
_NAMES = ("one_run", "curve", "independent")  # of the bounds of a run
NONE = "none"  # is the fault of the run that faults are planted in
_DRAWS = 2  # of exact scores
ATTACKS = (
    Attack("tempered_sigmoid/mnist_tanh", 24_000),
    Attack("losing_less/mnist_ours", 24_000, way="graph"),
    Attack("better_features/mnist_linear", 24_000, way="resumed"),
    Attack("better_features/mnist_linear", 24_000, way="isolated engine", real=True),
    Attack("lipschitz/mnist_wide", 5_120),
    Attack("composition/best_backprop", 4_640),
)
SHORT = Attack("better_features/mnist_linear", 24_000, overrides=("epochs=10",))


class RateDoubled(Mechanism):
    """A mechanism that draws Poisson batches at twice the charged rate."""

    def memberships(self, generator: Generator) -> Iterator[Tensor]:
        for _ in range(self.steps_per_epoch):
            uniforms = torch.rand(self.examples, dtype=torch.float64, generator=generator)
            yield uniforms < 2 * self.sampling_rate


@dataclass(frozen=True)
class ClipForgotten(Flat):
    """Flat clipping to twice its norm, but for the sums of the first batch, which the run compares with its bound."""

    calls: list[int] = field(default_factory=list, compare=False)

    def factors(self, norms: Tensor) -> Tensor:
        self.calls.append(len(norms))
        return super().factors(norms) * (1 if len(self.calls) <= 16 else 2)


def _with_mechanism(kind: type[Mechanism]) -> Plant:
    return lambda run: replace(run, mechanism=remade(run.mechanism, kind))


def _clip_forgotten(run: Run) -> Run:
    assert isinstance(run.clipping, Flat)
    return replace(run, clipping=ClipForgotten(run.clipping.norm))


def replays_without_noise(run: Run) -> Run:
    """Let one in ten steps of a graph go without noise, as a replay whose generator is not registered would."""
    draw: Callable[[GraphStep], None] = GraphStep._draw
    steps = iter(range(run.most_steps))

    def faulty(self: GraphStep) -> None:
        if next(steps) % 10:
            draw(self)
        else:
            self._noise.zero_()

    GraphStep._draw = faulty  # type: ignore[method-assign]
    return run


FAULTS: tuple[tuple[str, Attack, Plant], ...] = (
    ("noise halved", SHORT, _with_mechanism(NoiseHalved)),
    ("sampling rate doubled", SHORT, _with_mechanism(RateDoubled)),
    ("clip to twice the norm after the first batch", SHORT, _clip_forgotten),
    ("one replay in ten without noise", replace(SHORT, way="graph"), replays_without_noise),
)


@dataclass(frozen=True)
class TrainedRow:
    """A run under attack.

    Attributes:
        fault: the planted one, "none" for the run that these are planted in, or "" for a whole run.
        setting, way, canaries: see `canaries.Attack`.
        share: of the charged squared shift, what the canaries reach.
        accuracy: of the run, in percent.
        sound: epsilon of the whole run.
        one_run, curve: lower bounds by `one_run.approximate_dp` and `one_run.charged_curve`.
        independent: lower bound by `bounds.lower_bounds`, which takes canaries for independent trials.
        one_run_ceiling, curve_ceiling, independent_ceiling: the same of exact scores.
        accused: True if a bound is above the sound epsilon, or the curve of the ledger's releases is refuted.
        minutes: of one core.
    """

    fault: str
    setting: str
    way: str
    canaries: int
    sampling_rate: float
    noise_multiplier: float
    steps: int
    share: float
    accuracy: float
    delta: float
    sound: float
    one_run: float
    curve: float
    independent: float
    one_run_ceiling: float
    curve_ceiling: float
    independent_ceiling: float
    accused: bool
    minutes: float

    @property
    def faulty(self) -> bool:
        return self.fault not in ("", NONE)


def runs(attacks: Sequence[Attack] = ATTACKS) -> Iterator[TrainedRow]:
    """Attack the code that trains. All bounds hold together with 95% confidence."""
    error = (1 - CONFIDENCE) / (len(_NAMES) * len(attacks))
    for attack in attacks:
        yield attacked(attack, error)


def faulty_runs() -> Iterator[TrainedRow]:
    """Attack runs with planted faults, and first the run without any."""
    error = (1 - CONFIDENCE) / (len(_NAMES) * (len(FAULTS) + 1))
    yield attacked(SHORT, error, NONE)
    draw = GraphStep._draw
    for name, attack, plant in FAULTS:
        yield attacked(attack, error, name, plant)
        GraphStep._draw = draw  # type: ignore[method-assign]


def attacked(attack: Attack, error: float, fault: str = "", plant: Plant = lambda run: run) -> TrainedRow:
    """Attack one run, with a chance of error of each bound."""
    run = attack.prepared()
    mechanism, delta = run.mechanism, run.config.delta
    outcome = carry_out(attack, plant)
    bounds = Bounds(replace(mechanism, before=()).charges(run.most_steps).actual, delta, error)
    draws = [
        exact(attack.canaries, mechanism.sampling_rate, mechanism.noise_multiplier, outcome.steps, outcome.share, seed)
        for seed in range(_DRAWS)
    ]
    guessed = bounds.planned(draws)
    ceilings = np.mean([bounds.compute(draw, *guessed) for draw in draws], axis=0)
    lower = bounds.compute(outcome, *guessed)
    sound = run.epsilon_at_most_steps
    assert sound is not None
    return TrainedRow(
        fault=fault,
        setting=attack.experiment,
        way=attack.way,
        canaries=attack.canaries,
        sampling_rate=mechanism.sampling_rate,
        noise_multiplier=mechanism.noise_multiplier,
        steps=outcome.steps,
        share=outcome.share,
        accuracy=outcome.accuracy,
        delta=delta,
        sound=sound,
        **dict(zip(_NAMES, lower, strict=True)),
        **{f"{name}_ceiling": float(ceiling) for name, ceiling in zip(_NAMES, ceilings, strict=True)},
        accused=max(lower) > sound or bounds.accused(outcome, guessed[1]),
        minutes=outcome.seconds / 60,
    )


@dataclass(frozen=True)
class Bounds:
    """The bounds of a run's scores, with the releases that its ledger charges for steps."""

    released: Releases
    delta: float
    error: float

    @property
    def family(self) -> tuple[SampledGaussian, ...]:
        return tuple(sampled_gaussians(self.released, self.delta) or ())

    def one_run(self, outcome: Outcome, guessed: int) -> float:
        return approximate_dp(guess(outcome.scores, outcome.joined, guessed), self.delta, self.error)

    def curve(self, outcome: Outcome, guessed: int) -> float:
        return charged_curve(guess(outcome.scores, outcome.joined, guessed), self.family, self.delta, self.error)

    def compute(self, outcome: Outcome, guessed: int, guessed_for_curve: int) -> tuple[float, float, float]:
        """Return all three, for a number of guesses for each of the first two."""
        independent = outcome.independent(self.released, self.delta, self.error).of_shape
        return self.one_run(outcome, guessed), self.curve(outcome, guessed_for_curve), independent

    def planned(self, draws: Sequence[Outcome]) -> list[int]:
        """Return the numbers of guesses that are best for exact scores, for each of the first two bounds."""
        numbers = sorted({max(10, round(share * len(draws[0].scores))) for share in SHARES})
        bounds = (self.one_run, self.curve)
        return [max(numbers, key=lambda guessed: sum(b(draw, guessed) for draw in draws)) for b in bounds]

    def accused(self, outcome: Outcome, guessed: int) -> bool:
        guesses = guess(outcome.scores, outcome.joined, guessed)
        independent = outcome.independent(self.released, self.delta, self.error)
        return refuted(guesses, allowed_by(self.family, 1.0), self.error) or independent.accused


def write(folder: Path, rows: Sequence[TrainedRow]) -> Path:
    return write_csv(folder / TABLE, list(TrainedRow.__dataclass_fields__), [asdict(row) for row in rows])
