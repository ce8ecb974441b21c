"""The page of a study: the answer, the arms, their effects, what was chosen, the leaderboard, cost and command."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from runner.claims.runs import PlannedRun, grouped
from runner.claims.statistics import summarise
from runner.config import PAPER, REPOSITORY, RESULTS
from runner.records.store import leaves
from runner.report import plots
from runner.report.claim_rows import difference_text
from runner.report.files import Table, cell, delta_text, markdown, mean_text, write_csv, write_table_csv, write_text
from runner.report.papers import study_files
from runner.report.statements import Sources, stated
from runner.study.board import board, board_of
from runner.study.contrasts import Estimate
from runner.study.definition import SEARCH_SEED, Arm, Study, combinations_of, read
from runner.study.figure import draw, draw_front, searched_once
from runner.study.outcome import (
    ALL,
    DIFFERS,
    LESS,
    SUM,
    Compared,
    additions,
    compared,
    effects,
    paired,
    shares,
    sums,
    tests,
)  # fmt: skip
from runner.study.plan import settings_of
from runner.study.progress import Progress, progress_of
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
    place, outcomes, settings = folder / "studies" / study.name, compared(arms), _settings_table(arms)
    written = [write_csv(place / name, list(rows[0]), rows) for name, rows in _tables(study, arms).items()]
    written += [write_table_csv(place / "chosen.csv", settings), write_csv(place / "runs.csv", _RUN, _run_rows(arms))]
    if study.front:
        written.append(write_csv(place / "front.csv", _POINT, _front_rows(study, arms)))
    finding = (
        stated(study.name, study.finding, sources_of(folder, {study.name: (study, arms)})) if scale == PAPER else ""
    )
    written.append(write_text(place / "README.md", _page(study, outcomes, settings, finding, scale, command)))
    with plots.style():
        figures = {place: draw(study, outcomes), place / "front": draw_front(study, arms) if study.front else None}
        for path, fig in figures.items():
            written += plots.save(fig, path, "" if scale == PAPER else scale) if fig else []
    return written


def _tables(study: Study, arms: Sequence[Progress]) -> dict[str, list[dict[str, object]]]:
    """Return the rows of table.csv and, of a factorial, of effects.csv."""
    rows: list[dict[str, object]] = []
    for outcome in compared(arms):
        (dataset, epsilon, arm), (low, high) = outcome.arm.setting.labels, _ends(outcome.gain)
        accuracies = [*outcome.arm.accuracies().values()]
        summary, gain = summarise(accuracies), outcome.gain and outcome.gain.value
        rows.append(
            {
                "dataset": dataset, "epsilon": epsilon, "arm": arm,
                "accuracy": summary["mean"], "std": summary["std"], "seeds": len(accuracies),
                "gain": gain, "low": low, "high": high, "p": outcome.adjusted, "needed": outcome.needed,
                "answer": outcome.word, "trials": len(outcome.arm.trials),
            }
        )  # fmt: skip
    if not study.parts:
        return {"table.csv": rows}
    effect_rows: list[dict[str, object]] = []
    for effect in (*effects(study, arms), *sums(study, arms), *shares(study, arms)):
        (dataset, epsilon), (low, high) = effect.place, _ends(effect.estimate)
        value = effect.estimate and effect.estimate.value
        effect_rows.append(
            {
                "dataset": dataset, "epsilon": epsilon, "parts": effect.name, "effect": value,
                "low": low, "high": high, "p": effect.adjusted, "answer": effect.answer,
            }
        )  # fmt: skip
    return {"table.csv": rows, "effects.csv": effect_rows}


def _ends(estimate: Estimate | None) -> tuple[float | None, float | None]:
    """Return the ends of an interval, which is left out if nothing is known of the spread."""
    if estimate is None or estimate.interval is None or not estimate.spread:
        return None, None
    return estimate.interval.low, estimate.interval.high


def runs_of_studies(results: Path, run_id: str) -> list[dict[str, str]]:
    """Return the rows of a run in this project's studies that have a page, with the name of the `study`."""
    runs = sources_of(results).runs
    names = (path.stem for path in study_files())
    return [{"study": name, **row} for name in names for row in runs(name) if row["run_id"] == run_id]


def sources_of(folder: Path, progress: Mapping[str, Known] = MappingProxyType({}), scale: str = PAPER) -> Sources:
    """Return what statements take their numbers from: claims in a folder, its runs of studies, and the leaderboard.

    A study of this project that has a page is read when it is asked for. `progress`: those that are read already.
    """

    @cache
    def study_of(name: str) -> Known:
        if name in progress:
            return progress[name]
        paths = [path for path in study_files() if path.stem == name]
        if not paths or not (folder / "studies" / name / "README.md").exists():
            return None
        study, results = read(paths[0]), folder if scale == PAPER else folder.parent
        root = [] if results == RESULTS else [f"runtime.results_root={json.dumps(str(results))}"]
        return study, progress_of(study, settings_of(study, scale, root))

    @cache
    def rows(name: str) -> list[dict[str, str]]:
        study = study_of(name)
        return [_texts(row) for table in _tables(*study).values() for row in table] if study else []

    @cache
    def runs(name: str) -> list[dict[str, str]]:
        study = study_of(name)
        return [_texts(row) for row in _run_rows(study[1])] if study else []

    return Sources(folder, rows, runs, lambda: board_of(folder)[0])


def _texts(row: Mapping[str, object]) -> dict[str, str]:
    return {name: cell(value) for name, value in row.items()}


def answers(study: Study, arms: Sequence[Compared]) -> list[str]:
    """State the answer on each data set at each epsilon in a sentence: of several arms, of that with the most gain."""
    texts = []
    first = f"*{study.arms[0].name}*"
    for group in paired(arms).values():
        gains = [(arm, arm.gain) for arm in group if arm.gain is not None]
        label = f"- **{group[0].arm.setting.place}**:"
        if not gains:
            texts.append(f"{label} not run yet.")
            continue
        best, gain = max(gains, key=lambda pair: pair[1].value)
        name = f"*{best.arm.name}*"
        value, _, interval = _points(gain).partition(" ")
        by = f"{value} points {interval}".rstrip()
        texts += [f"{label} {sentence}" for sentence in _alike(group)]
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


def _alike(arms: Sequence[Compared]) -> list[str]:
    """Name arms whose runs have the same accuracy after every epoch under each of two or more common seeds."""
    runs = [(outcome.arm.name, outcome.arm.counted().items()) for outcome in arms]
    curves = [(name, {seed: run.history("test_accuracy") for seed, (run, _) in items}) for name, items in runs]
    return [
        f"*{first}* and *{second}* have the same accuracy after every epoch under each seed, as if they had the same "
        "weights. What they differ in may not change an update: for example, the scale of a loss does not where all "
        "gradients are clipped alike."
        for (first, curve), (second, other) in combinations(curves, 2)
        if len(seeds := curve.keys() & other.keys()) > 1 and all(curve[seed] == other[seed] for seed in seeds)
    ]


def _page(study: Study, outcomes: Sequence[Compared], settings: Table, finding: str, scale: str, command: str) -> str:
    arms = [outcome.arm for outcome in outcomes]
    first, tested = study.arms[0].name, tests(outcomes)
    searched = any(arm.setting.search for arm in arms)
    seeds = max((len(o.gain.by_seed) for o in outcomes if o.gain and o.gain.spread), default=0)
    front = figure = sums_text = effects_text = settings_text = ""
    if study.front and any(arm.trials for arm in arms):
        front = _FRONT.format(trials=sum(len(arm.trials) for arm in searched_once(study, arms)))
    if any(outcome.gain for outcome in outcomes):
        what = "each part alone, their sum, and of all together," if study.parts[1:] else "each arm"
        figure = f"![Gain of {what} over {first} under each seed](figure.svg)\n\n"
    if study.parts[1:]:
        sums_text = f"## Do the gains add up?\n\n{markdown(_sums(study, arms))}\n"
        sums_text += f"## What does each part add to another?\n\n{markdown(_additions(study, arms))}\n"
    if study.parts:
        effects_text = f"\n## Effects and interactions\n\n{markdown(_effects(study, arms))}"
    if searched:
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
        table=markdown(_table(study, outcomes)),
        seeds=f": the mean of {seeds} seeds, with\n  Student's interval" if seeds > 1 else "",
        tests=_tests(tested, any("(" in _answer(outcome) for outcome in outcomes)),
        privacy=_privacy(arms),
        search=_trials(arms) + _method(study, arms)
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
    """State the largest delta, the largest delta N for N training examples if it is known, and the neighbours."""
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


def _table(study: Study, outcomes: Sequence[Compared]) -> Table:
    gain = f"gain over {study.arms[0].name}" + (" [95%]" if tests(outcomes) else "")
    rows = []
    for outcome in (outcome for group in paired(outcomes).values() for outcome in group):
        values = list(outcome.arm.accuracies().values())
        accuracy = f"{mean_text(values, '%')} ({len(values)})" if values else "–"
        points = _points(outcome.gain) if outcome.gain else ""
        rows.append([*outcome.arm.setting.labels, accuracy, points, _answer(outcome), str(len(outcome.arm.trials))])
    return Table((*_ARM, "test accuracy (%)", gain, "answer", "trials"), rows)


def _answer(outcome: Compared) -> str:
    if outcome.gain is None or outcome.decided or not outcome.gain.spread:
        return outcome.word
    needed = f"at most {outcome.needed} seeds needed" if outcome.needed else "1,000 seeds may be too few"
    return f"{outcome.word} ({needed})"


def _settings_table(arms: Sequence[Progress]) -> Table:
    """List what was chosen for each arm, and what was tried."""
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
    """List the epochs of trials on the front of each arm by the sound epsilon."""
    rows = []
    for arm in searched_once(study, arms):
        points = [
            (sound, -accuracy, epoch, run)
            for run in arm.searched
            for epoch, (sound, accuracy) in enumerate(
                zip(run.history("epsilon_sound"), run.history("test_accuracy"), strict=True)
            )
        ]
        best = 0.0
        for sound, negative, epoch, run in sorted(points, key=lambda point: point[:2]):
            if -negative > best and sound <= arm.setting.epsilon:
                best, counted = -negative, run.history("epsilon")[epoch]
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


def _trials(arms: Sequence[Progress]) -> str:
    text = "**ε excludes the search.** The trials read the same training images, and no ε here charges for them."
    numbers = sorted({len(arm.trials) for arm in arms})
    if len(numbers) == 1:
        return f"{text} Each arm had {numbers[0]} trials."
    most = f"{numbers[0]} to {numbers[-1]}"
    groups = grouped(arms, lambda arm: arm.setting.pair).values()
    if all(len({len(arm.trials) for arm in group}) == 1 for group in groups):
        return f"{text} On the same data set at the same ε each arm had the same number of trials, {most}."
    return f"{text} The arms had different numbers of trials, {most}: see the table."


def _method(study: Study, arms: Sequence[Progress]) -> str:
    """Say how trials were suggested, what they were to maximise, and how many were stopped; "" for grids."""
    searches = searched_once(study, arms) if study.front else arms
    spaces = [arm.setting.search for arm in searches if arm.setting.search]
    texts = [""]
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


def _effects(study: Study, arms: Sequence[Progress]) -> Table:
    estimates = effects(study, arms)
    shown = [effect for effect in estimates if effect.parts <= 2 or effect.answer == DIFFERS]
    rows = [[*effect.place, effect.name, _points(effect.estimate), effect.answer] for effect in shown]
    note = (
        "Points of test accuracy [95%]. The effect of one part is the mean of the arms with it, less the mean of those "
        "without. Of two parts it is half of the change in the effect of the one when the other is added: 0 means that "
        f"they add up. Answers are corrected by Holm's procedure for all {len(estimates)} effects."
        + " Those of three parts or more are in effects.csv."
        * (len(shown) < len(estimates))
    )
    return Table(("data set", "sound ε", "parts", "effect [95%]", "answer"), rows, (note,))


def _sums(study: Study, arms: Sequence[Progress]) -> Table:
    """Compare the gain of all parts with the sum of each alone, a row for each data set and epsilon."""
    rows, three = [], iter(sums(study, arms))
    for together, alone, less, left in zip(three, three, three, shares(study, arms), strict=True):
        points = (_points(effect.estimate) for effect in (alone, together, less))
        ratio, ends = left.estimate, left.estimate and left.estimate.interval
        text = f"{ratio.value:.2f}" if ratio else "–"
        text += f" [{ends.low:.2f}, {ends.high:.2f}]" if ends else ""
        rows.append([*together.place, *points, _adds_up(less.estimate), text])
    note = (
        f"Points of test accuracy over *{study.arms[0].name}* [95%]. Near 100% a point is harder to gain. The last "
        "column has the measured error of all together, over the error if the shares of errors that each removes alone "
        "multiplied. Above 1, the shares do not add up either. Nothing in this table is corrected for the number of "
        "comparisons."
    )
    return Table(("data set", "sound ε", SUM, ALL, LESS, "do they add up?", "errors left, ratio [95%]"), rows, (note,))


def _additions(study: Study, arms: Sequence[Progress]) -> Table:
    """Tabulate what each part adds to the first arm and to each other part alone."""
    rows = [
        [" at ε = ".join(map(str, r[0].place)), r[0].name, *(_points(effect.estimate) for effect in r)]
        for r in additions(study, arms)
    ]
    starts = (study.arms[0].name, *study.parts)
    note = "Points of test accuracy [95%], under the same seeds, not corrected for the number of comparisons."
    return Table(("data set", "part", *(f"added to {name}" for name in starts)), rows, (note,))


def _adds_up(less: Estimate | None) -> str:
    if less is None:
        return "not run"
    if less.interval is None:
        return "one seed cannot tell"
    if less.interval.low <= 0 <= less.interval.high:
        return "yes, as far as these runs tell"
    return f"no, together they gain {'more' if less.value > 0 else 'less'}"


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
    """Format a gain with its interval, which is left out if all seeds agree: then nothing is known of the spread."""
    if gain is None:
        return "–"
    return difference_text(gain.value, "%", gain.interval if gain.spread else None)


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
    """Format a value, a number without needless digits."""
    return f"{value:g}" if isinstance(value, float) else str(value)
