"""Decisions by a target or a limit of epsilon: the noise multiplier, or the epochs and steps that are trained."""

from __future__ import annotations

from collections.abc import Callable

from omegaconf import DictConfig

from runner.accounting import calibrate_noise_multiplier, last_within
from runner.accounting.calibration import Accountant
from runner.config import ConfigError
from runner.mechanism.dp_sgd import Mechanism
from runner.training.updates import UpdateRule


def noise_multiplier_of(config: DictConfig, accountant: Accountant, mechanism: Callable[[float], Mechanism]) -> float:
    given: float | None = config.noise_multiplier
    if config.target_epsilon is None:
        if given is None:
            raise ConfigError("Set noise_multiplier (0 for none) or target_epsilon.")
        return given
    if given is not None:
        raise ConfigError(
            "Set noise_multiplier or target_epsilon, not both: one follows from the other "
            "(target_epsilon=3 noise_multiplier=null, say)."
        )
    mechanism(1.0)  # raises if the other settings do not allow noise
    return calibrate_noise_multiplier(
        accountant,
        lambda nm: mechanism(nm).charges_of_epochs(config.epochs).claimed,
        config.target_epsilon,
        config.delta,
    )


def within_budget(
    config: DictConfig, accountant: Accountant, mechanism: Mechanism, rule: UpdateRule
) -> tuple[int, int | None]:
    """Return the epochs that max_epsilon pays for, and None; for a rule that rejects steps, all epochs and kept steps.

    Kept steps of None mean that only the epochs end the run.
    """
    if config.max_epsilon is None:
        return config.epochs, None
    if not mechanism.private:
        raise ConfigError("max_epsilon stops a private run, but noise_multiplier is 0.")
    unit, steps = ("step", 1) if rule.takes_back else ("epoch", mechanism.steps_per_epoch)
    paid_for = last_within(
        accountant,
        lambda n: mechanism.charges(n * steps).claimed,
        config.max_epsilon,
        config.delta,
        config.epochs * mechanism.steps_per_epoch // steps,
    )
    if paid_for == 0:
        raise ConfigError(f"max_epsilon={config.max_epsilon} does not allow a single {unit} of this setting.")
    return (config.epochs, paid_for) if rule.takes_back else (paid_for, None)
