"""`python -m runner reproduce <paper>`: every run of a paper's tables and figures, then the tables and figures.

Exit codes: 0 all that was started is recorded, 1 a run failed, 2 the request or a configuration is wrong,
130 interrupted.
"""

import json
import re
import shlex
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from omegaconf import DictConfig

from runner.claims.evidence import check_scale, folder_of, grouped
from runner.config import FIELDS, FRESH, PAPER, YOURS, ConfigError, options_of
from runner.config.fields import Part
from runner.config.options import check_options
from runner.launch import Launcher, Tally, Work, launcher_of, run_jobs
from runner.launch.processes import workers as usual_workers
from runner.launch.slurm import queued_runs
from runner.records.disk import failure_path, is_recorded, progress, record_path, results_folder
from runner.records.identity import check_examples
from runner.records.jobs import Job, sweep_jobs
from runner.report.formats import read_csv, write_csv
from runner.report.papers import Item, Paper, every_paper, load, names_of, paper_names
from runner.runs import durations
from runner.runs.durations import estimated, plan_text, table_of_items
from runner.speed.kernels import kernels_wanted, why_off
from runner.speed.machine import gpus
from runner.terminal import Line, Parser, command, duration, one_line

_KINDS = ("recorded", "running", "queued", "failed", "left")


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_intermixed_args(arguments)
    kernels_wanted()  # refuses an environment that asks for nothing known
    check_scale(options.scale)
    if options.paper is None:
        print(_plan_of_papers(options))
        return 0
    paper = load(options.paper.replace("-", "_"))
    wanted = paper.items if options.items is None else [paper.item(name) for name in names_of(options.items)]
    items = tuple(item for item in paper.items if item in wanted)
    budget = None if options.budget is None else parse_duration(options.budget)
    launcher, overrides = requested(options)
    jobs = _list_jobs(paper, items, (f"scale={options.scale}", *overrides), options.seeds)
    left_out: dict[str, list[Job]] = {}
    if options.items is None and options.scale == PAPER:
        jobs, left_out = paper.split(jobs, _is_done)
    if options.status:
        print(status_text(jobs))
        return 0
    planned = {job.run_id: job for item_jobs in jobs.values() for job in item_jobs}
    first = next(iter(planned.values()), None)
    pending = [job for job in planned.values() if not _is_done(job)]
    if options.plan:
        times = None if first is None else _known_times(first.config, pending, options.record)
        estimates = {} if times is None else estimated(pending, times)
        workers = options.jobs or usual_workers([] if first is None else [first])
        print(plan_text(jobs, {job.run_id for job in pending}, estimates, workers))
        if left_out and times is not None:
            for reason, runs in left_out.items():
                print(f"{durations.unplanned_text(runs, times)}: {reason}")
            print("Naming their items plans them, too (--items; with make: ITEMS).")
        if budget is not None:
            seconds = accumulate(estimates.get(job.run_id, 0.0) for job in ordered(jobs, pending, estimates))
            fitting = sum(total <= budget * workers for total in seconds)
            print(f"Of the {len(pending)} runs left, the first {fitting} fit into a budget of {duration(budget)}.")
        return 0
    check_settings([*([first] if first else []), *pending])  # finds wrong overrides even if all are recorded
    estimates = {} if first is None else estimated(pending, durations.recorded(first.config))
    check_data(pending)

    if done := len(planned) - len(pending):
        yours = sum(record_path(results_folder(job.values), job.run_id).exists() for job in planned.values())
        whose = f" ({yours} by you, the others here)" if options.scale == PAPER and not options.record else ""
        print(f"{done} of {len(planned)} runs are already recorded{whose}.", file=sys.stderr)
    if left_out:
        print(f"{sum(map(len, left_out.values()))} runs are left out: --plan says why.", file=sys.stderr)
    if (why := why_off()) and not gpus():
        print(why, file=sys.stderr)
    deadline = None if budget is None else time.time() + budget
    work = Work(ordered(jobs, pending, estimates), options.jobs, options.threads, estimates, deadline)
    tally = run_jobs(launcher, work, Line())
    if tally.under_way:
        print(f"{len(tally.under_way)} runs go on without this command. How far they are:")
        print(command("reproduce", *arguments, "--status"))
        return 0
    root = Path(first.config.runtime.results_root).expanduser() if first else None
    _conclude(paper, options, items, tally, root)
    return 1 if tally.failed else 0


def parse_duration(text: str) -> float:
    """`90s`, `30m`, `2h`, `1h30m` in seconds. Raises ValueError."""
    match = re.fullmatch(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", text)
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    if hours == minutes == seconds == 0:
        raise ValueError(f"BUDGET={text} is no time to run in: write 90s, 30m, 2h or 1h30m.")
    return 3600.0 * hours + 60 * minutes + seconds


def _parser() -> Parser:
    parser = Parser(prog="python -m runner reproduce", description=__doc__)
    names = ", ".join(name.replace("_", "-") for name in paper_names())
    parser.add_argument("paper", nargs="?", help=f"{names}; without one, --plan has a row for each paper")
    add_common(parser)
    parser.add_argument("--items", help="only these tables and figures: fig-3,table-3")
    parser.add_argument(
        "--status", action="store_true", help="say what is recorded, running, queued, failed; run nothing"
    )
    parser.add_argument("--budget", help="start no run later than this, or known to end later: 30m, 2h, 1h30m")
    parser.add_argument("--plan", action="store_true", help="say what is left and how long it takes; run nothing")
    return parser


def add_common(parser: Parser) -> None:
    """Add the arguments that all commands have that carry runs out."""
    parser.add_argument("--jobs", type=int, help="runs at a time (default: one a CPU core, at most 8; one a GPU)")
    parser.add_argument(
        "--threads", type=int, default=1, help="CPU threads of each run (default: 1, which suits many runs best)"
    )
    parser.add_argument("--scale", default=PAPER, help="paper (default) or smoke")
    parser.add_argument("--seeds", type=int, help="only the first seeds of each setting: 1")
    parser.add_argument(
        "--record", action="store_true", help="into results/, which git tracks; otherwise into results/yours"
    )
    parser.add_argument("--fresh", action="store_true", help="train all again, into results/fresh")
    parser.add_argument(
        "--launcher", default="local", help=f"who carries them out: {', '.join(options_of('launcher'))}"
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        help="Hydra overrides of runtime, tracking and launcher: runtime.results_root=FOLDER runtime.device=cuda",
    )


def requested(options: Namespace) -> tuple[Launcher, list[str]]:
    """Return the launcher of a request, and the overrides of its runs.

    Raises:
        ConfigError: one of the arguments of `add_common` is wrong.
    """
    for name in ("jobs", "threads", "seeds"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise ConfigError(f"Expected --{name} >= 1, got {value}.")
    launcher_options = [text.removeprefix("launcher.") for text in options.overrides if text.startswith("launcher.")]
    overrides = [text for text in options.overrides if not text.startswith("launcher.")]
    allowed = [name for name, field in FIELDS.items() if field.part is Part.machine]
    for override in overrides:
        if override.startswith("scale="):
            raise ConfigError(
                f"Write --scale {shlex.quote(override[6:])} (with make: SCALE={override[6:]}), not {override}."
            )
        if override.partition("=")[0].partition(".")[0] not in allowed:
            raise ConfigError(
                f"OVERRIDES may set {', '.join(allowed)} and launcher, not {override}. The settings are those of "
                f"the paper or the study. Run others with python -m runner."
            )
    check_options(overrides)
    chooses_folder = any(text.startswith("runtime.results_root=") for text in overrides)
    if sum((options.record, options.fresh, chooses_folder)) > 1:
        raise ConfigError("Choose one of --record (RECORD=1), --fresh (FRESH=1) and runtime.results_root=FOLDER.")
    if options.fresh:
        overrides.append(f"runtime.results_root='{FRESH}'")
    elif not (options.record or chooses_folder) and options.scale == PAPER:
        overrides.append(f"runtime.results_root='{YOURS}'")
    return launcher_of(options.launcher, launcher_options), overrides


def print_failed(failed: Iterable[tuple[Job, str]]) -> None:
    """Print a line for each failed run, with the file that has its error."""
    for job, why in failed:
        path = failure_path(results_folder(job.config), job.run_id)
        print(f"failed: {job.sweep} {job.label}: {why} (see {path})", file=sys.stderr)


def _list_jobs(paper: Paper, items: Sequence[Item], extra: Sequence[str], seeds: int | None) -> dict[str, list[Job]]:
    """List the runs of each item, by its name, under further overrides: the first `seeds` seeds of each setting."""
    sweeps, line = dict[str, list[Job]](), Line(at_once=False)
    needs = {item.name: paper.needs(item) for item in items}
    names = list(dict.fromkeys(sweep for needed in needs.values() for sweep in needed))
    try:
        for number, sweep in enumerate(names, 1):
            line.show(f"listing runs: sweep {number} of {len(names)} ...")
            sweeps[sweep] = sweep_jobs(sweep, extra)
    finally:
        line.clear()
    jobs = {}
    for item, needed in needs.items():
        planned = [job for sweep, names in needed.items() for job in sweeps[sweep] if job.experiment in names]
        settings = grouped(planned, lambda job: job.setting_id)
        first = {name: sorted({job.values["seed"] for job in group})[:seeds] for name, group in settings.items()}
        jobs[item] = [job for job in planned if job.values["seed"] in first[job.setting_id]]
    return jobs


def _plan_of_papers(options: Namespace) -> str:
    """Return the table of all papers, by the records of this repository and of the folder of the runs.

    Raises:
        ConfigError: a paper has to be named for what is asked.
    """
    if not options.plan or options.status or options.items is not None or options.budget is not None:
        names = ", ".join(name.replace("_", "-") for name in paper_names())
        raise ConfigError(f"Name a paper ({names}). Without one, only --plan answers, for all items.")
    extra = (f"scale={options.scale}", *requested(options)[1])
    papers = {}
    for paper in every_paper():
        planned = _list_jobs(paper, paper.items, extra, options.seeds)
        if options.scale == PAPER:
            planned, _ = paper.split(planned, _is_done)
        papers[paper.name.replace("_", "-")] = [job for jobs in planned.values() for job in jobs]
    every = [job for jobs in papers.values() for job in jobs]
    times = _known_times(every[0].config, every, options.record)
    return durations.plan_of_papers({n: durations.total_of(jobs, times, _is_done) for n, jobs in papers.items()})


def _is_done(job: Job) -> bool:
    return is_recorded(results_folder(job.values), job.run_id)


def _known_times(config: DictConfig, jobs: Sequence[Job], record: bool) -> durations.Durations:
    """Return the durations of runs, after an epoch of each unknown kind is timed, which --record writes down."""
    times = durations.recorded(config)
    if times.gpu is None:
        timed = durations.time_unknown(jobs, times, Line())
        if timed and record:
            older = read_csv(durations.EPOCHS) if durations.EPOCHS.exists() else []
            newer = [{"like": k, "seconds": f"{s:.3g}", "example": label} for k, (label, s) in timed.items()]
            write_csv(durations.EPOCHS, ["like", "seconds", "example"], [*older, *newer])
    return times


def states(jobs: Sequence[Job]) -> dict[str, tuple[str, str]]:
    """Return the states of runs by run id: one of `_KINDS`, and a text about it. All have the same results folder.

    A run is running while a process holds its claim there. What waits elsewhere than at Slurm is left.
    """
    if not jobs:
        return {}
    root = Path(jobs[0].values["runtime"]["results_root"]).expanduser()
    queued, by_run = queued_runs(root) or {}, dict[str, tuple[str, str]]()
    for job in jobs:
        results, run_id = results_folder(job.values), job.run_id
        if is_recorded(results, run_id):
            by_run[run_id] = "recorded", ""
        elif (epoch := progress(root, run_id)) is not None:
            by_run[run_id] = "running", epoch or "before its first epoch"
        else:
            by_run[run_id] = ("queued", f"Slurm job {queued[run_id]}") if run_id in queued else ("left", "")
            with suppress(OSError, ValueError, KeyError):
                failure = json.loads(failure_path(results, run_id).read_text(encoding="utf-8"))
                by_run[run_id] = "failed", one_line(str(failure["error"]))
    return by_run


def status_text(jobs: Mapping[str, Sequence[Job]]) -> str:
    """Make a table of items by state, and a line for every run that is running or failed."""
    runs: dict[str, Job] = {}
    for job in (job for planned in jobs.values() for job in planned):
        runs.setdefault(job.run_id, job)  # the first of the items that share a run, as `make reproduce` prints it
    by_run = states(list(runs.values()))

    def cells(ids: set[str]) -> str:
        counts = Counter(by_run[run_id][0] for run_id in ids)
        return f"{len(ids):>6}" + "".join(f"{counts[kind]:>10}" for kind in _KINDS)

    lines = table_of_items(f"{'runs':>6}" + "".join(f"{kind:>10}" for kind in _KINDS), jobs, cells)
    unfinished = [
        (kind, job) for kind in ("running", "failed") for job in runs.values() if by_run[job.run_id][0] == kind
    ]
    return "\n".join([*lines, *(f"{k}: {job.sweep} {job.label} · {by_run[job.run_id][1]}" for k, job in unfinished)])


def check_settings(jobs: Sequence[Job]) -> None:
    """Raise ConfigError where a setting cannot be run: seeds of one are wrong together."""
    from runner.build.prepare import check_own, prepare  # here, because plans need no PyTorch

    settings, line = {job.setting_id: job for job in jobs}, Line()
    for number, job in enumerate(settings.values(), 1):
        try:
            check_own(prepare(job.config))
        except ConfigError as error:
            raise ConfigError(f"{job.sweep} {job.label}: {error}") from error
        line.show(f"checked {number} of {len(settings)} settings ...")


def check_data(pending: Sequence[Job]) -> None:
    """Raise DataError where a run's images cannot be read: once, and before any run starts.

    A user's data set that gives other images than before is a ConfigError.
    """
    from runner.build.groups import Group
    from runner.build.parts import build_dataset

    for job in {str(job.values["dataset"]): job for job in pending}.values():
        dataset = build_dataset(Group(job.config, "dataset"), job.config)
        dataset.load(job.config.runtime.data_root)
        check_examples(job.config, results_folder(job.config), dataset)


def ordered(jobs: Mapping[str, Sequence[Job]], pending: Sequence[Job], estimates: Mapping[str, float]) -> list[Job]:
    """Order the runs that are left: headline items first, and within an item the cheapest further evidence first.

    The k-th run of an experiment is ranked by k times its time. So ten runs of an hour do not wait for one of ten
    hours. Nor does a second experiment wait for the last seed of the first. Runs of unknown time come last, ranked by
    k.
    """
    left = {job.run_id for job in pending}
    ordered: dict[str, Job] = {}
    for planned in jobs.values():
        repetitions, ranked = Counter[str](), list[tuple[bool, float, Job]]()
        for job in planned:
            repetitions[job.experiment] += 1
            seconds = estimates.get(job.run_id)
            ranked.append((seconds is None, repetitions[job.experiment] * (seconds or 1.0), job))
        for _, _, job in sorted(ranked, key=lambda rank: rank[:2]):
            if job.run_id in left:
                ordered.setdefault(job.run_id, job)
    return list(ordered.values())


def _conclude(paper: Paper, options: Namespace, items: tuple[Item, ...], tally: Tally, root: Path | None) -> None:
    from runner.cli.aggregate import aggregate, compared_text, shown
    from runner.report import pages

    names = [item.name for item in items]
    paths = aggregate(paper.name, options.scale, None if options.items is None else names, root)
    if root in (YOURS, FRESH):
        print(compared_text(paper.name, names if options.items else names[:1], root))
    else:
        print(pages.headline(paper.name, options.scale, folder_of(options.scale, root), names[:1]))
    print(shown([path for path in paths if path.parent.name in names]))
    print_failed(tally.failed)
    if tally.not_started:
        print(
            f"{len(tally.not_started)} runs were not started: BUDGET was over, or would have been before their end.",
            file=sys.stderr,
        )
