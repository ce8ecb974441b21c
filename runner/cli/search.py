"""A search over the fields that a sweep draws, by Optuna, with Hyperband stopping: `python -m runner search SWEEP`.

The sweep's own draws come first, then suggestions. A trial is a run with an ordinary record. Recorded trials are not
run again, so the same command resumes an interrupted search. Trials are judged on held-out training images.

Exit codes: 0 done, 1 a trial failed, 2 the request or a configuration is wrong, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.cli.reproduce import add_common, check_settings, print_failed, requested
from runner.config import PAPER, ConfigError
from runner.launch import Work, run_jobs
from runner.records.files import results_folder
from runner.search import RETRAINED, Space, Trial, best, curve, pareto, space_of, trials_of
from runner.search.carry_out import carry_out
from runner.search.study import DRAWS, study_of
from runner.terminal import Line, Parser, bound_text, command, number


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_intermixed_args(arguments)
    for name in ("trials", "draws", "retrain"):
        if getattr(options, name) < 0:
            raise ConfigError(f"Expected --{name} >= 0, got {getattr(options, name)}.")
    if not options.epsilon > 0:
        raise ConfigError(f"Expected --epsilon > 0, got {options.epsilon}.")
    launcher, overrides = requested(options)
    if not getattr(launcher, "wait", True):
        raise ConfigError("A search has to wait for its trials: do not set launcher.wait=false.")
    space = space_of(options.sweep, (f"scale={options.scale}", *overrides))
    check_settings(space.draws[: options.draws or 1])
    folder, line = results_folder(space.draws[0].config), Line()
    with study_of(space, folder, options.epsilon, options.draws) as study:
        failed = carry_out(study, options.trials, launcher, line, at_once=options.jobs, threads=options.threads)
    trials = trials_of(space, folder)
    chosen = best(trials, options.epsilon)
    print(_summary(space, trials, chosen, options.epsilon, overrides))
    if options.retrain and chosen is not None:
        again = space.retrained(chosen.values, options.retrain)
        failed += run_jobs(launcher, Work(again, options.jobs, options.threads), line).failed
    print_failed(failed)
    return 1 if failed else 0


def _summary(space: Space, trials: list[Trial], chosen: Trial | None, budget: float, overrides: Sequence[str]) -> str:
    """Summarise a search: the Pareto front of all epochs, the number of trials, and the command to train the best."""
    lines = [f"{'sound ε':>10}  accuracy (%) on held-out images: the front of every epoch of every trial"]
    lines += [f"{bound_text(epsilon):>10}  {number(value, '%')}" for epsilon, value in pareto(map(curve, trials))]
    stopped = sum(trial.stopped for trial in trials)
    lines.append(f"{len(trials)} trials, {stopped} of them stopped before their last epoch")
    if chosen is None:
        return "\n".join([*lines, f"No whole trial has an epoch at a sound ε of {budget:g} or less."])
    lines.append(f"best at a sound ε of {budget:g}: {number(chosen.accuracy_within(budget), '%')}%, {chosen.run_id}")
    values = [f"{name}={value:g}" for name, value in chosen.values.items()]
    scale = [f"scale={name}" for name in [space.composed.scale.name] if name != PAPER]
    lines.append(
        command(f"experiment={space.draws[0].experiment}", *values, "evaluation=test", "seed=1", *scale, *overrides)
    )
    lines.append(f"(trains all epochs: what was chosen is the last one at a sound ε of {budget:g} or less)")
    return "\n".join(lines)


def _parser() -> Parser:
    parser = Parser(prog="python -m runner search", description=__doc__)
    parser.add_argument("sweep", help="one that varies draw: lipschitz/fig_5a_search")
    parser.add_argument("--trials", type=int, default=40, help="in all, those recorded before included (default: 40)")
    parser.add_argument("--epsilon", type=float, default=3.0, help="the sound ε that trials are judged at (default: 3)")
    parser.add_argument("--draws", type=int, default=DRAWS, help=f"random ones, which come first (default: {DRAWS})")
    parser.add_argument(
        "--retrain", type=int, default=0, metavar="SEEDS",
        help=f"then train the best one with this number of other seeds, on all training images, and report on test "
        f"images (the figures show {RETRAINED})",
    )  # fmt: skip
    add_common(parser, jobs=1)
    return parser
