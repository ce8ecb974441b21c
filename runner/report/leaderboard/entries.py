"""Entries of the leaderboard: a setting's accuracies at a bound on the sound epsilon, its title, and how they compare.

Of a method the best setting stands on the page, next to its gain over plain DP-SGD. leaderboard.csv has all entries.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runner.build.groups import Group
from runner.build.parts import build_rule
from runner.build.prepare import prepare
from runner.claims.evidence import PAPER_SCALE, Key, PlannedRun, decides, folder_of, grouped
from runner.claims.intervals import Interval, difference, mean_of, summarise
from runner.config import REPOSITORY, EvaluationSplit
from runner.config.checkout import scan
from runner.data.datasets import Split
from runner.records.disk import record_path
from runner.records.identity import hashed_config, trained
from runner.records.jobs import Job, sweep_jobs
from runner.records.verify import noise_precision
from runner.report.leaderboard import methods
from runner.report.leaderboard.methods import (
    ADDED,
    IDEAS,
    NAMES,
    further_ideas,
    how_chosen,
    ideas_of,
    method_of,
    trains_from_scratch,
)
from runner.report.tables import setting_cells

FEW = 3  # runs, below which a mean is marked, and no best if others have more
SHOWN = (1.0, 3.0)  # the bounds of the page
COLUMNS = (
    "dataset", "sound_epsilon_at_most", "method", "stands_for_its_method", "title",
    "mean", "std", "low", "high", "n", "planned", "over_plain", "over_plain_low", "over_plain_high", "tuned_like_plain",
    "sound_epsilon", "noise_drawn_in", "neighbours", "settings_chosen", "held_out", "chosen_by_test_images",
    "on_a_part_of_the_test_images", "made_for_it", "ideas", "experiment", "setting_id", "run_id", "command",
)  # fmt: skip
EPSILONS = (0.5, 1.0, 2.0, 3.0, 8.0)
DELTA = 1e-5
_VARIED = {  # what else a sweep varies makes a search of it
    *("experiment", "seed", "target_epsilon"),
    *("dataset", "activation", "loss", "clipping", "clipping.norm", "averaging", "optimizer"),
    *("mechanism", "mechanism.bands", "mechanism.momentum", "augmentation", "augmentation.flip", "optimizer.momentum"),
}
_MADE_FOR = 0.95  # of the budget at least is spent at the end of a run that was made for it
_UNNAMED = ("experiment", "seed", "dataset")  # the title names the first, and pages show the others separately


def titles_of(jobs: Mapping[Key, Job]) -> dict[Key, str]:
    """Return the titles of different settings. No two are the same on one data set.

    Settings of one experiment name the fields that a sweep varies among them. If that is not enough, they name the
    first fields of their configs that distinguish them.
    """
    alike = grouped(jobs, lambda key: (jobs[key].field("dataset.name"), jobs[key].field("title")))
    titled = (_titles({key: jobs[key] for key in keys}) for keys in alike.values())
    return {key: title for titles in titled for key, title in titles.items()}


def _titles(jobs: Mapping[Key, Job]) -> dict[Key, str]:
    varied = dict.fromkeys(name for job in jobs.values() for name in job.overrides if name not in _UNNAMED)
    titles = {}
    groups = {name for name in varied if (REPOSITORY / "conf" / name).is_dir()}
    for key, job in jobs.items():
        values = {name: job.overrides.get(name) if name in groups else job.field(name) for name in varied}
        words = [field_text(name, value) for name, value in values.items() if value is not None]
        titles[key] = ", ".join(filter(None, [job.field("title"), *words]))
    configs = {key: _flat(hashed_config(job.values)) for key, job in jobs.items()}
    for name in dict.fromkeys(name for fields in configs.values() for name in fields):
        count = Counter(titles.values())
        if name != "seed" and count.total() > len(count):
            texts = {key: field_text(name, configs[key].get(name)) for key in jobs}
            longer = {key: f"{t}, {texts[key]}" if count[t] > 1 else t for key, t in titles.items()}
            titles = longer if len(set(longer.values())) > len(count) else titles
    return titles


def field_text(name: str, value: Any) -> str:
    """Return a field's value in words.

    >>> field_text("optimizer.lr", 0.5), field_text("batch_size", 4096), field_text("architecture.bias", False)
    ('learning rate 0.5', 'batch size 4,096', 'without bias')
    """
    field = name.rpartition(".")[2].strip("_").replace("_", " ")
    if isinstance(value, bool):
        return f"{'with' if value else 'without'} {field}"
    return methods.WORDS.get(name, f"{field} {{}}").format(_value_text(value))


def _value_text(value: Any) -> str:
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " and ".join(map(_value_text, value))
    text = str(getattr(value, "value", "none" if value is None else value))
    return methods.OPTIONS.get(text, text.replace("_", " "))


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: value}
    return flat


@dataclass(frozen=True)
class Entry:
    """A setting's accuracies (percent) at a bound on the sound epsilon, one for each run with an epoch within it.

    method: the method to which the setting belongs, "" if none (methods.yaml).
    chosen: how the setting was chosen, in words.
    ideas: the ideas in it (see `ideas_of`), whichever its method is.
    setting: the setting id of its first recorded run.
    run: the id of its first run with an epoch within the bound.
    command: the command that repeats this run.
    sound: the largest sound epsilon spent there. If the number of steps depends on the data, it is the guaranteed
        epsilon of runs that the bound stops.
    noise: how the noise of its runs was drawn: "float32", "float64", ..., "float32 and float64"; "" if a class drew it.
    neighbours: the neighbouring relation of that epsilon.
    settings: its batch size, learning rate and so on, as texts (`report.tables.SETTING`).
    made_for_it: True if the runs end there.
    held_out: True if the settings were chosen on held-out images.
    by_test_images: True if the images reported on decided which updates were accepted.
    on_a_part: True if the accuracies use a part of the test images, because the others are treated as public.
    to_the_end: True if the runs have all their epochs there: no budget ended them before.
    """

    dataset: str
    epsilon: float
    method: str
    title: str
    experiment: str
    setting: str
    chosen: str
    ideas: tuple[str, ...]
    run: str
    command: str
    accuracies: tuple[float, ...]
    planned: int
    sound: float
    noise: str
    neighbours: str
    settings: Mapping[str, str]
    made_for_it: bool
    held_out: bool
    by_test_images: bool
    on_a_part: bool
    to_the_end: bool = True

    @property
    def interval(self) -> Interval | None:
        """The 95% interval of the mean, within [0, 100], or None for a single run."""
        if len(self.accuracies) == 1:
            return None
        around = mean_of(self.accuracies)
        return Interval(max(around.low, 0.0), min(around.high, 100.0))

    @property
    def mean(self) -> float:
        return sum(self.accuracies) / len(self.accuracies)


def entries(runs: Iterable[PlannedRun], epsilons: Sequence[float] = EPSILONS) -> list[Entry]:
    """Return every setting at every bound that one of its runs has an epoch within, the highest mean first."""
    settings: dict[str, dict[int, PlannedRun]] = {}  # by the hash of what is trained, and by seed
    held_out, method_by_setting, hashes = set[str](), dict[str, str](), dict[str, str]()
    shown = [run for run in runs if counts(run.job)]
    for run in sorted(shown, key=lambda run: run.record is None):  # a recorded one before its like
        if run.job.setting_id not in hashes:
            hashes[run.job.setting_id] = trained(run.job.values)
        setting = hashes[run.job.setting_id]
        settings.setdefault(setting, {}).setdefault(run.seed, run)
        if methods.HELD_OUT in run.field("tracking.tags"):
            held_out.add(setting)
        names = (method_by_setting.get(setting, ""), method_of(run.job))
        method_by_setting[setting] = min(names, key=[*NAMES, ""].index)  # the first in the file, if any has one
    recorded = {s: [run for run in seeds.values() if run.record is not None] for s, seeds in settings.items()}
    rows = []
    for setting, title in titles_of({s: group[0].job for s, group in recorded.items() if group}).items():
        run, *_ = recorded[setting]
        assert run.record is not None
        relation = run.record["final"].get("neighbouring_relation")  # the oldest records lack it
        on_a_part = False
        if run.field("screening"):  # which may set a part of the test images aside
            images = Split(torch.empty(8), torch.empty(8))
            on_a_part = len(build_rule(Group(run.job.config, "screening")).split(images)[0].targets) < 8
        fields: dict[str, Any] = {  # at every bound
            "dataset": str(run.field("dataset.name")),
            "method": method_by_setting[setting],
            "title": title,
            "experiment": run.job.experiment,
            "setting": run.job.setting_id,
            "chosen": how_chosen(run.job, setting in held_out),
            "ideas": ideas_of(run.job),
            "planned": len(settings[setting]),
            "noise": " and ".join(sorted({noise_precision(r.record) or "" for r in recorded[setting] if r.record})),
            "neighbours": str(relation or prepare(run.job.config).mechanism.neighbouring_relation),
            "settings": setting_cells(run.job),
            "held_out": setting in held_out,
            "on_a_part": on_a_part,
        }
        rows += [Entry(**fields, **bounded) for bound in epsilons if (bounded := _within(recorded[setting], bound))]
    return sorted(rows, key=lambda e: (e.dataset, e.epsilon, -e.mean, e.title))


def counts(job: Job) -> bool:
    """Return True if the leaderboard shows a run: on test images, in no search, and at a delta of at most DELTA.

    All arms of a study count, because none of them was chosen by test images.
    """
    searched = (
        not job.sweep.startswith(("study/", methods.ENTRY))
        and {name.removeprefix("~") for name in job.overrides} - _VARIED
    )
    on_test_images = job.field("evaluation") == EvaluationSplit.test.value
    return on_test_images and not searched and float(job.field("delta")) <= DELTA


def _within(recorded: Sequence[PlannedRun], epsilon: float) -> dict[str, Any] | None:
    """Return the attributes of an entry that depend on the bound, or None if no run has an epoch within it."""
    reached = []
    for run in recorded:
        # If it has to end there, a run that decides its steps makes no more attempts than it had made by then.
        capped = decides(run) and math.isfinite(run.final("epsilon_sound"))
        epoch = run.last_within(epsilon, "epsilon_spent" if capped else "epsilon_sound")
        reached += [] if epoch is None else [(run, epoch)]
    if not reached:
        return None
    sound = max(run.history("epsilon_spent")[epoch] for run, epoch in reached)
    if any(decides(run) for run, _ in reached):
        sound = min(epsilon, max(run.final("epsilon_sound") for run, _ in reached))
    earliest = min((run for run, _ in reached), key=lambda run: run.seed)
    return {
        "epsilon": epsilon,
        "accuracies": tuple(run.history("test_accuracy")[epoch] for run, epoch in reached),
        "run": earliest.job.run_id,
        "command": str(earliest.field("tracking.command")),
        "sound": sound,
        "made_for_it": sound >= _MADE_FOR * epsilon and all(epoch == run.last_epoch for run, epoch in reached),
        "to_the_end": all(epoch + 1 == run.field("epochs") for run, epoch in reached),
        "by_test_images": any(run.updates_chosen_by_all_images for run, _ in reached),
    }


def planned_jobs() -> list[Job]:
    """List every run that a sweep of any paper plans."""
    folder = REPOSITORY / "sweeps"
    paths = [path for path in scan(folder, "*/*.yaml") if path.stem.isidentifier()]  # no copy such as `fig_3 (1)`
    return [job for path in paths for job in sweep_jobs(path.relative_to(folder).with_suffix("").as_posix())]


def trials(jobs: Iterable[Job]) -> int:
    """Count the recorded runs on held-out training images, from which settings were chosen."""
    folder = folder_of(PAPER_SCALE)
    searched = {job.run_id for job in jobs if job.field("evaluation") == EvaluationSplit.holdout.value}
    return sum(record_path(folder, run_id).exists() for run_id in searched)


@dataclass(frozen=True)
class Gain:
    """The difference of two mean accuracies, in points.

    interval: Welch's 95% interval, or None if one of the two is a single run.
    alike: True if the settings of both were searched on held-out images.
    """

    points: float
    interval: Interval | None
    alike: bool


def gain_over(entry: Entry, plain: Entry | None) -> Gain | None:
    """Compare an entry with plain DP-SGD; None if there is none, or the neighbouring relation is another one."""
    if plain is None or entry.neighbours != plain.neighbours or entry == plain:
        return None
    several = min(len(entry.accuracies), len(plain.accuracies)) > 1
    interval = difference(entry.accuracies, plain.accuracies) if several else None
    return Gain(entry.mean - plain.mean, interval, entry.held_out and plain.held_out)


def _ranked(entries: Iterable[Entry], dataset: str, epsilon: float) -> list[Entry]:
    """Return what may stand for a method on a data set at a bound, the first one of each method does.

    Settings whose updates the test images chose come last, and before them those of fewer than FEW runs. Of the others,
    one with fewer ideas that are not the method's own comes first, so that a method is the same one at every bound.
    Then come those that were searched for this bound, so that methods are compared at equal effort, by their means.
    """

    def rank(entry: Entry) -> tuple[bool, bool, int, bool, float, str]:
        further = further_ideas(entry.method, entry.ideas) if entry.method in IDEAS else ()
        few, searched = len(entry.accuracies) < FEW, entry.held_out and entry.made_for_it
        return entry.by_test_images, few, len(further), not searched, -entry.mean, entry.title

    return sorted((e for e in entries if (e.dataset, e.epsilon, e.neighbours) == (dataset, epsilon, ADDED)), key=rank)


def settings_of(entries: Iterable[Entry], method: str, dataset: str, epsilon: float) -> list[Entry]:
    """Return the settings of a method that may stand for it, the one that does first."""
    return [entry for entry in _ranked(entries, dataset, epsilon) if entry.method == method]


def standing(entries: Iterable[Entry], dataset: str, epsilon: float) -> dict[str, Entry]:
    """Return by method the setting that stands for it on a data set at a bound on epsilon, the last one first."""
    return {entry.method: entry for entry in reversed(_ranked(entries, dataset, epsilon)) if entry.method}


@dataclass(frozen=True)
class Comparison:
    """The methods on a data set.

    settings: by method, its best setting at each bound at which it has one. The highest mean at the largest bound
        comes first, and plain DP-SGD last.
    """

    dataset: str
    settings: Mapping[str, Mapping[float, Entry]]

    def gain(self, method: str, epsilon: float) -> Gain | None:
        """Return a method's gain at a bound, if it has a setting there."""
        entry = self.settings[method].get(epsilon)
        return None if entry is None else gain_over(entry, self.settings[NAMES[0]].get(epsilon))

    def best(self, epsilon: float) -> str | None:
        """Return the method from scratch with the highest mean on all test images, which chose none of its updates.

        Means of fewer than FEW runs come after all others.
        """
        ranks = {
            method: (len(entry.accuracies) >= FEW, entry.mean)
            for method, settings in self.settings.items()
            if (entry := settings.get(epsilon)) and not entry.by_test_images and not entry.on_a_part
            if trains_from_scratch(method)
        }
        return max(ranks, key=ranks.__getitem__, default=None)


def comparisons(entries: Sequence[Entry]) -> list[Comparison]:
    """Compare the methods on each data set, MNIST first."""
    compared = []
    for dataset in sorted({entry.dataset for entry in entries}, key=lambda name: ("CIFAR" in name, "Fashion" in name)):
        best = {epsilon: standing(entries, dataset, epsilon) for epsilon in SHOWN}
        settings = {m: {epsilon: best[epsilon][m] for epsilon in SHOWN if m in best[epsilon]} for m in NAMES}
        means = {m: [-s[e].mean if e in s else 0.0 for e in reversed(SHOWN)] for m, s in settings.items()}
        ordered = [*sorted((m for m in NAMES[1:] if settings[m]), key=means.__getitem__), NAMES[0]]
        if any(best.values()):
            compared.append(Comparison(dataset, {method: settings[method] for method in ordered}))
    return compared


def csv_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the rows of leaderboard.csv, with every setting at every bound (COLUMNS)."""
    places = {(entry.dataset, entry.epsilon) for entry in entries}
    stand = {place: standing(entries, *place) for place in places}
    rows = []
    for entry in entries:
        best = stand[entry.dataset, entry.epsilon]
        gain = gain_over(entry, best.get(NAMES[0]))
        interval, over = entry.interval, gain and gain.interval
        shown = (gain and gain.alike, best.get(entry.method) is entry)
        flags = (*shown, entry.held_out, entry.by_test_images, entry.on_a_part, entry.made_for_it)
        alike, stands, *marks = ((None if flag is None else "yes" if flag else "no") for flag in flags)
        values = (
            *(entry.dataset, entry.epsilon, entry.method, stands, entry.title),
            *(entry.mean, summarise(entry.accuracies)["std"]),
            *((interval.low, interval.high) if interval else (None, None)),
            *(len(entry.accuracies), entry.planned, gain and gain.points),
            *((over.low, over.high) if over else (None, None)),
            *(alike, entry.sound, entry.noise, entry.neighbours, entry.chosen, *marks),
            *(", ".join(entry.ideas), entry.experiment, entry.setting, entry.run, entry.command),
        )
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows
