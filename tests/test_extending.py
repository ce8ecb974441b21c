"""Every example of docs/extending.md is written to a folder and run, as a reader would."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from torchvision.models import resnet18

from runner.config import REPOSITORY, register
from runner.records.identity import resolved
from runner.runs.execute import execute

TEXT = (REPOSITORY / "docs" / "extending.md").read_text(encoding="utf-8")
FILE = re.compile(r"^`([\w./]+)`\n\n```(?:python|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ python -m runner (--config-dir options .*)$", re.MULTILINE)
SMALL = ("epochs=1", "batch_size=512", "scale.batch_size=512", "tracking=disabled", "optimizer.lr=0.01")
EXAMPLES = {shlex.split(command)[-1]: command for command in COMMAND.findall(TEXT) if "scale=smoke" not in command}
WITHOUT_SOUND = {"normalization"}  # groups whose part is not covered by a sound ε


def test_every_group_has_an_example() -> None:
    shown = {name.partition("/")[0] for name in re.findall(r"^`options/([\w/]+)\.yaml`$", TEXT, re.MULTILINE)}
    table = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))
    assert shown == table


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, content in FILE.findall(TEXT):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(content, encoding="utf-8")
    if "resnet18.pt" in TEXT and name.endswith(("=finetuned", "=embedding")):
        torch.manual_seed(0)
        torch.save(resnet18().state_dict(), tmp_path / "resnet18.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    overrides = [*shlex.split(EXAMPLES[name])[2:], *SMALL, "runtime.results_root=out", "runtime.device=cpu"]
    if not name.startswith("max_epsilon"):  # an own data set at the paper's scale
        overrides.append("scale=smoke")
    register()
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        config = compose("config", [*overrides, f"hydra.searchpath=[file://{REPOSITORY},file://{tmp_path}/options]"])
    assert execute(resolved(config), lambda row, run: None) in ("finished", "diverged")
    (path,) = tmp_path.rglob("runs/*.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    group = name.partition("=")[0].partition(".")[0]
    assert (record["final"]["epsilon_sound"] is None) == (group in WITHOUT_SOUND)
    assert ("epsilon_rests_on" in record["provenance"]) == (group != "activation")  # which is PyTorch's own
