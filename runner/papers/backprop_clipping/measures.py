"""What this paper's claims need beside the shared readers: the sensitivity of a layer."""

from __future__ import annotations

from runner.claims.charges import ledger_of
from runner.claims.claim import Claim
from runner.claims.measure import computed
from runner.claims.measured import Measured

STATED = ("3", "1", "02", "01")  # the epsilons of the authors' script, as its experiments have them


@computed
def layer_sensitivity(claim: Claim) -> Measured:
    """The largest norm of one example's contribution to a layer, of the claim's experiment."""
    run = ledger_of(claim.sweep, claim.experiment)[0]
    return Measured(max(group.sensitivity for group in run.mechanism.noise_groups))
