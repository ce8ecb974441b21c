"""The page of a study: the answer, the arms, their effects, what was chosen, the leaderboard, cost and command."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from runner.claims.evidence import PlannedRun, grouped
from runner.claims.intervals import summarise
from runner.config import PAPER, REPOSITORY, RESULTS
from runner.records.disk import read_record
from runner.records.store import leaves
from runner.report import plots
from runner.report.claim_rows import difference_text
from runner.report.formats import Table, cell, delta_text, markdown, mean_text, write_csv, write_table_csv, write_text
from runner.report.papers import study_files
from runner.report.statements import Sources, stated
from runner.study.board import board, board_of
from runner.study.definition import SEARCH_SEED, Arm, Study, combinations_of, read
from runner.study.figure import draw, draw_front, searched_once
from runner.study.outcome import ALL, LEFT, LESS, SUM, Compared, Effect, Estimate, additions, compared, effects, sums_of
from runner.study.progress import Progress, progress_of, settings_of
from runner.study.search import edges_reached
from runner.terminal import bound_text, duration, number

_TEXT = Path(__file__).with_suffix(".md")
_FRONT = """![Accuracy against ε, as the paper counts it and sound](front/figure.svg)

A point is an epoch of a trial, with its accuracy on held-out images. A line goes through the best at or below each ε,
and diamonds are the mean and the range of final runs on test images. The ε of a point is that of its trial alone, so
nothing in the figure charges for the choice of the best among {trials} trials. [The points of the lines](front.csv)

"""
_SETTINGS = """
## The settings

Chosen by the accuracy on held-out training images (seed {search_seed}). Of equal settings, the first is taken. No test
image that is reported on chose a setting. One seed was searched, and its luck is in no interval.{among}
[All trials](chosen.csv)

{chosen}"""
_ARM = ("data set", "sound ε", "arm")
_POINT = ("dataset", "arm", "epsilon", "epsilon_sound", "accuracy", "epoch", "run_id")
_RUN = ("dataset", "epsilon", "arm", "role", "seed", "accuracy", "epsilon_sound", "epoch", "run_id", "command")
_SAMPLERS = {
    "tpe": "by the tree-structured Parzen estimator, after a first half at random",
    "gp": "by a Gaussian process, after a first half at random",
    "random": "at random",
    "nsga-ii": "by NSGA-II, in generations of a quarter of the trials",
}
_AREA = "the mean, over ε from 0 to {limit:g}, of the best accuracy on held-out images that it has reached within ε"
Known: TypeAlias = "tuple[Study, Sequence[Progress]] | None"


def write(study: Study, arms: Sequence[Progress], folder: Path, scale: str, command: str) -> list[Path]:
    """Write README.md, the tables and the figure of a study into studies/NAME below `folder`, and return the files."""
    # The file's order of ε is that in which they are run.
    arms = sorted(arms, key=lambda arm: (study.datasets.index(arm.setting.dataset), arm.setting.epsilon))
    place, outcomes, measured = folder / "studies" / study.name, compared(arms), effects(study, arms)
    written = [write_csv(place / name, list(rows[0]), rows) for name, rows in _tables(outcomes, measured).items()]
    written += [
        write_table_csv(place / "chosen.csv", _settings_table(arms)),
        write_csv(place / "runs.csv", _RUN, _run_rows(arms)),
    ]
    if study.front:
        written.append(write_csv(place / "front.csv", _POINT, _front_rows(study, arms)))
    finding = (
        stated(study.name, study.finding, sources_of(folder, {study.name: (study, arms)})) if scale == PAPER else ""
    )
    written.append(write_text(place / "README.md", _page(study, outcomes, measured, finding, scale, command)))
    with plots.style():
        front = draw_front(study, arms) if study.front else None
        figures = {place: draw(study, outcomes, measured), place / "front": front}
        for path, fig in figures.items():
            written += plots.save(fig, path, "" if scale == PAPER else scale) if fig else []
    return written


def _tables(outcomes: Sequence[Compared], measured: Sequence[Effect]) -> dict[str, list[dict[str, object]]]:
    """Return the rows of table.csv and, of a factorial, of effects.csv."""
    tables: dict[str, list[dict[str, object]]] = {"table.csv": []}
    for outcome in outcomes:
        (dataset, epsilon, arm), gain = outcome.arm.setting.labels, outcome.gain
        accuracies, interval = [*outcome.arm.accuracies().values()], gain and gain.shown
        summary = summarise(accuracies)
        tables["table.csv"].append(
            {
                "dataset": dataset, "epsilon": epsilon, "arm": arm, "baseline": outcome.baseline,
                "accuracy": summary["mean"], "std": summary["std"], "seeds": len(accuracies),
                "gain": gain and gain.value, "low": interval and interval.low, "high": interval and interval.high,
                "p": outcome.adjusted, "needed": outcome.needed, "answer": outcome.word,
                "trials": len(outcome.arm.trials),
            }
        )  # fmt: skip
    for effect in measured:
        (dataset, epsilon), size = effect.place, effect.estimate
        interval = size and size.shown
        tables.setdefault("effects.csv", []).append(
            {
                "dataset": dataset, "epsilon": epsilon, "parts": effect.name, "effect": size and size.value,
                "low": interval and interval.low, "high": interval and interval.high,
                "p": effect.adjusted, "answer": effect.answer,
            }
        )  # fmt: skip
    return tables


def runs_of_studies(results: Path, record: Path) -> list[dict[str, str]]:
    """Return the rows of a recorded run in this project's studies that have a page, with the name of the `study`.

    Raises:
        ValueError: a record is damaged.
    """
    runs = sources_of(results, epsilons=[read_record(record)["config"].get("target_epsilon")]).runs
    names = (path.stem for path in study_files())
    return [{"study": name, **row} for name in names for row in runs(name) if row["run_id"] == record.stem]


def sources_of(
    folder: Path,
    progress: Mapping[str, Known] = MappingProxyType({}),
    scale: str = PAPER,
    epsilons: Collection[float | None] | None = None,
) -> Sources:
    """Return what statements take their numbers from: claims in a folder, its runs of studies, and the leaderboard.

    A study of this project that has a page is read when it is asked for. `progress`: those that are read already.
    `epsilons`: those at which studies are read; None for all. A study of fronts has one search for all of them.
    """

    @cache
    def study_of(name: str) -> Known:
        if name in progress:
            return progress[name]
        paths = [path for path in study_files() if path.stem == name]
        if not paths or not (folder / "studies" / name / "README.md").exists():
            return None
        study, results = read(paths[0]), folder if scale == PAPER else folder.parent
        if epsilons is not None and not study.front:
            study = replace(study, epsilons=tuple(epsilon for epsilon in study.epsilons if epsilon in epsilons))
        root = [] if results == RESULTS else [f"runtime.results_root={json.dumps(str(results))}"]
        return study, progress_of(study, settings_of(study, scale, root))

    @cache
    def rows(name: str) -> list[dict[str, str]]:
        study, arms = study_of(name) or (None, ())
        tables = _tables(compared(arms), effects(study, arms)).values() if study else ()
        return [{key: cell(value) for key, value in row.items()} for table in tables for row in table]

    @cache
    def runs(name: str) -> list[dict[str, str]]:
        _, arms = study_of(name) or (None, ())
        return [{key: cell(value) for key, value in row.items()} for row in _run_rows(arms)]

    return Sources(folder, rows, runs, lambda: board_of(folder)[0])


def answers(study: Study, arms: Sequence[Compared]) -> list[str]:
    """State the answer on each data set at each epsilon in a sentence: of several arms, of that with the most gain."""
    texts = []
    for group in grouped(arms, lambda arm: arm.arm.setting.pair).values():
        gains = [(arm, arm.gain) for arm in group if arm.gain is not None]
        label = f"- **{group[0].arm.setting.place}**:"
        if not gains:
            texts.append(f"{label} not run yet.")
            continue
        best, gain = max(gains, key=lambda pair: pair[1].value)
        name, first = f"*{best.arm.name}*", f"*{best.baseline}*"
        value, _, interval = _points(gain).partition(" ")
        by = f"{value} points {interval}".rstrip()
        curves = {
            arm.arm.name: {seed: run.history("test_accuracy") for seed, (run, _) in arm.arm.counted().items()}
            for arm in group
        }
        texts += [
            f"{label} *{first_name}* and *{second_name}* have the same accuracy after every epoch under "
            "each seed, as if they had the same weights. What they differ in may not change an update: for example, "
            "the scale of a loss does not where all gradients are clipped alike."
            for first_name, second_name in combinations(curves, 2)
            if len(seeds := curves[first_name].keys() & curves[second_name].keys()) > 1
            and all(curves[first_name][seed] == curves[second_name][seed] for seed in seeds)
        ]
        if len(gains) > 1 and gain.value <= 0:
            texts.append(f"{label} no arm has a higher mean than {first}. The nearest is {name}: {by}.")
        elif not gain.interval:
            texts.append(f"{label} {name} has {by} over {first}, but {best.word}.")
        else:
            words = {"better": "is better than", "worse": "is worse than"}.get(best.word, "is not shown to differ from")
            most = " has the highest mean gain. It" if len(gains) > 1 else ""
            correction = best.word.removeprefix("not decided ")
            after = f" ({correction})" if correction.startswith("after") else ""
            texts.append(f"{label} {name}{most} {words} {first}{after}: {by}, {len(gain.by_seed)} seeds.")
    return texts


def _page(
    study: Study, outcomes: Sequence[Compared], measured: Sequence[Effect], finding: str, scale: str, command: str
) -> str:
    arms = [outcome.arm for outcome in outcomes]
    first, tested = study.baseline, sum(outcome.adjusted is not None for outcome in outcomes)
    table = _table(first, outcomes, tested)
    searched = any(arm.setting.search for arm in arms)
    gains = [outcome.gain for outcome in outcomes if outcome.gain]
    counts = sorted({len(gain.by_seed) for gain in gains})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if any(gain.spread for gain in gains) else ""
    front = figure = sums_text = effects_text = settings_text = ""
    if study.front and any(arm.trials for arm in arms):
        front = _FRONT.format(trials=sum(len(arm.trials) for arm in searched_once(study, arms)))
    if gains:
        what = "each part alone, their sum, and of all together," if study.parts[1:] else "each arm"
        figure = f"![Gain of {what} over {first} under each seed](figure.svg)\n\n"
    if study.parts[1:]:
        sums_text = f"## Do the gains add up?\n\n{markdown(_sums(study, measured))}\n"
        sums_text += f"## What does each part add to another?\n\n{markdown(_additions(study, arms))}\n"
    if study.parts:
        effects_text = f"\n## Effects and interactions\n\n{markdown(_effects(measured))}"
    if searched:
        settings = _settings_table(arms)
        settings_text = _SETTINGS.format(
            search_seed=SEARCH_SEED,
            among=" It is one of the seeds reported, too." if SEARCH_SEED in study.seeds else "",
            chosen=markdown(Table(settings.header[:-1], [row[:-1] for row in settings.rows])),
        )
    return _TEXT.read_text(encoding="utf-8").format(
        title=study.title,
        banner="" if scale == PAPER else f"> **{scale.upper()}: no result.** Shrunk runs on stand-in data.\n\n",
        finding=f"{finding}\n\n" if finding else "",
        answers="\n".join(answers(study, outcomes)),
        first=first,
        front=front,
        intervals="Gains are in points of test accuracy. Square brackets are 95% intervals.\n\n" if tested else "",
        figure=figure,
        remarks="".join(f"- {text}\n" for text in study.remarks) + ("\n" if study.remarks else ""),
        sums=sums_text,
        table=markdown(table),
        seeds=f": the mean of {seeds} seeds, with\n  Student's interval" if seeds else "",
        tests=_tests(tested, any(o.gain and o.gain.spread and not o.decided for o in outcomes)),
        privacy=_privacy(arms),
        search=_search(study, arms)
        if searched
        else "**Nothing was searched.** Each arm has the settings of its overrides.",
        notes="".join(f"- {text}\n" for text in _notes(arms)),
        effects=effects_text,
        configurations=_configurations(study, arms),
        settings=settings_text,
        board=board(study, outcomes) if scale == PAPER else "",
        cost=_cost(arms),
        command=command,
    )


def _privacy(arms: Sequence[Progress]) -> str:
    runs = [run for arm in arms for run, _ in arm.counted().values()]
    text = delta_text(max((run.delta for run in runs), default=1e-5))
    products = [run.delta * size for run in runs if (size := run.field("dataset.train_examples"))]
    if products:
        text += f" (δ·N is at most {bound_text(max(products))} for N training examples)"
    finals = [run.record["final"] for arm in arms for run in arm.finals if run.record]
    relations = sorted({str(final.get("neighbouring_relation")) for final in finals})
    if len(relations) > 1:
        names = ", ".join(relations)
        return f"{text}. **The arms have different neighbouring data sets, so their ε differ: {names}.**"
    return f"{text}. All arms have the same neighbouring data sets{''.join(f' ({name})' for name in relations)}."


def _table(first: str, outcomes: Sequence[Compared], tested: int) -> Table:
    gain = f"gain over {first}" + (" [95%]" if tested else "")
    rows = []
    groups = grouped(outcomes, lambda outcome: outcome.arm.setting.pair).values()
    for outcome in (outcome for group in groups for outcome in group):
        values, answer = list(outcome.arm.accuracies().values()), outcome.word
        accuracy = f"{mean_text(values, '%')} ({len(values)})" if values else "–"
        points = _points(outcome.gain) if outcome.gain else ""
        points += f" over *{outcome.baseline}*" if outcome.arm.setting.arm.over and points else ""
        if outcome.gain and outcome.gain.spread and not outcome.decided:
            needed = f"at most {outcome.needed} seeds needed" if outcome.needed else "1,000 seeds may be too few"
            answer = f"{answer} ({needed})"
        rows.append([*outcome.arm.setting.labels, accuracy, points, answer, str(len(outcome.arm.trials))])
    return Table((*_ARM, "test accuracy (%)", gain, "answer", "trials"), rows)


def _settings_table(arms: Sequence[Progress]) -> Table:
    rows = []
    for arm in arms:
        edges = edges_reached(arm.setting.search, arm.trials) if arm.chosen is not None else {}
        values = [f"{k} = {_plain(v)}{' (at the edge)' if k in edges else ''}" for k, v in (arm.chosen or {}).items()]
        trials = [
            f"{', '.join(map(_plain, trial.values.values()))}: {number(trial.accuracy, '%')}"
            + (f" (stopped after epoch {trial.stopped})" if trial.stopped else "")
            for trial in arm.trials
        ]
        chosen = "not chosen yet" if arm.chosen is None else ", ".join(values) or "nothing to choose"
        rows.append([*arm.setting.labels, chosen, "; ".join(trials)])
    return Table((*_ARM, "chosen", "tried: held-out accuracy (%)"), rows)


def _front_rows(study: Study, arms: Sequence[Progress]) -> list[dict[str, object]]:
    rows = []
    for arm in searched_once(study, arms):
        points = [
            (*point, epoch, run)
            for run in arm.searched
            for epoch, point in enumerate(zip(*map(run.history, ("epsilon_sound", "test_accuracy")), strict=True))
        ]
        best = 0.0
        for sound, accuracy, epoch, run in sorted(points, key=lambda point: (point[0], -point[1])):
            if accuracy > best and sound <= arm.setting.epsilon:
                best, counted = accuracy, run.history("epsilon")[epoch]
                values = (arm.setting.labels[0], arm.name, counted, sound, best, epoch + 1, run.job.run_id)
                rows.append(dict(zip(_POINT, values, strict=True)))
    return rows


def _run_rows(arms: Sequence[Progress]) -> list[dict[str, object]]:
    rows = []
    for arm in arms:
        trials = [(run, "trial", run.last_epoch) for run in arm.searched]
        finals = [(run, "final", epoch) for run, epoch in arm.counted().values()]
        for run, role, epoch in [*trials, *finals]:
            accuracy, sound = (run.history(name)[epoch] for name in ("test_accuracy", "epsilon_sound"))
            values = (*arm.setting.labels, role, run.seed, accuracy, sound, epoch + 1, run.job.run_id)
            rows.append(dict(zip(_RUN, (*values, str(run.field("tracking.command"))), strict=True)))
    return rows


def _tests(number_of: int, needed: bool) -> str:
    """Say what the answers mean for a number of tests, and the numbers of seeds if any are `needed`."""
    if not number_of:
        return "- **Answer.** One seed has no interval, so it cannot tell.\n"
    answer = "zero is outside the interval, at a level of 5%."
    if number_of > 1:
        answer = (
            f"the p-value is at most 5% after Holm's correction for all {number_of} gains here. The probability "
            "that any of these words is wrong by chance is at most 5%, if differences between seeds are normal. The "
            "intervals are not corrected."
        )
    seeds = (
        "- **Seeds.** With the number in brackets, the probability of an answer is 80% or more, if gain and spread are "
        "the measured ones.\n"
    )
    return f"- **Answer.** *Better* and *worse*: {answer}\n" + seeds * needed


def _search(study: Study, arms: Sequence[Progress]) -> str:
    texts = ["**ε excludes the search.** The trials read the same training images, and no ε here charges for them."]
    numbers = sorted({len(arm.trials) for arm in arms})
    most, groups = f"{numbers[0]} to {numbers[-1]}", grouped(arms, lambda arm: arm.setting.pair).values()
    if len(numbers) == 1:
        texts.append(f"Each arm had {numbers[0]} trials.")
    elif all(len({len(arm.trials) for arm in group}) == 1 for group in groups):
        texts.append(f"On the same data set at the same ε each arm had the same number of trials, {most}.")
    else:
        texts.append(f"The arms had different numbers of trials, {most}: see the table.")
    searches = searched_once(study, arms) if study.front else arms
    spaces = [arm.setting.search for arm in searches if arm.setting.search]
    if any(study.trials not in (None, combinations_of(space)) for space in spaces):
        texts.append(f"Optuna suggested them {_SAMPLERS[study.sampler]}.")
    if study.front:
        texts.append(f"What a trial maximises is {_AREA.format(limit=max(study.epsilons))}.")
    if study.prune:
        trials = [trial for arm in searches for trial in arm.trials]
        stopped = sum(trial.stopped is not None for trial in trials)
        texts.append(f"Hyperband stopped {stopped} of {len(trials)} trials that fell behind.")
    return " ".join(texts)


def _notes(arms: Sequence[Progress]) -> list[str]:
    """Say which arms end before their last epoch, which rest on a user's classes, and which diverged."""
    notes = []
    for arm in arms:
        name = f"*{arm.name}* on {arm.setting.labels[0]} at ε = {arm.setting.epsilon:g}"
        counted = arm.counted()
        if any(epoch < run.last_epoch for run, epoch in counted.values()):
            last = max(epoch for _, epoch in counted.values()) + 1
            notes.append(f"**Stopped.** {name} counts with epoch {last}, the last one within ε.")
        if arm.finals.recorded and len(counted) < len(arm.finals.recorded):
            notes.append(f"**Beyond ε.** {name}: no epoch of some runs is within ε, and they do not count.")
        if any(run.updates_chosen_by_all_images for run, _ in counted.values()):
            notes.append(f"**Chosen by test images.** {name}: all images that are reported on chose its updates.")
        if arm.finals.diverged:
            notes.append(f"**Diverged.** {name}: {arm.finals.diverged} of {len(arm.finals.recorded)} runs. They count.")
    believed = {
        (arm.name, text)
        for arm in arms
        for run in arm.finals.recorded
        for text in (run.record or {})["provenance"].get("epsilon_rests_on", ())
    }
    return notes + [f"**Believed.** ε of *{name}* rests on {text}." for name, text in sorted(believed)]


def _effects(measured: Sequence[Effect]) -> Table:
    estimates = [effect for effect in measured if effect.parts]
    shown = [effect for effect in estimates if effect.parts <= 2 or effect.answer.startswith("differs")]
    rows = [[*effect.place, effect.name, _points(effect.estimate), effect.answer] for effect in shown]
    note = (
        "Points of test accuracy [95%]. The effect of one part is the mean of the arms with it, less the mean of those "
        "without. Of two parts it is half of the change in the effect of the one when the other is added: 0 means that "
        f"they add up. Answers are corrected by Holm's procedure for all {len(estimates)} effects."
        + " Those of three parts or more are in effects.csv."
        * (len(shown) < len(estimates))
    )
    return Table(("data set", "sound ε", "parts", "effect [95%]", "answer"), rows, (note,))


def _sums(study: Study, measured: Sequence[Effect]) -> Table:
    rows = []
    for place, sums in sums_of(measured).items():
        ratio, less = sums[LEFT], sums[LESS]
        text = f"{ratio.value:.2f}" if ratio else "–"
        text += f" [{ratio.shown.low:.2f}, {ratio.shown.high:.2f}]" if ratio and ratio.shown else ""
        if less is None:
            answer = "not run"
        elif less.shown is None:
            answer = "one seed cannot tell" if less.interval is None else "seeds that all agree cannot tell"
        elif less.shown.low <= 0 <= less.shown.high:
            answer = "yes, as far as these runs tell"
        else:
            answer = f"no, together they gain {'more' if less.value > 0 else 'less'}"
        rows.append([*place, *(_points(sums[name]) for name in (SUM, ALL, LESS)), answer, text])
    note = (
        f"Points of test accuracy over *{study.arms[0].name}* [95%]. Near 100% a point is harder to gain. The last "
        "column has the measured error of all together, over the error if the shares of errors that each removes alone "
        "multiplied. Above 1, the shares do not add up either. Nothing in this table is corrected for the number of "
        "comparisons."
    )
    return Table(("data set", "sound ε", SUM, ALL, LESS, "do they add up?", "errors left, ratio [95%]"), rows, (note,))


def _additions(study: Study, arms: Sequence[Progress]) -> Table:
    rows = [
        [" at ε = ".join(map(str, r[0].place)), r[0].name, *(_points(effect.estimate) for effect in r)]
        for r in additions(study, arms)
    ]
    starts = (study.arms[0].name, *study.parts)
    note = "Points of test accuracy [95%], under the same seeds, not corrected for the number of comparisons."
    return Table(("data set", "part", *(f"added to {name}" for name in starts)), rows, (note,))


def _cost(arms: Sequence[Progress]) -> str:
    trials = {run.job.run_id: run for arm in arms for run in arm.searched}
    finals = {run.job.run_id: run for arm in arms for run in arm.finals.recorded}
    provenances = [run.record["provenance"] for run in {**trials, **finals}.values() if run.record]
    seconds = [float(p["processor_seconds"]) for p in provenances if "processor_seconds" in p]
    devices = ", ".join(sorted({str(p.get("device")) for p in provenances}))
    pytorch = " and ".join(sorted({str(p.get("versions", {}).get("torch")) for p in provenances}))
    unknown = len(provenances) - len(seconds)
    lacking = f" Runs without this record: {unknown}." if unknown else ""
    runs = f"{len(trials)} trials and {len(finals)} final runs"
    return f"{runs} took {duration(sum(seconds))} of processor time ({devices}, PyTorch {pytorch}).{lacking}"


def _points(gain: Estimate | None) -> str:
    return difference_text(gain.value, "%", gain.shown) if gain else "–"


def _configurations(study: Study, arms: Sequence[Progress]) -> str:
    """List the overrides of every arm; where parts are combined, of the arms with one part at most.

    The updates of the final runs, and where they were trained, are named where these are not the same for all.
    """
    finals = {arm.name: [run for p in arms if p.setting.arm == arm for run in p.finals.recorded] for arm in study.arms}
    runs = [run for group in finals.values() for run in group]
    common = [f"`{' '.join(study.base)}`"] if study.base else []
    lengths = {(run.field("epochs"), run.field("batch_size")) for run in runs}
    if len(lengths) == 1:
        ((epochs, batch),) = lengths
        common += [f"{epochs} epoch{'s' * (epochs != 1)}, {batch:,} examples a batch on average"]
    for field, words in (("clipping.norm", "a clipping norm of"), ("optimizer.momentum", "momentum")):
        values = {leaves(run.job.values).get(field) for run in runs}
        if len(values) == 1 and (value := values.pop()):
            common.append(f"{words} {value:g}")
    lines = [f"All arms: {', '.join(common)}.", ""] if common else []
    alike = len({run.history("steps")[-1] for run in runs}) < 2
    for arm in study.arms:
        if sum(arm.cell) <= 1:
            texts = [f"`{' '.join(arm.overrides)}`" if arm.overrides else "nothing more"]
            texts += _option_numbers(arm, finals[arm.name])
            if finals[arm.name] and not alike:
                steps = sorted({run.history("steps")[-1] for run in finals[arm.name]})
                texts.append(" to ".join(f"{n:,.0f}" for n in dict.fromkeys((steps[0], steps[-1]))) + " updates")
            lines.append(f"- *{arm.name}*: {', '.join(texts)}")
    provenances = [run.record["provenance"] for run in runs if run.record]
    places = Counter(f"{p.get('device')} with PyTorch {p.get('versions', {}).get('torch')}" for p in provenances)
    if len(places) > 1:
        counts = ", ".join(f"{count} on {place}" for place, count in sorted(places.items()))
        lines += ["", f"The final runs are of different machines or versions, which round differently: {counts}."]
    return "\n".join(lines)


def _option_numbers(arm: Arm, runs: Sequence[PlannedRun]) -> list[str]:
    """List the numbers of the options that an arm names, where all its final runs have the same, as `norm 0.1`."""
    names = {text.partition("=")[0] for text in arm.overrides}
    texts = []
    for group in sorted(name for name in names if (REPOSITORY / "conf" / name).is_dir()):
        options = [run.field(group) or {} for run in runs]
        for key, value in (options[0] if options else {}).items():
            shown = not key.startswith("_") and f"{group}.{key}" not in {*names, *arm.search}
            if shown and isinstance(value, int | float) and all(option[key] == value for option in options):
                texts.append(f"{key} {_plain(value)}")
    return texts


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
