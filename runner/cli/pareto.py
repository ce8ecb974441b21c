"""Accuracy against the sound ε for one method: `python -m runner pareto --dataset mnist --method tanh`.

Each ε has the setting with which the method stands on the leaderboard there, or at the nearest ε that it has one for.
The noise is calibrated to the sound ε. Recorded runs are not trained again. The figure and the table are in pareto/
below the results folder.

Exit codes: 0 done, 1 a run failed, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from runner.build.prepare import prepare
from runner.claims.claim import dataset_name
from runner.claims.runs import Evidence, Runs, check_scale
from runner.claims.statistics import mean_of
from runner.cli.aggregate import shown
from runner.cli.compare import leaderboard_rows, named_dataset, named_method
from runner.cli.reproduce import add_common, check_data, print_failed, requested
from runner.config import PAPER, ConfigError
from runner.launch import Work, run_jobs
from runner.launch.processes import workers
from runner.records.files import is_recorded, results_folder
from runner.records.jobs import composed_values
from runner.report import plots
from runner.report.files import Table, aligned, bound_text, mean_text, write_table_csv
from runner.report.leaderboard.methods import ENTERED, NAMES, standing
from runner.runs import durations
from runner.study.definition import Arm
from runner.study.plan import Setting, merged
from runner.terminal import Line, Parser, duration

EPSILONS = (0.5, 1.0, 2.0, 3.0, 8.0)
SEEDS = 5
_CALIBRATED = "target_epsilon={epsilon:g} noise_multiplier=null max_epsilon=null accountant=pld"


def main(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m runner pareto", description=__doc__)
    parser.add_argument("--dataset", required=True, help="mnist, fashion_mnist or cifar10")
    parser.add_argument("--method", required=True, help="a method of the leaderboard: tanh, linear, plain ...")
    add_common(parser)
    options = parser.parse_intermixed_args(arguments)
    check_scale(options.scale)
    dataset, method = named_dataset(options.dataset), named_method(options.method)
    launcher, overrides = requested(options)
    overrides = [*overrides, *([] if options.scale == PAPER else [f"scale={options.scale}"])]
    jobs = {
        setting.epsilon: setting.finals({}, range(min(options.seeds or SEEDS, SEEDS)))
        for setting in (_setting(dataset, method, epsilon, overrides) for epsilon in EPSILONS)
    }
    plans = [job for group in jobs.values() for job in group]
    pending = [job for job in plans if not is_recorded(results_folder(job.values), job.run_id)]
    for epsilon, group in jobs.items():
        bound = prepare(group[0].config).epsilon_at_most_steps
        if bound is None or bound > epsilon * 1.0001:
            reached = "no ε is proven" if bound is None else f"{bound:.3g} is proven"
            raise ConfigError(f"{method} cannot be calibrated to a sound ε of {epsilon:g}: {reached} for its run.")
    times = durations.estimated(pending, durations.recorded(plans[0].config))
    at_once = options.jobs or workers(plans)
    seconds, unknown = sum(times.values()) / at_once, len(pending) - len(times)
    print(
        f"{method} on {dataset_name(dataset)}: {len(jobs)} ε, {len(plans)} runs, {len(pending)} of them to be trained: "
        f"about {duration(seconds)} with --jobs {at_once}{f', and {unknown} runs of unknown time' if unknown else ''}.",
        file=sys.stderr,
    )
    check_data(pending)
    started = time.monotonic()
    tally = run_jobs(launcher, Work(pending, options.jobs, options.threads, times), Line())
    place = results_folder(plans[0].values) / "pareto" / f"{_slug(dataset_name(dataset))}_{_slug(method)}"
    evidence = Evidence(options.scale, {}, results_folder(plans[0].values))
    runs = {epsilon: evidence.of(group).recorded for epsilon, group in jobs.items()}
    table = _table(runs)
    written = [write_table_csv(place / "table.csv", table)]
    with plots.style():
        label = "" if options.scale == PAPER else options.scale
        written += plots.save(_figure(dataset, method, runs), place, label)
    print(aligned(table))
    if options.scale != PAPER:
        print(f"{options.scale.upper()}: no result. Shrunk runs on stand-in data.")
    print(f"{len(pending)} runs were trained in {duration(time.monotonic() - started)}.")
    print(shown(written))
    print_failed(tally.failed)
    return 1 if tally.failed else 0


def _setting(dataset: str, method: str, epsilon: float, extra: Sequence[str]) -> Setting:
    """Compose the setting of a method for an epsilon: its own on the leaderboard there, or at the nearest one."""
    rows = {bound: standing(leaderboard_rows(), dataset, bound).get(method) for bound in EPSILONS}
    bounds = sorted((b for b in rows if rows[b]), key=lambda bound: (abs(math.log(bound / epsilon)), bound))
    if not bounds:
        raise ConfigError(f"{method} has no runs on {dataset_name(dataset)} that it could be repeated from.")
    if method in ENTERED.values():
        raise ConfigError(
            f"{method} is an entry: its own study draws it, with the classes in its folder (docs/enter.md)."
        )
    row = rows[bounds[0]] or {}
    typed = [text for text in shlex.split(row["command"])[3:] if not re.match(r"(seed|evaluation)=", text)]
    overrides = tuple(merged([*typed, *_CALIBRATED.format(epsilon=epsilon).split(), *extra]))
    arm = Arm(method, (), {}, f"{method} at a sound ε of {epsilon:g}")
    return Setting("pareto", arm, "", epsilon, composed_values(overrides), overrides)


def _table(runs: Mapping[float, Runs]) -> Table:
    rows = []
    for epsilon, group in runs.items():
        accuracies = [run.final("test_accuracy") for run in group]
        sound = max((run.final("epsilon_sound") for run in group), default=math.nan)
        interval = mean_of(accuracies) if len(accuracies) > 1 else None
        rows.append([
            f"{epsilon:g}",
            bound_text(sound) if group else "",
            mean_text(accuracies, "%") if group else "not run",
            f"[{interval.low:.2f}, {interval.high:.2f}]" if interval else "",
            str(len(accuracies)),
        ])  # fmt: skip
    return Table(("sound ε", "reached", "test accuracy", "95% interval", "runs"), rows)


def _figure(dataset: str, method: str, runs: Mapping[float, Runs]) -> Figure:
    """Draw the mean and its 95% interval at each epsilon, with plain DP-SGD's from the leaderboard."""
    figure = plots.figure(5.2, 3.6)
    axes = figure.subplots()
    measured = {epsilon: [run.final("test_accuracy") for run in group] for epsilon, group in runs.items() if group}
    around = {epsilon: mean_of(values) for epsilon, values in measured.items() if len(values) > 1}
    means = {epsilon: sum(values) / len(values) for epsilon, values in measured.items()}
    spans = [(means[e] - around[e].low, around[e].high - means[e]) if e in around else (0, 0) for e in means]
    axes.errorbar(
        list(means), list(means.values()), list(zip(*spans, strict=True)), marker="o", capsize=3, label=method
    )
    if method != NAMES[0]:
        rows = {bound: standing(leaderboard_rows(), dataset, bound).get(NAMES[0]) for bound in EPSILONS}
        plain = {bound: float(row["mean"]) for bound, row in rows.items() if row}
        axes.plot(list(plain), list(plain.values()), color="0.45", marker="s", linestyle="--", label=NAMES[0])
    plots.log_axis(axes, "x", EPSILONS)
    axes.set_xlabel("sound ε")
    axes.set_ylabel("test accuracy (%)")
    axes.set_title(f"{method} on {dataset_name(dataset)}: mean and 95% interval")
    axes.legend()
    return figure


def _slug(text: str) -> str:
    return re.sub(r"\W+", "_", text.casefold()).strip("_")
