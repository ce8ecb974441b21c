"""Read YAML files: this package's own, with the line of every entry, and those of Hydra, as on its command line.

YAML 1.1 takes `off`, `no` and `yes` for truth values, 010 for eight and 1:30 for ninety. On a command line of Hydra
they are texts, of which a field that is a number makes one: 010 is ten. Files are read in the same way here.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra.plugins.config_source import ConfigSource
from omegaconf import _utils as of_omegaconf

from runner.config import REPOSITORY, ConfigError

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the former is in C
_NULL = ("", "~", "null", "Null", "NULL")  # without quotes
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_TYPED = {  # what is no text in a file of Hydra's, beside null, with the characters that it may begin with
    "bool": (r"(?i:true|false)", "tTfF"),
    "int": (r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)", "-+0123456789"),
    "float": (
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?i:inf)|\.(?i:nan)",
        "-+0123456789.",
    ),
}


def is_line(text: str) -> bool:
    """Return True if a text fits into a cell of a table, and looks like no other one."""
    return text == text.strip() != "" and text.isprintable() and not re.search(r"[|<>\[\]]", text)


@dataclass(frozen=True)
class Entry:
    """An entry of a YAML file.

    Attributes:
        place: the file, and the line for messages.
        name: the names that lead to it, with dots between them.
        content: a text, None (empty or null), a list of entries, or entries by name. Numbers are texts.
    """

    place: str
    name: str
    content: Any

    @property
    def where(self) -> str:
        """The place and the name, for messages."""
        return f"{self.place}: {self.name}" if self.name else self.place

    def wrong(self, text: str) -> ConfigError:
        """Return the error that this entry is: where it is, and the text as a sentence."""
        return ConfigError(f"{self.where}: {text}{'' if text[-1] in '.?' else '.'}")

    @property
    def entries(self) -> "dict[str, Entry]":
        """The entries by name. A text or a list, which has none, raises ConfigError."""
        if not isinstance(self.content, dict):
            raise self.wrong("a mapping of names to values is expected here")
        return self.content

    @property
    def listed(self) -> "list[Entry]":
        """The entries of a list, or this entry alone."""
        return self.content if isinstance(self.content, list) else [self]

    @property
    def text(self) -> str:
        """The text; "" where it is none."""
        return self.content if isinstance(self.content, str) else ""

    @property
    def number(self) -> float | None:
        """The text as a number, perhaps infinite or NaN; None where it is none."""
        return number_of(self.text)

    @property
    def whole(self) -> int | None:
        """The text as a whole number; None where it is none, or has more digits than a float."""
        number = self.number
        is_whole = number is not None and math.isfinite(number) and re.fullmatch(r"[-+]?[0-9]+", self.text)
        return int(self.text) if is_whole else None

    @property
    def flag(self) -> bool | None:
        """The text as true or false; None where it is neither."""
        return _FLAGS.get(self.text.lower())

    @property
    def plain(self) -> Any:
        """The content in lists, dicts and texts."""
        if isinstance(self.content, dict):
            return {name: entry.plain for name, entry in self.content.items()}
        return [entry.plain for entry in self.content] if isinstance(self.content, list) else self.content

    @property
    def shown(self) -> str:
        """The content in one line, for messages: a text in quotes, lists and mappings as YAML writes them."""
        return repr(self.content) if isinstance(self.content, str) else _flow(self.plain)

    def inside(self, names: Sequence[str]) -> "Entry | None":
        """Return the entry that these names lead to from here; None where there is none."""
        entry: Entry | None = self
        for name in names:
            entry = entry.content.get(name) if entry and isinstance(entry.content, dict) else None
        return entry


def _flow(plain: Any) -> str:
    if isinstance(plain, dict):
        return f"{{{', '.join(f'{name}: {_flow(value)}' for name, value in plain.items())}}}"
    if isinstance(plain, list):
        return f"[{', '.join(map(_flow, plain))}]"
    return "nothing" if plain is None else str(plain)


def number_of(text: str) -> float | None:
    """Return a text as a number, perhaps infinite or NaN; None where it is none."""
    try:
        return float(re.sub(r"(?i)^([-+]?)\.(?=inf|nan)", r"\1", text))
    except ValueError:
        return None


def read_yaml(path: Path) -> Entry:
    """Read a YAML file. Every name and value is a text, so `no` is no truth value and 010 no octal number.

    Raises:
        ConfigError: the file cannot be read or is no YAML. The message has one sentence, with the line.
    """
    shown = str(path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path)
    if path.exists() and not path.is_file():
        raise ConfigError(f"{shown} cannot be read: it is no file.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise ConfigError(f"{shown} cannot be read: {reason}.") from error
    try:
        node = yaml.compose(text, Loader=_LOADER)
        return Entry(shown, "", {}) if node is None else _entry(shown, node, (), node.start_mark.line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{shown}{line}: no valid YAML: {error.problem}.") from error
    except yaml.reader.ReaderError as error:
        line = f", line {text.count(chr(10), 0, error.position) + 1}"
        raise ConfigError(f"{shown}{line}: no valid YAML: {error.reason}.") from error
    except RecursionError as error:
        raise ConfigError(f"{shown}: it is nested too deeply, or a part contains itself.") from error


def _entry(path: str, node: yaml.Node, names: Sequence[str], line: int) -> Entry:
    """Return the entry of a node, which begins in a line (from 0), or whose name does."""
    place, name = f"{path}, line {line + 1}", ".".join(names)
    if isinstance(node, yaml.ScalarNode):
        return Entry(place, name, None if not node.style and node.value in _NULL else node.value)
    if isinstance(node, yaml.SequenceNode):
        return Entry(place, name, [_entry(path, item, names, item.start_mark.line) for item in node.value])
    entries: dict[str, Entry] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise Entry(place, name, None).wrong("a name is a text")
        entry = _entry(path, value, (*names, key.value), key.start_mark.line)
        if key.value in entries:
            raise ConfigError(f"{entry.place}: {entry.name} is here twice.")
        entries[key.value] = entry
    return Entry(place, name, entries)


@cache
def _loader_of_hydra() -> Any:
    """Return OmegaConf's loader of YAML, which takes for truth values and whole numbers what the command line does."""

    class Loader(_loader_of_omegaconf()):  # type: ignore[misc]
        def get_single_node(self) -> Any:
            """Take the names of options in a list of defaults for texts: there may be an option 10."""
            node = super().get_single_node()
            lists = [v for k, v in node.value if k.value == "defaults"] if isinstance(node, yaml.MappingNode) else []
            for item in (item for listed in lists for item in listed.value):
                for name in [value for _, value in item.value] if isinstance(item, yaml.MappingNode) else [item]:
                    if isinstance(name, yaml.ScalarNode) and not name.tag.endswith(":null"):
                        name.tag = yaml.resolver.BaseResolver.DEFAULT_SCALAR_TAG
            return node

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in _TYPED]
        for first, resolvers in Loader.yaml_implicit_resolvers.items()
    }
    for tag, (pattern, first) in _TYPED.items():
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))
    return Loader


_loader_of_omegaconf, _header_of_hydra = of_omegaconf.get_yaml_loader, ConfigSource._get_header_dict


def read_as_typed() -> None:
    """Have OmegaConf, and so Hydra, read YAML as `_loader_of_hydra` does from now on, in this process.

    The first line of a file may follow a byte order mark, which editors on Windows write.
    """
    vars(of_omegaconf)["get_yaml_loader"] = _loader_of_hydra
    header = staticmethod(lambda text: _header_of_hydra(text.removeprefix("\ufeff")))
    setattr(ConfigSource, "_get_header_dict", header)  # noqa: B010
