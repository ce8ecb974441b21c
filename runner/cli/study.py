"""A study of your own methods at the same sound ε: `python -m runner study mine.yaml`.

The file names the arms, which are overrides of any groups. Each arm gets the same number of trials on held-out training
images. Then its best setting is trained with new seeds and reported on test images. The same command goes on after a
stop. The page is in studies/NAME below the results folder.

Exit codes: 0 done, 1 a run failed, 2 the file or a configuration is wrong, 130 interrupted.
"""

import math
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf.errors import OmegaConfBaseException

from runner.build.prepare import check_own, prepare
from runner.claims.claim import dataset_name
from runner.claims.evidence import check_scale, grouped
from runner.claims.intervals import Interval, mean_of
from runner.cli.aggregate import shown
from runner.cli.compare import leaderboard_rows, named_dataset, named_method
from runner.cli.records import verify
from runner.cli.reproduce import add_common, check_data, print_failed, requested
from runner.config import PAPER, REPOSITORY, ConfigError
from runner.config.hydra_errors import sentence
from runner.config.options import search_path
from runner.launch import Tally, Work, run_jobs
from runner.launch.processes import workers
from runner.records.jobs import Job, composed_values
from runner.report import plots
from runner.report.formats import Table, aligned, bound_text, mean_text, write_table_csv
from runner.report.leaderboard.methods import ENTERED, NAMES, read_entrant, standing
from runner.runs import durations
from runner.study.board import board, broken_rules, differences, pack
from runner.study.definition import SEEDS, Arm, Study, combinations_of, read, shortened
from runner.study.outcome import Compared, compared
from runner.study.page import answers, write
from runner.study.progress import Progress, Setting, folder_of, merged, progress_of, settings_of
from runner.study.search import MOST_WIDENED
from runner.terminal import Line, Parser, command, duration
from runner.trust.dp_mechanism import FromDPMechanism
from runner.trust.own_parts import OwnClipping

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILONS = (0.5, 1.0, 2.0, 3.0, 8.0)  # of `pareto`
_CALIBRATED = "target_epsilon={epsilon:g} noise_multiplier=null max_epsilon=null accountant=pld"


def main(arguments: Sequence[str]) -> int:
    return carry_out(arguments)[0]


def carry_out(arguments: Sequence[str]) -> tuple[int, list[Compared]]:
    """Carry a study out as its command line says. Return the exit code, and the arms compared as they are recorded."""
    options = _parser().parse_intermixed_args(arguments)
    check_scale(options.scale)
    entrant = read_entrant(options.file.parent) if options.enter else None
    package = REPOSITORY / "studies" / options.file.name
    ours = package.exists() and options.file.exists() and package.samefile(options.file)
    launcher, overrides = requested(options)
    study, line = read(options.file), Line(at_once=False)
    if package.exists() and not ours:
        raise ConfigError(f"{options.file}: a study of this package has this name, and its page: rename the file.")
    if options.scale != PAPER:
        study = shortened(study)
    study = replace(study, seeds=study.seeds[: options.seeds])
    settings = settings_of(study, options.scale, [*search_path(options.config_dir), *overrides])
    progress = progress_of(study, settings)
    if entrant and (broken := broken_rules(entrant, study, options.scale, progress)):
        raise ConfigError(f"{options.file}: {broken[0]}")
    _check(study, progress, line)
    times = durations.recorded(settings[0].trial({}).config)
    print(_plan(study, progress, options.jobs, times), file=sys.stdout if options.plan else sys.stderr)
    if options.plan:
        return 0, compared(progress)
    tally = Tally()
    # Arms share trials at several ε if the study searches for a front.
    while not (tally.failed or tally.under_way) and (pending := {j.run_id: j for arm in progress for j in arm.next}):
        jobs = list(pending.values())
        check_data(jobs)
        work = Work(jobs, options.jobs, options.threads, durations.estimated(jobs, times))
        tally = run_jobs(launcher, work, line)
        progress = progress_of(study, settings)
    line.clear()
    config_dir = [f"--config-dir={options.config_dir}"] if options.config_dir else []
    scale = [] if options.scale == PAPER else [f"--scale={options.scale}"]
    repeated = command("study", str(options.file), *config_dir, *scale, *options.overrides)
    written = write(study, progress, folder_of(settings), options.scale, repeated)
    if options.scale != PAPER:
        print(f"{options.scale.upper()}: no result. Shrunk runs on stand-in data test the file.")
    arms = compared(progress)
    print("\n".join(answers(study, arms)))
    print(shown(written))
    print_failed(tally.failed)
    if entrant and not (tally.failed or tally.under_way):
        count, check = pack(entrant, progress, folder_of(settings)), command("enter", str(entrant.folder))
        print(f"{count} records are in {entrant.folder / 'runs'}. Check the entry: {check}")
    return (1 if tally.failed else 0), arms


def _check(study: Study, progress: Sequence[Progress], line: Line) -> None:
    """Refuse two arms with the same config and search; prepare all runs planned so far, and try the user's parts."""
    for arms in grouped([arm.setting for arm in progress], lambda setting: setting.pair).values():
        first: dict[tuple[str, str], Setting] = {}
        for setting in arms:
            other = first.setdefault((setting.trial({}).run_id, repr(sorted(setting.search.items()))), setting)
            if other is not setting:
                raise ConfigError(f"{setting.arm.place}: it is the same as {other.arm.name}.")
    tried = set[str]()  # names of arms
    planned = list({job.run_id: (arm.setting, job) for arm in progress for job in arm.next}.values())
    for number, (setting, job) in enumerate(planned, 1):
        line.show(f"checked {number} of {len(planned)} runs ...")
        try:
            run = prepare(job.config)
            if setting.arm.name not in tried:
                tried.add(setting.arm.name)
                check_own(run)
        except ConfigError as error:
            raise ConfigError(f"{setting.arm.place}: {_searched(setting, job)}{error}") from error
        except OmegaConfBaseException as error:
            raise ConfigError(f"{setting.arm.place}: {sentence(error)}") from error
        if run.unsound:
            raise ConfigError(f"{setting.arm.place}: no sound ε is known, so it cannot be compared: {run.unsound}")
        one_epoch = run.sound_epsilon(run.mechanism.charges(run.mechanism.steps_per_epoch))
        if not study.front and (one_epoch is None or one_epoch > setting.epsilon):
            raise ConfigError(f"{setting.arm.place}: one epoch costs more than a sound ε of {setting.epsilon:g}.")
    line.clear()


def _searched(setting: Setting, job: Job) -> str:
    """Return the values of a trial that is refused, if its arm is accepted without them, else ""."""
    try:
        check_own(prepare(setting.trial({}).config))
    except ConfigError:
        return ""
    return "".join(f"search: {name}={job.field(name)}: " for name in setting.search)


def _plan(study: Study, progress: Sequence[Progress], at_once: int | None, times: durations.Durations) -> str:
    """State the numbers of runs, and the time that the missing ones take."""
    searches = [arm for arm in progress if not study.front or arm.setting.epsilon == study.epsilons[0]]
    trials = []
    for arm in progress:
        search = arm.setting.search
        planned = (study.trials or combinations_of(search) or 0) if search else 0
        listed = len(arm.trials) + (len(arm.next) if arm.chosen is None else 0)  # more if its range was widened
        trials.append(max(planned, listed) if arm in searches else 0)
    finals = [len(arm.finals) or len(arm.setting.finals({}, study.seeds)) for arm in progress]
    done = [arm.recorded * (arm in searches) + len(arm.finals.recorded) for arm in progress]
    firsts = [arm.setting.trial({}) for arm in progress]
    seconds = durations.estimated(firsts, times)
    left_of = [(f.run_id, t + n - d) for f, t, n, d in zip(firsts, trials, finals, done, strict=True)]
    estimate = sum(runs * seconds.get(run_id, 0.0) for run_id, runs in left_of)
    unknown = sum(runs for run_id, runs in left_of if run_id not in seconds)
    at_once = at_once or workers(firsts)
    about = f"about {duration(estimate / at_once)} with --jobs {at_once}, on a machine that does nothing else"
    left = [*([about] if estimate else []), *([f"{unknown} runs of unknown time"] if unknown else [])]
    plural = "s" * (len(study.datasets) > 1)
    lines = [
        f"{study.title}: {len(study.arms)} arms, {len(study.datasets)} data set{plural}, {len(study.epsilons)} ε: "
        f"{sum(trials)} trials and {sum(finals)} final runs, {sum(done)} of them recorded.",
        f"Left: {', and '.join(left) or 'nothing'}.",
    ]
    if study.widen and any(arm.setting.search and arm.chosen is None for arm in progress):
        lines.append(f"A best value at the edge of its range gives each arm up to {MOST_WIDENED} further trials.")
    return "\n".join(lines)


def _parser() -> Parser:
    parser = Parser(prog="python -m runner study", description=__doc__)
    parser.add_argument("file", type=Path, help="mine.yaml; docs/extending.md lists its keys")
    parser.add_argument("--plan", action="store_true", help="count the runs and estimate their time; run nothing")
    parser.add_argument("--enter", action="store_true", help="pack the records as an entry: docs/enter.md")
    parser.add_argument("--config-dir", help="the folder of your options, as for a run")
    add_common(parser)
    return parser


def enter(arguments: Sequence[str]) -> int:
    """Check the rules of docs/enter.md, that an entry's records are those of its study, and every ε of them.

    It imports the classes of the entry, so read them before. The exit code is 0 if the entry is in order, and 1 if it
    is not, with a sentence for each reason.
    """
    parser = Parser(prog="python -m runner enter", description=enter.__doc__)
    parser.add_argument("folder", type=Path, help="the folder of the entry: entries/mine")
    parser.add_argument("--smoke", action="store_true", help="also train one seed of each arm at the smoke scale")
    chosen = parser.parse_args(arguments)
    entrant = read_entrant(chosen.folder)
    sys.path.insert(0, str(entrant.folder.resolve()))  # its classes can be imported, whatever the current folder is
    options = entrant.folder / "options"
    extra = ["--config-dir", str(options)] if options.is_dir() else []
    if chosen.smoke and (code := main([str(entrant.study), *extra, "--scale", "smoke", "--seeds", "1"])):
        return code
    study = read(entrant.study)
    root = f"runtime.results_root='{entrant.folder.resolve()}'"
    arms = progress_of(study, settings_of(study, PAPER, [*search_path(extra[1] if extra else None), root]))
    faults = [*broken_rules(entrant, study, PAPER, arms), *differences(entrant, arms)]
    for fault in faults:
        print(f"{entrant.folder}: {fault}")
    if verify([str(entrant.folder), "--fresh"]) or faults:
        return 1
    outcome = compared(arms)
    print("\n".join(answers(study, outcome)))
    print(board(study, outcome).strip())
    for arm in (arm for arm in arms if arm.name == entrant.arm and arm.finals):
        # The noise that was charged, and next to it what the class of a `DPMechanism` states by itself.
        run = prepare(arm.finals[0].job.config)
        print(f"{arm.setting.place}: noise multiplier {run.mechanism.noise_multiplier:.4g}, charged at every step.")
        if isinstance(run.clipping, OwnClipping) and isinstance(part := run.clipping.part, FromDPMechanism):
            first, last = part.stated_noise()
            name = part.mechanism.__qualname__
            print(f"  {name} states {first:.4g} times as much at first and {last:.4g} at last.")
    print(f"{entrant.folder}: the entry {entrant.method!r} is in order. Somebody still has to read its classes.")
    return 0


def pareto(arguments: Sequence[str]) -> int:
    """Train one method at several ε, and draw its accuracy against the sound ε.

    Each ε has the setting with which the method stands on the leaderboard there, or at the nearest ε that it has one
    for. The noise is calibrated to the sound ε. Recorded runs are not trained again. The figure and the table are in
    pareto/ below the results folder.
    """
    parser = Parser(prog="python -m runner pareto", description=pareto.__doc__)
    parser.add_argument("--dataset", required=True, help="mnist, fashion_mnist or cifar10")
    parser.add_argument("--method", required=True, help="a method of the leaderboard: tanh, linear, plain ...")
    add_common(parser)
    options = parser.parse_intermixed_args(arguments)
    check_scale(options.scale)
    dataset, method = named_dataset(options.dataset), named_method(options.method)
    launcher, overrides = requested(options)
    overrides = [*overrides, *([] if options.scale == PAPER else [f"scale={options.scale}"])]
    settings = [_setting(dataset, method, epsilon, overrides) for epsilon in EPSILONS]
    # A study without a search, whose arm has another setting at each epsilon.
    seeds = tuple(range(min(options.seeds or SEEDS, SEEDS)))
    study = Study("pareto", Path(), "", (), (), (), EPSILONS, seeds, widen=False)
    arms = progress_of(study, settings)
    plans, pending = ([run.job for arm in arms for run in arm.finals], [job for arm in arms for job in arm.next])
    for arm in arms:
        epsilon, bound = arm.setting.epsilon, prepare(arm.finals[0].job.config).epsilon_at_most_steps
        if bound is None or bound > epsilon * 1.0001:
            reached = "no ε is proven" if bound is None else f"{bound:.3g} is proven"
            raise ConfigError(f"{method} cannot be calibrated to a sound ε of {epsilon:g}: {reached} for its run.")
    times = durations.estimated(pending, durations.recorded(plans[0].config))
    at_once = options.jobs or workers(plans)
    seconds, unknown = sum(times.values()) / at_once, len(pending) - len(times)
    print(
        f"{method} on {dataset_name(dataset)}: {len(arms)} ε, {len(plans)} runs, {len(pending)} of them to be trained: "
        f"about {duration(seconds)} with --jobs {at_once}{f', and {unknown} runs of unknown time' if unknown else ''}.",
        file=sys.stderr,
    )
    check_data(pending)
    started = time.monotonic()
    tally = run_jobs(launcher, Work(pending, options.jobs, options.threads, times), Line())
    runs = {arm.setting.epsilon: arm.finals for arm in progress_of(study, settings)}
    accuracies = {epsilon: group.finals("test_accuracy") for epsilon, group in runs.items()}
    intervals = {epsilon: mean_of(values) if len(values) > 1 else None for epsilon, values in accuracies.items()}
    rows = []
    for epsilon, values in accuracies.items():
        reached = bound_text(runs[epsilon].largest("epsilon_sound")) if values else ""
        accuracy = mean_text(values, "%") if values else "not run"
        interval = f"[{around.low:.2f}, {around.high:.2f}]" if (around := intervals[epsilon]) else ""
        rows.append([f"{epsilon:g}", reached, accuracy, interval, str(len(values))])
    table = Table(("sound ε", "reached", "test accuracy", "95% interval", "runs"), rows)
    name = re.sub(r"\W+", "_", f"{dataset_name(dataset)} {method}".casefold()).strip("_")
    place = folder_of(settings) / "pareto" / name
    written = [write_table_csv(place / "table.csv", table)]
    with plots.style():
        figure = _figure(dataset, method, accuracies, intervals)
        written += plots.save(figure, place, "" if options.scale == PAPER else options.scale)
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
    words = shlex.split((rows[bounds[0]] or {})["command"])[3:]
    typed = [text for text in words if not re.match(r"(seed|evaluation)=", text)]
    overrides = tuple(merged([*typed, *_CALIBRATED.format(epsilon=epsilon).split(), *extra]))
    arm = Arm(method, (), {}, f"{method} at a sound ε of {epsilon:g}")
    return Setting("pareto", arm, "", epsilon, composed_values(overrides), overrides)


def _figure(
    dataset: str, method: str, accuracies: Mapping[float, Sequence[float]], intervals: Mapping[float, Interval | None]
) -> "Figure":
    figure = plots.figure(5.2, 3.6)
    axes = figure.subplots()
    means = {epsilon: sum(values) / len(values) for epsilon, values in accuracies.items() if values}
    ends = [(around.low, around.high) if (around := intervals[e]) else (mean, mean) for e, mean in means.items()]
    spans = [(mean - low, high - mean) for mean, (low, high) in zip(means.values(), ends, strict=True)]
    style: Any = {"marker": "o", "capsize": 3, "label": method}
    axes.errorbar(list(means), list(means.values()), list(zip(*spans, strict=True)), **style)
    if method != NAMES[0]:
        rows = {bound: standing(leaderboard_rows(), dataset, bound).get(NAMES[0]) for bound in EPSILONS}
        plain = {bound: float(row["mean"]) for bound, row in rows.items() if row}
        axes.plot(list(plain), list(plain.values()), color="0.45", marker="s", linestyle="--", label=NAMES[0])
    plots.log_axis(axes, "x", EPSILONS)
    axes.set(xlabel="sound ε", ylabel="test accuracy (%)")
    axes.set_title(f"{method} on {dataset_name(dataset)}: mean and 95% interval")
    axes.legend()
    return figure
