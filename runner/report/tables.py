"""Tables of runs, of settings, and of the layers of a network."""

from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

from runner.claims.evidence import Evidence, PlannedRun, Runs, decides
from runner.claims.intervals import summarise
from runner.claims.measure import prepared
from runner.claims.verdicts import ClaimRow
from runner.records.jobs import Job
from runner.records.store import leaves
from runner.report.formats import Table

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
_SETTING = {name: attrgetter(f"job.{name}") for name in ("setting_id", "sweep", "experiment")}


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
    columns: dict[str, Callable[[Any], Any]] = {
        "run_id": attrgetter("job.run_id"),
        **_SETTING,
        "seed": attrgetter("seed"),
        **{name: methodcaller("field", name) for name in (*varied(runs, fields), "evaluation")},
        "status": lambda run: run.record["status"],
        "epochs": lambda run: int(run.final("epoch")),
        **{name: methodcaller("final", name) for name in ("epsilon", "epsilon_sound")},
        **({_SPENT: lambda run: run.final(_SPENT) if run.has_spent else None} if _any_spent(runs) else {}),
        "delta": attrgetter("delta"),
        "accuracy_last": methodcaller("final", "test_accuracy"),
        "accuracy_best": methodcaller("final", "best_test_accuracy"),
        "best_epoch": lambda run: int(run.final("best_epoch")),
        **{name: methodcaller("final", name) for name in ("train_loss", "test_loss")},
        **{name: _recorded("final", name) for name in ("noise_multiplier", "sampling_rate", "parameters")},
        **{n: _recorded("provenance", n) for n in ("wall_seconds", "examples_per_second", "device", "git_revision")},
        "scale": methodcaller("field", "scale.name"),
    }
    recorded = {run.job.run_id: run for run in reversed(runs.recorded)}
    shown = reversed(recorded.values())  # a run in two sweeps has its last place, and its first sweep
    return list(columns), [{name: read(run) for name, read in columns.items()} for run in shown]


def _recorded(part: str, name: str) -> Callable[[PlannedRun], Any]:
    return lambda run: None if run.record is None else run.record[part].get(name)


def _any_spent(runs: Runs) -> bool:
    return any(decides(run) if run.record is None else run.has_spent for run in runs)


def settings_table(runs: Runs, fields: Sequence[str] = ()) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and rows of settings.csv: one row for each setting, recorded or not, with the runs of all sweeps.

    accuracy_* describes the last epoch, and best_epoch_accuracy_* the best epoch, chosen on the same data. The epsilons
    are the largest over the runs.
    """
    numbers = {"accuracy": "test_accuracy", "best_epoch_accuracy": "best_test_accuracy"}
    summaries = [f"{prefix}_{name}" for prefix in numbers for name in summarise(())]
    epsilons = ["epsilon", "epsilon_sound", *([_SPENT] if _any_spent(runs) else [])]
    fields_shown = [*_SETTING, *varied(runs, fields), "evaluation"]
    columns = [*fields_shown, "n_planned", "n_recorded", "n_diverged", *summaries, *epsilons, "delta", "scale"]
    rows = []
    for swept in runs.by(lambda run: run.job.setting_id).values():
        planned = Runs({run.job.run_id: run for run in swept}.values())
        row = {name: planned[0].field(name) for name in (*varied(runs, fields), "evaluation")}
        row |= {name: read(planned[0]) for name, read in _SETTING.items()}
        row["sweep"] = ", ".join(dict.fromkeys(run.job.sweep for run in swept))
        row |= {"n_planned": len(planned), "n_recorded": len(planned.recorded), "n_diverged": planned.diverged}
        for prefix, number in numbers.items():
            row |= {f"{prefix}_{name}": value for name, value in summarise(planned.finals(number)).items()}
        row |= {name: max(planned.finals(name), default=None) for name in epsilons[:2]}
        row[_SPENT] = max((run.final(_SPENT) for run in planned.recorded if run.has_spent), default=None)
        rows.append(row | {"delta": planned[0].delta, "scale": planned[0].field("scale.name")})
    return list(dict.fromkeys(columns)), rows


def network_table(sweep: str, experiment: str, _: Evidence, __: Sequence[ClaimRow]) -> Table:
    """Make an item's table: the layers of an experiment's network with output shapes and numbers of parameters."""
    import torch  # here, because plans need no PyTorch

    run = prepared(sweep, experiment)
    rows: list[tuple[str, str, int]] = []
    x = torch.zeros(1, *run.features.shape(run.dataset.shape))
    for layer in (layer for layer in run.initial.network.modules() if not [*layer.children()]):
        x = layer(x)
        shape = " x ".join(map(str, x.shape[1:]))
        rows.append((_layer_text(layer), shape, sum(p.numel() for p in layer.parameters())))
    return Table(("layer", "output", "parameters"), [*rows, ("total", "", run.parameters)])


def _layer_text(layer: "nn.Module") -> str:
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
