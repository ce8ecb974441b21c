"""The page of a study: the answer, the arms, their effects, what was chosen, the leaderboard, cost and command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from runner.claims.runs import PlannedRun
from runner.claims.statistics import summarise
from runner.config import PAPER, RESULTS
from runner.report import plots
from runner.report.cells import difference_text
from runner.report.files import Table, cell, delta_text, markdown, mean_text, write_csv, write_table_csv, write_text
from runner.report.statements import Sources, stated
from runner.report.studies import study_files
from runner.study.board import board, board_of
from runner.study.configurations import configurations, plain
from runner.study.contrasts import Estimate
from runner.study.definition import SEARCH_SEED, Study, combinations_of
from runner.study.figure import draw, draw_front, searched_once
from runner.study.file import read
from runner.study.outcome import (
    ALL,
    DIFFERS,
    LESS,
    SUM,
    Compared,
    Effect,
    by_pair,
    compared,
    effects,
    shares,
    sums,
    tests,
)
from runner.study.plan import settings_of
from runner.study.progress import Progress, progress_of
from runner.study.search import at_edge
from runner.terminal import bound_text, duration, number

_TEXT = """# {title}

{banner}{finding}{answers}

{front}{intervals}{figure}{remarks}{sums}## The arms

{table}
- **Gain.** Test accuracy minus that of *{first}* under the same seed, in points{seeds}.
{tests}- **Privacy.** ε is sound: a proven upper bound for one final run, at {delta}. {neighbours}
- {search}
{notes}{effects}
## The configurations

{configurations}
{settings}{board}
## The cost

{cost}

```console
$ {command}
```

The same command goes on after a stop, and trains nothing again that is recorded. [Every run](runs.csv)
"""
_SEARCH = (
    "**ε excludes the search.** The trials read the same training images, and no ε here charges for them. {trials}"
)
_FRONT = """![Accuracy against ε, as the paper counts it and sound](front/figure.svg)

A point is an epoch of a trial, with its accuracy on held-out images. A line goes through the best at or below each ε,
and diamonds are the mean and the range of final runs on test images. The ε of a point is that of its trial alone, so
nothing in the figure charges for the choice of the best among {trials} trials. [The points of the lines](front.csv)

"""
_NO_SEARCH = "**Nothing was searched.** Each arm has the settings of its overrides."
_SETTINGS = """
## The settings

Chosen by the accuracy on held-out training images (seed {search_seed}). Of equal settings, the first is taken. No test
image that is reported on chose a setting. One seed was searched, and its luck is in no interval.{among}
[All trials](chosen.csv)

{chosen}"""
_FIGURE = "![Gain of {what} over {first} under each seed](figure.svg)\n\n"
_INTERVALS = "Gains are in points of test accuracy. Square brackets are 95% intervals.\n\n"
_NAMED = ("data set", "sound ε", "arm")
Known: TypeAlias = "tuple[Study, Sequence[Progress]] | None"
_PARTS = "each part alone, their sum, and of all together,"


def write(study: Study, arms: Sequence[Progress], folder: Path, scale: str, command: str) -> list[Path]:
    """Write README.md, the tables and the figure of a study into studies/NAME below `folder`, and return the files.

    The page gives the `command`, which repeats the study.
    """
    place, compared_arms = folder / "studies" / study.name, compared(arms)
    chosen, tables = _chosen(arms), _tables(study, arms)
    written = [write_csv(place / name, list(rows[0]), rows) for name, rows in tables.items()]
    written += [
        write_table_csv(place / "chosen.csv", chosen),
        write_csv(place / "runs.csv", _RUN, _runs(arms)),
    ]
    if study.front:
        written.append(write_csv(place / "front.csv", _POINT, _front_rows(study, arms)))
    finding = (
        "" if scale != PAPER else stated(study.name, study.finding, sources_of(folder, {study.name: (study, arms)}))
    )
    written.append(write_text(place / "README.md", _page(study, compared_arms, chosen, finding, scale, command)))
    with plots.style():
        figures = {place: draw(study, compared_arms), place / "front": draw_front(study, arms) if study.front else None}
        label = "" if scale == PAPER else scale
        return written + [
            path for folder, drawn in figures.items() if drawn for path in plots.save(drawn, folder, label)
        ]


def _tables(study: Study, arms: Sequence[Progress]) -> dict[str, list[dict[str, object]]]:
    """Return the rows of table.csv and, of a factorial, of effects.csv."""
    effect_rows = [_effect(one) for one in (*effects(study, arms), *sums(study, arms), *shares(study, arms))]
    return {"table.csv": [_arm(one) for one in compared(arms)]} | ({"effects.csv": effect_rows} if study.parts else {})


def runs_of_studies(results: Path, run_id: str) -> list[dict[str, str]]:
    """Return the rows of a run in this project's studies that have a page, with the name of the `study`."""
    studies = _Studies(results, {}, PAPER)
    return [
        {"study": name, **row}
        for name in (path.stem for path in study_files())
        for row in studies.runs(name)
        if row["run_id"] == run_id
    ]


def sources_of(folder: Path, known: Mapping[str, Known] = MappingProxyType({}), scale: str = PAPER) -> Sources:
    """Return what statements take their numbers from: claims in a folder, its runs of studies, and the leaderboard.

    `known`: studies that are read already, with their progress.
    """
    studies = _Studies(folder, dict(known), scale)
    return Sources(folder, studies.rows, studies.runs, lambda: board_of(folder)[0])


class _Studies:
    """This project's studies that have a page in a folder. Each is read when it is asked for."""

    def __init__(self, folder: Path, known: dict[str, Known], scale: str) -> None:
        self._folder, self._known, self._scale = folder, known, scale

    def rows(self, name: str) -> list[dict[str, str]]:
        """Return the rows of the arms and of the effects of a study; none without a page."""
        known = self._read(name)
        return [_texts(row) for of in _tables(*known).values() for row in of] if known else []

    def runs(self, name: str) -> list[dict[str, str]]:
        """Return the rows of its runs."""
        known = self._read(name)
        return [_texts(row) for row in _runs(known[1])] if known else []

    def _read(self, name: str) -> Known:
        if name not in self._known:
            there = [path for path in study_files() if path.stem == name]
            self._known[name] = None
            if there and (self._folder / "studies" / name / "README.md").exists():
                study = read(there[0])
                results = self._folder if self._scale == PAPER else self._folder.parent
                root = [] if results == RESULTS else [f"runtime.results_root={json.dumps(str(results))}"]
                self._known[name] = study, progress_of(study, settings_of(study, self._scale, root))
        return self._known[name]


def _texts(row: Mapping[str, object]) -> dict[str, str]:
    return {name: cell(value) for name, value in row.items()}


def answers(study: Study, arms: Sequence[Compared]) -> list[str]:
    """State the answer on each data set at each epsilon in a sentence: of several arms, of that with the most gain."""
    texts = []
    for group in by_pair(arms).values():
        gains = [(compared, compared.gain) for compared in group if compared.gain is not None]
        label = f"**{group[0].arm.setting.place}**"
        if not gains:
            texts.append(f"- {label}: not run yet.")
            continue
        best, gain = max(gains, key=lambda pair: pair[1].value)
        arm, first = f"*{best.arm.setting.arm.name}*", f"*{study.arms[0].name}*"
        value, _, interval = _points(gain).partition(" ")
        by = f"{value} points {interval}".rstrip()
        texts += [f"- {label}: {sentence}" for sentence in _alike(group)]
        if len(gains) > 1 and gain.value <= 0:
            texts.append(f"- {label}: no arm has a higher mean than {first}. The nearest is {arm}: {by}.")
            continue
        if not gain.interval:
            texts.append(f"- {label}: {arm} has {by} over {first}, but {best.word}.")
            continue
        words = {"better": "is better than", "worse": "is worse than"}.get(best.word, "is not shown to differ from")
        most = " has the highest mean gain. It" if len(gains) > 1 else ""
        correction = best.word.removeprefix("not decided ")
        after = f" ({correction})" if correction.startswith("after") else ""
        texts.append(f"- {label}: {arm}{most} {words} {first}{after}: {by}, {len(gain.by_seed)} seeds.")
    return texts


def _alike(arms: Sequence[Compared]) -> list[str]:
    """Name arms whose runs have the same accuracy after every epoch under each of two or more common seeds."""
    courses = [
        (
            compared.arm.setting.arm.name,
            {s: run.history("test_accuracy") for s, (run, _) in compared.arm.counted().items()},
        )
        for compared in arms
    ]
    return [
        f"*{first}* and *{second}* have the same accuracy after every epoch under each seed, as if they had the same "
        "weights. What they differ in may not change an update: for example, the scale of a loss does not where all "
        "gradients are clipped alike."
        for (first, course), (second, other) in combinations(courses, 2)
        if len(seeds := course.keys() & other.keys()) > 1 and all(course[seed] == other[seed] for seed in seeds)
    ]


def _page(
    study: Study, compared_arms: Sequence[Compared], chosen: Table, finding: str, scale: str, command: str
) -> str:
    arms = [compared.arm for compared in compared_arms]
    runs = [run for arm in arms for run, _ in arm.counted().values()]
    searched = any(arm.setting.search for arm in arms)
    most = max(
        (len(compared.gain.by_seed) for compared in compared_arms if compared.gain and compared.gain.spread), default=0
    )
    return _TEXT.format(
        title=study.title,
        banner="" if scale == PAPER else f"> **{scale.upper()}: no result.** Shrunk runs on stand-in data.\n\n",
        finding=f"{finding}\n\n" if finding else "",
        answers="\n".join(answers(study, compared_arms)),
        first=study.arms[0].name,
        front=_FRONT.format(trials=sum(len(arm.trials) for arm in searched_once(study, arms)))
        if study.front and any(arm.trials for arm in arms)
        else "",
        intervals=_INTERVALS if tests(compared_arms) else "",
        figure=_FIGURE.format(what=_PARTS if study.parts[1:] else "each arm", first=study.arms[0].name)
        if any(compared.gain for compared in compared_arms)
        else "",
        remarks="".join(f"- {text}\n" for text in study.remarks) + ("\n" if study.remarks else ""),
        sums=f"## Do the gains add up?\n\n{markdown(_sums(study, arms))}\n" if study.parts[1:] else "",
        table=markdown(_table(study, compared_arms)),
        seeds=f": the mean of {most} seeds, with\n  Student's interval" if most > 1 else "",
        tests=_tests(tests(compared_arms), any("(" in _answer(compared) for compared in compared_arms)),
        delta=_delta(runs),
        neighbours=_neighbours(arms),
        search=_SEARCH.format(trials=_trials(arms) + _how(study, arms)) if searched else _NO_SEARCH,
        notes="".join(f"- {text}\n" for text in _notes(arms)),
        effects=f"\n## Effects and interactions\n\n{markdown(_effects(study, arms))}" if study.parts else "",
        configurations=configurations(study, arms),
        settings=_SETTINGS.format(
            search_seed=SEARCH_SEED,
            among=" It is one of the seeds reported, too." if SEARCH_SEED in study.seeds else "",
            chosen=markdown(Table(chosen.header[:-1], [row[:-1] for row in chosen.rows])),
        )
        if searched
        else "",
        board=board(study, compared_arms) if scale == PAPER else "",
        cost=_cost(arms),
        command=command,
    )


def _delta(runs: Sequence[PlannedRun]) -> str:
    """State the largest delta and, if the data sets state their sizes, the largest delta N for N training examples."""
    text = delta_text(max((run.delta for run in runs), default=1e-5))
    shares = [run.delta * size for run in runs if (size := run.field("dataset.train_examples"))]
    return f"{text} (δ·N is at most {bound_text(max(shares))} for N training examples)" if shares else text


def _table(study: Study, found: Sequence[Compared]) -> Table:
    gain = f"gain over {study.arms[0].name}" + (" [95%]" if tests(found) else "")
    rows = []
    for one in (one for of in by_pair(found).values() for one in of):
        values = list(one.arm.accuracies().values())
        accuracy = f"{mean_text(values, '%')} ({len(values)})" if values else "–"
        points = _points(one.gain) if one.gain else ""
        rows.append([*one.arm.setting.named, accuracy, points, _answer(one), str(len(one.arm.trials))])
    return Table((*_NAMED, "test accuracy (%)", gain, "answer", "trials"), rows)


def _answer(one: Compared) -> str:
    if one.gain is None or one.decided or not one.gain.spread:
        return one.word
    needed = f"at most {one.needed} seeds needed" if one.needed else "1,000 seeds may be too few"
    return f"{one.word} ({needed})"


def _chosen(arms: Sequence[Progress]) -> Table:
    rows = []
    for arm in arms:
        values = arm.chosen
        edges = at_edge(arm.setting.search, arm.trials) if values is not None else {}
        shown = [f"{key} = {plain(v)}{' (at the edge)' if key in edges else ''}" for key, v in (values or {}).items()]
        tried = [
            f"{', '.join(map(plain, t.values.values()))}: {number(t.accuracy, '%')}"
            + (f" (stopped after epoch {t.stopped})" if t.stopped else "")
            for t in arm.trials
        ]
        chosen = "not chosen yet" if values is None else ", ".join(shown) or "nothing to choose"
        rows.append([*arm.setting.named, chosen, "; ".join(tried)])
    return Table((*_NAMED, "chosen", "tried: held-out accuracy (%)"), rows)


_POINT = ("dataset", "arm", "epsilon", "epsilon_sound", "accuracy", "epoch", "run_id")


def _front_rows(study: Study, arms: Sequence[Progress]) -> list[dict[str, object]]:
    """List the epochs of trials on the front of each arm by the sound epsilon."""
    rows = []
    for arm in searched_once(study, arms):
        best = 0.0
        epochs = [
            (run.history("epsilon_sound")[at], -run.history("test_accuracy")[at], at, run)
            for run in arm.searched
            for at in range(run.last_epoch + 1)
        ]
        for sound, negative, at, run in sorted(epochs, key=lambda point: point[:2]):
            if -negative > best and sound <= arm.setting.epsilon:
                best = -negative
                values = (arm.setting.named[0], arm.setting.arm.name, run.history("epsilon")[at], sound, best, at + 1)
                rows.append(dict(zip(_POINT, (*values, run.job.run_id), strict=True)))
    return rows


_RUN = ("dataset", "epsilon", "arm", "role", "seed", "accuracy", "epsilon_sound", "epoch", "run_id", "command")


def _runs(arms: Sequence[Progress]) -> list[dict[str, object]]:
    rows = []
    for arm in arms:
        trials = [(run, "trial", None) for run in arm.searched]
        finals = [(run, "final", at) for run, at in arm.counted().values()]
        for run, role, at in [*trials, *finals]:
            epoch = run.last_epoch if at is None else at
            values = (
                *arm.setting.named,
                *(role, run.seed),
                *(run.history("test_accuracy")[epoch], run.history("epsilon_sound")[epoch], epoch + 1),
                *(run.job.run_id, str(run.field("tracking.command"))),
            )
            rows.append(dict(zip(_RUN, values, strict=True)))
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
    numbers = sorted({len(arm.trials) for arm in arms})
    if len(numbers) == 1:
        return f"Each arm had {numbers[0]} trials."
    cells = {
        key: {len(arm.trials) for arm in arms if arm.setting.pair == key} for key in {a.setting.pair for a in arms}
    }
    if all(len(of) == 1 for of in cells.values()):
        return (
            f"On the same data set at the same ε each arm had the same number of trials, {numbers[0]} to {numbers[-1]}."
        )
    return f"The arms had different numbers of trials, {numbers[0]} to {numbers[-1]}: see the table."


_SAMPLERS = {
    "tpe": "by the tree-structured Parzen estimator, after a first half at random",
    "gp": "by a Gaussian process, after a first half at random",
    "random": "at random",
    "nsga-ii": "by NSGA-II, in generations of a quarter of the trials",
}
_AREA = "the mean, over ε from 0 to {limit:g}, of the best accuracy on held-out images that it has reached within ε"


def _how(study: Study, arms: Sequence[Progress]) -> str:
    """Say how trials were suggested, what they were to maximise, and how many were stopped; "" for grids."""
    every = searched_once(study, arms) if study.front else arms
    spaces = [arm.setting.search for arm in every if arm.setting.search]
    texts = [""]
    if any(study.trials not in (None, combinations_of(space)) for space in spaces):
        texts.append(f"Optuna suggested them {_SAMPLERS[study.sampler]}.")
    if study.front:
        texts.append(f"What a trial maximises is {_AREA.format(limit=max(study.epsilons))}.")
    if study.prune:
        stopped = sum(trial.stopped is not None for arm in every for trial in arm.trials)
        texts.append(f"Hyperband stopped {stopped} of {sum(len(arm.trials) for arm in every)} trials that fell behind.")
    return " ".join(texts)


def _neighbours(arms: Sequence[Progress]) -> str:
    said = {str(run.record["final"].get("neighbouring_relation")) for arm in arms for run in arm.finals if run.record}
    if len(said) > 1:
        return f"**The arms have different neighbouring data sets, so their ε differ: {', '.join(sorted(said))}.**"
    return f"All arms have the same neighbouring data sets{''.join(f' ({relation})' for relation in said)}."


def _notes(arms: Sequence[Progress]) -> list[str]:
    """Say which arms end before their last epoch, which rest on a user's classes, and which diverged."""
    notes = []
    for arm in arms:
        name = f"*{arm.setting.arm.name}* on {arm.setting.named[0]} at ε = {arm.setting.epsilon:g}"
        counted = arm.counted()
        if any(at < run.last_epoch for run, at in counted.values()):
            last = max(at for _, at in counted.values()) + 1
            notes.append(f"**Stopped.** {name} counts with epoch {last}, the last one within ε.")
        if arm.finals.recorded and len(counted) < len(arm.finals.recorded):
            notes.append(f"**Beyond ε.** {name}: no epoch of some runs is within ε, and they do not count.")
        if any(run.updates_chosen_by_all_images for run, _ in counted.values()):
            notes.append(f"**Chosen by test images.** {name}: all images that are reported on chose its updates.")
        if arm.finals.diverged:
            notes.append(f"**Diverged.** {name}: {arm.finals.diverged} of {len(arm.finals.recorded)} runs. They count.")
    believed = {
        (arm.setting.arm.name, text)
        for arm in arms
        for run in arm.finals.recorded
        for text in (run.record or {})["provenance"].get("epsilon_rests_on", ())
    }
    return notes + [f"**Believed.** ε of *{name}* rests on {text}." for name, text in sorted(believed)]


def _effects(study: Study, arms: Sequence[Progress]) -> Table:
    found = effects(study, arms)
    shown = [one for one in found if one.parts <= 2 or one.answer == DIFFERS]
    rows = [[*one.place, one.name, _points(one.found), one.answer] for one in shown]
    note = (
        "Points of test accuracy [95%]. The effect of one part is the mean of the arms with it, less the mean of those "
        "without. Of two parts it is half of the change in the effect of the one when the other is added: 0 means that "
        f"they add up. Answers are corrected by Holm's procedure for all {len(found)} effects."
        + " Those of three parts or more are in effects.csv."
        * (len(shown) < len(found))
    )
    return Table(("data set", "sound ε", "parts", "effect [95%]", "answer"), rows, (note,))


def _sums(study: Study, arms: Sequence[Progress]) -> Table:
    """Compare the gain of all parts with the sum of each alone, a row for each data set and epsilon."""
    rows = []
    found = iter(sums(study, arms))
    for together, alone, less, left in zip(found, found, found, shares(study, arms), strict=True):
        points = (_points(one.found) for one in (alone, together, less))
        rows.append([*together.place, *points, _adds_up(less.found), _ratio(left.found)])
    note = (
        f"Points of test accuracy over *{study.arms[0].name}* [95%]. Near 100% a point is harder to gain. The last "
        "column has the measured error of all together, over the error if the shares of errors that each removes alone "
        "multiplied. Above 1, the shares do not add up either. Nothing in this table is corrected for the number of "
        "comparisons."
    )
    return Table(("data set", "sound ε", SUM, ALL, LESS, "do they add up?", "errors left, ratio [95%]"), rows, (note,))


def _adds_up(less: Estimate | None) -> str:
    if less is None:
        return "not run"
    if less.interval is None:
        return "one seed cannot tell"
    if less.interval.low <= 0 <= less.interval.high:
        return "yes, as far as these runs tell"
    return f"no, together they gain {'more' if less.value > 0 else 'less'}"


def _ratio(left: Estimate | None) -> str:
    if left is None:
        return "–"
    return f"{left.value:.2f}" + (f" [{left.interval.low:.2f}, {left.interval.high:.2f}]" if left.interval else "")


def _effect(one: Effect) -> dict[str, object]:
    (dataset, epsilon), (low, high) = one.place, _ends(one.found)
    return {
        "dataset": dataset, "epsilon": epsilon, "parts": one.name, "effect": one.found and one.found.value,
        "low": low, "high": high, "p": one.adjusted, "answer": one.answer,
    }  # fmt: skip


def _arm(one: Compared) -> dict[str, object]:
    (dataset, epsilon, arm), (low, high) = one.arm.setting.named, _ends(one.gain)
    accuracies = [*one.arm.accuracies().values()]
    of = summarise(accuracies)
    return {
        "dataset": dataset, "epsilon": epsilon, "arm": arm,
        "accuracy": of["mean"], "std": of["std"], "seeds": len(accuracies),
        "gain": one.gain and one.gain.value, "low": low, "high": high, "p": one.adjusted, "needed": one.needed,
        "answer": one.word, "trials": len(one.arm.trials),
    }  # fmt: skip


def _ends(found: Estimate | None) -> tuple[float | None, float | None]:
    """Return the ends of an interval, which is left out if nothing is known of the spread."""
    if found is None or found.interval is None or not found.spread:
        return None, None
    return found.interval.low, found.interval.high


def _cost(arms: Sequence[Progress]) -> str:
    trials = {run.job.run_id: run for arm in arms for run in arm.searched}
    finals = {run.job.run_id: run for arm in arms for run in arm.finals.recorded}
    every = {**trials, **finals}.values()
    made = [run.record["provenance"] for run in every if run.record]
    seconds = [float(of["processor_seconds"]) for of in made if "processor_seconds" in of]
    devices = ", ".join(sorted({str(of.get("device")) for of in made}))
    pytorch = " and ".join(sorted({str(of.get("versions", {}).get("torch")) for of in made}))
    runs = f"{len(trials)} trials and {len(finals)} final runs"
    lacking = f" Runs without this record: {len(made) - len(seconds)}." if len(seconds) < len(made) else ""
    return f"{runs} took {duration(sum(seconds))} of processor time ({devices}, PyTorch {pytorch}).{lacking}"


def _points(gain: Estimate | None) -> str:
    """Format a gain with its interval, which is left out if all seeds agree: then nothing is known of the spread."""
    if gain is None:
        return "–"
    return difference_text(gain.value, "%", gain.interval if gain.spread else None)
