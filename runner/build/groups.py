"""The groups of a config that name classes: the target and the arguments of each, checked once, and its instance.

A group may name a class of PyTorch or of this package that it takes: `runner.config` states the type next to the field.
It may name a function of `runner.networks` that returns a network, and whatever else can be imported, such as a class
in the folder where the command was started. What a config must not call is Hydra's own policy.
"""

import inspect
import typing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass, make_dataclass
from functools import cache
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import nn

from runner.config import FIELDS, ConfigError
from runner.terminal import nearest
from runner.trust.sources import LIBRARIES, import_target, targets

_PASSED = ("activation", "classes", "input_shape", "optimizer", "params", "steps")  # by the package, to a class
_CALLED_LATER = ("mechanism", "optimizer", "schedule")
# An instance has to have all methods of its type.
_CHECKED_METHODS = ("accountant", "averaging", "init", "normalization")


class Group:
    """One group of a config: a class or function, and arguments that fit it.

    >>> config = OmegaConf.create({"activation": {"_target_": "torch.nn.ELU", "alpha": 0.5}})
    >>> Group(config, "activation").build()
    ELU(alpha=0.5)

    Attributes:
        name: the group.
        node: its part of the config.
        target: the class or function, or None for an optional group that is null.

    Raises:
        ConfigError: a target at any depth names no class or function, cannot be imported, or is of another type than
            the group takes; or an argument is unknown, or of another type than in the signature.
    """

    def __init__(self, config: DictConfig, name: str) -> None:
        self.name, self.node = name, config.get(name)
        self.target: Any = None
        if FIELDS[name].optional and self.node in (None, {}):
            return
        if not isinstance(self.node, DictConfig) or "_target_" not in self.node:
            raise ConfigError(f"{name} names no class: its file needs a line `_target_: package.Class`.")
        content = OmegaConf.to_container(self.node, resolve=True)
        imported = {place: import_target(place, target) for place, target in targets(content, name)}
        self.target = imported[f"{name}._target_"]
        in_library = str(self.target.__module__).partition(".")[0] in LIBRARIES
        if in_library and not is_taken(self.target, expected := str(FIELDS[name].takes)):
            raise ConfigError(f"{name}._target_={self.node._target_} is no {expected}, which this group takes.")
        self._check_arguments()

    def build(self, call_with: Any = None, **arguments: Any) -> Any:
        """Make the instance, by `hydra.utils.instantiate`, and call it with `call_with` if given. None if null.

        Raises:
            ConfigError: it fails, or lacks a method that the group's type has.
        """
        if self.target is None:
            return None
        with self.errors_in_words():
            part = instantiate(self.node, **arguments, _convert_="all")
            if call_with is not None:
                part = part(call_with)
        if self.name in _CHECKED_METHODS:
            methods = (name for name in vars(get_object(str(FIELDS[self.name].takes))) if not name.startswith("_"))
            if missing := [name for name in methods if not hasattr(part, name)]:
                raise ConfigError(f"{self.name}: {self.node._target_} has no {missing[0]}.")
        return part

    @contextmanager
    def errors_in_words(self) -> Iterator[None]:
        """Turn an error of the group's code within into a ConfigError of one sentence, which names the group."""
        try:
            yield
        except (Exception, SystemExit) as error:  # any error of a user's code, which may also end its process
            cause = (error.__cause__ or error) if isinstance(error, InstantiationException) else error
            words = words_of(cause)
            if isinstance(cause, TypeError) and self.name in _CALLED_LATER and not self.node.get("_partial_"):
                words += ": its file needs a line `_partial_: true`."
            if isinstance(cause, (ArithmeticError, AttributeError, LookupError, RuntimeError)):
                # Unlike the others, these errors do not name the argument, so all are listed.
                arguments = [f"{name!s}={value}" for name, value in self.node.items() if not str(name).startswith("_")]
                words += f" ({', '.join(arguments)})"
            raise ConfigError(f"{self.name}: {words}") from error

    def _check_arguments(self) -> None:
        # For a dataclass, check the class: each base's annotations have to be evaluated in the module of that base.
        init = inspect.isclass(self.target) and not is_dataclass(self.target)
        hints = typing.get_type_hints(self.target.__init__ if init else self.target)
        # A module without a constructor of its own has that of all modules, which refuses every argument.
        bare = init and self.target.__init__ is nn.Module.__init__
        parameters = () if bare else inspect.signature(self.target).parameters.values()
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        defaults = {p.name: p.default for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        for name, value in ((str(key), v) for key, v in self.node.items()):
            if name == "_target_":
                continue
            if name not in (*defaults, "_partial_") and not takes_any:
                settable = [argument for argument in defaults if argument not in _PASSED]
                choices = nearest(name, settable) if settable else "It has no arguments."
                raise ConfigError(
                    f"{self.name}.{name}={value} is not an argument of {self.node._target_}. {choices} If the "
                    f"experiment sets {self.name}.{name}, add ~{self.name}.{name}."
                )
            expected = bool if name == "_partial_" else _type_of(hints.get(name), defaults.get(name))
            try:
                converted = OmegaConf.select(OmegaConf.merge(_schema(name, expected), {name: value}), name)
            except OmegaConfBaseException as error:
                readable = getattr(expected, "__name__", str(expected))
                raise ConfigError(f"{self.name}.{name}={value} is not of type {readable}.") from error
            if _is_text_for_number(value, converted):
                truth = isinstance(converted, bool)
                wanted = f"true or false: write {str(converted).lower()}" if truth else f"a number: write {converted}"
                raise ConfigError(f"{self.name}.{name}={value!r} is text, but it has to be {wanted} without quotes.")


def check_groups(config: DictConfig) -> dict[str, Group]:
    """Return every group that names a class, by name, each checked: see `Group`."""
    return {name: Group(config, name) for name, field in FIELDS.items() if field.names_class}


@contextmanager
def refusing(part: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn an error within, of these kinds or any, into a ConfigError that names the part: a user's code may fail."""
    kinds = kinds or (Exception,)
    try:
        yield
    except ConfigError:
        raise
    except kinds as error:
        raise ConfigError(f"{part}: {words_of(error)}") from error


def words_of(error: BaseException) -> str:
    """Return an error's message, after its class if that says more."""
    nameless = isinstance(error, ArithmeticError | LookupError | SystemExit)  # without words of their own
    return f"{type(error).__name__}: {error}" if nameless else str(error)


def is_taken(target: Any, expected: str) -> bool:
    """Return True if a class of a library is of the type that a group takes, or a function of it makes a network.

    Functions are those of `runner.networks` that return a module.
    """
    if inspect.isfunction(target):
        if expected != "torch.nn.Module" or not target.__module__.startswith("runner.networks."):
            return False
        returned = typing.get_type_hints(target).get("return")
        return inspect.isclass(returned) and issubclass(returned, nn.Module)
    if not getattr(kind := get_object(expected), "_is_protocol", False):
        return inspect.isclass(target) and issubclass(target, kind)
    members = [name for name in vars(kind) if not name.startswith("_") or name == "__call__"]
    fields = getattr(target, "__dataclass_fields__", ())  # values, not methods, whatever their names
    return all(name not in fields and any(name in vars(base) for base in target.__mro__) for name in members)


def _is_text_for_number(value: Any, converted: Any) -> bool:
    """Return True if a value that was converted to a number, or a number in it, was given as text."""
    if isinstance(value, str):
        return isinstance(converted, (int, float))
    return isinstance(value, ListConfig) and any(map(_is_text_for_number, value, converted))


def _type_of(hint: Any, default: Any) -> Any:
    """Return the type of an argument: its annotation if OmegaConf supports it, else its default's type."""
    with suppress(OmegaConfBaseException, ValueError, TypeError):  # TypeError: an annotation without a hash is no type
        if hint is not None:
            _schema("value", hint)
            return hint
    if isinstance(default, (bool, float, str)):
        return type(default)
    return float if isinstance(default, int) else Any  # a library's default `weight_decay=0` also accepts 0.1


@cache
def _schema(name: str, expected: Any) -> DictConfig:
    """Return a config with one field of a type that OmegaConf supports, which takes milliseconds to make."""
    return DictConfig(make_dataclass("Arguments", [(name, expected, "???")]))
