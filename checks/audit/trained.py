"""Real runs under attack, by canaries: the settings, planted faults, the table and its section of the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Generator, Tensor

from checks.audit.bounds import lower_bounds
from checks.audit.canaries import Attack, Outcome, Plant, carry_out, exact
from checks.audit.faults import NoiseHalved
from checks.audit.one_run import SHARES, allowed_by, approximate_dp, charged_curve, guess, refuted
from runner.accounting import Releases
from runner.accounting.ledger import SampledGaussian, sampled_gaussians
from runner.clipping import Flat
from runner.mechanism.dp_sgd import Mechanism
from runner.report.files import Table, bound_text, markdown, read_csv, write_csv
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
    def plant(run: Run) -> Run:
        return replace(run, mechanism=kind(**{f.name: getattr(run.mechanism, f.name) for f in fields(Mechanism)}))

    return plant


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
    released = replace(mechanism, before=()).charges(run.most_steps).actual
    outcome = carry_out(attack, plant)
    bounds = Bounds(released, delta, error)
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
        sides = {"likelihood": (outcome.scores[~outcome.joined], outcome.scores[outcome.joined])}
        independent = lower_bounds(sides, self.released, self.delta, self.error).of_shape
        return self.one_run(outcome, guessed), self.curve(outcome, guessed_for_curve), independent

    def planned(self, draws: Sequence[Outcome]) -> tuple[int, int]:
        """Return the numbers of guesses that are best for exact scores."""
        numbers = sorted({max(10, round(share * len(draws[0].scores))) for share in SHARES})
        best = [
            max(numbers, key=lambda guessed: sum(b(draw, guessed) for draw in draws))
            for b in (self.one_run, self.curve)
        ]
        return best[0], best[1]

    def accused(self, outcome: Outcome, guessed: int) -> bool:
        sides = {"likelihood": (outcome.scores[~outcome.joined], outcome.scores[outcome.joined])}
        guesses = guess(outcome.scores, outcome.joined, guessed)
        return (
            refuted(guesses, allowed_by(self.family, 1.0), self.error)
            or lower_bounds(sides, self.released, self.delta, self.error).accused
        )


def write(folder: Path, rows: Sequence[TrainedRow]) -> Path:
    """Write canaries.csv, and return its path."""
    return write_csv(folder / TABLE, list(TrainedRow.__dataclass_fields__), [asdict(row) for row in rows])


def section(folder: Path) -> list[str]:
    """Return the paragraphs of the page on canaries.csv, or none if there is no such file."""
    if not (folder / TABLE).exists():
        return []
    rows = TypeAdapter(list[TrainedRow]).validate_python(read_csv(folder / TABLE))
    attacks, planted = [row for row in rows if not row.fault], [row for row in rows if row.fault]
    wrong = [row for row in planted if row.faulty]
    shares = [max(row.one_run, row.curve) / row.sound for row in attacks]
    accused, caught = sum(row.accused for row in attacks), sum(row.accused for row in wrong)
    return [
        "## Whole runs, attacked by canaries",
        f"**{accused} of {len(attacks)} runs are accused**, and one run alone shows {min(shares):.2f} to "
        f"{max(shares):.2f} of its sound ε. These are runs of committed settings, by the loop that trains all "
        "records. Each canary joined by a coin. Its gradient is one coordinate of the weights, clipped to the "
        "sensitivity. The attacker reads the weights before every step, or the noisy sums where these are projected.",
        markdown(
            Table(
                (
                    *("setting", "steps", "canaries", "sound ε", "ε at least (exact scores)"),
                    *("if canaries are independent (exact scores)", "core-minutes"),
                ),
                [_line(row) for row in attacks],
            )
        ).strip(),
        "*ε at least* is the larger of two bounds that hold for canaries that depend on each other "
        "(`checks/audit/one_run.py`). In brackets is what the same estimator gives for exact scores of as many "
        "canaries. The next column takes canaries for independent trials, as they are if noise is as it is charged. "
        f"All bounds of the table hold together with {CONFIDENCE:.0%} confidence.",
        "A canary needs a coordinate of its own in every layer that has noise of its own. Therefore Lipschitz networks "
        "and backpropagation clipping have fewer canaries, and the latter's do not reach the last layer, which has a "
        "quarter of the squared shift that is charged.",
        f"{caught} of {len(wrong)} faults, planted in ten epochs of the linear model, are found:",
        markdown(
            Table(
                ("fault", "steps", "ε charged", "ε at least", "if canaries are independent", "found"),
                [_fault_line(row) for row in planted],
            )
        ).strip(),
        f"[All columns]({TABLE})",
    ]


def _line(row: TrainedRow) -> list[str]:
    best = "one_run" if row.one_run > row.curve else "curve"
    return [
        row.setting,
        f"{row.way}, {row.steps:,}",
        f"{row.canaries:,}",
        bound_text(row.sound),
        f"{_least(getattr(row, best))} ({_least(getattr(row, f'{best}_ceiling'))})",
        f"{_least(row.independent)} ({_least(row.independent_ceiling)})",
        f"{row.minutes:.1f}",
    ]


def _fault_line(row: TrainedRow) -> list[str]:
    words = {(True, True): "yes", (True, False): "**no**", (False, True): "**accused**", (False, False): "–"}
    word = words[row.faulty, row.accused]
    bounds = _least(max(row.one_run, row.curve)), _least(row.independent)
    return [row.fault, f"{row.way}, {row.steps}", bound_text(row.sound), *bounds, word]


def _least(bound: float) -> str:
    return f"{math.floor(100 * bound) / 100:.2f}"
