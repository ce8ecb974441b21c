"""Tables of runs, of settings, and of the layers of a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from runner.claims.formulas import prepared
from runner.claims.runs import Evidence, PlannedRun, Runs, decides
from runner.claims.statistics import summarise
from runner.claims.verdicts import ClaimRow
from runner.records.jobs import Job
from runner.records.store import leaves
from runner.report.files import Table

if TYPE_CHECKING:
    from torch import nn

SETTING = {  # columns of the settings on a page, and the fields of a config that they show
    "batch size": ("batch_size",),
    "epochs": ("epochs",),
    "noise multiplier": ("noise_multiplier",),
    "clipping norm": ("clipping.norm", "clipping.input_norm", "clipping.gradient_norm"),
    "learning rate": ("optimizer.lr",),
}
_SPENT = "epsilon_spent"


def setting_cells(job: Job) -> dict[str, str]:
    """Return the texts of a job's setting by the columns of SETTING; "–" where its config has no such field.

    A learning rate has the momentum behind it, unless that is 0.

    >>> from runner.records.jobs import sweep_jobs
    >>> setting_cells(sweep_jobs("losing_less/fig_3_mnist")[0])["learning rate"]
    '0.5'
    """
    config = leaves(job.values)
    cells = {
        name: " and ".join(setting_text(config[field]) for field in fields if field in config) or "–"
        for name, fields in SETTING.items()
    }
    if momentum := config.get("optimizer.momentum"):
        cells["learning rate"] += f" (momentum {setting_text(momentum)})"
    return cells


def setting_text(value: object) -> str:
    """Format a value of a config. A noise multiplier of None is calibrated to the budget."""
    return "calibrated" if value is None else f"{value:g}" if isinstance(value, (int, float)) else str(value)


def varied(runs: Runs, fields: Sequence[str] = ()) -> list[str]:
    """Name the fields that the sweeps vary, except experiment and seed, then the given config fields."""
    swept = [name for run in runs for name in run.job.overrides if name not in ("experiment", "seed")]
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
    rows = []
    for run in reversed(recorded.values()):  # a run in two sweeps has its last place, and its first sweep
        record = run.record
        assert record is not None
        final, provenance = record["final"], record["provenance"]
        rows.append(
            {
                **_setting(run, names),
                "run_id": run.job.run_id,
                "seed": run.seed,
                "status": record["status"],
                "epochs": int(run.final("epoch")),
                **{name: run.final(name) for name in ("epsilon", "train_loss", "test_loss", "epsilon_sound")},
                _SPENT: run.final(_SPENT) if run.has_spent else None,
                "accuracy_last": run.final("test_accuracy"),
                "accuracy_best": run.final("best_test_accuracy"),
                "best_epoch": int(run.final("best_epoch")),
                **{name: final.get(name) for name in ("noise_multiplier", "sampling_rate", "parameters")},
                **{n: provenance.get(n) for n in ("wall_seconds", "examples_per_second", "device", "git_revision")},
            }
        )
    columns = [
        *("run_id", "setting_id", "sweep", "experiment", "seed", *names, "evaluation", "status", "epochs"),
        *("epsilon", "epsilon_sound", *_spent_if_any(runs), "delta", "accuracy_last", "accuracy_best"),
        *("best_epoch", "train_loss", "test_loss", "noise_multiplier", "sampling_rate", "parameters"),
        *("wall_seconds", "examples_per_second", "device", "git_revision", "scale"),
    ]
    return list(dict.fromkeys(columns)), rows


def _spent_if_any(runs: Runs) -> list[str]:
    return [_SPENT] if any(decides(run) if run.record is None else run.has_spent for run in runs) else []


def settings_table(runs: Runs, fields: Sequence[str] = ()) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and rows of settings.csv: one row for each setting, recorded or not, with the runs of all sweeps.

    accuracy_* describes the last epoch, and best_epoch_accuracy_* the best epoch, chosen on the same data. The epsilons
    are the largest over the runs.
    """
    names = varied(runs, fields)
    rows = []
    for swept in runs.by(lambda run: run.job.setting_id).values():
        planned = Runs({run.job.run_id: run for run in swept}.values())
        recorded = planned.recorded
        rows.append(
            {
                **_setting(planned[0], names),
                "sweep": ", ".join(dict.fromkeys(run.job.sweep for run in swept)),
                "n_planned": len(planned),
                "n_recorded": len(recorded),
                "n_diverged": planned.diverged,
                **_summary("accuracy", planned.finals("test_accuracy")),
                **_summary("best_epoch_accuracy", planned.finals("best_test_accuracy")),
                **{name: max(planned.finals(name), default=None) for name in ("epsilon", "epsilon_sound")},
                _SPENT: max((run.final(_SPENT) for run in recorded if run.has_spent), default=None),
            }
        )
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
        **{name: run.field(name) for name in (*names, "evaluation")},
        "delta": run.delta,
        "scale": run.field("scale.name"),
    }


def network_table(sweep: str, experiment: str, note: str, _: Evidence, __: Sequence[ClaimRow]) -> Table:
    """Make an item's table: the layers of an experiment's network with output shapes and numbers of parameters."""
    import torch  # here, because plans need no PyTorch

    run = prepared(sweep, experiment)
    rows: list[tuple[str, str, int]] = []
    x = torch.zeros(1, *run.features.shape(run.dataset.shape))
    for layer in _flat(run.initial.network):
        x = layer(x)
        shape = " x ".join(map(str, x.shape[1:]))
        rows.append((_layer_text(layer), shape, sum(p.numel() for p in layer.parameters())))
    return Table(("layer", "output", "parameters"), [*rows, ("total", "", run.parameters)], (note,))


def _flat(network: nn.Module) -> Iterator[nn.Module]:
    from torch import nn

    for layer in network.children():
        if isinstance(layer, nn.Sequential):
            yield from _flat(layer)
        else:
            yield layer


def _layer_text(layer: nn.Module) -> str:
    from torch import nn

    match layer:
        case nn.Conv2d():
            (height, width), stride, padding = layer.kernel_size, layer.stride[0], layer.padding[0]
            filters = f"{layer.out_channels} filters of {height}x{width}"
            return f"convolution, {filters}, stride {stride}, padding {padding}"
        case nn.MaxPool2d() | nn.AvgPool2d():
            kind = "max" if isinstance(layer, nn.MaxPool2d) else "average"
            return f"{kind}-pooling {layer.kernel_size}x{layer.kernel_size}, stride {layer.stride}"
        case nn.AdaptiveAvgPool2d():
            return "mean over space"
        case nn.Linear():
            return f"fully connected, {layer.out_features} units"
        case nn.GroupNorm():
            return f"group normalisation, {layer.num_groups} groups"
    return type(layer).__name__.lower()
