"""Whether one example's loss hangs on the others of its batch, where no bound on its gradient bounds its influence."""

from __future__ import annotations

import torch

from runner.build import Run
from runner.config import ConfigError
from runner.seeds import derived_seed

_EXAMPLES = 3


def check_independence(run: Run) -> None:
    """Compare the losses of three made-up examples together and one by one, at the initial weights.

    What draws at random (dropout) is compared in evaluation mode, where it does not. A test on three examples finds
    what couples them in general, such as statistics of the batch, and is no proof: see `Objective` for what is assumed.

    Raises:
        ConfigError: if they differ.
    """
    objective = run.objective
    shape = run.features.shape(run.dataset.shape)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(derived_seed(run.config.seed, "independence"))
        inputs = torch.rand(_EXAMPLES, *shape).to(run.device)
        targets = torch.arange(_EXAMPLES, device=run.device) % run.dataset.classes
        try:
            if not torch.equal(objective(inputs, targets), objective(inputs, targets)):
                objective.eval()
            together = objective(inputs, targets)
            alone = torch.cat([objective(inputs[i : i + 1], targets[i : i + 1]) for i in range(_EXAMPLES)])
        except Exception:  # fails in training as well, where failures are recorded
            return
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise ConfigError(
            "The loss of an example hangs on the others of its batch, by the loss "
            f"{type(objective.loss).__name__} or by the architecture: no ε would hold."
        )
