"""Properties of the schema's fields for the code that reads configs, stated next to each field (`runner.config`)."""

import dataclasses
import typing
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from omegaconf import MISSING


class Part(Enum):
    """The part of a run's identity that a field belongs to."""

    setting = "setting"  # the setting, and so every run of it
    observed = "observed"  # the setting, too, but only the measurements depend on it, not the training
    run = "run"  # one run, among those that repeat its setting
    record = "record"  # the record only, because the field's effect shows in other fields
    machine = "machine"  # the place, speed and tracking of the computation, which the record's config leaves out

    @property
    def defines_setting(self) -> bool:
        """Return True if the field is a part of the setting id."""
        return self in (Part.setting, Part.observed)

    @property
    def identifies(self) -> bool:
        """Return True if the field is a part of the run id."""
        return self.defines_setting or self is Part.run

    @property
    def recorded(self) -> bool:
        """Return True if a record keeps the field."""
        return self is not Part.machine


@dataclass(frozen=True)
class Range:
    """The values that a field may have, as a description and as a test. Null is in every range."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Properties:
    """The properties of a field of a run's config.

    Null and empty values are always left out of the ids. A field that is added later may state a value at which it is
    left out, too: the behaviour of older runs, whose ids it then does not change.
    """

    part: Part
    takes: str | None = None  # the dotted path of the class or protocol that a group's options (`_target_`) have to be
    optional: bool = False  # the group is null by default
    unhashed_at: Any = None  # the value at which the field is left out of the ids

    @property
    def names_class(self) -> bool:
        """Return True if the field is a group whose options are classes."""
        return self.takes is not None


def stated(default: Any = MISSING, *, part: Part | None = None, within: Range | None = None, **more: Any) -> Any:
    """Declare a field of `Config`: a value, or a group with a schema, whose fields share its properties.

    A field of such a group states no part. `more` is the rest of `Properties`.
    """
    metadata = {"properties": part and Properties(part, **more), "within": within}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def class_group(takes: str, *, optional: bool = False) -> Any:
    """Declare a field of `Config` that is a group whose options are classes, of a type named by its dotted path."""
    return stated(None if optional else MISSING, part=Part.setting, takes=takes, optional=optional)


def ranges_of(schema: type, prefix: str = "") -> Iterator[tuple[str, Range]]:
    """Yield each field of a schema, and of the schemas inside it, that has a range, as `group.name` with the range."""
    types = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        if field.metadata.get("within") is not None:
            yield prefix + field.name, field.metadata["within"]
        if dataclasses.is_dataclass(types[field.name]):
            yield from ranges_of(types[field.name], f"{prefix}{field.name}.")


def expect(holds: bool, wanted: str, value: object) -> None:
    """Check an argument of a part: `expect(gamma >= 0, "loss.gamma >= 0", gamma)`.

    Raises:
        ValueError: it does not hold. The message states what is wanted, and the value.
    """
    if not holds:
        raise ValueError(f"Expected {wanted}, got {value}.")


def expect_option(name: str, value: object, options: Collection[object]) -> None:
    """Check that an argument of a part is one of its options.

    Raises:
        ValueError: it is not. The message lists them.
    """
    if value not in options:
        raise ValueError(f"{name} has no {value}: choose from {', '.join(map(str, options))}.")
