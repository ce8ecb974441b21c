"""The bench from Python: train a run, compare methods in a study, account for a script, read records.

    from runner.api import compute_epsilon, load_records, load_run, run_study, train_run

    run = train_run("experiment=tempered_sigmoid/mnist_tanh", activation=MyActivation, sound_epsilon=3)
    run.accuracy, run.epsilon_sound, run.history, run.model

Everything here does what the commands do, on the same records: a run that is recorded is read and not trained again.
Whatever is asked for wrongly raises `ConfigError` with one sentence, before work starts.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Real
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.accounting import Pld, check_delta, training_loop
from runner.accounting.calibration import Accountant
from runner.config import FIELDS, REPOSITORY, RESULTS, ConfigError, EvaluationSplit, options_of, register
from runner.config.checkout import scan
from runner.config.hydra_errors import sentence
from runner.config.options import as_typed, check_budgets, check_options, search_path
from runner.records.disk import find_record, read_record, results_folder, stopped_path, use_own_folder
from runner.records.identity import identify, resolved
from runner.records.jobs import command_of, composed
from runner.records.store import table_of
from runner.report.listing import result_text
from runner.terminal import nearest, one_line
from runner.trust.sources import LIBRARIES

if TYPE_CHECKING:  # both take a second to import
    import pandas as pd
    from torch import nn

    from runner.training.run import Run

_ONE_AT_A_TIME = RLock()  # threads share the generators of random numbers, and Hydra's state
__all__ = ["ConfigError", "Step", "TrainedRun", "compute_epsilon", "load_records", "load_run", "run_study", "train_run"]


@dataclass(frozen=True)
class Step:
    """A step of training, as `on_step` gets it. No loss and no gradient is in it, as no ε covers them.

    Attributes:
        epoch: the epoch, from 1.
        step: the number of steps taken in the whole run, from 1, kept or not.
        steps: the most steps that the run can take.
    """

    epoch: int
    step: int
    steps: int
    _run: "Run"

    @property
    def epsilon(self) -> float:
        """Epsilon of the steps so far as the paper counts, if all of them were kept."""
        return self._run.accountant.epsilon(self._run.mechanism.charges(self.step).claimed, self._run.config.delta)

    @property
    def epsilon_sound(self) -> float | None:
        """The sound epsilon of a run that is told beforehand to end after this step, or None if there is none."""
        return self._run.sound_epsilon(self._run.mechanism.charges(self.step))


@dataclass(frozen=True)
class TrainedRun:
    """A recorded run.

    Attributes:
        path: the file of its record.
        record: the content of the record.
    """

    path: Path
    record: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """The 12 hexadecimal digits that name the run."""
        return self.path.stem

    @property
    def accuracy(self) -> float:
        """The accuracy after the last epoch, in percent: on test images, or on held-out ones if `evaluation` is so."""
        return float(self.record["final"]["test_accuracy"])

    @property
    def epsilon(self) -> float:
        """Epsilon as the paper counts."""
        return float(self.record["final"]["epsilon"])

    @property
    def epsilon_sound(self) -> float | None:
        """The proven upper bound for all that the run released or could have released, or None if there is none."""
        sound = self.record["final"]["epsilon_sound"]
        return None if sound is None else float(sound)

    @cached_property
    def history(self) -> "pd.DataFrame":
        """One row for each epoch: steps, both epsilons, losses and accuracy (percent)."""
        import pandas as pd

        return pd.DataFrame({name: pd.Series(values) for name, values in self.record["history"].items()})

    @cached_property
    def model(self) -> "nn.Module":
        """The trained network, on the CPU, ready to evaluate. It takes the run's features of images.

        Raises:
            ConfigError: the run was recorded without its weights, or its classes have changed.
        """
        from runner.runs.models import load, model_path

        weights = model_path(self.path.parents[1], self.run_id)
        if not weights.is_file():
            raise ConfigError(
                f"Run {self.run_id} was recorded without its weights: train it again into another folder, by "
                "train_run(..., results_root=FOLDER)."
            )
        with _explained():
            return load(weights).network

    def __repr__(self) -> str:
        return f"<run {self.run_id}, {result_text(self.record)}>"


def train_run(
    *overrides: str,
    on_epoch: Callable[[dict[str, float]], bool | None] | None = None,
    on_step: Callable[[Step], None] | None = None,
    results_root: str | Path | None = None,
    config_dir: str | Path | None = None,
    **fields: Any,
) -> TrainedRun:
    """Train one run, or read its record if there is one, and return it.

    Args:
        overrides: as on the command line: "experiment=tempered_sigmoid/mnist_tanh", "optimizer.lr=0.5".
        on_epoch: called after each epoch with its row of the history. If it returns False, the run ends there. The row
            has losses of the training images, too, which no ε covers: do not decide by them.
        on_step: called after each step that is taken call by call: see `Step`.
        results_root: the folder of records and weights; by default results/yours, which git ignores.
        config_dir: a folder of your own options; conf/ of the current folder by default.
        fields: more overrides by name. A value is an option's name, a number, a list, or, for a group, a class or a
            function of yours, or a `functools.partial` of one with its arguments.

    Raises:
        ConfigError: the run cannot be trained as asked, or a class has no source that a record could identify.
        DataError: the data set cannot be read.

    >>> run = train_run("experiment=tempered_sigmoid/mnist_tanh", scale="smoke", sound_epsilon=3)  # doctest: +SKIP
    >>> run.epsilon_sound  # doctest: +SKIP
    3.0
    """
    from runner.runs.execute import execute

    register()
    place = {} if results_root is None else {"runtime.results_root": Path(results_root).expanduser()}
    config = _config([*overrides], {**place, **fields}, config_dir)

    def goes_on(rows: Sequence[Mapping[str, float]]) -> bool:
        answer = None if on_epoch is None else on_epoch(dict(rows[-1]))
        return answer is None or bool(answer)

    def after_step(epoch: int, step: int, run: "Run") -> None:
        if on_step is not None:
            on_step(Step(epoch, (epoch - 1) * run.mechanism.steps_per_epoch + step, run.most_steps, run))

    with _explained():
        outcome = execute(config, lambda row, run: None, on_step=after_step, goes_on=goes_on)
    if outcome == "busy":
        raise ConfigError(f"Another process trains run {identify(config)[0]}: wait for it, then ask again.")
    place_of = stopped_path if outcome == "stopped" else find_record
    return load_run(place_of(results_folder(config), identify(config)[0]))


def run_study(
    file: str | Path,
    *overrides: str,
    scale: str = "paper",
    jobs: int | None = None,
    config_dir: str | Path | None = None,
) -> "pd.DataFrame":
    """Carry out a study, or what is left of it, and return one row for each arm, data set and epsilon.

    Args:
        file: a study file, as `python -m runner study` takes it.
        overrides: "runtime.device=cuda", for example.
        scale: "smoke" tests the file in minutes.
        jobs: runs at the same time; by default one for each core.
        config_dir: a folder of your own options.

    Returns:
        Columns: dataset, epsilon (sound), arm, runs, accuracy (mean, percent), gain over the first arm with the ends
        of its 95% interval (points), answer.

    Raises:
        ConfigError: the file or a configuration is wrong, or a run failed.
    """
    import pandas as pd

    from runner.cli import study as command

    options = [f"--scale={scale}", *([] if jobs is None else [f"--jobs={jobs}"])]
    options += [] if config_dir is None else [f"--config-dir={config_dir}"]
    with _explained():
        code, compared = command.carry_out([str(file), *options, *map(str, overrides)])
    if code:
        raise ConfigError(f"{file}: a run failed, see above. The others are recorded, and the same call goes on.")
    rows = []
    for arm in compared:
        accuracies = list(arm.arm.accuracies().values())
        interval = arm.gain and arm.gain.shown
        rows.append(
            {
                "dataset": arm.arm.setting.dataset,
                "epsilon": arm.arm.setting.epsilon,
                "arm": arm.arm.setting.arm.name,
                "runs": len(accuracies),
                "accuracy": sum(accuracies) / len(accuracies) if accuracies else None,
                "gain": arm.gain and arm.gain.value,
                "low": interval and interval.low,
                "high": interval and interval.high,
                "answer": arm.word,
            }
        )
    return pd.DataFrame(rows)


def compute_epsilon(
    noise_multiplier: float,
    sampling_rate: float | None = None,
    steps: int | None = None,
    delta: float = 1e-5,
    *,
    batch_size: int | None = None,
    examples: int | None = None,
    epochs: int | None = None,
    shuffled: bool = False,
    accountant: Accountant | type[Accountant] | None = None,
) -> float:
    """Return the epsilon of DP-SGD that is trained elsewhere, by default the sound one.

    Args:
        noise_multiplier: the noise's standard deviation over the clipping norm.
        sampling_rate: the probability with which an example joins a Poisson batch.
        steps: the number of batches.
        delta: above 0, and below 1 / examples.
        batch_size: the expected batch size. With `examples` it takes the place of the sampling rate.
        examples: the number of training examples.
        epochs: passes over the data, in place of `steps`; each has examples / batch_size steps, rounded up.
        shuffled: True if batches are parts of the shuffled data. Their epsilon has no amplification by sampling, and
            is one for neighbours of which one has a zero in place of the example.
        accountant: one of `runner.accounting`, or its class; by default `Pld`, whose epsilon is a tight upper bound.

    Raises:
        ConfigError: a number is missing, given twice or out of range.

    >>> round(compute_epsilon(noise_multiplier=1.1, batch_size=256, examples=60_000, epochs=60), 3)
    2.385
    >>> round(compute_epsilon(noise_multiplier=1.1, sampling_rate=256 / 60_000, steps=14_040), 3)
    2.38
    """
    given: dict[str, Any] = {"sampling_rate": sampling_rate, "steps": steps}
    given |= {"batch_size": batch_size, "examples": examples, "epochs": epochs}
    given = {name: None if value is None else _number(name, value) for name, value in given.items()}
    noise_multiplier, delta = _number("noise_multiplier", noise_multiplier), _number("delta", delta)
    loop = training_loop(**given, shuffled=bool(_number("shuffled", shuffled)))
    check_delta(delta, given["examples"])
    if not noise_multiplier >= 0:
        raise ConfigError(f"A noise multiplier of {noise_multiplier:g} is below 0 or no number.")
    chosen = accountant() if isinstance(accountant, type) else accountant or Pld()
    if not hasattr(chosen, "epsilon"):
        raise ConfigError(f"accountant={accountant!r} is no accountant: take one of runner.accounting, such as Pld.")
    return chosen.epsilon(loop.releases(noise_multiplier), delta)


def _number(name: str, value: Any) -> Any:
    """Return a number as Python's own: one of NumPy or PyTorch with few bits overflows in what follows from it."""
    value = value.item() if getattr(value, "ndim", None) == 0 else value
    if not isinstance(value, Real):
        raise ConfigError(f"{name}={value!r} is no number.")
    return value


def load_run(run: str | Path, results: str | Path = RESULTS) -> TrainedRun:
    """Read a run by the beginning of its id, or by the file of its record.

    Raises:
        ConfigError: no record, or more than one, begins so, or the file is no record.
    """
    from runner.report.items import find_run

    try:
        file = isinstance(run, Path) or str(run).endswith(".json")
        path = Path(run).expanduser() if file else find_run(Path(results).expanduser(), str(run))
        return TrainedRun(path, read_record(path))
    except (FileNotFoundError, ValueError) as error:
        raise ConfigError(str(error)) from error


def load_records(
    results: str | Path = RESULTS, *, scale: str | None = "paper", evaluation: str | None = "test"
) -> "pd.DataFrame":
    """Read the records of a results folder into a table with one row for each run.

    Args:
        results: the folder.
        scale: runs of this scale alone; None for all. Numbers of other scales are no results.
        evaluation: "test", or "holdout" for trials of searches, whose `test_accuracy` is that of held-out training
            images; None for both.

    Returns:
        The table, with `run_id` as its index. Fields of the config have their dotted names, and the name of a group
        has its class ("activation"). Final metrics are columns such as `test_accuracy`. The history is in columns such
        as `history.test_accuracy`, whose values are lists with a number for each epoch.

    Raises:
        ConfigError: there is no such folder, scale or evaluation.
        ValueError: a file is no whole record.
    """
    folder = Path(str(results)).expanduser()
    if folder != RESULTS and not folder.is_dir():
        raise ConfigError(f"load_records: {results} is no folder.")
    table, splits = table_of(folder), [split.value for split in EvaluationSplit]
    for name, value, choices in (("scale", scale, options_of("scale")), ("evaluation", evaluation, splits)):
        if value is not None and value not in choices:
            raise ConfigError(f"load_records: there is no {name} {value!r}. {nearest(str(value), choices)}")
        table = table if value is None or name not in table else table[table[name] == value]
    return table


def _config(overrides: list[str], fields: Mapping[str, Any], config_dir: str | Path | None) -> DictConfig:
    classes = {n: v for n, v in fields.items() if isinstance(v, (type, partial)) or inspect.isfunction(v)}
    typed = {n: v if isinstance(v, str) else _value(n, v) for n, v in fields.items() if n not in classes}
    texts = [*overrides, *(f"{name}={text}" for name, text in typed.items())]
    folders = search_path(None if config_dir is None else str(config_dir))
    with _explained():
        for text in (text for text in texts if not isinstance(text, str)):
            raise ConfigError(f"{text!r} is no text: write name=value in quotes, or name the field, as in seed=1.")
        check_options(texts)
        texts = as_typed(texts)
        base = composed([*folders, *texts])
        for group, named in classes.items():
            texts += _class_texts(base, group, named)
        config = composed([*folders, *texts])
        check_budgets(config, texts)
        config = resolved(config)
    use_own_folder(config, texts)
    config.save_model = True
    config.tracking.command = command_of([*texts, *folders])
    return config


def _class_texts(base: DictConfig, group: str, named: Any) -> Iterator[str]:
    """Yield the overrides that make a class, or a partial of one, the option of a group."""
    kind, arguments = (named.func, named.keywords) if isinstance(named, partial) else (named, {})
    if group not in FIELDS or not FIELDS[group].names_class:
        groups = ", ".join(name for name, field in FIELDS.items() if field.names_class)
        raise ConfigError(f"{group} takes no class. Groups that do: {groups}.")
    if isinstance(named, partial) and named.args:
        raise ConfigError(f"{group}: name the arguments of {kind.__qualname__}, as in partial(MyLoss, beta=2).")
    try:
        located = kind.__module__.partition(".")[0] in LIBRARIES
        located = located or (bool(inspect.getsource(kind)) and kind.__module__ != "__main__")
    except (OSError, TypeError):
        located = False
    if "<" in kind.__qualname__ or not located:  # in a function, or a lambda
        raise ConfigError(
            f"{group}: {kind.__qualname__} is not in a file that a record could identify: put it into a module, at "
            "its top, and import it from there."
        )
    present = base[group]
    for name in present or ():
        if name not in ("_target_", "_partial_", *arguments):
            if present[name] is None:  # for Hydra there is nothing to delete
                yield f"{group}.{name}=0"
            yield f"~{group}.{name}"
    add = "" if OmegaConf.is_config(present) else "+"
    yield f"{add}{group}._target_={kind.__module__}.{kind.__qualname__}"
    # The options of some groups are classes that the package calls with further arguments.
    if add and any("_partial_: true" in path.read_text() for path in scan(REPOSITORY / "conf" / group, "*.yaml")):
        yield f"+{group}._partial_=true"
    for name, value in arguments.items():
        yield f"{'' if present and name in present else '+'}{group}.{name}={_value(f'{group}.{name}', value)}"


def _value(name: str, value: Any) -> str:
    """Write a value of Python, perhaps a number of NumPy's, as an override has it.

    Raises:
        ConfigError: it is no text, number, list or mapping, but an instance of a class, say.
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str | os.PathLike):
        return QuotedString(os.fspath(value), Quote.single).with_quotes()
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_value(name, inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_value(name, inner) for inner in value)}]"
    if value is None or isinstance(value, int | float):
        return "null" if value is None else str(value)
    shown = one_line(repr(value))
    raise ConfigError(
        f"{name} takes a name, a number or a class, not {shown}: give the class itself, or functools.partial with its "
        "arguments."
    )


@contextmanager
def _explained() -> Iterator[None]:
    try:
        with _ONE_AT_A_TIME:
            yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(sentence(error)) from None  # its traceback is all Hydra
    except SystemExit as ended:  # of a parser of arguments, which has printed why
        raise ConfigError("These arguments cannot be read, see above.") from ended
