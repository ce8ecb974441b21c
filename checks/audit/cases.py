"""The cases of the audit: every clipping, mechanism, update rule and release of statistics that conf/ names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig

from checks.audit.attacks import release_scores, statistics_scores, weight_scores
from checks.audit.bounds import Scores, lower_bounds
from checks.audit.faults import FAULTS, Fault
from checks.audit.screened import Screened, charges, screened_scores
from checks.audit.targets import BANDED, BY_NETWORK, DELTA, PLAIN, Setting, Target, calibrated, option, target
from runner.accounting import Pld, RdpClassic, Releases, calibrate_noise_multiplier, sound_epsilon
from runner.config import Sampling, options_of
from runner.mechanism.layerwise import NEIGHBOURS
from runner.mechanism.statistics import PrivateStatistics

CONFIDENCE = 0.95  # that all bounds of a table hold at once
_MOST = {0.5: 200_000, 1.0: 100_000, 2.0: 50_000, 4.0: 30_000, 8.0: 30_000}  # trials, by epsilon
_ONE_STEP = {0.5: 70_000, 1.0: 40_000, 2.0: 20_000, 4.0: 15_000, 8.0: 15_000}
_SAMPLED = {2.0: 200_000, 4.0: 60_000, 8.0: 50_000}
_QUICK = 0.03  # of the trials
SCREENED = Screened(kept=4, noise_multiplier=2.0, threshold=2.0)
SCREENED_QUICK = Screened(kept=4, noise_multiplier=2.5, threshold=1.5)
SCREENED_DELTAS = (DELTA, 1e-2, 1e-1)


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        what: option of the clipping or the rule that is attacked.
        mechanism, sampling, steps: the rest of the setting.
        sees: the numbers that the attacker sees.
        noise_multiplier, delta, trials: trials of each kind.
        claimed: epsilon as the paper counts.
        sound: epsilon by the ledger of exactly the steps attacked.
        of_shape, any_shape: lower bounds (`audit.bounds`), NaN if there is none.
        accused: True if the attack exceeds the ledger; None without an attack.
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


Case = Callable[[float], list[Row]]  # from the chance of error of a row to the rows


def cases(*, quick: bool) -> list[tuple[Case, int]]:
    """List attacks on the implementation, with the number of rows of each."""
    unbounded = [name for name in options_of("clipping") if not _bounded(name)]
    planned: list[tuple[Case, int]] = [(partial(_refused, name), 1) for name in unbounded]
    for setting, trials, sees in settings():
        for epsilon, count in trials.items():
            if not quick or epsilon == 4.0:
                number = max(2000, int(_QUICK * count)) if quick else count
                planned.append((partial(_attacked, setting, epsilon, number, sees), 1))
    for epsilon in (4.0,) if quick else (2.0, 8.0):
        planned.append((partial(_statistics, epsilon, 500 if quick else 6000), 1))
    screened, number = (SCREENED_QUICK, 120) if quick else (SCREENED, 2300)
    planned.append((partial(_screened, screened, number), len(SCREENED_DELTAS)))
    return planned


def rows(*, quick: bool) -> Iterator[Row]:
    """Yield all lines of the first table, whose bounds hold together with 95% confidence."""
    planned = cases(quick=quick)
    error = (1 - CONFIDENCE) / sum(count for _, count in planned)
    for case, _ in planned:
        yield from case(error)


def faults(*, quick: bool) -> Iterator[tuple[str, Row, Row]]:
    """Yield the second table: each fault's name, the original and the faulty result. It has its own confidence."""
    error = (1 - CONFIDENCE) / (2 * len(FAULTS) + 2)
    for fault in FAULTS:
        yield fault.name, *_faulty(fault, 5000 if quick else 10_000, error)
    yield "only the updates that screening kept are charged", *_accepted_only(400 if quick else 500, error)


def _bounded(clipping: str) -> bool:
    try:
        target(Setting(clipping), 1.0)
    except ValueError:
        return False
    return True


def settings() -> Iterator[tuple[Setting, Mapping[float, int], str]]:
    """Yield settings, with trials by epsilon and the numbers that the attacker sees."""
    clippings = [name for name in options_of("clipping") if _bounded(name)]
    for name in clippings:
        yield Setting(name), _MOST if name == "flat" else _ONE_STEP, "releases"
    for name in clippings:
        if name != BY_NETWORK:  # no example reaches the bound of a convolution there
            yield Setting(name, network="convolution"), {4.0: 15_000}, "releases"
    for mechanism in options_of("mechanism"):
        for setting in _variants(mechanism):
            yield setting, _ONE_STEP, "releases"
    for name in clippings:
        yield Setting(name).sampled(5), _MOST if name == "flat" else {4.0: 15_000}, "releases"
    for name in clippings:
        yield Setting(name).sampled(), _SAMPLED if name == "flat" else {4.0: 60_000, 8.0: 50_000}, "releases"
    for mechanism in options_of("mechanism"):
        for setting in _variants(mechanism):
            if setting.sampling is Sampling.poisson:
                yield setting.sampled(), {4.0: 60_000, 8.0: 50_000}, "releases"
                yield replace(setting.sampled(), steps=5), {4.0: 40_000}, "releases"
            else:
                yield replace(setting, steps=3), {4.0: 15_000}, "releases"
    for name in ("flat", "per_layer"):
        yield Setting(name, BANDED, steps=4, more={"bands": 2}).sampled(5), {4.0: 15_000}, "releases"
        yield Setting(name, BANDED, steps=8, more={"bands": 4}).sampled(), {4.0: 40_000}, "releases"
    for network, sees in (("linear", "releases"), ("one layer", "weights")):
        yield Setting("flat", steps=4, network=network), {1.0: 40_000, 4.0: 15_000}, sees
        yield Setting("flat", steps=5, network=network).sampled(), {4.0: 30_000, 8.0: 25_000}, sees
    shuffled = Setting("flat", sampling=Sampling.shuffled)
    yield replace(shuffled, steps=4), {4.0: 20_000}, "releases"
    yield replace(shuffled, examples=8, batch_size=4, steps=4), {4.0: 20_000}, "releases"


def _variants(mechanism: str) -> Iterator[Setting]:
    """Yield one mechanism for all the neighbours that it knows, selected by its name if it requires that.

    Nothing is yielded for banded noise, whose batches never hold all examples.
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


def _attacked(setting: Setting, epsilon: float, trials: int, sees: str, error: float) -> list[Row]:
    by = "claimed" if "asked_for" in setting.more else "sound"
    return [_row(calibrated(setting, epsilon, kind=by), trials, sees, error)]


def _row(attacked: Target, trials: int, sees: str, error: float, *, gaussian: bool = True) -> Row:
    attack = weight_scores if sees == "weights" else release_scores
    scores = attack(attacked, trials, f"{sees} {attacked.setting} {attacked.mechanism}")
    bounds = lower_bounds(scores, attacked.ledger.actual, DELTA, error)
    setting, mechanism = attacked.setting, attacked.mechanism
    name = " ".join([setting.mechanism, *(v for k, v in setting.more.items() if k == "neighbours")])
    if setting.everyone:
        batches = "all examples"
    elif setting.sampling is Sampling.poisson:
        batches = f"q = {mechanism.sampling_rate:g}"
    else:
        batches = f"{mechanism.steps_per_epoch} an epoch"
    return Row(
        what=setting.clipping + ("" if setting.network == "linear" else f" ({setting.network})"),
        mechanism=name,
        sampling=f"{setting.sampling.value}, {batches}",
        steps=setting.steps,
        sees=sees,
        noise_multiplier=mechanism.noise_multiplier,
        delta=DELTA,
        trials=trials,
        claimed=attacked.claimed,
        sound=attacked.sound,
        of_shape=bounds.of_shape if gaussian else math.nan,
        any_shape=bounds.any_shape,
        accused=bounds.accused,
    )


def _refused(clipping: str, error: float) -> list[Row]:
    """Make the row of a clipping that bounds nothing and so takes no noise: there is nothing to attack."""
    nothing: Any = {"of_shape": math.nan, "any_shape": math.nan, "accused": None, "sound": math.inf}
    return [Row(clipping, PLAIN, "", 1, "takes no noise", 0.0, DELTA, 0, math.inf, **nothing)]


def _statistics(epsilon: float, trials: int, error: float) -> list[Row]:
    def made(noise_multiplier: float) -> PrivateStatistics:
        bounds: PrivateStatistics = instantiate(
            option("normalization", "private_statistics"), noise_multiplier=noise_multiplier
        )
        return bounds

    noise = calibrate_noise_multiplier(Pld(), lambda nm: made(nm).releases, epsilon, DELTA, tolerance=1e-3)
    scores, ledger = statistics_scores(made(noise), trials, f"statistics {epsilon}")
    bounds = lower_bounds(scores, ledger.actual, DELTA, error)
    claimed, sound = RdpClassic().epsilon(ledger.claimed, DELTA), sound_epsilon(ledger.actual, DELTA)
    what = ("private_statistics", "before training", "all examples", 2, "constants", noise, DELTA, trials)
    return [Row(*what, claimed, sound, bounds.of_shape, bounds.any_shape, bounds.accused)]


def _screened(setting: Screened, trials: int, error: float) -> list[Row]:
    """Attack screening at several deltas; the claim is the accountant's epsilon of the kept updates at each."""
    scores, charged = screened_scores(setting, trials, "screened"), charges(setting).actual
    return [_screened_row(setting, scores, charged, trials, delta, error) for delta in SCREENED_DELTAS]


def _screened_row(setting: Screened, scores: Scores, charged: Releases, trials: int, delta: float, error: float) -> Row:
    bounds = lower_bounds(scores, charged, delta, error)
    return Row(
        what="annealing",
        mechanism=PLAIN,
        sampling="poisson, all examples",
        steps=setting.kept,
        sees="kept weights",
        noise_multiplier=setting.noise_multiplier,
        delta=delta,
        trials=trials,
        claimed=RdpClassic().epsilon(charges(setting).claimed, delta),
        sound=sound_epsilon(charged, delta),
        of_shape=math.nan,
        any_shape=bounds.any_shape,
        accused=bounds.accused,
    )


def _faulty(fault: Fault, trials: int, error: float) -> tuple[Row, Row]:
    right = target(fault.setting, fault.noise_multiplier)
    wrong = _row(fault.plant(right), trials, "releases", error, gaussian=fault.gaussian)
    return _row(right, trials, "releases", error), wrong


def _accepted_only(trials: int, error: float) -> tuple[Row, Row]:
    scores, ledger = screened_scores(SCREENED_QUICK, trials, "accepted only"), charges(SCREENED_QUICK)
    right, wrong = (
        _screened_row(SCREENED_QUICK, scores, charged, trials, DELTA, error)
        for charged in (ledger.actual, ledger.claimed)
    )
    return right, wrong
