"""Wrong requests of every command: one sentence and exit code 2, before any work."""

import shlex
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch

from checks.__main__ import COMMANDS as CHECKS
from runner.cli import reproduce
from runner.cli.commands import COMMANDS, function_of
from runner.config import REPOSITORY

REPRODUCE = "reproduce tempered-sigmoid --items fig-4"


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ("reproduce", "paper"),
        ("reproduce tempered-sigmoid --items ,", "Unknown item ''"),
        (f"{REPRODUCE} --budget 1{'0' * 400}h", "is no time to run in"),
        ("study /dev/null", "/dev/null cannot be read: it is no file."),
        ("bounds mechanism=[null]", "mechanism"),
        (f"{REPRODUCE} --jobs 0", "--jobs"),
        (f"{REPRODUCE} --scale large", "Unknown scale 'large'"),
        (f"{REPRODUCE} optimizer.lr=1", "optimizer.lr=1"),
        (f"{REPRODUCE} runtime.threads=0", "runtime.threads=0"),
        (f"{REPRODUCE} scale=smoke", "Write --scale smoke"),
        (f"{REPRODUCE} --record --fresh", "Choose one of --record (RECORD=1), --fresh (FRESH=1)"),
        (f"{REPRODUCE} --launcher pbs", "no launcher 'pbs': choose from local, "),
        (f"{REPRODUCE} --launcher slurm launcher.minute=3", "minute: there is no such option. Did you mean minutes"),
        (f"{REPRODUCE} --launcher slurm launcher.gpus", "launcher.gpus has no value"),
        (f"{REPRODUCE} --launcher slurm launcher.setup=[1", "launcher slurm: while parsing a flow sequence"),
        (f"{REPRODUCE} --launcher slurm launcher.minutes=0", "launcher slurm: minutes: Input should be greater than 0"),
        ("epsilon --noise 1 --batch 64 --examples 1000", "Give the number of epochs or of steps."),
        ("epsilon --noise 1 --batch 64 --steps 9", "Give both the batch size and the number of examples"),
        ("epsilon --noise 1 --batch 64 --rate 0.1 --steps 9", "or the sampling rate in place of both"),
        ("epsilon --noise 1 --batch 2000 --examples 1000 --steps 9", "A batch size of 2000 is more than 1000 examples"),
        ("epsilon --noise 0 --rate 0.1 --steps 9", "0 is not above 0 and finite"),
        ("epsilon --noise 1 --batch 64 --examples 1000 --steps 9 --delta 0.01", "delta=0.01 is not below 1/N"),
        ("aggregate tempered_sigmod", "Unknown paper 'tempered_sigmod'. Did you mean tempered_sigmoid?"),
        ("claims --verdict refuted", "No claim has the verdict 'refuted'. Try --guarantee refuted."),
        ("aggregate tempered_sigmoid --scale huge", "Unknown scale 'huge': choose from paper, smoke"),
        ("aggregate tempered_sigmoid --items fig-9", "Unknown item 'fig-9': choose from fig-3, table-3"),
        ("aggregate tempered_sigmoid --results none/here", "aggregate: none/here is no folder."),
        ("dashboard nobody", "Unknown paper"),
        ("explain 0", "records begin with 0"),
        ("explain ffffffffffff", "No record in"),
        ("explain tempered_sigmoid/fig3", "no item 'fig3'. Did you mean tempered_sigmoid/fig-3,"),
        ("explain fig-14", "fig-14 of which paper? Did you mean losing_less/fig-14?"),
        ("explain tempered_sigmod/fig-3", "Did you mean tempered_sigmoid/ITEM?"),
        ("explain nobody", "PAPER/ITEM or studies/NAME. Choose from backprop_clipping/ITEM,"),
        ("explain studies/none", "No study 'none' has a page"),
        ("new-paper lipschitz", "new-paper: lipschitz exists: runner/papers/lipschitz. Choose another name."),
        ("new-paper runs", "new-paper: runs exists: results/runs."),
        ("new-paper my-paper", "'my-paper' is no identifier of small letters, digits and underscores: my_paper would"),
        ("parity", "PyTorch finds no CUDA device here"),
    ],
)
def test_a_wrong_request_is_one_sentence(request_: str, sentence: str, refusal, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(reproduce, "run_jobs", lambda *_: pytest.fail("a run was started"))
    for name, instead in (
        ("estimated", lambda *_: {}),
        ("check_settings", lambda pending: None),
        ("check_data", lambda pending: None),
        ("ordered", lambda jobs, pending, estimates: pending),
    ):
        monkeypatch.setattr(reproduce, name, instead)
    command, *arguments = shlex.split(request_)
    assert sentence in refusal(function_of(command, {**COMMANDS, **CHECKS}), arguments)


@pytest.mark.parametrize("arguments", [["show"], ["--help"], ["scale=smoke"]])
def test_without_the_virtual_environment_a_command_asks_for_it(arguments: list[str]) -> None:
    """`-S` leaves its packages out."""
    ran = subprocess.run(
        [sys.executable, "-S", "-m", "runner", *arguments], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (2, "runner: torch is not installed here: source .venv/bin/activate\n")


def test_the_version_is_that_of_this_package() -> None:
    ran = subprocess.run([sys.executable, "-m", "runner", "--version"], cwd=REPOSITORY, capture_output=True, text=True)
    assert ran.stdout == f"dp-repro-bench {version('dp-repro-bench')}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_prints_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        function_of(name)(["--help"])
    assert ended.value.code == 0
    assert "usage: " in capsys.readouterr().out
