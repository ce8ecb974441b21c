"""`python -m runner.report.leaderboard`: test accuracy of every paper's methods at the same sound epsilons.

Nothing is trained: the numbers are of the records. A setting counts where its delta is at most that of the board and
its runs report on test images; of each of its runs, what it had after the last epoch whose sound epsilon is at most the
one in question. Epochs are not chosen by accuracy. That a longer run may do worse there than one made for this budget
shows in the second table: runs that end at it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from runner.config import REPOSITORY, ConfigError, EvaluationSplit
from runner.data.datasets import Split
from runner.report import plots
from runner.report.evidence import PAPER_SCALE, collect, folder_of
from runner.report.files import Table, bound_text, markdown, number, write_csv, write_text
from runner.report.guarantee import decides, guaranteed
from runner.report.runs import PlannedRun
from runner.report.statistics import Interval, mean_of
from runner.report.summary import summarise
from runner.runs.estimate import without_calibration
from runner.runs.identity import hashed_config, trained
from runner.runs.jobs import Job
from runner.terminal import Parser
from runner.training.instantiation import update_rule_of
from runner.training.prepare import prepare

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILONS = (0.5, 1.0, 2.0, 3.0, 8.0)
DELTA = 1e-5
ADDED = "add-or-remove-one"  # the neighbours of most
HELD_OUT = "held-out"  # a tag of experiments whose settings were chosen on held-out training images
_VARIED = {"experiment", "seed", "target_epsilon"}  # what else a sweep varies makes a search of it
_MADE_FOR = 0.95  # of the budget at least is spent at the end of a run that was made for it
_DRAWN = 6  # methods of a panel
_MARKERS = "osD^vPX*"
COLUMNS = (
    "dataset", "sound_epsilon_at_most", "method", "mean", "std", "low", "high", "n", "planned", "sound_epsilon",
    "neighbours", "made_for_it", "held_out", "chosen_by_test_images", "on_a_part_of_the_test_images", "setting_id",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A setting's accuracies (percent) at a bound on the sound epsilon, one a run that got there.

    sound: the largest sound epsilon spent there; of runs whose end hangs on what they keep, what is guaranteed if they
    are also stopped by the bound. neighbours: for which it holds. made_for_it: whether its runs end there. held_out:
    whether its settings were chosen on held-out images. by_test_images: whether the images reported on chose its
    updates. on_a_part: whether the accuracies are of a part of the test images, the others being taken for public.
    """

    dataset: str
    epsilon: float
    method: str
    setting: str
    accuracies: tuple[float, ...]
    planned: int
    sound: float
    neighbours: str
    made_for_it: bool
    held_out: bool
    by_test_images: bool
    on_a_part: bool

    @property
    def interval(self) -> Interval | None:
        """The 95% interval of the mean; None of a single run."""
        return mean_of(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def mean(self) -> float:
        return sum(self.accuracies) / len(self.accuracies)


def entries(runs: Iterable[PlannedRun], epsilons: Sequence[float] = EPSILONS) -> list[Entry]:
    """Every setting at every bound that one of its runs has an epoch within, the highest mean first."""
    settings: dict[str, dict[int, PlannedRun]] = {}
    held_out: set[str] = set()
    for run in sorted(filter(_counts, runs), key=lambda run: run.record is None):  # a recorded one before its like
        setting = trained(run.job.config)
        settings.setdefault(setting, {}).setdefault(run.seed, run)
        if HELD_OUT in run.job.config.tracking.tags:
            held_out.add(setting)
    found = []
    recorded_of = {s: [run for run in of.values() if run.record is not None] for s, of in settings.items()}
    methods = _methods({setting: recorded[0] for setting, recorded in recorded_of.items() if recorded})
    for setting in methods:
        recorded, planned = recorded_of[setting], len(settings[setting])
        neighbours = prepare(without_calibration(recorded[0].job.config)).mechanism.neighbouring_relation
        for epsilon in epsilons:
            entry = _entry(setting, methods[setting], recorded, planned, epsilon, setting in held_out, neighbours)
            found += [entry] if entry else []
    return sorted(found, key=lambda e: (e.dataset, e.epsilon, -e.mean, e.method))


def _counts(run: PlannedRun) -> bool:
    config = run.job.config
    return set(run.job.overrides) <= _VARIED and config.evaluation is EvaluationSplit.test and run.delta <= DELTA


def _entry(
    setting: str,
    method: str,
    recorded: Sequence[PlannedRun],
    planned: int,
    epsilon: float,
    held_out: bool,
    neighbours: str,
) -> Entry | None:
    reached = []
    for run in recorded:
        within = [epoch for epoch, spent in enumerate(run.history("epsilon_sound")) if spent <= epsilon]
        reached += [(run, within[-1])] if within else []
    if not reached:
        return None
    sound = max(run.history("epsilon_sound")[epoch] for run, epoch in reached)
    if any(decides(run) for run, _ in reached):
        sound = min(epsilon, max(guaranteed(run) for run, _ in reached))
    return Entry(
        dataset=str(recorded[0].job.config.dataset.name),
        epsilon=epsilon,
        method=method,
        setting=setting,
        accuracies=tuple(run.history("test_accuracy")[epoch] for run, epoch in reached),
        planned=planned,
        sound=sound,
        neighbours=neighbours,
        made_for_it=sound >= _MADE_FOR * epsilon and all(epoch == _last(run) for run, epoch in reached),
        held_out=held_out,
        by_test_images=any(_reports_on_what_chose(run) for run, _ in reached),
        on_a_part=_reports_on_a_part(recorded[0]),
    )


def _last(run: PlannedRun) -> int:
    return len(run.history("epoch")) - 1


def _reports_on_what_chose(run: PlannedRun) -> bool:
    """Whether a record says that no image reported on was kept from choosing (see `unscreened_accuracy`)."""
    assert run.record is not None
    return "unscreened_accuracy" in run.record["history"] and all(map(math.isnan, run.history("unscreened_accuracy")))


def _reports_on_a_part(run: PlannedRun) -> bool:
    """Whether the update rule sets a part of the test images aside, so that accuracies are of the others."""
    images = Split(torch.empty(8), torch.empty(8))
    return len(update_rule_of(run.job.config).split(images)[0].targets) < 8


def _methods(firsts: Mapping[str, PlannedRun]) -> dict[str, str]:
    """What to call each setting, given one of its runs: its experiment, and how it differs from others called like it.

    Those of other lengths or learning rates, say: a sweep's own overrides make settings of one experiment.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for setting, run in firsts.items():
        alike.setdefault((str(run.job.config.dataset.name), _method(run.job)), []).append(setting)
    named = {}
    for (_, method), settings in alike.items():
        fields = {setting: _flat(hashed_config(firsts[setting].job.config)) for setting in settings}
        every = dict.fromkeys(name for of in fields.values() for name in of)
        told = [name for name in every if name != "seed" and len({of.get(name) for of in fields.values()}) > 1]
        for setting in settings:
            values = [f"{name}={fields[setting].get(name, 'null')}" for name in told]
            named[setting] = ", ".join([method, *values])
    return named


def _method(job: Job) -> str:
    paper, _, name = job.experiment.partition("/")
    target = job.overrides.get("target_epsilon", "")
    return f"{paper.replace('_', '-')}: {name}" + (f", calibrated to {target}" if target else "")


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """A nested config as dotted names and texts."""
    flat: dict[str, str] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: str(value)}
    return flat


def board(found: Sequence[Entry], title: str) -> str:
    """A Markdown table for each data set: a method a row, a bound a column, the best at the largest bound first."""
    text = f"## {title}\n"
    for dataset in dict.fromkeys(entry.dataset for entry in found):
        of_it = [entry for entry in found if entry.dataset == dataset]
        bounds = sorted({entry.epsilon for entry in of_it})
        cells = {(entry.setting, entry.epsilon): entry for entry in of_it}
        names = {entry.setting: _marked(entry) for entry in of_it}
        ranked = [entry for entry in of_it if _ranked(entry)]
        best = {e: max((entry.mean for entry in ranked if entry.epsilon == e), default=math.inf) for e in bounds}
        order = sorted(names, key=lambda s: [-cells[s, e].mean if (s, e) in cells else 0.0 for e in reversed(bounds)])
        rows = [
            [names[setting], *(_cell(cells.get((setting, e)), best[e], len(of_it)) for e in bounds)]
            for setting in order
        ]
        header = ("method", *(f"sound ε ≤ {e:g}" for e in bounds))
        text += f"\n### {dataset}\n\n{markdown(Table(header, rows))}"
    return text


def _ranked(entry: Entry) -> bool:
    """Whether a mean may be called the highest: of several runs, and none that test images had a part in."""
    return not entry.by_test_images and len(entry.accuracies) > 1


def _marked(entry: Entry) -> str:
    other = {ADDED: "", "zero-out": "⁰", "replace-one": "²"}[entry.neighbours]
    marks = (("‡", entry.held_out), ("†", entry.by_test_images), ("§", entry.on_a_part), (other, bool(other)))
    return " ".join([entry.method, *(mark for mark, holds in marks if holds)])


def _cell(entry: Entry | None, best: float, rivals: int) -> str:
    if entry is None:
        return "–"
    summary, interval = summarise(entry.accuracies), entry.interval
    spread = "" if summary.std is None else f" ± {number(summary.std, '%')}"
    limits = "" if interval is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
    mean = number(entry.mean, "%")
    mean = f"**{mean}**" if entry.mean == best and rivals > 1 else mean
    return f"{mean}{spread} ({len(entry.accuracies)}){limits} at {bound_text(entry.sound)}"


def row(entry: Entry) -> dict[str, Any]:
    """One row of leaderboard.csv (COLUMNS)."""
    summary, interval = summarise(entry.accuracies), entry.interval
    return {
        "dataset": entry.dataset,
        "sound_epsilon_at_most": entry.epsilon,
        "method": entry.method,
        "mean": entry.mean,
        "std": summary.std,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "n": len(entry.accuracies),
        "planned": entry.planned,
        "sound_epsilon": entry.sound,
        "neighbours": entry.neighbours,
        "made_for_it": "yes" if entry.made_for_it else "no",
        "held_out": "yes" if entry.held_out else "no",
        "chosen_by_test_images": "yes" if entry.by_test_images else "no",
        "on_a_part_of_the_test_images": "yes" if entry.on_a_part else "no",
        "setting_id": entry.setting,
    }


def draw(found: Sequence[Entry]) -> Figure:
    """Mean accuracy and its 95% interval against the bound, the best methods of each data set, those ranked first."""
    datasets = list(dict.fromkeys(entry.dataset for entry in found))
    drawn = plots.figure(4.6 * len(datasets), 5.2)
    for axes, dataset in zip(drawn.subplots(1, len(datasets), squeeze=False)[0], datasets, strict=True):
        of_it = [entry for entry in found if entry.dataset == dataset]
        bounds = sorted({entry.epsilon for entry in of_it})
        best = {s: max(e.mean for e in of_it if e.setting == s) for s in dict.fromkeys(e.setting for e in of_it)}
        singles = {e.setting for e in of_it if not _ranked(e)}
        shown = sorted(best, key=lambda setting: (setting in singles, -best[setting]))[:_DRAWN]
        for place, setting in enumerate(shown):
            line = sorted((e for e in of_it if e.setting == setting), key=lambda e: e.epsilon)
            at = [bounds.index(e.epsilon) + 0.08 * (place - len(shown) / 2) for e in line]
            reach = [[e.mean - e.interval.low if e.interval else 0.0 for e in line]] * 2
            marker = _MARKERS[place % len(_MARKERS)]
            axes.errorbar(at, [e.mean for e in line], reach, marker=marker, capsize=2, label=_marked(line[0]))
        axes.set(title=dataset, xticks=range(len(bounds)), xticklabels=[f"{e:g}" for e in bounds], xlabel="sound ε ≤")
        middle = [best[setting] for setting in shown]
        axes.set_ylim(bottom=max(0.0, min(middle) - 12), top=min(100.0, max(middle) + 1))
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))
    drawn.axes[0].set_ylabel("test accuracy (%), mean and 95% interval")
    return drawn


_TEXT = f"""# Leaderboard

Test accuracy in percent: mean ± standard deviation (runs) [95% interval of the mean] at the sound ε spent, with
δ ≤ {DELTA:g}. The sound ε is an upper bound over all that a run released. Of a run that ends where it has kept enough
updates, the number of tries hangs on the data, and with it what they cost: there it is the bound itself, which holds if
the run is also stopped before its tries cost more, or what all the tries that it may make would cost, where that is
less. A single run has no interval. **Bold**: the highest mean of several runs without †, if there is one; where
intervals overlap it may be chance. Settings that differ in their length only are rows of their own.

The ε of rows are not all of one kind: most are for a data set with an example more or less; ⁰ marks those for one whose
example counts as zero, as where batches are shuffled, and ² those for one of as many examples, one of them another. The
same noise has about twice the ε for the last: an ε of ² is a stronger promise than one as large without it.

Settings are the papers' own where they give them, and how a paper chose them is its own affair: most were compared on
test images. What a paper leaves open is ours: [its list of claims](../README.md) says what, and some of that was picked
with the claimed accuracies in view. The Lipschitz paper gives none: its rows' are ours, in part from an exploration
that saw test images. ‡ marks settings chosen here on held-out training images; † marks runs whose updates were chosen
by the very images they report on, which flatters them; § marks accuracies of every second test image, 5,000 of 10,000,
where the others, with their labels, are taken for public (and screen, or not). Rows are in the order of their last
column.

"""


def write(folder: Path, found: Sequence[Entry]) -> list[Path]:
    """Write leaderboard/README.md, leaderboard.csv and the figure below a results folder; returns what was written."""
    place = folder / "leaderboard"
    made = [entry for entry in found if entry.made_for_it]
    text = _TEXT + board(found, "By the last epoch within the budget")
    text += "\n" + board(made, "Runs that end at the budget") if made else ""
    written = [write_text(place / "README.md", text), write_csv(place / "leaderboard.csv", COLUMNS, [*map(row, found)])]
    with plots.style():
        return written + plots.save(draw(found), place)


def planned_runs() -> list[PlannedRun]:
    """Every run that a sweep of any paper plans, and its record where there is one.

    Raises:
        ValueError: a record is damaged.
    """
    sweeps = sorted(
        path.relative_to(REPOSITORY / "sweeps").with_suffix("").as_posix()
        for path in (REPOSITORY / "sweeps").glob("*/*.yaml")
    )
    return [run for runs in collect(sweeps).sweeps.values() for run in runs]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    Parser(prog="python -m runner.report.leaderboard", description=__doc__).parse_args(arguments)
    try:
        found = entries(planned_runs())
        if not found:
            raise ValueError("no run is recorded that a leaderboard could show.")
        for path in write(folder_of(PAPER_SCALE), found):
            print(path)
    except (ValueError, ConfigError) as error:
        print(f"leaderboard: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
