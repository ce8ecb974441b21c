"""A user's mechanism: the choices that it may make, and the test that its noise and charges are the package's.

A user's mechanism is a subclass of `runner.mechanism.dp_sgd.Mechanism` that overrides one of two choices, or both:

- `shares(noise_groups)`: each noise group's share of a step's privacy, above 0 and at most 1 in total;
- `noise_factor(step)`: the noise of each step, as a multiple of the config's noise multiplier.

The sampling is a third choice, the config's field `sampling`. `docs/extending.md` has an example.

Choices are read once, before training and before noise is calibrated to a target epsilon, which scales all steps by one
number. An object of this package then draws the batches and the noise and writes the charges.

A class that overrides anything else draws or charges in its own way, and so does a class that is no subclass. It may
run, but no sound epsilon is known for it. `own_noise` states the reason, and epsilon is the number that the class
states.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

from runner.accounting import Releases
from runner.clipping import NoiseGroup
from runner.config import PACKAGE, Sampling, defined_in
from runner.mechanism.dp_sgd import Mechanism, Scheduled

CHOICES = ("shares", "noise_factor")
MOST_FACTORS = 100  # distinct ones: the accountants compose each separately, after every epoch
_NAMES = {name for name in vars(Mechanism) if not name.startswith("__")} | {field.name for field in fields(Mechanism)}


def own_noise(mechanism: object, normalization: object = None) -> str | None:
    """Return the reason why no sound epsilon is known, or None if all noise and charges are the package's."""
    kind = type(mechanism)
    if not issubclass(kind, Mechanism):
        return f"{kind.__qualname__} is no subclass of Mechanism, so its noise and charges are not known."
    names = set() if defined_in(kind, PACKAGE.name) else _overridden(kind) - set(CHOICES)
    if names:
        return f"{kind.__qualname__} overrides {', '.join(sorted(names))}, so its noise or charges are not known."
    kind = type(normalization)
    if normalization is None or defined_in(kind, PACKAGE.name):
        return None
    return f"{kind.__qualname__} is a user's normalization, so its releases of the examples are not known."


def mechanism_for(
    kind: Any,
    sampling: Sampling,
    examples: int,
    batch_size: int,
    noise_groups: Sequence[NoiseGroup],
    before: Releases,
    epochs: int,
    noise_multiplier: float | None,
) -> Callable[[float], Mechanism]:
    """Read the choices of a class once and return the mechanism as a function of the noise multiplier.

    Args:
        kind: the class, or a partial of it with further arguments.
        noise_multiplier: the config's number, which the class sees when it chooses. If None, it is calibrated, and the
            class sees 1.

    Raises:
        ValueError: in one sentence, a choice is invalid, or the class cannot be a mechanism. The returned function
            raises it, too.
    """
    target = kind.func if isinstance(kind, partial) else kind
    if not inspect.isclass(target):
        raise ValueError(f"A mechanism is a class, named with _partial_: true, and {target!r} is none.")
    arguments, groups = (sampling, examples, batch_size), tuple(noise_groups)
    package = partial(Mechanism, *arguments, noise_groups=groups, before=before)
    in_package = defined_in(target, PACKAGE.name) and issubclass(target, Mechanism)
    if in_package and isinstance(kind, partial):  # a list of a config would leave a mechanism without a hash
        lists = {name: value for name, value in kind.keywords.items() if isinstance(value, list)}
        for name, value in lists.items():
            if not all(isinstance(number, (int, float)) for number in value):
                raise ValueError(f"mechanism.{name} has to be a list of numbers, not {value}.")
        kind = partial(kind, **{name: tuple(map(float, value)) for name, value in lists.items()})

    def built(multiplier: float) -> Any:
        try:
            return kind(*arguments, multiplier, noise_groups=groups, before=before)
        except Exception as error:
            if in_package and isinstance(error, ValueError):
                raise
            raise ValueError(f"{target.__qualname__} cannot be made: {_described(error)}") from error

    if in_package:
        if target is not Mechanism and any(defined_in(subclass, PACKAGE.name) for subclass in target.__subclasses__()):
            raise ValueError(f"{target.__qualname__} is the base of other mechanisms, and none by itself.")
        return built
    multiplier = 1.0 if noise_multiplier is None else noise_multiplier
    chooser, plain = built(multiplier), package(multiplier)
    if own_noise(chooser) is not None:
        _check_own(chooser)
        return built
    try:
        shares = chooser.shares(groups)
        shares = None if shares is None else list(shares)
        steps = epochs * plain.steps_per_epoch if "noise_factor" in _overridden(target) else 0
        factors = [chooser.noise_factor(step) for step in range(steps)]
    except Exception as error:
        raise ValueError(f"{target.__qualname__} cannot choose: {_described(error)}") from error
    for number in (*(shares or ()), *factors):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise ValueError(f"{target.__qualname__} chooses {number!r}: expected a float.")
    if shares is not None:
        if len(shares) != len(groups):
            raise ValueError(f"{target.__qualname__} gives {len(shares)} shares of {len(groups)} noise groups.")
        groups = tuple(replace(group, share=float(share)) for group, share in zip(groups, shares, strict=True))
    if (different := len(set(factors))) > MOST_FACTORS:
        raise ValueError(
            f"{target.__qualname__} has {different} different noise factors, and {MOST_FACTORS} can be accounted for: "
            f"change them by the epoch, or round them."
        )
    if set(factors) <= {1.0}:
        return partial(package, noise_groups=groups)
    return partial(Scheduled, *arguments, noise_groups=groups, before=before, factors=tuple(map(float, factors)))


def _overridden(kind: type) -> set[str]:
    """Return the names of `Mechanism` that a subclass, or a base of it, defines."""
    return {name for base in kind.__mro__ if base is not Mechanism for name in vars(base) if name in _NAMES}


def _check_own(mechanism: Any) -> None:
    """Check that a mechanism that draws or charges itself has all attributes that a run needs, and no other choices."""
    kind = type(mechanism)
    missing = sorted(name for name in _NAMES if not name.startswith("_") and not hasattr(mechanism, name))
    if missing:
        raise ValueError(f"{kind.__qualname__} has no {missing[0]}, which a mechanism needs.")
    chosen = _overridden(kind) & set(CHOICES)
    if issubclass(kind, Mechanism) and chosen:
        raise ValueError(
            f"{kind.__qualname__} overrides {', '.join(sorted(chosen))}, which is read only if a class leaves the "
            f"noise and the charges to the package: it overrides {', '.join(sorted(_overridden(kind) - chosen))}, too."
        )


def _described(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) else f"{type(error).__name__} {text}"
