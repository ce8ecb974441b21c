"""Tables of runs and of settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.claims.guarantee import decides, guaranteed
from runner.claims.runs import PlannedRun, Runs
from runner.claims.summary import summarise

_GUARANTEED = "epsilon_sound_guaranteed"
_APART = ("experiment", "seed")  # columns of their own


def varied(runs: Runs, fields: Sequence[str] = ()) -> list[str]:
    """Names of what the sweeps vary beside experiment and seed, then of the config fields asked for."""
    swept = [name for run in runs for name in run.job.overrides if name not in _APART]
    return list(dict.fromkeys([*swept, *fields]))


def runs_table(runs: Runs, fields: Sequence[str] = ()) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and rows of runs.csv: one row a recorded run, in the order of the sweeps. What a sweep varies that is a
    column anyway (epochs, say, of which there may be fewer than were asked for) is that one.

    Accuracies are in percent on the split named by `evaluation`, times in seconds. epsilon_sound charges all that was
    released; where runs decide themselves how much that is, epsilon_sound_guaranteed is what holds.
    """
    names = varied(runs, fields)
    recorded = {run.job.run_id: run for run in reversed(runs.recorded)}
    ordered = list(reversed(recorded.values()))  # where two sweeps list a run, its first place is kept
    rows = [_run_row(run, names) for run in ordered]
    columns = [
        "run_id",
        "setting_id",
        "sweep",
        "experiment",
        "seed",
        *names,
        "evaluation",
        "status",
        "epochs",
    ]
    columns += [
        "epsilon",
        "epsilon_sound",
        *([_GUARANTEED] if any(decides(run) for run in runs) else ()),
        "delta",
        "accuracy_last",
        "accuracy_best",
        "best_epoch",
        "train_loss",
        "test_loss",
    ]
    columns += [
        "noise_multiplier",
        "sampling_rate",
        "parameters",
        "wall_seconds",
        "examples_per_second",
        "device",
    ]
    return list(dict.fromkeys([*columns, "git_revision", "scale"])), rows


def _run_row(run: PlannedRun, names: Sequence[str]) -> dict[str, Any]:
    record = run.record
    assert record is not None
    return {
        **_setting(run, names),
        "run_id": run.job.run_id,
        "seed": run.seed,
        "status": record["status"],
        "epochs": int(run.final("epoch")),
        **{n: run.final(n) for n in ("epsilon", "epsilon_sound", "train_loss", "test_loss")},
        "accuracy_last": run.final("test_accuracy"),
        "accuracy_best": run.final("best_test_accuracy"),
        "best_epoch": int(run.final("best_epoch")),
        **{n: record["final"].get(n) for n in ("noise_multiplier", "sampling_rate", "parameters")},
        _GUARANTEED: guaranteed(run) if decides(run) else None,
        **{n: record["provenance"].get(n) for n in ("wall_seconds", "examples_per_second", "device", "git_revision")},
    }


def settings_table(runs: Runs, fields: Sequence[str] = ()) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and rows of settings.csv: one row a setting of a sweep, those without a record included.

    accuracy_* is of the last epoch; best_epoch_accuracy_* of the best epoch, chosen on the same data. The
    epsilons are the largest over the runs.
    """
    names = varied(runs, fields)
    rows = []
    for planned in runs.by(lambda run: (run.job.sweep, run.job.setting_id)).values():
        recorded = planned.recorded
        row = {
            **_setting(planned[0], names),
            "n_planned": len(planned),
            "n_recorded": len(recorded),
            "n_diverged": planned.diverged,
            **summarise(planned.finals("test_accuracy")).columns("accuracy"),
            **summarise(planned.finals("best_test_accuracy")).columns("best_epoch_accuracy"),
        }
        for name in ("epsilon", "epsilon_sound"):
            row[name] = max(planned.finals(name), default=None)
        row[_GUARANTEED] = max((guaranteed(run) for run in recorded if decides(run)), default=None)
        rows.append(row)
    columns = [
        "setting_id",
        "sweep",
        "experiment",
        *names,
        "evaluation",
        "n_planned",
        "n_recorded",
        "n_diverged",
    ]
    columns += [*summarise([]).columns("accuracy"), *summarise([]).columns("best_epoch_accuracy")]
    columns += ["epsilon", "epsilon_sound", *([_GUARANTEED] if any(decides(run) for run in runs) else ())]
    return list(dict.fromkeys([*columns, "delta", "scale"])), rows


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
