"""Privacy accounting: noisy releases and the (epsilon, delta) guarantee that follows from them.

A release is described by its noise, so an epsilon is for the neighbours that the mechanism names. A `Ledger` records
the noisy releases as `dp_accounting` events.
An accountant computes epsilon from them, and calibration inverts that.
"""

from runner.accounting.accountants import Gdp, Pld, Prv, Rdp, RdpClassic, Zcdp, sound_epsilon
from runner.accounting.calibration import calibrate_noise_multiplier, epsilon_by, last_within
from runner.accounting.ledger import Ledger, Releases, check_delta, gaussian, training_loop

__all__ = [
    "Gdp", "Ledger", "Pld", "Prv", "Rdp", "RdpClassic", "Releases", "Zcdp", "calibrate_noise_multiplier", "check_delta",
    "epsilon_by", "gaussian", "last_within", "sound_epsilon", "training_loop",
]  # fmt: skip
