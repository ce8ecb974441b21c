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
        **_guarantee(run, trained),
        "best_test_accuracy": history["test_accuracy"][best],
        "best_epoch": history["epoch"][best],
        "noise_multiplier": run.mechanism.noise_multiplier,
        "neighbouring_relation": run.mechanism.neighbouring_relation,
        "sampling_rate": float(run.mechanism.sampling_rate),
        "parameters": run.parameters,
    }


def _guarantee(run: Run, trained: Trained) -> dict[str, Any]:
    """Return the guarantee of a run if it is not the last of the history, and then also what was spent.

    If the number of steps depends on the data, the guarantee is the sound epsilon of `max_tries`, the most that there
    could have been. A run that ended early is such a run. The data decided its end, by a rule or by a person who
    watched.
    """
    history = trained.history
    if trained.status == "finished" and history["steps"][-1] == run.most_steps and not run.decides:
        return {} if "epsilon_sound" in history else {"epsilon_sound": None}
    spent = history[run.cost_column][-1]
    known = {} if spent is None else {"epsilon_spent": spent}
    return {"max_tries": run.most_steps, "epsilon_sound": run.epsilon_at_most_steps, **known}
