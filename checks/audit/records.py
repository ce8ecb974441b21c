"""Ten random records under attack: the step that each was trained by, in the catalogue's worst case.

The records are drawn from all in results/runs with noise and a finite sound epsilon, by a stated seed. What is attacked
is what the recorded config makes: its clipping, and its mechanism with the recorded sampling rate and noise. In place
of the network and the data are the catalogue's (`audit.targets`), in which the canary saturates all bounds. With
Poisson batches no other example has a gradient, so only the canary's coins are drawn, by the mechanism's own code.
Shuffled batches are charged by the epoch for any size, so there a batch holds all 16 examples.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from checks.audit.cases import CONFIDENCE, Row, attack_target
from checks.audit.targets import PLAIN, Setting, Target, network_of, option, own_options
from runner.config import RESULTS, Sampling
from runner.mechanism.banded import Banded
from runner.records.disk import read_record, upper_bound
from runner.records.verify import run_of
from runner.report.formats import write_csv
from runner.training.run import Run

TABLE = "records.csv"
COUNT, SEED = 10, 0
RUNS = RESULTS / "runs"
_TRIALS, _STEPS = 60_000, 400  # of the steps, from the first, as many as a run has
AttackedRecord = tuple[dict[str, Any], Row]  # what the record is, with the sound epsilon of the whole run


def records() -> Iterator[AttackedRecord]:
    """Attack the first steps of random records. All bounds hold together with 95% confidence."""
    sound = {path: read_record(path)["final"].get("epsilon_sound") for path in sorted(RUNS.glob("*.json"))}
    private = [path for path, epsilon in sound.items() if epsilon is not None and 0 < upper_bound(epsilon) < math.inf]
    for path in sorted(random.Random(SEED).sample(private, COUNT)):
        config = read_record(path)["config"]
        target = target_of(run_of(config))
        times = target.mechanism.bands if isinstance(target.mechanism, Banded) else 1  # one trial in so many is used
        row = attack_target(target, times * _TRIALS, (1 - CONFIDENCE) / COUNT)
        title = str(config.get("title") or "")
        yield {"run_id": path.stem, "title": title, "sound_of_run": upper_bound(sound[path])}, row


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
    rows = [record | asdict(row) | {"lower": row.lower} for record, row in attacked]
    return write_csv(folder / TABLE, list(rows[0]), rows)
