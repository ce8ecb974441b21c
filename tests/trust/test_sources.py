"""An edited class, base or helper makes another run. Without files of the user, ids do not change."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from runner.build.prepare import prepare
from runner.config import ConfigError
from runner.records.identity import identify, identify_recorded, recorded_config
from runner.records.verify import run_of
from runner.report.listing import records_table
from runner.runs import models
from runner.runs.execute import execute
from runner.trust.sources import check_sources
from tests.conftest import quietly, record_of


def net(above: str = "", base: str = "nn.Sequential", inside: str = "pass") -> str:
    """The source of a network: what is above the class, its base, and what its constructor does first."""
    return (
        f"import math\nfrom torch import nn\n{above}\n"
        f"class Net({base}):\n"
        f"    def __init__(self, input_shape, classes, activation):\n"
        f"        {inside}\n"
        f"        super().__init__(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))\n"
    )


X, BASE = "x = 1\n", "from torch import nn\nclass Base(nn.Sequential): pass\n"
FUNCTION = "from torch import nn\ndef net(input_shape, classes, activation):\n    return nn.Sequential(nn.Flatten())\n"
DECORATED = FUNCTION.replace("def", "@kept\ndef")
DECORATOR = (
    "import functools\ndef kept(f):\n    @functools.wraps(f)\n    def g(*a, **k): return f(*a, **k)\n    return g\n"
)
MAKER = "def made(x):\n" + "".join(f"    {line}\n" for line in net().splitlines()) + "    return Net\n"
MADE = "from own_make import made\nNet = made(3)\n"
# Ways to import a file: the files and the target. The test edits the last file.
WAYS: dict[str, tuple[dict[str, str], str]] = {
    "itself": ({"own.py": net()}, "own.Net"),
    "a base's helper": (
        {
            "own.py": net("import own_base", "own_base.Base"),
            "own_base.py": f"import own_help\n{BASE}",
            "own_help.py": X,
        },
        "own.Net",
    ),
    "relative, from above": (
        {"own/sub/net.py": net("from ..help import inner"), "own/help/inner.py": X},
        "own.sub.net.Net",
    ),
    "a package's own file": ({"own/net.py": net(), "own/__init__.py": X}, "own.net.Net"),
    "a package that hands on": ({"own/__init__.py": "from own.net import Net\n", "own/net.py": net()}, "own.Net"),
    "a star": (
        {"own.py": net("from own_all import *"), "own_all/__init__.py": "__all__ = ['help']\n", "own_all/help.py": X},
        "own.Net",
    ),
    "importlib in a function": (
        {"own.py": net("import importlib", inside="importlib.import_module('own_help')"), "own_help.py": X},
        "own.Net",
    ),
    "what makes a class": ({"own.py": MADE, "own_make.py": MAKER}, "own.Net"),
    "what has a class made": ({"own_make.py": MAKER, "own.py": MADE}, "own.Net"),
    "a decorator": ({"own.py": f"from own_deco import kept\n{DECORATED}", "own_deco.py": DECORATOR}, "own.net"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder where the command was started; what is imported from it is forgotten at the end."""
    folder = tmp_path / "started here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend("")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget()
    yield folder
    forget()


def forget() -> None:
    """As in a new process: modules of the user's are not loaded."""
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("own")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def write(folder: Path, files: dict[str, str]) -> Path:
    """Returns the last file."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return path


@pytest.fixture
def network_config(smoke: Callable[..., DictConfig]) -> Callable[[str], DictConfig]:
    return lambda target: smoke("~architecture", f"+architecture._target_={target}", "epochs=1")


@pytest.mark.parametrize("way", WAYS)
def test_an_edited_file_is_another_run(way: str, folder: Path, network_config: Callable[[str], DictConfig]) -> None:
    files, target = WAYS[way]
    edited = write(folder, files)
    (folder / "own_other.py").write_text("x = 1\n")
    first = network_config(target)
    forget()
    (folder / "own_other.py").write_text("x = 2  # imported by nobody\n")
    assert identify(network_config(target)) == identify(first)
    forget()
    edited.write_text(edited.read_text() + "# edited\n")
    again = network_config(target)
    changed = {name for name, digest in again.sources.items() if first.sources.get(name) != digest}
    assert len(changed) == 1
    assert not set(identify(again)) & set(identify(first))


def test_runs_of_one_process_have_the_id_of_what_it_loaded(folder, network_config) -> None:
    """A file that is edited while the process runs is not what is trained, until it is loaded anew."""
    file = write(folder, WAYS["itself"][0])
    first = network_config("own.Net")
    file.write_text(file.read_text() + "# edited\n")
    assert identify(network_config("own.Net")) == identify(first)
    importlib.reload(sys.modules["own"])
    assert identify(network_config("own.Net")) != identify(first)


PLAIN = net("SCALE = 2\ndef help(x, by=1, *, to=3): return x + by\n", inside="help(1)")
EDITS = {
    "a method": ("super().__init__(nn", "super().__init__(nn.Tanh(), nn"),
    "a function": ("x + by", "x - by"),
    "a default": ("by=1", "by=1.5"),
    "a constant": ("SCALE = 2", "SCALE = 2.0"),
    "no Python": ("def __init__", "deff __init__"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_code_that_was_edited_after_its_import_is_refused(edit: str, folder: Path, network_config, monkeypatch) -> None:
    """As in a notebook, where the old class would be recorded under the hash of the new file.

    Functions are compared even where no cached code is written.
    """
    monkeypatch.setattr(sys, "dont_write_bytecode", edit in ("a method", "a function", "no Python"))
    file = write(folder, {"own.py": PLAIN.replace("        help(1)", "        # nothing")})
    importlib.import_module("own")
    file.write_text("# a comment\n\n" + file.read_text())
    assert network_config("own.Net").sources, "the same code on other lines"
    importlib.reload(sys.modules["own"])
    old, new = EDITS[edit]
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=r"own\.py has changed since it was imported: start a new process"):
        network_config("own.Net")


UNEDITED = """
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, overload
import torch
from torch import nn
NAN, BIAS = float("nan"), 0.0
class Pair(NamedTuple):
    first: int = 1
@dataclass(slots=True)
class Slots:
    sizes: list[int] = field(default_factory=list)
class Net(nn.Flatten):
    def __init__(self, input_shape, classes, activation, *, scale: float = BIAS):
        super().__init__()
    def __private(self, x=(1, 2.0)): return [x for x in "ab" if x in {"a", "b"}]
    @torch.no_grad()
    def other(self): return lambda x=1: x
    @property
    def size(self): return 1
    @size.setter
    def size(self, value): ...
    @staticmethod
    @lru_cache
    def make(x=1): return x
    @classmethod
    def by(cls, x: int = 1) -> int: return x
    @overload
    def two(self): ...
    def two(self, *x): return x
Net.same, Other = Net, Net
"""


def test_ways_to_write_a_class_are_not_taken_for_edits(folder: Path, network_config) -> None:
    write(folder, {"own.py": UNEDITED})
    assert list(network_config("own.Net").sources) == ["own"]


def test_an_edited_helper_is_trained_again(folder: Path, network_config: Callable[[str], DictConfig]) -> None:
    files, target = WAYS["a base's helper"]
    edited = write(folder, files)
    config = network_config(target)
    assert execute(config, quietly) == "finished"
    record = record_of(config)
    assert list(record["config"]["sources"]) == ["own", "own_base", "own_help"]
    assert identify_recorded(record["config"]) == (record["run_id"], record["setting_id"])
    assert execute(network_config(target), quietly) == "skipped"
    forget()
    edited.write_text("x = 2  # another\n")
    with pytest.raises(ConfigError, match=r"The source of own_help is not what it was"):
        check_sources(config)
    again = network_config(target)
    assert execute(again, quietly) == "finished"
    table = records_table([[record], [record_of(again)]])
    assert table.header[-1] == "sources.own_help", "which tells the two apart"
    assert [row[-1] for row in table.rows] == [config.sources["own_help"][:8] for config in (config, again)]


def test_a_source_edited_after_the_listing_trains_nothing(folder, network_config) -> None:
    """As where a file is edited between the listing of a sweep and the process that carries a run out."""
    file = write(folder, WAYS["itself"][0])
    config = network_config("own.Net")
    forget()
    file.write_text(file.read_text() + "# edited\n")
    with pytest.raises(ConfigError, match=r"The source of own is not what it was"):
        execute(config, quietly)


def test_a_record_builds_a_class_only_of_the_runs_own_files(folder, network_config) -> None:
    files, target = WAYS["a base's helper"]
    helper = write(folder, files)
    recorded = json.loads(json.dumps(recorded_config(network_config(target))))
    weights = folder / "weights.pt"
    models.save(weights, network_config(target), prepare(network_config(target)).new_objective())
    forget()
    assert run_of(recorded).parameters == 7850
    forget()
    loaded = models.load(weights)
    assert loaded.isolated, "evaluated one example at a time, as in the run"
    assert sum(config.numel() for config in loaded.parameters()) == 7850
    forget()
    helper.write_text("x = 2  # another file of this name\n")
    for use in (lambda: run_of(recorded), lambda: models.load(weights)):
        with pytest.raises(ConfigError, match=r"The source of own_help is not what it was"):
            use()
    with pytest.raises(ConfigError, match=r"The source of own, own_base, own_help is not what it was"):
        run_of(recorded | {"sources": {}})


@pytest.mark.parametrize(
    ("content", "held"),
    [
        ({f"layer{number}.weight": torch.ones(1) for number in range(9)}, "layer0.weight, .*, layer4.weight,"),
        ({}, "nothing"),
        ([torch.ones(1)], "list"),
    ],
)
def test_another_programs_checkpoint_is_told_from_saved_weights(tmp_path: Path, content, held: str) -> None:
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(ConfigError, match=rf"other\.pt holds {held}.* and not the config and weights that save_model"):
        models.load(tmp_path / "other.pt")


def test_sources_cannot_be_set(smoke: Callable[..., DictConfig]) -> None:
    with pytest.raises(ConfigError, match="sources cannot be set"):
        smoke("+sources.mine=abc")
