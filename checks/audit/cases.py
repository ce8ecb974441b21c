"""The cases of the audit: every option of `GROUPS` that git tracks, by the default attack of its group or another.

- `clipping`: releases of one step and of samples. A clipping that bounds nothing has a row that says so.
- `mechanism`: releases under backpropagation clipping, for all its neighbours. Banded noise has `_banded`.
- `screening`: kept weights (`attacks.Screened`).
- `optimizer`: the weights before and after one step.
- `augmentation`, engine, precision: releases of one step of flat clipping.
- `averaging`, `schedule`: the weights after every step.
- `normalization`: the constants of private statistics.
- `loss`: only losses with a private count are options here. The count is a release of each step.

Networks that are not linear have `audit.hidden`.

`WITHOUT` has the options that have no attack, with the reasons.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from hydra.utils import instantiate
from omegaconf import DictConfig

from checks.audit.attacks import Screened, attack_scores, statistics_scores
from checks.audit.bounds import Limited, Scores, exact_scores, lower_bounds
from checks.audit.faults import FAULTS, Fault
from checks.audit.hidden import Hidden, hidden_scores
from checks.audit.targets import (
    BANDED,
    DELTA,
    LIPSCHITZ,
    PLAIN,
    Setting,
    Target,
    calibrated,
    option,
    own_options,
    target,
)
from runner.accounting import Ledger, Pld, RdpClassic, calibrate_noise_multiplier, sound_epsilon
from runner.config import Sampling
from runner.mechanism.banded import INDEPENDENT
from runner.mechanism.layerwise import NEIGHBOURS
from runner.mechanism.statistics import PrivateStatistics

CONFIDENCE = 0.95  # that all bounds of a table hold at once
MILLION = 1_000_000
ENOUGH = 0.8  # of the sound epsilon; a row below that has a reason
_ONE_STEP = {0.5: MILLION, 1.0: MILLION, 2.0: 500_000, 4.0: 200_000, 8.0: 100_000}  # trials, by epsilon
_SHUFFLED = {0.5: 250_000, 1.0: 100_000, 2.0: 100_000, 4.0: 50_000, 8.0: 50_000}  # drawn trial by trial
_SAMPLED = {2.0: MILLION, 4.0: MILLION, 8.0: MILLION}
_QUICK = 2000  # trials
GROUPS = (
    *("clipping", "mechanism", "screening", "optimizer", "augmentation", "averaging", "schedule", "normalization"),
    *("loss", "engine", "precision"),
)
WITHOUT = {
    ("screening", "none"): "every update is kept, as in all other attacks",
    ("schedule", "none"): "the rate is constant, as in all other attacks",
    ("precision", "tf32"): "no CPU has it, so `python -m checks parity` compares its norms on a GPU",
    ("normalization", "group_norm"): "every example is normalised by itself, so nothing is released",
}
SCREENED = Screened(kept=4, noise_multiplier=2.0, threshold=2.0)
SCREENED_QUICK = Screened(kept=4, noise_multiplier=2.5, threshold=1.5)
SCREENED_DELTAS = (DELTA, 1e-2, 1e-1)
# Number and stream were chosen before the attack was made, and it was made once: no better draw was looked for.
SCREENED_TRIALS, SCREENED_STREAM = 6000, "theorem 1, 6000 trials"
HIDDEN = (Hidden("crafted"), Hidden("crafted", batch_size=8), Hidden("worst case"))
HIDDEN_TRIALS = 6000


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        what: option of the clipping or the rule that is attacked.
        mechanism, sampling, steps: the rest of the setting.
        sees: the numbers that the attacker sees ("weights": the first and last, "all weights": after every step,
            "loss": the canary's, by the last weights).
        noise_multiplier, delta, trials: trials of each kind.
        claimed: epsilon as the paper counts.
        sound: epsilon by the ledger of exactly the steps attacked.
        of_shape, any_shape: lower bounds (`audit.bounds`), NaN if there is none.
        accused: True if the attack exceeds the ledger; None without an attack.
        ceiling: the bound by the same estimator from as many exact scores of what is seen (`bounds.exact_scores`). NaN
            if the bound is at least 0.8 of the sound epsilon, or if releases are not of the charged shape.
        moved: the canary's shift of a release, as a share of the charged one.
    """

    what: str
    mechanism: str
    sampling: str
    steps: int
    sees: str
    noise_multiplier: float
    delta: float
    trials: int
    claimed: float
    sound: float
    of_shape: float
    any_shape: float
    accused: bool | None
    ceiling: float = math.nan
    moved: float = 1.0

    @property
    def short(self) -> bool:
        """True if an attack shows less than 0.8 of the sound epsilon."""
        return self.accused is not None and self.lower < ENOUGH * self.sound

    @property
    def lower(self) -> float:
        """The larger one of the two bounds on epsilon."""
        return max((b for b in (self.of_shape, self.any_shape) if not math.isnan(b)), default=math.nan)

    @property
    def verdict(self) -> str:
        """The state of the claim."""
        if self.claimed == math.inf:
            return "not private"
        if self.lower > self.claimed:
            return "refuted"
        return "guaranteed" if self.claimed >= self.sound * (1 - 1e-9) else "not guaranteed"


class Case(NamedTuple):
    """An attack: from the chance of error of a row to rows, with their number, and the options that it attacks."""

    attack: partial[list[Row]]
    rows: int
    options: set[tuple[str, str]]


Recall = Callable[[partial[list[Row]]], list[Row]]  # carries out an attack, or has its rows from an earlier time


def cases(*, quick: bool) -> list[Case]:
    """List attacks on the implementation."""
    unbounded = [name for name in own_options("clipping") if not _bounded(name)]
    planned = [Case(partial(_refused, name), 1, {("clipping", name)}) for name in unbounded]
    for setting, trials in settings():
        for epsilon, count in trials.items():
            if not quick or epsilon == 4.0:
                attack = partial(_attacked, setting, epsilon, _QUICK if quick else count)
                planned.append(Case(attack, 1, setting.options))
    for name in own_options("normalization"):
        if ("normalization", name) not in WITHOUT:
            for epsilon, count in {4.0: 500}.items() if quick else {2.0: 20_000, 8.0: 10_000}.items():
                attack = partial(_statistics, name, epsilon, count)
                planned.append(Case(attack, 1, {("normalization", name)}))
    for hidden in HIDDEN:
        attack = partial(_hidden, hidden, 4.0, 200 if quick else HIDDEN_TRIALS)
        planned.append(Case(attack, 1, hidden.setting.options))
    screened, number = (SCREENED_QUICK, 120) if quick else (SCREENED, SCREENED_TRIALS)
    planned.append(Case(partial(_screened, screened, number), len(SCREENED_DELTAS), {("screening", "annealing")}))
    return planned


def rows(recall: Recall = lambda attack: attack(), *, quick: bool) -> Iterator[Row]:
    """Yield all lines of the first table, whose bounds hold together with 95% confidence."""
    planned = cases(quick=quick)
    error = (1 - CONFIDENCE) / sum(case.rows for case in planned)
    for case in planned:
        yield from recall(partial(case.attack, error))


def faults(recall: Recall = lambda attack: attack(), *, quick: bool) -> Iterator[tuple[str, Row, Row]]:
    """Yield the second table: each fault's name, the original and the faulty result. It has its own confidence."""
    error = (1 - CONFIDENCE) / (2 * len(FAULTS) + 2)
    for fault in FAULTS:
        right, wrong = recall(partial(_faulty, fault, 5000 if quick else 10_000, error))
        yield fault.name, right, wrong
    right, wrong = recall(partial(_accepted_only, 400 if quick else 500, error))
    yield "only the updates that screening kept are charged", right, wrong


def _bounded(clipping: str) -> bool:
    try:
        target(Setting(clipping), 1.0)
    except ValueError:
        return False
    return True


def settings() -> Iterator[tuple[Setting, Mapping[float, int]]]:
    """Yield settings, with trials by epsilon."""
    clippings = [name for name in own_options("clipping") if _bounded(name)]
    for name in clippings:
        yield Setting(name), _ONE_STEP
    for name in clippings:
        if name != LIPSCHITZ:  # no example reaches the bound of a convolution there
            yield Setting(name, network="convolution"), {4.0: 50_000}
    for mechanism in own_options("mechanism"):
        for setting in _variants(mechanism):
            yield setting, _ONE_STEP if setting.sampling is Sampling.poisson else _SHUFFLED
    for name in clippings:
        most = {0.5: MILLION, 1.0: MILLION, 2.0: 300_000, 4.0: 100_000, 8.0: 50_000}
        yield Setting(name).sampled(5), most if name == "flat" else {4.0: 100_000}
    for name in clippings:
        yield Setting(name).sampled(), _SAMPLED if name == "flat" else {4.0: MILLION, 8.0: MILLION}
    for mechanism in own_options("mechanism"):
        for setting in _variants(mechanism):
            if setting.sampling is Sampling.poisson:
                yield setting.sampled(), {4.0: MILLION, 8.0: MILLION}
                yield replace(setting.sampled(), steps=5), {4.0: MILLION}
            else:
                yield replace(setting, steps=3), {4.0: 50_000}
    yield from _banded()
    for network in ("linear", "one layer"):
        yield Setting("flat", steps=4, network=network), {1.0: 200_000, 4.0: 50_000}
        yield Setting("flat", steps=5, network=network).sampled(), {4.0: MILLION, 8.0: MILLION}
    shuffled = Setting("flat", sampling=Sampling.shuffled)
    yield replace(shuffled, steps=4), {4.0: 50_000}
    yield replace(shuffled, examples=8, batch_size=4, steps=4), {4.0: 200_000}
    for group, network, steps in (
        ("augmentation", "smooth", 1),
        ("engine", "linear", 1),
        ("precision", "cancelling", 1),
        ("averaging", "one layer", 8),
        ("schedule", "one layer", 8),
    ):
        for name in own_options(group):
            if (group, name) not in WITHOUT:
                yield Setting("flat", steps=steps, network=network, beside=(group, name)), {4.0: 50_000}
    for name in own_options("optimizer"):
        yield Setting("flat", network="one layer", beside=("optimizer", name)), {4.0: 200_000}
    for name in counting_losses():
        yield Setting(LIPSCHITZ, beside=("loss", name)), {4.0: 200_000}
    for setting in (Setting("flat", steps=3), Setting("flat", steps=3).sampled()):
        yield replace(setting, more={"factors": (1.0, 0.8, 1.25)}), {4.0: MILLION}


def counting_losses() -> list[str]:
    """List the options of `loss` whose steps release a count, which has a share of their privacy."""
    return [name for name in own_options("loss") if "budget" in option("loss", name).get("course", {})]


def _banded() -> Iterator[tuple[Setting, Mapping[float, int]]]:
    """Yield attacks on banded noise, whose batches never hold all examples: several cycles of two and of four steps.

    Of b independent parts, one trial in b is used (`attacks.joined`).
    """
    for name in ("flat", "per_layer"):
        yield Setting(name, BANDED, steps=4, more={"bands": 2}).sampled(5), {4.0: 50_000}
        yield Setting(name, BANDED, steps=8, more={"bands": 4}).sampled(), {4.0: 200_000}
    parts = {"parts": INDEPENDENT}
    yield Setting("flat", BANDED, steps=4, more={"bands": 2} | parts).sampled(5), {4.0: 100_000}
    yield Setting("flat", BANDED, steps=8, more={"bands": 4} | parts).sampled(), {4.0: 800_000}


def _variants(mechanism: str) -> Iterator[Setting]:
    """Yield one mechanism for all the neighbours that it knows, selected by its name if it requires that.

    Banded noise has its own attacks.
    """
    if mechanism == BANDED:
        return
    config = option("mechanism", mechanism)
    setting = Setting("backprop", mechanism, Sampling[config.sampling])
    arguments: DictConfig = config.mechanism
    if "neighbours" in arguments:
        for neighbours in NEIGHBOURS:
            yield replace(setting, more={"neighbours": neighbours})
    else:
        yield replace(setting, more={"asked_for": mechanism} if "asked_for" in arguments else {})


def _attacked(setting: Setting, epsilon: float, trials: int, error: float) -> list[Row]:
    by = "claimed" if "asked_for" in setting.more else "sound"
    return [attack_target(calibrated(setting, epsilon, kind=by), trials, error)]


def attack_target(attacked: Target, trials: int, error: float, *, gaussian: bool = True) -> Row:
    setting, mechanism = attacked.setting, attacked.mechanism
    scores = attack_scores(attacked, trials, f"{setting.sees} {setting} {mechanism}")
    remarks = [] if setting.network == "linear" else [setting.network]
    remarks += [setting.beside[1]] if setting.beside is not None else []
    remarks += ["noise by step"] if "factors" in setting.more else []
    return _row(
        scores,
        attacked.ledger,
        error,
        gaussian=gaussian,
        order=mechanism.steps_per_epoch if mechanism.sampling is Sampling.shuffled else 1,
        what=setting.clipping + (f" ({', '.join(remarks)})" if remarks else ""),
        mechanism=" ".join([setting.mechanism, *(v for k, v in setting.more.items() if k in ("neighbours", "parts"))]),
        sampling=_sampling(attacked),
        steps=setting.steps,
        sees=setting.sees,
        noise_multiplier=mechanism.noise_multiplier,
        claimed=attacked.claimed,
        moved=attacked.moved,
    )


def _sampling(attacked: Target) -> str:
    setting, mechanism = attacked.setting, attacked.mechanism
    batches = f"q = {mechanism.sampling_rate:g}"
    if setting.everyone:
        batches = "all examples"
    elif setting.sampling is Sampling.shuffled:
        batches = f"{mechanism.steps_per_epoch} an epoch"
    return f"{setting.sampling.value}, {batches}"


def _row(
    scores: Scores,
    ledger: Ledger,
    error: float,
    delta: float = DELTA,
    gaussian: bool = True,
    order: int = 1,
    **more: Any,
) -> Row:
    """Make a row of the scores of an attack: `more` has the rest of its fields.

    If releases are Gaussian and it shows too little, it has a ceiling, for an attacker who sees no more than this one.
    Among `order` releases the charged one is not known.
    """
    bounds = lower_bounds(scores, ledger.actual, delta, error)
    more |= {
        "trials": min(map(len, chain(*scores.values()))),
        "of_shape": bounds.of_shape if gaussian else math.nan,
        "any_shape": bounds.any_shape,
    }
    row = Row(delta=delta, sound=sound_epsilon(ledger.actual, delta), accused=bounds.accused, **more)
    if not gaussian or not row.short:
        return row
    limited = Limited(row.moved, summed=row.sees in ("weights", "loss"), order=order)
    bounds = lower_bounds(exact_scores(ledger.actual, delta, row.trials, 0, limited), ledger.actual, delta, error)
    return replace(row, ceiling=max(b for b in (bounds.of_shape, bounds.any_shape) if not math.isnan(b)))


def _hidden(hidden: Hidden, epsilon: float, trials: int, error: float) -> list[Row]:
    """Attack a network that is not linear. Its canary has the whole charged shift."""
    attacked = calibrated(hidden.setting, epsilon)
    row = _row(
        hidden_scores(hidden, attacked, trials, f"hidden {hidden}"),
        attacked.ledger,
        error,
        what=f"flat (tanh, {'crafted gradient' if hidden.kind == 'crafted' else 'worst first weights'})",
        mechanism=PLAIN,
        sampling=_sampling(attacked),
        steps=hidden.steps,
        sees=hidden.sees,
        noise_multiplier=attacked.mechanism.noise_multiplier,
        claimed=attacked.claimed,
    )
    return [row]


def _refused(clipping: str, error: float) -> list[Row]:
    """Make the row of a clipping that bounds nothing and so takes no noise: there is nothing to attack."""
    nothing: Any = {"of_shape": math.nan, "any_shape": math.nan, "accused": None, "sound": math.inf}
    return [Row(clipping, PLAIN, "", 1, "takes no noise", 0.0, DELTA, 0, math.inf, **nothing)]


def _statistics(name: str, epsilon: float, trials: int, error: float) -> list[Row]:
    config = {key: value for key, value in option("normalization", name).items() if key != "defaults"}

    def build(noise_multiplier: float) -> PrivateStatistics:
        statistics: PrivateStatistics = instantiate(config | {"noise_multiplier": noise_multiplier})
        return statistics

    noise = calibrate_noise_multiplier(Pld(), lambda nm: build(nm).releases, epsilon, DELTA, tolerance=1e-3)
    scores, ledger = statistics_scores(build(noise), trials, f"{name} {epsilon}")
    shown: Any = {"mechanism": "before training", "sampling": "all examples", "steps": 2, "sees": "constants"}
    claimed = RdpClassic().epsilon(ledger.claimed, DELTA)
    return [_row(scores, ledger, error, what=name, noise_multiplier=noise, claimed=claimed, **shown)]


def _screened(screened: Screened, trials: int, error: float) -> list[Row]:
    """Attack screening at several deltas; the claim is the accountant's epsilon of the kept updates at each."""
    scores = screened.scores(trials, SCREENED_STREAM)
    return [_screened_row(screened, scores, screened.ledger, delta, error) for delta in SCREENED_DELTAS]


def _screened_row(screened: Screened, scores: Scores, ledger: Ledger, delta: float, error: float) -> Row:
    """Make a row of kept updates, which are not Gaussian."""
    return _row(
        scores,
        ledger,
        error,
        delta,
        gaussian=False,
        what="annealing",
        mechanism=PLAIN,
        sampling="poisson, all examples",
        steps=screened.kept,
        sees="kept weights",
        noise_multiplier=screened.noise_multiplier,
        claimed=RdpClassic().epsilon(screened.ledger.claimed, delta),
    )


def _faulty(fault: Fault, trials: int, error: float) -> list[Row]:
    right = target(fault.setting, fault.noise_multiplier)
    wrong = attack_target(fault.plant(right), trials, error, gaussian=fault.gaussian)
    return [attack_target(right, trials, error), wrong]


def _accepted_only(trials: int, error: float) -> list[Row]:
    screened, wrong = SCREENED_QUICK, Ledger()
    for event, count in screened.ledger.claimed:
        wrong.release(event, event, count)
    scores, ledgers = screened.scores(trials, "accepted only"), (screened.ledger, wrong)
    return [_screened_row(screened, scores, ledger, DELTA, error) for ledger in ledgers]
