"""A study of your own methods at the same sound ε: `python -m runner study mine.yaml`.

The file names the arms, which are overrides of any groups. Each arm gets the same number of trials on held-out training
images. Then its best setting is trained with new seeds and reported on test images. The same command goes on after a
stop. The page is in studies/NAME below the results folder.

Exit codes: 0 done, 1 a run failed, 2 the file or a configuration is wrong, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf.errors import OmegaConfBaseException

from runner.build.prepare import prepare
from runner.build.trial import check_own
from runner.claims.runs import check_scale, grouped
from runner.cli.aggregate import shown
from runner.cli.reproduce import add_common, check_data, print_failed, requested
from runner.config import PAPER, REPOSITORY, ConfigError
from runner.launch import Work, run_jobs
from runner.launch.processes import Tally, workers
from runner.records.hydra_errors import sentence
from runner.records.jobs import Job
from runner.records.options import search_path
from runner.runs import durations
from runner.study.definition import Study, combinations_of, read, shortened
from runner.study.entry import broken_rules, pack, read_entrant
from runner.study.outcome import Compared, compared
from runner.study.page import answers, write
from runner.study.plan import Setting, settings_of
from runner.study.progress import Progress, folder_of, progress_of
from runner.study.search import MOST_WIDENED
from runner.terminal import Line, Parser, command, duration


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
    while not (tally.failed or tally.under_way) and (jobs := _next(progress)):
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


def _next(progress: Sequence[Progress]) -> list[Job]:
    """List what can be run now. Arms share trials at several ε if the study searches for a front."""
    return list({job.run_id: job for arm in progress for job in arm.next}.values())


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
    estimate, unknown = 0.0, 0
    for place, first in enumerate(firsts):
        runs = trials[place] + finals[place] - done[place]
        estimate += runs * seconds.get(first.run_id, 0.0)
        unknown += runs if first.run_id not in seconds else 0
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
