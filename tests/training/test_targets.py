"""Targets of configs: nothing foreign runs, by whatever path it is named, unless the environment allows it.

Each refused target comes with a file, or a module, that leaves a mark where it is run.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.config import FIELDS, REPOSITORY, ConfigError
from runner.training import targets as checked
from runner.training.instantiation import instantiated
from runner.training.prepare import prepare
from runner.training.targets import bare_name, check_targets, targets
from tests.tracked import tracked

Compose = Callable[..., DictConfig]
GROUPS = [name for name, field in FIELDS.items() if field.names_class]


class LeavesAMark:
    """Unpickled, it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A path that exists once foreign code has run; next to it, files that run it: see `REFUSED`."""
    mark = tmp_path / "mark"
    torch.save(LeavesAMark(mark), tmp_path / "file.pt")
    (tmp_path / "file.pickle").write_bytes(pickle.dumps(LeavesAMark(mark)))
    np.save(tmp_path / "file.npy", np.array([LeavesAMark(mark)], dtype=object))
    (tmp_path / "hubconf.py").write_text(f"import os\ndef f():\n    os.mkdir({str(mark)!r})\n")
    (tmp_path / "foreign_module.py").write_text(f"import os\nos.mkdir({str(mark)!r})\nclass Loss: pass\n")
    return mark


REFUSED = {
    "torch.load": {"f": "file.pt", "weights_only": False},
    "runner.training.checks.torch.load": {"f": "file.pt", "weights_only": False},
    "numpy.load": {"file": "file.npy", "allow_pickle": True},
    "joblib.load": {"filename": "file.pickle"},
    "torch.hub.load": {"repo_or_dir": ".", "model": "f", "source": "local"},
    "torch.ops.load_library": {"path": "file.so"},
    "torch.nn.Module.load_state_dict": {},
    "torchvision.datasets.DatasetFolder": {"root": "."},
    "torchvision.datasets.folder.os.system": {"command": "mkdir mark"},
    "runner.speed.kernels.subprocess.Popen": {"args": ["mkdir", "mark"]},
    "runner.runs.models.load": {"path": "file.pt"},
    "runner.launch.processes.Local": {},
    "foreign_module.Loss": {},
    "checks.cluster.output": {"command": ["mkdir", "mark"]},
}


@pytest.mark.parametrize(("target", "nested"), [(target, len(target) % 2 == 0) for target in REFUSED])
def test_foreign_code_is_neither_imported_nor_run(
    target: str, nested: bool, mark: Path, composed: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`foreign_module` can be imported, but is not in the folder in which the command starts: this checkout's root."""
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.syspath_prepend(str(mark.parent))
    config = composed()
    arguments = {
        name: str(mark.parent / value) if isinstance(value, str) and (mark.parent / value).exists() else value
        for name, value in REFUSED[target].items()
    }
    node = {"_target_": target, **arguments}
    with open_dict(config):
        config.accountant = OmegaConf.create({"_target_": "runner.accounting.Pld", "of": [node]} if nested else node)
    place = "accountant.of[0]" if nested else "accountant"
    for use in (lambda: prepare(config), lambda: instantiated(config, "accountant")):
        with pytest.raises(ConfigError) as refused:
            use()
        assert str(refused.value).startswith(f"{place}._target_={target} is not run")
    assert not mark.exists()


@pytest.mark.parametrize("target", ["builtins.eval", "builtins.getattr", "hydra.utils.instantiate", "hydra.utils.call"])
def test_what_calls_anything_is_refused_even_if_trusted(
    target: str, composed: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked, "TRUSTED", frozenset({target, target.partition(".")[0]}))
    with pytest.raises(ConfigError, match="can call any function"):
        prepare(composed(f"accountant._target_={target}"))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("loss._target_=__main__.Net", "~loss.reduction"), r"put it into a file .* and name it mymodule\.Net"),
        (("loss._target_=[torch.load]",), "names no class"),
        (("loss._target_=mine",), r"names no class: write it as mymodule\.NameOfTheClass"),
        (("loss._target_=./pkg/mine.py",), r"names no class: write it as mymodule\.NameOfTheClass"),
        (("loss._target_=torch.nn",), r"names no class: write it as torch\.nn\.NameOfTheClass"),
        (("tracking.project=os.mkdir", "loss._target_=${tracking.project}"), r"loss\._target_=os\.mkdir is not run"),
    ],
)
def test_what_names_no_class_in_a_file_is_refused(composed: Compose, overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        prepare(composed(*overrides))


@pytest.mark.parametrize(
    ("group", "target"),
    [
        ("schedule", "torch.optim.SGD"),
        ("loss", "torch.nn.functional.cross_entropy"),
        ("accountant", "runner.accounting.Ledger"),
        ("clipping", "runner.networks.architectures.small_cnn"),
    ],
)
def test_a_class_of_another_group_is_refused(group: str, target: str) -> None:
    with pytest.raises(ConfigError, match=rf"{group}\._target_={target} is not run"):
        check_targets(OmegaConf.create({group: {"_target_": target}}), group)


def test_no_config_trusts_itself(mark: Path, tmp_path: Path) -> None:
    """Hydra sets the environment that a config asks for. One sentence and exit code 2 all the same."""
    command = [
        sys.executable, "-m", "runner", "scale=smoke", "tracking=disabled", f"runtime.results_root={tmp_path}/results",
        "accountant._target_=torch.load", f"+accountant.f={tmp_path}/file.pt", "+accountant.weights_only=false",
        "+hydra.job.env_set.DP_REPRO_TRUST=torch.load",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("runner: ")]
    assert (done.returncode, "torch.load is not run" in said) == (2, True), said
    assert not mark.exists()


def test_what_is_trusted_by_name_is_called(composed: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("activation._target_=collections.Counter")
    with pytest.raises(ConfigError, match=r"set DP_REPRO_TRUST=collections\.Counter in the environment"):
        instantiated(config, "activation")
    for trusted in ("collections.Counter", "collections"):
        monkeypatch.setattr(checked, "TRUSTED", frozenset({trusted}))
        assert instantiated(config, "activation") == {}
    with pytest.raises(ConfigError, match="is not run"):  # it is defined elsewhere
        check_targets(composed("activation._target_=collections._sys.exit"), "activation")


def test_a_module_that_does_not_exist_and_one_without_classes_are_named(
    tmp_path: Path, composed: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "without_classes.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    for target, said in (
        ("nowhere_at_all.Mine", "there is no nowhere_at_all.py in the folder where you start."),
        ("without_classes.Mine", "without_classes has no Mine. There is none."),
        (".Mine", "_target_=.Mine is not run"),
    ):
        with pytest.raises(ConfigError, match=said):
            check_targets(composed(f"activation._target_={target}"), "activation")


@pytest.mark.parametrize("kind", ["module", "package"])
@pytest.mark.parametrize("found", ["Mine", "mine"], ids=["class", "function"])
def test_the_users_own_may_be_named_but_not_by_any_record(
    kind: str, found: str, tmp_path: Path, composed: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"of_the_{kind}"
    source = "import os\nfrom torch import nn\nclass Mine(nn.Tanh): pass\ndef mine(): return nn.Tanh()\n"
    path = tmp_path / (f"{name}.py" if kind == "module" else f"{name}/inner.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    module = name if kind == "module" else f"{name}.inner"
    config = composed(f"activation._target_={module}.{found}")
    assert isinstance(instantiated(config, "activation"), torch.nn.Tanh)
    with pytest.raises(ConfigError, match="is not run"):
        check_targets(OmegaConf.create({"activation": {"_target_": f"{module}.os.mkdir"}}), "activation")
    several = composed(f"activation._target_={module}.{found}", "loss._target_=another.Loss")
    check_targets(config, "activation", of_record=True)  # the file is that of the record
    path.write_text(f"{source}# edited\n")
    own = rf"{module}\.{found}"
    for recorded, named in ((config, own), (several, rf"another\.Loss,{own}|{own},another\.Loss")):
        with pytest.raises(ConfigError, match=rf"A record may name only .* set DP_REPRO_TRUST=({named}) in"):
            check_targets(recorded, "activation", of_record=True)
    monkeypatch.setattr(checked, "TRUSTED", frozenset({name}))
    check_targets(config, "activation", of_record=True)


def test_a_library_in_the_folder_is_not_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment usually lies in the folder where one works."""
    packages = tmp_path / ".venv" / "lib" / "site-packages"
    (packages / "installed_here").mkdir(parents=True)
    (packages / "installed_here" / "__init__.py").write_text("class Loss: pass\n")
    monkeypatch.syspath_prepend(str(packages))
    for place in (tmp_path, packages):
        monkeypatch.chdir(place)
        with pytest.raises(ConfigError, match="is not run"):
            check_targets(OmegaConf.create({"loss": {"_target_": "installed_here.Loss"}}), "loss")


def options() -> Iterator[tuple[str, str]]:
    """Every `_target_` of conf/ that a run can have, with its group."""
    for group in GROUPS:
        for path in tracked(f"conf/{group}/*.yaml"):
            content = OmegaConf.to_container(OmegaConf.load(path))
            yield from ((group, target) for _, target in targets(content))


def test_every_option_in_conf_may_be_named() -> None:
    for group in GROUPS:
        for path in tracked(f"conf/{group}/*.yaml"):
            loaded = OmegaConf.load(path)
            if "_target_" in loaded:
                check_targets(OmegaConf.create({group: loaded, "epochs": 3}), group, of_record=True)
    assert len(set(options())) > 40


def test_no_two_classes_that_a_run_may_name_have_the_same_bare_name() -> None:
    """Ids are made of bare names: classes of this package and PyTorch that a group takes, and network functions."""
    files = [path.relative_to(REPOSITORY).with_suffix("") for path in tracked("runner/**/*.py")]
    modules = [".".join(file.parts).removesuffix(".__init__") for file in files if file.stem != "__main__"]
    modules += ["torch.nn", "torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils"]
    found, networks = set(), set()
    for module in map(importlib.import_module, modules):
        for value in vars(module).values():
            if inspect.isfunction(value) and value.__module__.startswith("runner.networks."):
                if checked._returns_a_network(value):
                    networks.add(value)
            elif inspect.isclass(value) and value.__module__.startswith(("runner.", "torch.nn.", "torch.optim.")):
                found.add(value)
    taken = {
        value
        for value in found
        for field in FIELDS.values()
        if field.takes and checked._is_a(value, get_object(field.takes))
    }
    names = Counter(value.__name__ for value in {*taken, *networks})
    assert [name for name, count in names.items() if count > 1 and not name.startswith("_")] == []
    assert {bare_name(target) for _, target in options()} - set(names) == set()


def test_a_module_that_ends_its_process_is_refused(composed: Compose, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "ends_here.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = composed()
    with open_dict(config):
        config.loss = OmegaConf.create({"_target_": "ends_here.Loss"})
    with pytest.raises(ConfigError, match="cannot be imported: SystemExit: 0"):
        check_targets(config, "loss")
