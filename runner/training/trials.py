"""What a mechanism really adds and draws, against what its ledger charges: measured before any data is read.

A mechanism says four things that have to fit: the noise that it releases, its standard deviation, the batches that it
draws, and the charge. For every charge of a Gaussian with multiplier m, possibly sampled with probability q:

- by its own numbers one example must not move the sums by more than the noise is for: with M_g the most that it moves
  group g, m <= (sum_g (M_g / std_g)^2)^(-1/2), as in `runner.mechanism.dp_sgd`;
- the sums must enter the release with the weight 1 / denominator, and each parameter must get noise of that standard
  deviation or more, independent from coordinate to coordinate, from parameter to parameter and from step to step;
- batches must be as large as q says, or smaller, of distinct examples, drawn afresh and of random size; where nothing
  is sampled, no example may be in more batches than there are charges.

Of noise z of n coordinates with standard deviation s, sum z^2 / s^2 is chi-square with n degrees of freedom. It is
refused where it is smaller than all but 1e-9 of such numbers, and so is that of differences (z - z') / sqrt 2 of
two coordinates, parameters or steps, which vanish where noise is used twice. More noise than is charged for passes.

These are tests of some steps, and no proof: a class can be written that adds less noise later.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations, islice, pairwise

import torch
from scipy import stats
from torch import Generator, Tensor

from runner.accounting import Ledger
from runner.accounting.mechanisms import sampled_gaussians
from runner.clipping import Lipschitz, sum_of_none
from runner.config import ConfigError
from runner.gradients import Objective
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.seeds import generator
from runner.training.prepare import Run

_FALSE_ALARM = 1e-9  # of a mechanism that is right
_COORDINATES = 250  # of each parameter, over all releases: half the noise shows in as few
_NUMBERS = 1 << 24  # drawn at most, unless two releases are more
_STEPS = 16
_ROUNDING = 1e-4
_SPREAD = 10  # variance of a batch's size from which it is as good as Gaussian
_DEVIATIONS = 7  # below the mean: less than a Gaussian's 1e-11

Charge = tuple[float, float]  # the sampling rate q and the noise multiplier m


def own(part: object) -> bool:
    """Whether a part of a run is the user's: of a class that is neither PyTorch's nor this package's."""
    return type(part).__module__.partition(".")[0] not in (__name__.partition(".")[0], torch.__name__)


def rests_on_own_classes(run: Run, objective: Objective) -> bool:
    """Whether what one example contributes is bounded by something that the user's classes state."""
    by_network = isinstance(run.clipping, Lipschitz) and any(map(own, objective.modules()))
    return own(run.clipping) or own(run.mechanism) or by_network


def stated_by_own_classes(run: Run) -> list[str]:
    """What the run's ε rest on that this package cannot know: what the user's classes state. Empty where there is none.

    To be said beside them. Trials are of some examples and steps, and say nothing of later ones.
    """
    if not run.mechanism.private:
        return []
    tried = "noise, batches and charges are tried"
    try:
        charges_of_steps(run.mechanism)
    except UntriedError:
        tried = "its noise is tried, its charges and batches are not"
    stated = {
        "features": (run.features, "features of an image by {}: that others' do not matter is tried on made-up ones"),
        "clipping": (run.clipping, "sensitivity as stated by {}: tried on made-up examples at the first weights"),
        "mechanism": (run.mechanism, f"charges as stated by {{}}: {tried}"),
        "normalization": (run.normalization, "releases as stated by {}: not tried"),
        "accountant": (run.accountant, "ε as {} computes it: not tried"),
        "screening": (run.rule, "updates by {}: not tried"),
    }
    words = "Lipschitz constant as stated by {}" if isinstance(run.clipping, Lipschitz) else "examples kept apart by {}"
    words += ": tried on made-up examples at the first weights"
    stated |= {type(part).__qualname__: (part, words) for part in run.new_objective().modules()}
    return [text.format(type(part).__qualname__) for part, text in stated.values() if part is not None and own(part)]


class UntriedError(ValueError):
    """What is charged is none of what is known here, so that it cannot be compared."""


def check_mechanism(run: Run) -> None:
    """Try the run's mechanism, on sums of its parameters' shapes, where it is private and the user's own.

    Raises:
        ConfigError: with one sentence, where it does less for privacy than its ledger says.
    """
    if not own(run.mechanism):
        return
    zeros = sum_of_none(run.mechanism.noise_groups, run.new_objective())
    try:
        try_mechanism(run.mechanism, zeros, generator(run.config.seed, "trial", run.device))
    except UntriedError:
        pass
    except ValueError as error:
        raise ConfigError(f"mechanism: {error}: no ε would hold") from error


def try_mechanism(mechanism: Mechanism, zeros: dict[str, Tensor], stream: Generator) -> None:
    """Compare noise, batches and charges; `zeros` are of the parameters' shapes, by name.

    Raises:
        UntriedError: what is charged for a step is not one Gaussian, of one sampling rate; the noise is as stated.
        ValueError: there is less noise, or more of the data in the batches, than is charged for.
    """
    if not mechanism.private:
        return
    check_released_noise(mechanism, zeros, stream)
    charges = charges_of_steps(mechanism)
    batches = list(islice(_batches(mechanism, stream), _STEPS))
    check_stated_noise(mechanism, max(charge[1] for charge in charges if charge is not None))
    check_batches(mechanism.examples, batches, charges)


def charges_of_steps(mechanism: Mechanism) -> list[Charge | None]:
    """What the steps are charged that are tried: one Gaussian each, or nothing where others pay for it.

    Raises:
        UntriedError: it is something else, or not sampled alike.
        ValueError: a step that is taken back is charged less.
    """
    charges = [_charge(mechanism, step % mechanism.steps_per_epoch) for step in range(_STEPS)]
    rates = {charge[0] for charge in charges if charge is not None}
    if len(rates) != 1 or (None in charges and rates != {1.0}):
        raise UntriedError(f"steps are charged {charges}")
    return charges


def _charge(mechanism: Mechanism, step: int) -> Charge | None:
    kept, taken_back = Ledger(), Ledger()
    mechanism.charge_step(kept, step)
    mechanism.charge_step(taken_back, step, kept=False)
    if kept.actual != taken_back.actual:
        raise ValueError("a step that is taken back is charged otherwise than one that is kept")
    releases = sampled_gaussians(kept.actual, delta=0.5)
    if releases is None or len(releases) > 1 or any(release.times > 1 for release in releases):
        raise UntriedError(f"a step is charged {kept.actual}")
    return (releases[0].q, releases[0].noise_multiplier) if releases else None


def _batches(mechanism: Mechanism, stream: Generator) -> Iterator[Tensor]:
    """Batches of one epoch after the other."""
    while True:
        for batch in mechanism.batches(stream):
            yield batch.cpu()


def check_stated_noise(mechanism: Mechanism, charged: float) -> None:
    """The multiplier that follows from sensitivities and standard deviations is the one charged, or a larger one.

    Raises:
        ValueError: it is smaller.
    """
    parts = [mechanism.most_moved(group) / max(mechanism.noise_std(group), 1e-300) for group in mechanism.noise_groups]
    if charged > (1 + _ROUNDING) / math.hypot(*parts):
        raise ValueError(f"the ledger has noise multiplier {charged:.4g}, and the noise {1 / math.hypot(*parts):.4g}")


def check_released_noise(mechanism: Mechanism, zeros: dict[str, Tensor], stream: Generator) -> None:
    """Release sums of nothing, and once of something, and measure what comes out.

    Raises:
        ValueError: there is less noise than stated, or sums enter with another weight.
    """
    enough = math.ceil(_COORDINATES / min(total.numel() for total in zeros.values()))
    times = max(2, min(enough, _NUMBERS // sum(total.numel() for total in zeros.values())))
    _check_weights(mechanism, zeros, stream)
    stds = {name: mechanism.noise_std(group) for group in mechanism.noise_groups for name in group.parameters}

    def released() -> dict[str, Tensor]:
        return {name: y * mechanism.denominator for name, y in mechanism.release(zeros, stream).items()}

    def drawn() -> dict[str, Tensor]:
        """What a step that is a fixed sequence of calls uses, multiplied by what is stated."""
        views = {name: torch.empty_like(total) for name, total in zeros.items()}
        mechanism.draw_noise(views, stream)
        return {name: stds[name] * noise for name, noise in views.items()}

    for noise in (released, drawn):
        _check_noise((noise() for _ in range(times)), stds)


def _check_weights(mechanism: Mechanism, zeros: dict[str, Tensor], stream: Generator) -> None:
    """The sum enters the release as it is, where the same stream gives the same noise."""
    state = stream.get_state()

    def released(sums: dict[str, Tensor]) -> dict[str, Tensor]:
        stream.set_state(state)
        return mechanism.release(sums, stream)

    first, again = released(zeros), released(zeros)
    ones = released({name: torch.ones_like(total) for name, total in zeros.items()})
    for name in zeros:
        if not torch.equal(first[name], again[name]):
            return
        off = (ones[name] - first[name]) * mechanism.denominator - 1
        slack = _ROUNDING * (1 + first[name].abs().max().item() * mechanism.denominator)
        if not off.abs().max().item() <= slack:
            raise ValueError(f"the sum of {name} is not released as it is, divided by {mechanism.denominator}")


def _check_noise(releases: Iterable[dict[str, Tensor]], stds: dict[str, float]) -> None:
    """Noise by parameter name, release by release, against its standard deviations."""
    squares: dict[str, float] = defaultdict(float)
    numbers: dict[str, int] = defaultdict(int)
    previous: dict[str, Tensor] | None = None
    for noise in releases:
        standard = {name: z.double().flatten() / stds[name] for name, z in noise.items()}
        for what, sample in _samples(standard, previous):
            squares[what] += sample.square().sum().item()
            numbers[what] += sample.numel()
        previous = standard if previous is None else None  # so that pairs of steps are independent
    for what, found in squares.items():
        if not stats.chi2.cdf(found, numbers[what]) >= _FALSE_ALARM / len(squares):
            part = math.sqrt(found / numbers[what])
            raise ValueError(f"noise has {part:.2g} of the standard deviation that is stated: {what}")


def _samples(standard: dict[str, Tensor], previous: dict[str, Tensor] | None) -> Iterator[tuple[str, Tensor]]:
    """What should be standard normal, [n], and what it is. `previous` is the noise of the step before."""
    for name, z in standard.items():
        even = z[: len(z) // 2 * 2]
        yield f"that of {name}", z
        if len(even):
            yield f"between coordinates of {name}", _difference(even[::2], even[1::2])
        if previous is not None:
            yield f"between steps, of {name}", _difference(z, previous[name])
    for (one, z), (other, w) in pairwise(standard.items()):
        common = min(len(z), len(w))
        yield f"between {one} and {other}", _difference(z[:common], w[:common])


def _difference(one: Tensor, other: Tensor) -> Tensor:
    return (one - other) / math.sqrt(2)


def check_batches(examples: int, batches: list[Tensor], charges: list[Charge | None]) -> None:
    """Compare the batches of successive steps with their charges, all of one sampling rate.

    Raises:
        ValueError: examples are drawn more often than is charged for, or not at random.
    """
    if any(len(batch.unique()) != len(batch) for batch in batches):
        raise ValueError("a batch has an example twice")
    (rate,) = {charge[0] for charge in charges if charge is not None}
    if rate == 1:
        most = int(torch.bincount(torch.cat(batches), minlength=1).max())
        paid = sum(charge is not None for charge in charges)
        if most > paid:
            raise ValueError(f"an example is in {most} batches, but only {paid} are charged, without sampling")
    else:
        _check_poisson(examples, rate, batches)


def _check_poisson(examples: int, rate: float, batches: list[Tensor]) -> None:
    """Batches of independent members, each with a probability of `rate`, or less often."""
    total, draws = sum(map(len, batches)), examples * len(batches)
    if stats.binom.sf(total - 1, draws, rate) < _FALSE_ALARM:
        raise ValueError(f"the sampling rate charged is {rate:.4g}, but examples are drawn at {total / draws:.4g}")
    drawn = total / draws
    variance = examples * drawn * (1 - drawn)
    if variance >= _SPREAD:
        spread = sum((len(batch) - total / len(batches)) ** 2 for batch in batches) / variance
        if stats.chi2.cdf(spread, len(batches) - 1) < _FALSE_ALARM:
            raise ValueError("batches are charged as Poisson samples, but their sizes hardly differ")
    # In how many batches an example is: k of them make k (k - 1) / 2 pairs of batches that share it.
    times = torch.arange(len(batches) + 1).double().numpy()
    weights, pairs = stats.binom.pmf(times, len(batches), drawn), times * (times - 1) / 2
    mean = float(weights @ pairs)
    deviation = math.sqrt(max(0.0, float(weights @ pairs**2) - mean**2) * examples)
    shared = sum(int(torch.isin(one, other).sum()) for one, other in combinations(batches, 2))
    if shared < mean * examples - _DEVIATIONS * deviation:
        raise ValueError("batches are charged as Poisson samples, but they have fewer examples in common")
