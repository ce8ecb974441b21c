"""What a config may name: classes and functions that its groups take, else a sentence."""

import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from runner.build import groups
from runner.build.groups import Group, is_taken
from runner.build.prepare import prepare
from runner.config import FIELDS, REPOSITORY, ConfigError
from runner.trust.sources import bare_name, import_target, targets
from tests.tracked import tracked

Compose = Callable[..., DictConfig]
GROUPS = [name for name, field in FIELDS.items() if field.names_class]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the command was started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    return tmp_path


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("loss._target_=__main__.Net", "~loss.reduction"), r"put it into a file .* and name it mymodule\.Net"),
        (("loss._target_=[torch.load]",), "names no class"),
        (("loss._target_=mine",), r"names no class: write it as mymodule\.NameOfTheClass"),
        (("loss._target_=./pkg/mine.py",), r"names no class: write it as mymodule\.NameOfTheClass"),
        (("loss._target_=torch.nn",), r"names no class: write it as torch\.nn\.NameOfTheClass"),
        (("loss._target_=os.system", "~loss.reduction", "+loss.command=x"), "loss: .*os.system"),  # Hydra's own policy
    ],
)
def test_what_names_no_class_in_a_file_is_refused(composed: Compose, overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(composed(*overrides))


@pytest.mark.parametrize(
    ("group", "target"),
    [
        ("schedule", "torch.optim.SGD"),
        ("loss", "torch.nn.functional.cross_entropy"),
        ("accountant", "runner.accounting.Ledger"),
        ("accountant", "torch.load"),
        ("clipping", "runner.networks.architectures.small_cnn"),
    ],
)
def test_a_class_of_another_group_is_refused(group: str, target: str) -> None:
    with pytest.raises(ConfigError, match=rf"{group}\._target_={target} is no {FIELDS[group].takes}"):
        Group(OmegaConf.create({group: {"_target_": target}}), group)


class Forwarding(torch.nn.CrossEntropyLoss):
    """Passes what it does not know on."""

    def __init__(self, **others: Any) -> None:
        super().__init__(**others)
        self.others = others


def test_a_constructor_may_pass_arguments_on() -> None:
    """One without a constructor of its own has no arguments, and is not said to have `args` and `kwargs`."""
    node = {"_target_": f"{__name__}.Forwarding", "reduction": "none", "label_smoothing": 0.1}
    loss = Group(OmegaConf.create({"loss": node}), "loss").build()
    assert loss.others == {"reduction": "none", "label_smoothing": 0.1}
    with pytest.raises(ConfigError, match=r"activation\.beta=2 is not an argument of torch\.nn\.Tanh. It has no"):
        Group(OmegaConf.create({"activation": {"_target_": "torch.nn.Tanh", "beta": 2}}), "activation")


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("", "nowhere_at_all.Mine", "there is no nowhere_at_all.py in the folder where you start."),
        ("", "a_module.Mine", "a_module has no Mine. There is none."),
        ("class Mime: pass\n", "a_module.Mine", "a_module has no Mine. .*Mime"),
        ("import sys\nsys.exit(0)\n", "a_module.Mine", "cannot be imported: SystemExit: 0"),
        ("import not_there\n", "a_module.Mine", "cannot be imported: ModuleNotFoundError: No module named 'not_there'"),
    ],
)
def test_what_cannot_be_imported_is_named(
    text: str, target: str, message: str, started: Path, composed: Compose
) -> None:
    (started / "a_module.py").write_text(text)
    importlib.invalidate_caches()
    try:
        with pytest.raises(ConfigError, match=message):
            Group(composed(f"activation._target_={target}") if not text else config_of(target), "activation")
    finally:
        sys.modules.pop("a_module", None)


def config_of(target: str) -> DictConfig:
    return OmegaConf.create({"activation": {"_target_": target}})


@pytest.mark.parametrize("kind", ["module", "package"])
@pytest.mark.parametrize("attribute", ["Mine", "mine"], ids=["class", "function"])
def test_a_users_class_or_function_may_be_named(kind: str, attribute: str, started: Path, composed: Compose) -> None:
    name = f"of_the_{kind}"
    path = started / (f"{name}.py" if kind == "module" else f"{name}/inner.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text("from torch import nn\nclass Mine(nn.Tanh): pass\ndef mine(): return nn.Tanh()\n")
    module = name if kind == "module" else f"{name}.inner"
    config = composed(f"activation._target_={module}.{attribute}")
    assert isinstance(Group(config, "activation").build(), torch.nn.Tanh)


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
                Group(OmegaConf.create({group: loaded, "epochs": 3}), group)
    assert len(set(options())) > 40


def test_each_target_of_a_run_is_imported_once(composed: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[str] = []

    def noted(place: str, target: object) -> object:
        places.append(place)
        return import_target(place, target)

    monkeypatch.setattr(groups, "import_target", noted)
    config = composed("averaging=ema", "screening=annealing", "schedule=cosine_by_step")
    prepare(config)
    values: Any = OmegaConf.to_container(config, resolve=True)
    assert places == [place for group in GROUPS for place, _ in targets(values[group], group)]
    assert len(places) == 11


def test_no_two_classes_of_a_run_have_the_same_bare_name() -> None:
    """Ids are made of bare names: classes of this package and PyTorch that a group takes, and network functions."""
    files = [path.relative_to(REPOSITORY).with_suffix("") for path in tracked("runner/**/*.py")]
    modules = [".".join(file.parts).removesuffix(".__init__") for file in files if file.stem != "__main__"]
    modules += ["torch.nn", "torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils"]
    computed, networks = set(), set()
    for module in map(importlib.import_module, modules):
        for value in vars(module).values():
            if inspect.isfunction(value):
                if is_taken(value, "torch.nn.Module"):
                    networks.add(value)
            elif inspect.isclass(value) and value.__module__.startswith(("runner.", "torch.nn.", "torch.optim.")):
                computed.add(value)
    accepted = {
        value for value in computed for field in FIELDS.values() if field.takes and is_taken(value, field.takes)
    }
    names = Counter(value.__name__ for value in {*accepted, *networks})
    assert [name for name, count in names.items() if count > 1 and not name.startswith("_")] == []
    assert {bare_name(target) for _, target in options()} - set(names) == set()
