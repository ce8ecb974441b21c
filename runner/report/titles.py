"""Titles of settings for people: the experiment's title, and in words what else makes the setting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from runner.claims.runs import Key, grouped
from runner.config import REPOSITORY
from runner.records.identity import hashed_config
from runner.records.jobs import Job

_UNNAMED = ("experiment", "seed", "dataset")  # the title names the first, and pages show the others separately
_WORDS = {
    "activation": "{}",
    "batch_size": "batch size {}",
    "clipping": "{}",
    "draw": "draw {}",
    "epochs": "{} epochs",
    "evaluation": "{} images",
    "loss": "{}",
    "loss.beta": "β {}",
    "loss.gamma": "γ {}",
    "max_epsilon": "to ε {}",
    "optimizer.lr": "learning rate {}",
    "sound_epsilon": "sound ε {}",
    "target_epsilon": "ε {}",
}
_OPTIONS = {  # of groups and of `evaluation`
    "automatic": "AUTO-S",
    "cross_entropy": "cross-entropy",
    "flat": "flat clipping",
    "holdout": "held-out",
    "losing_less": "losing-less loss",
    "relu": "ReLU",
}


def titles_of(jobs: Mapping[Key, Job]) -> dict[Key, str]:
    """Return the titles of different settings. No two are the same on one data set.

    Settings of one experiment name the fields that a sweep varies among them. If that is not enough, they name the
    first fields of their configs that distinguish them.
    """
    alike = grouped(jobs, lambda key: (jobs[key].field("dataset.name"), jobs[key].field("title")))
    titles: dict[Key, str] = {}
    for keys in alike.values():
        titles |= _titles({key: jobs[key] for key in keys})
    return titles


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
    return _WORDS.get(name, f"{field} {{}}").format(_value_text(value))


def _value_text(value: Any) -> str:
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " and ".join(map(_value_text, value))
    text = str(getattr(value, "value", "none" if value is None else value))
    return _OPTIONS.get(text, text.replace("_", " "))


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: value}
    return flat
