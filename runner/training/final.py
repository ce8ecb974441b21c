"""Final metrics of a run, as in its record."""

from __future__ import annotations

from typing import Any

from runner.training.loop import Trained
from runner.training.run import Run


def final_metrics(run: Run, trained: Trained) -> dict[str, Any]:
    """Return the last epoch's metrics, and separately the best epoch's, chosen on the evaluation split."""
    history = trained.history
    best = max(range(len(history["epoch"])), key=lambda e: history["test_accuracy"][e])
    return {
        **{name: values[-1] for name, values in history.items()},
        **_at_most_steps(run, trained),
        "best_test_accuracy": history["test_accuracy"][best],
        "best_epoch": history["epoch"][best],
        "noise_multiplier": run.mechanism.noise_multiplier,
        "neighbouring_relation": run.mechanism.neighbouring_relation,
        "sampling_rate": float(run.mechanism.sampling_rate),
        "parameters": run.parameters,
    }


def _at_most_steps(run: Run, trained: Trained) -> dict[str, Any]:
    """Return the privacy guarantee of a run whose number of steps depends on the data, else an empty dict.

    A run that ended early is such a run. The data decided its end, by a rule or by a person who watched.
    """
    if not run.rule.takes_back and trained.status == "finished" and trained.history["steps"][-1] == run.most_steps:
        return {}
    return {"max_tries": run.most_steps, "epsilon_sound_at_max_tries": run.epsilon_at_most_steps}
