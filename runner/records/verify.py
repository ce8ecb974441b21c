"""Compare every record with the values that follow from its config.

The steps, epsilon as the paper counts, and the sound epsilon are computed again, after every epoch. Final metrics, the
noise multiplier, the number of parameters, and the user's classes that epsilon rests on are compared with the config or
with other columns. So are the counts of a run that takes steps back.

Measurements cannot be computed again: losses, accuracies, diagnostics, seconds, the number of steps taken back, and the
description of machine and code. They only have to be possible. An accuracy has to be a number of right answers, and a
count must not fall. `draw` is believed, too. A change of such values alone is not noticed.

What `runner.accounting` computes is kept in the user's cache folder, so a check that was stopped goes on where it was.
All 3,370 records take at most 17 minutes of processor time at first, and 3.2 later. The last line but one bounds δ from
below for older records, whose noise was drawn in float32 (see `runner.mechanism.normal`).
"""

import json
import math
import multiprocessing
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch

from runner.accounting import epsilon_by
from runner.accounting.accountants import ANSWERS, Question
from runner.accounting.ledger import SampledGaussian
from runner.build.prepare import prepare
from runner.config import ConfigError, EvaluationSplit, Sampling, is_own
from runner.config.loader import hash_of, read_entry, write_entry
from runner.data.datasets import ImageDataset, Split, holdout_examples
from runner.files import cache_folder, content_of
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import DRAWN, PRECISION, cost_of_rounding, delta_of_end, delta_of_radii
from runner.records.disk import read_record, rounded
from runner.records.jobs import restored
from runner.speed.machine import cores, memory
from runner.terminal import number
from runner.training.averaging import LAST
from runner.training.loop import Trained, final_metrics
from runner.training.run import Run
from runner.trust.sources import check_sources, own_targets

_ROUNDING = 1e-9  # relative: what the last digits of a library's answer may be off, before it is rounded to five
_ROUNDED_UP = (("epsilon", "noise_multiplier"), ("epsilon",), ())  # by the code of today, and in older records
_WITHOUT_NEIGHBOURS = "0cbc41275d218c57c593e4d55c3af4939900894b"  # the code whose records do not name them
_CHARGED = (  # fields that the charges of most runs follow from
    "dataset", "normalization", "accountant", "mechanism", "screening", "epochs", "batch_size", "sampling",
    "noise_multiplier", "target_epsilon", "sound_epsilon", "max_epsilon", "delta", "evaluation", "scale",
)  # fmt: skip
_RECORDS = 25  # for each process, as it takes seconds to start one
_TURNS = 8  # parts of the records for each process, which it reports together
_MEMORY = 2 * 2**30  # bytes for each process

Difference = tuple[str, Any, Any]  # what, what the record says, and what it should say
Cost = tuple[float, float] | float | str  # see `cost_of_noise`


class Checked(NamedTuple):
    """The faults of a record's file, a sentence each, and the precision and cost of its noise if it has none."""

    path: Path
    faults: list[str]
    noise: tuple[str, Cost] | None = None


def verify(record: dict[str, Any]) -> list[str]:
    """Say what in a record does not follow from its config: a sentence each, none where everything does.

    Raises:
        Exception: the run of its config cannot be prepared, or a column has values that no run writes.
    """
    run = _run_of_setting(_text(record["config"]))
    history = record["history"]
    expected = run.rule.column_names or (history.keys() - run.columns if is_own(run.rule) else ())
    names = [*run.columns, *(LAST if run.averaging else ()), *expected]
    if history.keys() != set(names):
        return [f"its history has the columns {', '.join(sorted(history))}, and should have {', '.join(sorted(names))}"]
    due = _due_history(run, record)
    differences = [list(_differences(run, record, due, up)) for up in _ROUNDED_UP]
    return [f"{what} is {value}, and should be {right}" for what, value, right in min(differences, key=len)]


def _differences(
    run: Run, record: dict[str, Any], due: Mapping[str, Sequence[Any]], up: tuple[str, ...]
) -> Iterator[Difference]:
    """Compare a record with what is due by its config, its epsilons rounded up in the columns that `up` begins."""
    history, final, provenance = record["history"], record["final"], record["provenance"]
    for name, column in history.items():
        for epoch, value, right in zip(history["epoch"], column, due[name], strict=False):
            if value not in (allowed := _rounded(name, right, up)):
                yield f"{name} after epoch {epoch}", value, allowed[0]
                break
    early = record["status"] != "finished" or _spent(run, record)
    last = min(len(history["epoch"]), run.epochs) if early else run.epochs
    if final["epoch"] != last:
        yield "the last epoch", final["epoch"], last
    metrics = final_metrics(run, Trained(status=record["status"], history=history))
    if provenance["git_revision"] == _WITHOUT_NEIGHBOURS:
        del metrics["neighbouring_relation"]
    for name in dict.fromkeys([*metrics, *final]):
        value, allowed = final.get(name, "missing"), _rounded(name, metrics.get(name, "missing"), up)
        if value not in allowed:
            yield name, value, allowed[0]
    believed = run.rests_on if own_targets(record["config"]) else []
    for name, value, right in (
        ("diagnostics", sorted(record["diagnostics"]), sorted(run.config.diagnostics)),
        ("epsilon_unsound", provenance.get("epsilon_unsound"), run.unsound),
        ("epsilon_rests_on", provenance.get("epsilon_rests_on", []), believed),
    ):
        if value != right:
            yield name, value, right
    share = run.rule.share_name
    if share is not None and not 0 <= (part := provenance.get(share, math.nan)) <= 1:
        yield share, part, "between 0 and 1"


def _due_history(run: Run, record: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the columns of a history, epoch by epoch, that follow from the config.

    For a count that is only bounded, it is the nearest value within the bounds.
    """
    setting, per_epoch = _text(record["config"]), run.mechanism.steps_per_epoch
    due: dict[str, list[Any]] = {name: column[: run.epochs] for name, column in record["history"].items()}
    steps = accepted = [epoch * per_epoch for epoch in due["epoch"]]
    if _spent(run, record):
        steps[-1] = min(max(steps[-1] - per_epoch + 1, due["steps"][-1]), steps[-1])
    if run.rule.takes_back:
        # Accepted steps grow by no more than the steps, and reach what is paid for at the end only.
        accepted, before, steps_before = [], 0, 0
        for count, step in zip(due["accepted"], steps, strict=True):
            most = before + step - steps_before
            if run.paid_for is not None:
                most = min(most, run.paid_for if step == steps[-1] else run.paid_for - 1)
            accepted.append(max(before, min(count, most)))
            before, steps_before = count, step
        due["accepted"] = accepted
    due |= {"steps": steps, **run.rule.due(run, due | {"steps": steps})}
    due["epsilon"] = [_epsilon(setting, count) for count in accepted]
    due[run.cost_column] = [_epsilon_spent(setting, count) for count in steps]
    if (images := _images(run)) is not None:
        for name in due.keys() & {"test_accuracy", LAST[1]}:
            due[name] = [round(float(value) * images / 100) * 100 / images for value in due[name]]
    return due


def _spent(run: Run, record: dict[str, Any]) -> bool:
    """Return True if a run ended because it had accepted as many steps as its budget pays for."""
    return run.rule.takes_back and bool(record["history"]["accepted"][-1] == run.paid_for)


def _images(run: Run) -> int | None:
    """Return the number of images that a run is evaluated on, or None for a user's data set."""
    if type(run.dataset) is not ImageDataset:
        return None
    if run.config.evaluation == EvaluationSplit.holdout:
        return holdout_examples(run.dataset.train_examples)
    numbers = torch.empty(run.dataset.test_examples, device="meta")
    return len(run.rule.split(Split(numbers, numbers))[0])


def _rounded(name: str, right: Any, up: tuple[str, ...]) -> list[Any]:
    """Return the values that a record may have for a number: two if the last digits of an epsilon decide, else one."""
    near = isinstance(right, float) and name.startswith("epsilon")
    values = [right, right * (1 - _ROUNDING), right * (1 + _ROUNDING)] if near else [right]
    return [rounded(value, name if name.startswith(up) else "") for value in values]


def noise_precision(record: Mapping[str, Any]) -> str | None:
    """Return how a record's noise was drawn and rounded, or None if there is no noise of this package."""
    final = record["final"]
    if not final["noise_multiplier"] or (final["epsilon_sound"] is None and "epsilon_spent" not in final):
        return None
    return str(record["provenance"].get("noise", "float32"))


def cost_of_noise(record: Mapping[str, Any], run: Run) -> Cost:
    """Compute what a record's noise costs because it is not exact, or return the reason why that is not computed.

    For noise that was rounded once, these are upper bounds on the growth of epsilon and of delta. For noise that was
    drawn in float64 and rounded before it was added, it is one on the growth of delta by the end of the noise. For
    float32 it is a lower bound on delta. See `runner.mechanism.normal`. The steps alone are counted, and no statistics
    before them.
    """
    mechanism, final, precision = run.mechanism, record["final"], noise_precision(record)
    steps = max(final["steps"], final.get("max_tries", 0))
    if type(mechanism) is not Mechanism:
        return "for this mechanism"
    if precision in (DRAWN, PRECISION):
        if mechanism.before:
            return "for runs that also release statistics"
        pairs = (run.parameters + 1) // 2
        if precision == DRAWN:
            return delta_of_end(pairs, mechanism.noise_multiplier, steps)
        epsilon = next(final[name] for name in ("epsilon_sound", "epsilon_spent") if final.get(name) is not None)
        growth = cost_of_rounding(pairs, steps, epsilon, run.config.delta)
        return growth if growth[0] < math.inf else "for so large an ε"
    if "NVIDIA" in record["provenance"].get("device", ""):
        return "for the float32 noise of a GPU"
    if len(mechanism.noise_groups) > 1:
        return "for several noise groups"
    if mechanism.sampling is not Sampling.poisson:
        return "for shuffled batches"
    unpaired = 15 * len(mechanism.noise_groups[0].parameters)  # at most, of each tensor: the rest beyond whole 16s
    pairs = max(0, run.parameters - unpaired) // 2
    return delta_of_radii(pairs, mechanism.noise_multiplier, mechanism.sampling_rate, steps)


def noise_line(costs: Sequence[tuple[str, Cost]]) -> str:
    """Summarise the precisions of all records' noise, and what it costs, in a few sentences."""
    older = [cost for precision, cost in costs if precision == "float32"]
    bounds = sorted(cost for cost in older if isinstance(cost, float))
    if not older:
        return "All noise was drawn in float64."
    text = f"{len(older)} records have noise that was drawn in float32, so their ε is not that of the noise they had. "
    if bounds:
        least, median = (number(bound, bound="lower") for bound in (bounds[0], bounds[len(bounds) // 2]))
        text += (
            f"For {len(bounds)} of them δ is computed to be at least {least} at any ε, and at least {median} for "
            f"{len(bounds) - len(bounds) // 2}. "
        )
    return text + f"For {len(older) - len(bounds) or 'none'} it is not computed."


def _text(config: dict[str, Any]) -> str:
    """Return a config without its seed and draw, as text. All seeds of a setting have the same text."""
    return json.dumps(config | {"seed": 0, "draw": 0})


@lru_cache(maxsize=8)
def _run_of_setting(text: str) -> Run:
    return run_of(json.loads(text))


@cache
def _epsilon(text: str, accepted: int) -> float:
    """Compute epsilon as the paper counts it after some accepted steps of a setting."""
    run = _run_of_setting(text)
    return epsilon_by(run.accountant, run.mechanism.charges(accepted).claimed, run.config.delta)


@cache
def _epsilon_spent(text: str, steps: int) -> float | None:
    """Compute the sound epsilon of a number of steps of a setting, or None if its class charges itself."""
    run = _run_of_setting(text)
    return run.spent_epsilon(run.mechanism.charges(steps))


def run_of(recorded: dict[str, Any]) -> Run:
    """Prepare the run of a recorded config on this machine.

    Raises:
        ConfigError: a user's class has changed since, or the present code cannot prepare the run.
    """
    machine = {
        "runtime": {"device": "cpu", "data_root": ".", "results_root": "."},
        "tracking": {"project": "", "directory": ""},
    }
    config = restored({**recorded, **machine})
    check_sources(config)
    return prepare(config)


def check_files(paths: Sequence[Path], jobs: int | None = None, *, fresh: bool = False) -> Iterator[Checked]:
    """Check files of records in processes. What accountants answer is kept in the user's cache folder.

    Args:
        jobs: processes at a time; None: one for each core, and fewer where records or memory are few.
        fresh: True if the answers in the cache are not used.

    Raises:
        ConfigError: a process was killed.
    """
    if not fresh:
        ANSWERS.update(_stored_answers())
    groups = _groups(paths)
    jobs = min(jobs or max(1, min(cores(), memory() // _MEMORY, len(paths) // _RECORDS)), len(groups))
    try:
        yield from _checked_by_processes(groups, jobs) if jobs > 1 else map(check_file, chain.from_iterable(groups))
    finally:
        _store_answers()


def _groups(paths: Iterable[Path]) -> list[list[Path]]:
    """Group records by what their charges follow from, so that a process asks each accountant only once.

    The largest group is first, because its process is the last to end.
    """
    groups: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for path in paths:
        config = dict[str, Any]()
        with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):  # it is no record, as its check says
            config = dict(json.loads(content_of(path))["config"])
        groups[json.dumps([config.get(name) for name in _CHARGED])].append((_text(config), path))
    return sorted(([path for _, path in sorted(group)] for group in groups.values()), key=len, reverse=True)


def _checked_by_processes(groups: Sequence[list[Path]], jobs: int) -> Iterator[Checked]:
    """Check each group in one process, with `jobs` at a time, and take over the answers of their accountants."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # PyTorch is imported once, and forked
    parts: list[list[Path]] = [[] for _ in range(min(_TURNS * jobs, len(groups)))]
    for group in groups:
        min(parts, key=len).extend(group)
    pool = ProcessPoolExecutor(jobs, context, _prepare_process, (dict(ANSWERS),))
    try:
        for part in as_completed([pool.submit(_check, part) for part in parts]):
            checked, answers = part.result()
            ANSWERS.update(answers)
            yield from checked
    except BrokenProcessPool as error:
        raise ConfigError("a process was killed, perhaps for want of memory: --jobs 1 needs least.") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _prepare_process(answers: Mapping[Question, float]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a terminal sends it to all processes
    torch.set_num_threads(1)
    ANSWERS.update(answers)


def _check(paths: Iterable[Path]) -> tuple[list[Checked], dict[Question, float]]:
    return [check_file(path) for path in paths], ANSWERS


def check_file(path: Path) -> Checked:
    """Check a file. An error while it is read or prepared is a fault, so that the next file is checked."""
    try:
        record = read_record(path)
        faults = verify(record)
    except Exception as error:
        faults = [str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"]
    if faults or (precision := noise_precision(record)) is None:
        return Checked(path, faults)
    return Checked(path, [], (precision, cost_of_noise(record, _run_of_setting(_text(record["config"])))))


def _answers_path() -> Path:
    """Return the file of what `runner.accounting.pld` computed, by version of its code and of the packages it uses."""
    code = hash_of(("dp-accounting", "numpy", "scipy"), ("runner/accounting/*.py",))
    return cache_folder() / f"epsilons-{code[:16]}.json"


def _stored_answers() -> dict[Question, float]:
    with suppress(TypeError, ValueError):  # other rows
        return {
            (tuple(SampledGaussian(*mechanism) for mechanism in mechanisms), delta, interval): epsilon
            for mechanisms, delta, interval, epsilon in read_entry(_answers_path()) or ()
        }
    return {}


def _store_answers() -> None:
    """Add the answers of this process to those in the cache."""
    before = _stored_answers()
    if (answers := before | ANSWERS) != before:
        write_entry(_answers_path(), [[*question, epsilon] for question, epsilon in answers.items()])
