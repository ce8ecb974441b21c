"""What a record has to be: its keys, the ranges of its numbers, and how its columns hang together.

Published as JSON Schema in results/record.schema.json (`python -m runner.runs.schema` writes it).
"""

from __future__ import annotations

import json
import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from runner.config import REPOSITORY

PUBLISHED = REPOSITORY / "results" / "record.schema.json"

Id = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Number = float | Literal["inf", "-inf", "nan"]  # what JSON cannot hold is a string that float() reads
Count = Annotated[int, Field(ge=0)]
Epoch = Annotated[int, Field(ge=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
Epsilon = Annotated[float, Field(ge=0)] | Literal["inf"]
_GROWS = ("steps", "epsilon", "epsilon_sound")  # columns that never fall from epoch to epoch
_AT_MOST = "epsilon_sound_at_max_tries"


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class History(_Strict):
    """By epoch: how many steps were taken, what they cost, and what was measured after it. Update rules add columns."""

    epoch: list[Epoch] = Field(min_length=1)
    steps: list[Count]
    epsilon: list[Epsilon]
    epsilon_sound: list[Epsilon | None]
    train_loss: list[Number]
    test_loss: list[Number]
    test_accuracy: list[Percent]

    @model_validator(mode="after")
    def _columns_agree(self) -> History:
        columns = self.model_dump()
        if len({len(values) for values in columns.values()}) != 1:
            raise ValueError("its history is not of equal lengths")
        if self.epoch != list(range(1, len(self.epoch) + 1)):
            raise ValueError("its epochs are not 1, 2, 3 and so on")
        if None in self.epsilon_sound and any(value is not None for value in self.epsilon_sound):
            raise ValueError("its epsilon_sound is known after some epochs and not after others")
        for name in _GROWS[:2] if None in self.epsilon_sound else _GROWS:
            if any(float(one) > float(next_) for one, next_ in pairwise(columns[name])):
                raise ValueError(f"its {name} falls from one epoch to the next")
        return self


class Final(_Strict):
    """The last epoch's metrics, the best epoch's, and what the run was made with."""

    epoch: Epoch
    steps: Count
    epsilon: Epsilon
    epsilon_sound: Epsilon | None
    test_accuracy: Percent
    best_test_accuracy: Percent
    best_epoch: Epoch
    noise_multiplier: Annotated[float, Field(ge=0)]
    sampling_rate: Annotated[float, Field(gt=0, le=1)]
    parameters: Annotated[int, Field(ge=1)]


class Record(BaseModel):
    """One run that ended; or, with the status "stopped" and in a folder of that name, the first epochs of one."""

    model_config = ConfigDict(strict=True, extra="forbid")

    run_id: Id
    setting_id: Id
    status: Literal["finished", "diverged", "stopped"]
    config: dict[str, Any]
    history: History
    final: Final
    diagnostics: dict[str, Any]
    provenance: dict[str, Any]
    digest: Digest = Field(description="SHA-256 of all the rest: see runner.runs.records.digest_of.")

    @model_validator(mode="after")
    def _parts_agree(self) -> Record:
        history, final = self.history.model_dump(), self.final.model_dump()
        if any(str(final.get(name)) != str(values[-1]) for name, values in history.items()):
            raise ValueError("its final metrics are not the last of its history")
        known = [final[name] is not None for name in ("epsilon_sound", _AT_MOST) if name in final]
        if any(each == ("epsilon_unsound" in self.provenance) for each in known):
            raise ValueError("its sound epsilon is null without provenance.epsilon_unsound, or the other way round")
        if self.status != "diverged" and not math.isfinite(float(history["test_loss"][-1])):
            raise ValueError("it is not said to have diverged, and its last loss is not a finite number")
        return self


def validate(content: Any) -> None:
    """Check what was read of a record's file.

    Raises:
        ValueError: one sentence on the first thing that is wrong.
    """
    try:
        Record.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        text = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}: {text}" if where and first["type"] != "value_error" else text) from error


def published() -> str:
    """The schema as JSON text."""
    return json.dumps(Record.model_json_schema(), indent=1) + "\n"


def main() -> int:
    """Write the schema where it is published."""
    Path(PUBLISHED).write_text(published(), encoding="utf-8")
    print(PUBLISHED)
    return 0


if __name__ == "__main__":
    sys.exit(main())
