"""The page of a study: the answer, a table of the arms, what was chosen, the leaderboard, the cost and the command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.claims.contrasts import ERROR, Estimate, estimate, gain_of_all, more_than_parts, sum_of_gains
from runner.claims.runs import PlannedRun
from runner.config import PAPER
from runner.report import plots
from runner.report.files import Table, markdown, mean_text, write_csv, write_table_csv, write_text
from runner.report.markdown import difference_text
from runner.study.board import board
from runner.study.figure import draw
from runner.study.file import SEARCH_SEED, Study
from runner.study.outcome import Compared, by_pair, compared, effects, tests
from runner.study.progress import Progress
from runner.study.search import at_edge
from runner.terminal import duration, number

_TEXT = """# {title}

{banner}{answers}

{figure}## The arms

{table}
- **Gain.** Test accuracy minus that of *{first}* under the same seed, in points: the mean of {seeds} seeds with its 95%
  interval (Student).
- **Answer.** {holm}
- **Seeds.** The number in brackets would decide with a probability of 80%, if gain and spread are the measured ones.
- **Privacy.** ε is sound: a proven upper bound for one final run, at δ = {delta}. {neighbours}
- **ε excludes the search.** The trials read the same training images, and no ε here charges for them. {trials}
{notes}{effects}
## The settings

Chosen by the accuracy on held-out training images (seed {search_seed}). No test image chose a setting. One seed was
searched, and its luck is in no interval.

{chosen}{board}
## The cost

{cost}

```console
$ {command}
```

The same command goes on after a stop, and trains nothing again that is recorded. [Every run](runs.csv)
"""
_FIGURE = "![Gain of each arm over {first} under each seed](figure.svg)"


def write(study: Study, arms: Sequence[Progress], folder: Path, scale: str, command: str) -> list[Path]:
    """Write README.md, the tables and the figure of a study.

    Args:
        study: the question.
        arms: the settings with their runs.
        folder: the results folder. The page is in studies/NAME below it.
        scale: an option of the group `scale`.
        command: repeats the study.

    Returns:
        The files.
    """
    place, found = folder / "studies" / study.name, compared(arms)
    table, chosen = _table(study, found), _chosen(arms)
    written = [
        write_text(place / "README.md", _page(study, found, table, chosen, scale, command)),
        write_table_csv(place / "table.csv", table),
        write_table_csv(place / "chosen.csv", chosen),
        write_csv(place / "runs.csv", _RUN, _runs(arms)),
    ]
    if study.parts:
        written.append(write_table_csv(place / "effects.csv", _effects(study, arms)))
    with plots.style():
        drawn = draw(found)
        return written if drawn is None else written + plots.save(drawn, place, "" if scale == PAPER else scale)


def answers(study: Study, found: Sequence[Compared]) -> list[str]:
    """State the answer on each data set at each epsilon in a sentence: of several arms, of that with the most gain."""
    texts = []
    for (_, epsilon), of in by_pair(found).items():
        gains = [one for one in of if one.gain is not None]
        at = f"**{of[0].arm.setting.dataset_name}, ε = {epsilon:g}**"
        if not gains:
            texts.append(f"- {at}: not run yet.")
            continue
        best = max(gains, key=lambda one: one.gain.value if one.gain else 0.0)
        words = {"better": "is better than", "worse": "is worse than"}.get(best.word, "is not shown to differ from")
        most = " has the highest mean gain, and" if len(gains) > 1 else ""
        value, _, interval = _points(best.gain).partition(" ")
        by = f"{value} points {interval}".rstrip() + f", {len(best.gain.seeds) if best.gain else 0} seeds"
        texts.append(f"- {at}: *{best.arm.setting.arm.name}*{most} {words} *{study.arms[0].name}*: {by}.")
    return texts


def _page(study: Study, found: Sequence[Compared], table: Table, chosen: Table, scale: str, command: str) -> str:
    arms = [one.arm for one in found]
    runs = [run for arm in arms for run, _ in arm.counted().values()]
    return _TEXT.format(
        title=study.title,
        banner="" if scale == PAPER else f"> **{scale.upper()}: no result.** Shrunk runs on stand-in data.\n\n",
        answers="\n".join(answers(study, found)),
        first=study.arms[0].name,
        figure=f"{_FIGURE.format(first=study.arms[0].name)}\n\n" if any(one.gain for one in found) else "",
        table=markdown(table),
        seeds=max((len(one.gain.seeds) for one in found if one.gain), default=0),
        holm=_holm(tests(found)),
        delta=f"{max((run.delta for run in runs), default=1e-5):g}".replace("e-0", "e-"),
        neighbours=_neighbours(arms),
        trials=_trials(arms),
        notes="".join(f"- {text}\n" for text in _notes(arms)),
        effects=f"\n## Effects and interactions\n\n{markdown(_effects(study, arms))}" if study.parts else "",
        search_seed=SEARCH_SEED,
        chosen=markdown(chosen),
        board=board(study, found) if scale == PAPER else "",
        cost=_cost(arms),
        command=command,
    )


def _table(study: Study, found: Sequence[Compared]) -> Table:
    gain = f"gain over {study.arms[0].name} [95%]"
    rows = []
    for of in by_pair(found).values():
        for one in of:
            values = list(one.arm.accuracies().values())
            rows.append(
                {
                    "data set": one.arm.setting.dataset_name,
                    "sound ε": f"{one.arm.setting.epsilon:g}",
                    "arm": one.arm.setting.arm.name,
                    "test accuracy (%)": f"{mean_text(values, '%')} ({len(values)})" if values else "–",
                    gain: _points(one.gain) if one.gain else "",
                    "answer": _answer(one),
                    "trials": str(len(one.arm.trials)),
                }
            )
    return Table.of(rows)


def _answer(one: Compared) -> str:
    if one.gain is None or one.decided or not one.gain.spread:
        return one.word
    seeds = f"about {one.needed} seeds would" if one.needed else "1,000 seeds would not"
    return f"{one.word} ({seeds} decide)"


def _chosen(arms: Sequence[Progress]) -> Table:
    rows = []
    for arm in arms:
        name, values = arm.setting.arm.name, arm.chosen
        edges = at_edge(arm.setting.search, arm.trials) if values is not None else []
        shown = [
            f"{key} = {_plain(value)}{' (at the edge)' if key in edges else ''}"
            for key, value in (values or {}).items()
        ]
        tried = [f"{', '.join(map(_plain, t.values.values()))}: {number(t.accuracy, '%')}" for t in arm.trials]
        rows.append(
            {
                "data set": arm.setting.dataset_name,
                "sound ε": f"{arm.setting.epsilon:g}",
                "arm": name,
                "chosen": "not chosen yet" if values is None else ", ".join(shown) or "nothing to choose",
                "tried: held-out accuracy (%)": "; ".join(tried),
            }
        )
    return Table.of(rows)


_RUN = ("dataset", "epsilon", "arm", "role", "seed", "accuracy", "epsilon_sound", "epoch", "run_id", "command")


def _runs(arms: Sequence[Progress]) -> list[dict[str, object]]:
    rows = []
    for arm in arms:
        trials = [(run, "trial", None) for run in arm.searched]
        finals = [(run, "final", at) for run, at in arm.counted().values()]
        for run, role, at in [*trials, *finals]:
            epoch = run.last_epoch if at is None else at
            values = (
                *(arm.setting.dataset_name, arm.setting.epsilon, arm.setting.arm.name, role, run.seed),
                *(run.history("test_accuracy")[epoch], run.history("epsilon_sound")[epoch], epoch + 1),
                *(run.job.run_id, str(run.field("tracking.command"))),
            )
            rows.append(dict(zip(_RUN, values, strict=True)))
    return rows


def _holm(number_of: int) -> str:
    if number_of < 2:
        return "*Better* and *worse*: zero is outside the interval, at a level of 5%."
    return (
        f"*Better* and *worse*: the p-value is at most 5% after Holm's correction for all {number_of} gains here. "
        "So the probability that any of these words is wrong by chance is at most 5%. The intervals are not corrected."
    )


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


def _neighbours(arms: Sequence[Progress]) -> str:
    said = {str(run.record["final"].get("neighbouring_relation")) for arm in arms for run in arm.finals if run.record}
    if len(said) > 1:
        return f"**The arms have different neighbouring data sets, so their ε differ: {', '.join(sorted(said))}.**"
    return f"All arms have the same neighbouring data sets{''.join(f' ({relation})' for relation in said)}."


def _notes(arms: Sequence[Progress]) -> list[str]:
    """Say which arms end before their last epoch, which rest on a user's classes, and which diverged."""
    notes = []
    for arm in arms:
        name = f"*{arm.setting.arm.name}* on {arm.setting.dataset_name} at ε = {arm.setting.epsilon:g}"
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
    parts, rows = len(study.parts), []
    found = effects(study, arms)
    names = {arm.setting.pair: arm.setting.dataset_name for arm in arms}
    for one in found:
        told = names[one.dataset, one.epsilon], f"{one.epsilon:g}"
        answer = "" if one.adjusted is None else "differs from 0" if one.adjusted <= ERROR else "not decided"
        rows.append([*told, " × ".join(one.parts), _points(one.found), answer])
    for key, dataset in names.items() if parts > 1 else ():
        cells = {arm.setting.arm.cell: arm.accuracies() for arm in arms if arm.setting.pair == key}
        sums = {
            "all together": gain_of_all,
            "sum of each alone": sum_of_gains,
            "together less the sum": more_than_parts,
        }
        rows += [[dataset, f"{key[1]:g}", n, _points(estimate(cells, w(parts))), ""] for n, w in sums.items()]
    note = (
        "Points of test accuracy [95%]. The effect of one part is the mean of the arms with it, less the mean of those "
        "without. Of two parts it is half of the change in the effect of the one when the other is added: 0 means that "
        f"they add up. Answers are corrected by Holm's procedure for all {len(found)} effects."
    )
    return Table(("data set", "sound ε", "parts", "effect [95%]", "answer"), rows, (note,))


def _cost(arms: Sequence[Progress]) -> str:
    trials = {run.job.run_id: run for arm in arms for run in arm.searched}
    finals = {run.job.run_id: run for arm in arms for run in arm.finals.recorded}
    every = {**trials, **finals}.values()
    seconds = sum(_processor_seconds(run) for run in every)
    devices = ", ".join(sorted({str((run.record or {})["provenance"].get("device")) for run in every}))
    time = f"took {duration(seconds)} of processor time in all ({devices})"
    return f"{len(trials)} trials and {len(finals)} final runs {time}."


def _processor_seconds(run: PlannedRun) -> float:
    of = (run.record or {})["provenance"]
    return float(of.get("processor_seconds", of["wall_seconds"]))


def _points(gain: Estimate | None) -> str:
    """Format a gain with its interval, which is left out if all seeds agree: then nothing is known of the spread."""
    if gain is None:
        return "–"
    return difference_text(gain.value, "%", gain.interval if gain.spread else None)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
