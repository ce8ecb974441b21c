"""`python -m runner.runs.verify`: what every record says of its privacy, computed again from its config alone.

Of each record: the noise multiplier, sampling rate, neighbours and number of parameters; the epochs and steps that its
config allows; and, after its last epoch and one half way, or with `--epochs` after every one, epsilon as the paper
counts and the sound epsilon. Only how many steps a screened run kept is taken from the record: no config knows it; and
its best epoch, from its history. Nothing is trained, and nothing is written.

Exit codes: 0 every record says what its config costs, 1 one does not, 2 bad input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from runner.accounting import Releases, sound_epsilon
from runner.config import REPOSITORY, Config
from runner.runs.records import read_record
from runner.runs.sources import check_sources
from runner.terminal import Line, Parser, end
from runner.training.prepare import Run, prepare
from runner.training.targets import check_recorded

TOLERANCE = 2e-4  # relative: records keep five digits, of bounds rounded up now and to the nearest in the oldest ones


def verify(record: dict[str, Any], every_epoch: bool = False) -> list[str]:
    """What a record says and its config does not: a sentence each, none where all agree.

    Args:
        every_epoch: compute the epsilons after each again, not after the middle one and the last alone.
    """
    run = run_of(record["config"])
    return [
        f"{name} is {said}, and should be {due}"
        for name, said, due in (*_facts(run, record), *_costs(run, record, every_epoch))
        if not _agree(said, due)
    ]


def _agree(said: Any, due: Any) -> bool:
    if said is None or due is None or isinstance(due, str | int):  # missing, a name or a count
        return bool(said == due)
    numbers = float(said), float(due)
    return numbers[0] == numbers[1] or abs(numbers[0] - numbers[1]) <= TOLERANCE * abs(numbers[1])


def _facts(run: Run, record: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    final, epochs = record["final"], record["history"]["epoch"]
    for name in ("noise_multiplier", "sampling_rate", "neighbouring_relation"):
        if name in final:  # the oldest records do not name the neighbours
            yield name, final[name], getattr(run.mechanism, name)
    yield "epsilon_unsound", record["provenance"].get("epsilon_unsound"), run.unsound
    yield "parameters", final["parameters"], run.parameters
    accuracies = [float(value) for value in record["history"]["test_accuracy"]]
    best = max(range(len(epochs)), key=accuracies.__getitem__)
    yield "best_test_accuracy", final["best_test_accuracy"], accuracies[best]
    yield "best_epoch", final["best_epoch"], epochs[best]
    steps = record["history"]["steps"]
    if run.rule.takes_back or {"max_tries", "epsilon_sound_at_max_tries"} & final.keys():
        # old records of runs that ended early have neither
        yield "max_tries", final.get("max_tries"), run.most_steps
        yield "epsilon_sound_at_max_tries", final.get("epsilon_sound_at_max_tries"), run.epsilon_at_most_steps
        yield "tries beyond those", max(0, steps[-1] - run.most_steps), 0
    if run.rule.takes_back:
        kept = record["history"]["accepted"]
        yield "kept beyond the tries", max(0, *(a - b for a, b in zip(kept, steps, strict=True))), 0
        return
    for epoch, taken in zip(epochs, steps, strict=True):
        yield f"steps after epoch {epoch}", taken, epoch * run.mechanism.steps_per_epoch
    if record["status"] == "finished":
        yield "the last epoch", epochs[-1], run.epochs


def _costs(run: Run, record: dict[str, Any], every_epoch: bool) -> Iterator[tuple[str, Any, Any]]:
    history = record["history"]
    last = len(history["epoch"]) - 1
    for place in range(last + 1) if every_epoch else sorted({last // 2, last}):
        steps = int(history["steps"][place])
        kept = int(history["accepted"][place]) if run.rule.takes_back else steps
        claimed, actual = run.mechanism.charges(kept).claimed, run.mechanism.charges(steps).actual
        after = f"after epoch {history['epoch'][place]}"
        paper = _epsilon(str(run.config.accountant), run.accountant.epsilon, claimed, run.config.delta)
        sound = None if run.unsound else _epsilon("sound", sound_epsilon, actual, run.config.delta)
        yield f"epsilon {after}", history["epsilon"][place], paper
        yield f"epsilon_sound {after}", history["epsilon_sound"][place], sound


_known: dict[tuple[str, Releases, float], float] = {}


def _epsilon(accountant: str, epsilon: Callable[[Releases, float], float], releases: Releases, delta: float) -> float:
    """Seeds of a setting cost the same: computed once."""
    key = accountant, releases, delta
    if key not in _known:
        _known[key] = epsilon(releases, delta)
    return _known[key]


def run_of(recorded: dict[str, Any]) -> Run:
    """The run of a recorded config, prepared on this machine.

    Raises:
        ConfigError: it names what no record may (see `runner.training.targets`), a class of the user's own has changed
            since, or it cannot be prepared by the code of today.
    """
    machine = {
        "runtime": {"device": "cpu", "data_root": ".", "results_root": "."},
        "tracking": {"project": "", "directory": ""},
    }
    config = OmegaConf.merge(OmegaConf.structured(Config), recorded, machine)
    assert isinstance(config, DictConfig)
    check_recorded(config)
    check_sources(config)
    return prepare(config)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = Parser(prog="python -m runner.runs.verify", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=REPOSITORY / "results", help="a results folder")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only every K-th record, for a quick look")
    parser.add_argument("--epochs", action="store_true", help="epsilons after every epoch: hours for all records")
    chosen = parser.parse_args(arguments)
    paths = sorted((chosen.folder / "runs").glob("*.json"))[:: max(1, chosen.every)]
    if not paths:
        print(f"verify: {chosen.folder} has no records: expected runs/*.json in it.", file=sys.stderr)
        return 2
    line, wrong = Line(), 0
    for number, path in enumerate(paths, 1):
        line.show(f"verify: record {number} of {len(paths)} ...")
        try:
            found = verify(read_record(path), chosen.epochs)
        except ValueError as error:
            found = [str(error)]
        if found:
            wrong += 1
            line.clear()
            print(f"{path.name}: {'; '.join(found)}")
    line.clear()
    print(f"{len(paths)} records, {wrong} of which do not say what their config costs")
    return 1 if wrong else 0


if __name__ == "__main__":
    end(main)
