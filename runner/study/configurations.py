"""Arms of a study as the page lists them: overrides, numbers of their options, updates, and where they were trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from runner.claims.runs import PlannedRun
from runner.config import REPOSITORY
from runner.study.definition import Arm, Study
from runner.study.progress import Progress


def configurations(study: Study, arms: Sequence[Progress]) -> str:
    """List the overrides of every arm; where parts are combined, of the arms with one part at most."""
    finals = {
        arm.name: [run for of in arms if of.setting.arm == arm for run in of.finals.recorded] for arm in study.arms
    }
    every = [run for of in finals.values() for run in of]
    found = {(run.field("epochs"), run.field("batch_size")) for run in every}
    of_all = [f"`{' '.join(study.base)}`"] if study.base else []
    if len(found) == 1:
        of_all += [
            f"{epochs} epoch{'s' * (epochs != 1)}, {batch:,} examples a batch on average" for epochs, batch in found
        ]
    lines = [f"All arms: {', '.join(of_all)}.", ""] if of_all else []
    alike = len({run.history("steps")[-1] for run in every}) < 2
    for arm in study.arms:
        if sum(arm.cell) <= 1:
            told = [f"`{' '.join(arm.overrides)}`" if arm.overrides else "nothing more"]
            told += _fields(arm, finals[arm.name])
            told += [] if alike else _updates(finals[arm.name])
            lines.append(f"- *{arm.name}*: {', '.join(told)}")
    return "\n".join(lines + _made_on(every))


def _fields(arm: Arm, runs: Sequence[PlannedRun]) -> list[str]:
    """List the numbers of the options that an arm names, where all its final runs have the same, as `norm 0.1`."""
    names = {text.partition("=")[0] for text in arm.overrides}
    told = []
    for group in sorted(name for name in names if (REPOSITORY / "conf" / name).is_dir()):
        options = [run.field(group) or {} for run in runs]
        for key, value in (options[0] if options else {}).items():
            shown = not key.startswith("_") and f"{group}.{key}" not in {*names, *arm.search}
            if shown and isinstance(value, int | float) and all(of[key] == value for of in options):
                told.append(f"{key} {plain(value)}")
    return told


def _updates(runs: Sequence[PlannedRun]) -> list[str]:
    """State the number of updates of final runs, from the fewest to the most."""
    if not runs:
        return []
    steps = sorted({run.history("steps")[-1] for run in runs})
    return [" to ".join(f"{each:,.0f}" for each in dict.fromkeys((steps[0], steps[-1]))) + " updates"]


def _made_on(finals: Sequence[PlannedRun]) -> list[str]:
    """Say how many final runs were made where, and by which PyTorch, if it is not the same for all."""
    made = [run.record["provenance"] for run in finals if run.record]
    places = Counter(f"{of.get('device')} with PyTorch {of.get('versions', {}).get('torch')}" for of in made)
    if len(places) < 2:
        return []
    told = ", ".join(f"{count} on {place}" for place, count in sorted(places.items()))
    return ["", f"The final runs are of different machines or versions, which round differently: {told}."]


def plain(value: object) -> str:
    """Format a value, a number without needless digits."""
    return f"{value:g}" if isinstance(value, float) else str(value)
