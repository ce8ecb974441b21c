"""Tables of runs and of settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.claims.runs import PlannedRun, Runs, decides
from runner.claims.statistics import summarise

_SPENT = "epsilon_spent"
_APART = ("experiment", "seed")  # columns of their own


def varied(runs: Runs, fields: Sequence[str] = ()) -> list[str]:
    """Name the fields that the sweeps vary, except experiment and seed, then the given config fields."""
    swept = [name for run in runs for name in run.job.overrides if name not in _APART]
    return list(dict.fromkeys([*swept, *fields]))


def runs_table(runs: Runs, fields: Sequence[str] = ()) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and rows of runs.csv: one row for each recorded run, in the order of the sweeps.

    A swept field that is already a column (e.g. `epochs`) is not repeated. The column holds the actual value.

    Accuracies are in percent on the split named by `evaluation`, times in seconds. epsilon_sound covers all possible
    releases, and is infinite where nothing is guaranteed. epsilon_spent is the cost of the steps taken, where no
    guarantee follows from it: a run decided their number itself, or private statistics standardise its images.
    """
    names = varied(runs, fields)
    recorded = {run.job.run_id: run for run in reversed(runs.recorded)}
    ordered = reversed(recorded.values())  # a run in two sweeps has its last place, and its first sweep
    columns = [
        *("run_id", "setting_id", "sweep", "experiment", "seed", *names, "evaluation", "status", "epochs"),
        *("epsilon", "epsilon_sound", *_spent_if_any(runs), "delta", "accuracy_last", "accuracy_best"),
        *("best_epoch", "train_loss", "test_loss", "noise_multiplier", "sampling_rate", "parameters"),
        *("wall_seconds", "examples_per_second", "device", "git_revision", "scale"),
    ]
    return list(dict.fromkeys(columns)), [_run_row(run, names) for run in ordered]


def _spent_if_any(runs: Runs) -> list[str]:
    return [_SPENT] if any(decides(run) if run.record is None else run.has_spent for run in runs) else []


def _run_row(run: PlannedRun, names: Sequence[str]) -> dict[str, Any]:
    record = run.record
    assert record is not None
    return {
        **_setting(run, names),
        "run_id": run.job.run_id,
        "seed": run.seed,
        "status": record["status"],
        "epochs": int(run.final("epoch")),
        **{n: run.final(n) for n in ("epsilon", "train_loss", "test_loss")},
        "epsilon_sound": run.final("epsilon_sound"),
        _SPENT: run.final(_SPENT) if run.has_spent else None,
        "accuracy_last": run.final("test_accuracy"),
        "accuracy_best": run.final("best_test_accuracy"),
        "best_epoch": int(run.final("best_epoch")),
        **{n: record["final"].get(n) for n in ("noise_multiplier", "sampling_rate", "parameters")},
        **{n: record["provenance"].get(n) for n in ("wall_seconds", "examples_per_second", "device", "git_revision")},
    }


def settings_table(runs: Runs, fields: Sequence[str] = ()) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and rows of settings.csv: one row for each setting, recorded or not, with the runs of all sweeps.

    accuracy_* describes the last epoch, and best_epoch_accuracy_* the best epoch, chosen on the same data. The epsilons
    are the largest over the runs.
    """
    names = varied(runs, fields)
    rows = []
    for of_setting in runs.by(lambda run: run.job.setting_id).values():
        planned = Runs({run.job.run_id: run for run in of_setting}.values())
        recorded = planned.recorded
        row = {
            **_setting(planned[0], names),
            "sweep": ", ".join(dict.fromkeys(run.job.sweep for run in of_setting)),
            "n_planned": len(planned),
            "n_recorded": len(recorded),
            "n_diverged": planned.diverged,
            **_summary("accuracy", planned.finals("test_accuracy")),
            **_summary("best_epoch_accuracy", planned.finals("best_test_accuracy")),
        }
        row["epsilon"] = max(planned.finals("epsilon"), default=None)
        row["epsilon_sound"] = max(planned.finals("epsilon_sound"), default=None)
        row[_SPENT] = max((run.final(_SPENT) for run in recorded if run.has_spent), default=None)
        rows.append(row)
    columns = [
        *("setting_id", "sweep", "experiment", *names, "evaluation", "n_planned", "n_recorded", "n_diverged"),
        *(*_summary("accuracy"), *_summary("best_epoch_accuracy")),
        *("epsilon", "epsilon_sound", *_spent_if_any(runs), "delta", "scale"),
    ]
    return list(dict.fromkeys(columns)), rows


def _summary(prefix: str, values: Sequence[float] = ()) -> dict[str, float | None]:
    return {f"{prefix}_{name}": value for name, value in summarise(values).items()}


def _setting(run: PlannedRun, names: Sequence[str]) -> dict[str, Any]:
    return {
        "setting_id": run.job.setting_id,
        "sweep": run.job.sweep,
        "experiment": run.job.experiment,
        **{name: run.field(name) for name in names},
        "evaluation": run.field("evaluation"),
        "delta": run.delta,
        "scale": run.field("scale.name"),
    }
