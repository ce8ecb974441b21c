"""Ten random records under attack: the step that each was trained by, in the catalogue's worst case.

The records are drawn from all in results/runs with noise and a finite sound epsilon, by a stated seed. What is attacked
is what the recorded config makes: its clipping, and its mechanism with the recorded sampling rate and noise. In place
of the network and the data are the catalogue's (`audit.targets`), in which the canary saturates all bounds. With
Poisson batches no other example has a gradient, so only the canary's coins are drawn, by the mechanism's own code.
Shuffled batches are charged by the epoch for any size, so there a batch holds all 16 examples.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from checks.audit.cases import CONFIDENCE, Row, attack_target
from checks.audit.targets import PLAIN, Setting, Target, network_of, option, own_options
from runner.config import REPOSITORY, Sampling
from runner.mechanism.banded import Banded
from runner.records.files import read_record, upper_bound
from runner.records.verify import run_of
from runner.report.files import write_csv
from runner.training.run import Run

TABLE = "records.csv"
COUNT, SEED = 10, 0
_TRIALS, _STEPS = 60_000, 400  # of the steps, from the first, as many as a run has


@dataclass(frozen=True)
class AttackedRecord:
    """A record, and the attack on its first steps. `sound_of_run` is of the whole run."""

    run_id: str
    title: str
    sound_of_run: float
    row: Row


def draw_records(folder: Path = REPOSITORY / "results" / "runs", count: int = COUNT, seed: int = SEED) -> list[Path]:
    """Draw records with noise and a finite sound epsilon."""
    paths = [path for path in sorted(folder.glob("*.json")) if _private(read_record(path))]
    return sorted(random.Random(seed).sample(paths, count))


def _private(record: dict[str, Any]) -> bool:
    sound = record["final"].get("epsilon_sound")
    return sound is not None and 0 < upper_bound(sound) < math.inf


def records(paths: list[Path], trials: int = _TRIALS) -> Iterator[AttackedRecord]:
    """Attack each record. All bounds hold together with 95% confidence."""
    for path in paths:
        record = read_record(path)
        run = run_of(record["config"])
        target = target_of(run)
        times = target.mechanism.bands if isinstance(target.mechanism, Banded) else 1  # one trial in so many is used
        row = attack_target(target, times * trials, "releases", (1 - CONFIDENCE) / len(paths))
        sound = upper_bound(record["final"]["epsilon_sound"])
        yield AttackedRecord(path.stem, str(record["config"].get("title") or ""), sound, row)


def target_of(run: Run) -> Target:
    """Put a run's clipping and mechanism into the catalogue's worst case."""
    poisson, cycle = run.mechanism.sampling is Sampling.poisson, len(run.mechanism.coefficients)
    setting = Setting(
        _name("clipping", run.config.clipping),
        _name("mechanism", run.config.mechanism) if run.config.mechanism else PLAIN,
        run.mechanism.sampling,
        examples=1 if poisson else 16,
        batch_size=0 if poisson else 16,
        steps=min(_STEPS, run.most_steps if poisson else run.epochs) // cycle * cycle,
    )
    objective = network_of(setting).objective
    sizes: dict[str, Any] = {} if poisson else {"examples": 16, "batch_size": 16}
    groups = run.clipping.noise_groups(objective)
    mechanism = replace(run.mechanism, noise_groups=groups, before=(), **sizes)
    return Target(setting, run.clipping, mechanism, run.accountant)


def _name(group: str, config: Any) -> str:
    """Return the first option of a group with the class of a config."""
    return next(name for name in own_options(group) if _class(group, option(group, name)) == config["_target_"])


def _class(group: str, chosen: Any) -> str:
    return str(chosen.get(group, chosen)["_target_"])


def write(folder: Path, attacked: Sequence[AttackedRecord]) -> Path:
    """Write records.csv, and return its path."""
    columns = ["run_id", "title", "sound_of_run", *Row.__dataclass_fields__, "lower"]
    rows = [
        {"run_id": a.run_id, "title": a.title, "sound_of_run": a.sound_of_run} | asdict(a.row) | {"lower": a.row.lower}
        for a in attacked
    ]
    return write_csv(folder / TABLE, columns, rows)
