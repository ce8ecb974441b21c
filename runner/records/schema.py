"""Schema of a record: its keys, the types and ranges of its values, and the consistency of its columns.

Values that follow from a record's config are checked by `runner.records.verify`.
"""

import dataclasses
import math
import typing
from enum import EnumType
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    create_model,
    model_validator,
)

from runner.config import Config
from runner.config.fields import Properties, Range

Id = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Number = Finite | Literal["inf", "-inf", "nan"]  # what JSON cannot hold is a string that float() reads
Amount = Annotated[Finite, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Epoch = Annotated[int, Field(ge=1)]
Percent = Annotated[Finite, Field(ge=0, le=100)]
Epsilon = Amount | Literal["inf"]
_GROWS = ("steps", "epsilon", "epsilon_sound", "epsilon_spent")  # columns that never fall from epoch to epoch
AT_MOST = "epsilon_sound_at_max_tries"


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class Measured(RootModel[Any]):
    """Numbers in lists and dicts, however deep."""

    root: "list[Value] | dict[str, Value]"


Value = Annotated[Number | Measured, Field(union_mode="left_to_right")]  # the other mode takes five times as long


class History(_Strict):
    """By epoch: how many steps were taken, what they cost, and what was measured after it. Update rules add columns."""

    __pydantic_extra__: dict[str, list[Number | bool]]

    epoch: list[Epoch] = Field(min_length=1)
    steps: list[Count]
    epsilon: list[Epsilon]
    epsilon_sound: list[Epsilon | None] = []  # this column or the next: see `runner.training.run.Run.cost_column`
    epsilon_spent: list[Epsilon] = []
    train_loss: list[Number]
    test_loss: list[Number]
    test_accuracy: list[Percent]

    @model_validator(mode="after")
    def _columns_agree(self) -> "History":
        columns = self.model_dump(exclude_unset=True)
        if len(columns.keys() & {"epsilon_sound", "epsilon_spent"}) != 1:
            raise ValueError("its history has not one of epsilon_sound and epsilon_spent")
        if len({len(values) for values in columns.values()}) != 1:
            raise ValueError("its history is not of equal lengths")
        if self.epoch != list(range(1, len(self.epoch) + 1)):
            raise ValueError("its epochs are not 1, 2, 3 and so on")
        if None in self.epsilon_sound and any(value is not None for value in self.epsilon_sound):
            raise ValueError("its epsilon_sound is known after some epochs and not after others")
        for name in columns.keys() & set(_GROWS):
            if None not in columns[name] and any(float(last) > float(now) for last, now in pairwise(columns[name])):
                raise ValueError(f"its {name} falls from one epoch to the next")
        return self


class Final(_Strict):
    """The last epoch's metrics, the best epoch's, and what the run was made with."""

    __pydantic_extra__: dict[str, Number | bool]

    epoch: Epoch
    steps: Count
    epsilon: Epsilon
    epsilon_sound: Epsilon | None  # what is guaranteed; in older records see `runner.records.disk.as_today`
    epsilon_spent: Epsilon = 0.0  # what the steps cost, where that guarantees nothing
    test_accuracy: Percent
    best_test_accuracy: Percent
    best_epoch: Epoch
    noise_multiplier: Amount
    sampling_rate: Annotated[Finite, Field(gt=0, le=1)]
    parameters: Annotated[int, Field(ge=1)]
    neighbouring_relation: str = ""  # the oldest records lack it
    max_tries: Count = 0  # of runs that decide themselves when they end
    epsilon_sound_at_max_tries: Epsilon | None = 0.0  # older records' guarantee of such a run


class Provenance(_Strict):
    """Provenance of a record: code, versions, machine and cost, in seconds and MiB."""

    git_revision: str | None
    command: str = ""  # repeats the run; older records lack it
    wall_seconds: Amount
    processor_seconds: Amount = 0.0
    yardstick_seconds: Annotated[Finite, Field(gt=0)] = 1.0
    examples_per_second: Amount = 0.0
    peak_memory_mib: Amount = 0.0
    threads: Annotated[int, Field(ge=1)] = 1
    lockstep: Annotated[int, Field(ge=1)] = 1  # runs in the same steps, in older records
    physical_batch: Annotated[int, Field(ge=1)] = 1
    engine: str = ""
    step: str = ""
    device: str = ""
    python: str = ""
    resumed_after: list[Epoch] = Field(default=[], min_length=1)
    epsilon_rests_on: list[str] = Field(default=[], min_length=1)
    epsilon_unsound: str | None = None  # why no sound epsilon is known
    instructions: str = ""
    noise: Literal["float64", "float64, rounded once"] | None = None  # None: drawn in float32, in older records
    kernels: str | dict[str, dict[str, str]] = ""  # the oldest records list each kernel's choice by shape
    versions: dict[str, str | None] = {}


def _model_of(kind: type) -> type[BaseModel]:
    """Make a model of the recorded fields of a schema of `runner.config`, with their types in JSON."""

    def check_group(value: dict[str, Any]) -> dict[str, Any]:
        if value and not isinstance(value.get("_target_"), str):
            raise ValueError("it names no class")
        return value

    def check_range(limits: Range, value: Any) -> Any:
        if value is not None and not limits.holds(value):
            raise ValueError(f"it has to be {limits.words}")
        return value

    hints, fields = typing.get_type_hints(kind), dict[str, Any]()
    for field in dataclasses.fields(kind):
        hint: Any = hints[field.name]
        properties: Properties | None = field.metadata.get("properties")
        if properties is not None and not properties.part.recorded:
            continue
        if properties is not None and properties.names_class:
            hint = Annotated[dict[str, Any], AfterValidator(check_group)]
            hint = hint | None if properties.optional else hint
        elif kinds := [part for part in (hint, *typing.get_args(hint)) if isinstance(part, EnumType)]:
            by_value: Any = Annotated[kinds[0], Field(strict=False)]
            hint = by_value if hint is kinds[0] else by_value | None
        elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
            hint = _model_of(hint)
        if (limits := field.metadata.get("within")) is not None:
            hint = Annotated[hint, AfterValidator(partial(check_range, limits))]
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        may_lack = default in (None, [], {})  # as in the ids: a record from before the field lacks it
        fields[field.name] = hint, None if may_lack else ...
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    return create_model(kind.__name__, __config__=model_config, **fields)


RecordedConfig: Any = _model_of(Config)


class Record(BaseModel):
    """One run that ended; or, with the status "stopped" and in a folder of that name, the first epochs of one."""

    model_config = ConfigDict(strict=True, extra="forbid")

    run_id: Id
    setting_id: Id
    status: Literal["finished", "diverged", "stopped"]
    config: RecordedConfig
    history: History
    final: Final
    diagnostics: dict[str, Value]
    provenance: Provenance
    digest: Digest = Field(description="SHA-256 of all the rest: see runner.records.disk.digest_of.")

    @model_validator(mode="after")
    def _parts_agree(self) -> "Record":
        history, final = self.history.model_dump(exclude_unset=True), self.final.model_dump(exclude_unset=True)
        differing = {"epsilon_sound"} if "max_tries" in final and AT_MOST not in final else set()
        if any(str(final.get(name)) != str(history[name][-1]) for name in history.keys() - differing):
            raise ValueError("its final metrics are not the last of its history")
        unsound = self.provenance.epsilon_unsound is not None
        if any((final[name] is None) != unsound for name in {"epsilon_sound", AT_MOST} & self.final.model_fields_set):
            raise ValueError("its sound epsilon is null without provenance.epsilon_unsound, or the other way round")
        if len(history["epoch"]) > self.config.epochs:
            raise ValueError("it has more epochs than its config")
        finite = [math.isfinite(float(loss)) for loss in history["test_loss"]]
        if not all(finite[:-1]):
            raise ValueError("it goes on after a loss that is not a finite number")
        if self.status != "diverged" and not finite[-1]:
            raise ValueError("it is not said to have diverged, and its last loss is not a finite number")
        return self


class SchemaError(ValueError):
    """A record is not what it has to be. The message says the first thing that is wrong."""


def validate(content: Any, model: type[BaseModel] = Record) -> None:
    """Check what was read of a record's file, or its config by `RecordedConfig`.

    Raises:
        SchemaError: one sentence on the first thing that is wrong.
    """
    try:
        model.model_validate(content)
    except ValidationError as error:
        raise SchemaError(first_of(error)) from error


def first_of(error: ValidationError) -> str:
    """Return the first thing that is wrong, with its place."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    text = first["msg"].removeprefix("Value error, ")
    return f"{where}: {text}" if where else text
