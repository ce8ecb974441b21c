"""Decisions by a target or a limit of epsilon: the noise multiplier, or the epochs and steps that are trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from omegaconf import DictConfig

from runner.accounting import Pld, calibrate_noise_multiplier, last_within, sound_epsilon
from runner.accounting.calibration import LARGEST_NOISE, PATIENCE, Accountant
from runner.config import ConfigError
from runner.data.channels import private_statistics
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.statistics import Normalization
from runner.terminal import Line
from runner.training.updates import UpdateRule
from runner.trust.mechanism import own_noise, own_releases

_SILENT = 2.0  # seconds


def noise_multiplier_of(
    config: DictConfig,
    accountant: Accountant,
    mechanism: Callable[[float], Mechanism],
    rule: UpdateRule,
    normalization: Normalization | None,
) -> float:
    """Return the noise multiplier that a config gives, or calibrate it to `target_epsilon` or `sound_epsilon`.

    `target_epsilon` is as the paper counts, for all epochs. `sound_epsilon` pays for everything that the run can
    release: the releases before the first step, and as many updates as the rule can compute in all epochs, kept or not.
    The ledger's `actual` has them, so the sound epsilon in the record is at most `sound_epsilon`.

    Raises:
        ConfigError: the config gives none of the three, or more than one, or no sound epsilon exists.
        ValueError: no noise multiplier meets the budget, or the mechanism cannot be private.
    """
    noise_multiplier, sound = config.noise_multiplier, config.sound_epsilon
    if sound is None and config.target_epsilon is None:
        if noise_multiplier is None:
            raise ConfigError("Set sound_epsilon, noise_multiplier (0 for none) or target_epsilon.")
        return float(noise_multiplier)
    if sound is None:
        if noise_multiplier is not None:
            raise ConfigError(
                "Set noise_multiplier or target_epsilon, not both: one follows from the other "
                "(target_epsilon=3 noise_multiplier=null, say)."
            )
        mechanism(1.0)  # raises if the other settings do not allow noise
        with _announced(accountant):
            return calibrate_noise_multiplier(
                accountant,
                lambda nm: mechanism(nm).charges_of_epochs(config.epochs).claimed,
                config.target_epsilon,
                config.delta,
            )
    trial = mechanism(1.0)
    reason = own_noise(trial) or own_releases(normalization) or private_statistics(config.features, config.dataset)
    if reason:
        raise ConfigError(f"sound_epsilon={sound:g}: this setting has no sound ε. {reason}")
    steps = rule.most_steps(config.epochs * trial.steps_per_epoch, None)
    if sound_epsilon(mechanism(LARGEST_NOISE).charges(steps).actual, config.delta) > sound:
        raise ConfigError(
            f"sound_epsilon={sound:g}: no noise reaches it, because part of what this setting releases does not depend "
            "on noise_multiplier or gets no noise at all. Choose a larger one, or another normalization or clipping."
        )
    with _announced(Pld()):
        return calibrate_noise_multiplier(Pld(), lambda nm: mechanism(nm).charges(steps).actual, sound, config.delta)


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
    with _announced(accountant):
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


@contextmanager
def _announced(accountant: Accountant) -> Iterator[None]:
    """Print a line if what is done inside takes two seconds, with its limit."""
    name = type(accountant).__name__
    text = f"computing the noise or the steps that the budget allows, by {name}, for at most {PATIENCE:g} s ..."
    timer = Timer(_SILENT, lambda: Line().keep(text))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
