"""Progress lines and numbers of a run under way."""

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.config import REPOSITORY
from runner.terminal import bound_text, epoch_text, number, part_done, printable

ROW = {"epoch": 2, "test_accuracy": 91.234, "epsilon": 1.0, "epsilon_sound": 0.875, "accepted": 30}


@pytest.mark.parametrize(
    ("changes", "most_kept", "done", "text"),
    [
        ({}, None, 0.25, "epoch 2/8 · accuracy 91.23% · ε 1.00 (sound 0.88)"),
        ({}, 40, 0.75, "epoch 2, 30 of 40 updates · accuracy 91.23% · ε 1.00 (sound 0.88)"),
        ({}, 1000, 0.25, "epoch 2, 30 of 1000 updates · accuracy 91.23% · ε 1.00 (sound 0.88)"),
        ({"epsilon_sound": 2.312}, None, 0.25, "epoch 2/8 · accuracy 91.23% · ε 1.00 (sound 2.32)"),
        ({"epsilon": 2.312}, None, 0.25, "epoch 2/8 · accuracy 91.23% · ε 2.32 (sound 0.88)"),
        ({"epsilon_sound": None}, None, 0.25, "epoch 2/8 · accuracy 91.23% · ε 1.00 as stated by its class"),
        ({"epsilon": 2.312, "epsilon_sound": 2.312}, None, 0.25, "epoch 2/8 · accuracy 91.23% · sound ε 2.32"),
        ({"epsilon": math.inf, "epsilon_sound": math.inf}, None, 0.25, "epoch 2/8 · accuracy 91.23% · not private"),
    ],
)
def test_how_far_a_run_is_and_its_epsilons_rounded_up(changes, most_kept, done: float, text: str) -> None:
    row = ROW | changes
    assert (part_done(row, 8, most_kept), epoch_text(row, 8, most_kept)) == (done, text)


def test_numbers_are_rounded_to_digits_and_bounds_outwards():
    assert [number(v) for v in (2.31449, 0.00123456, 20338.0, None)] == ["2.314", "0.001235", "20340", "–"]
    assert [number(v, "%") for v in (97.885, 5.0, float("inf"))] == ["97.89", "5.00", "∞"]
    assert [number(2.3144, places=3), number(2.3, places=3)] == ["2.314", "2.300"]
    assert [number(2.31441, places=3, bound=of) for of in ("lower", "upper")] == ["2.314", "2.315"]
    assert [number(97.899, "%", bound=of) for of in ("lower", "upper")] == ["97.89", "97.90"]
    assert [number(0.87 + 1e-12, places=3, bound="upper"), bound_text(0.87 + 1e-12)] == ["0.870", "0.87"]
    assert [bound_text(1.0001e-16), number(0.0, bound="lower")] == ["1.001e-16", "0"]
    assert [bound_text(2.31441), bound_text(None), bound_text(float("inf"))] == ["2.315", "–", "∞"]


def test_a_command_with_a_closed_output_pipe_ends_silently():
    # 1 MB, more than any pipe holds; the reader takes a line of it and closes the pipe
    code = (
        "import sys, types\n"
        "sys.modules['long'] = types.SimpleNamespace(main=lambda _: print('line\\n' * 200_000) or 0)\n"
        "from runner.cli.commands import carry_out\n"
        "sys.exit(carry_out('long', [], {'long': ('long', '')}))"
    )
    command = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert command.stdout.readline() == b"line\n"
    command.stdout.close()
    assert command.stderr.read() == b""
    assert command.wait() == 141


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ε 2.93 · größer ∞", "ε 2.93 · größer ∞"),
        ("\x1b[2J\x07\r\n\t\0", r"\x1b[2J\x07\r\n\t\x00"),
        ("\x9b31m\x7f\u2028\u202e\u200b\ud800", r"\x9b31m\x7f\u2028\u202e\u200b\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_written_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_every_text_can_be_printed_in_every_encoding(encoding: str) -> None:
    """Words stand for the signs that results are made of, escapes for all others."""
    text = "ε 2.93 · accuracy 97.6% ± 0.1 – ∞ für 数"
    printed = text.encode(encoding, "plain").decode(encoding)
    assert printed == text if encoding == "utf-8" else "epsilon 2.93" in printed
    if encoding == "ascii":
        assert printed == "epsilon 2.93 - accuracy 97.6% +/- 0.1 - inf f\\xfcr \\u6570"


PREPARED = """
import os, pwd, sys
def unknown(number): raise KeyError(number)
pwd.getpwuid = unknown
for number in map(int, sys.argv[2]): os.close(number)
from runner.terminal import prepare_process
prepare_process()
file = open(sys.argv[1], "w")
assert file.fileno() > 2
print("\\u03b5", file=sys.stderr)
print("\\u03b5", flush=True)
file.write(os.path.expanduser("~"))
"""


@pytest.mark.parametrize("lost", ["012", "a full disk"])
def test_a_lost_stream_or_home_is_harmless(tmp_path, lost: str) -> None:
    """Closed descriptors, in whose place no file comes, or stderr that takes nothing; nobody has a home or a name."""
    environment = os.environ | {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment.pop("HOME", None)
    closed, stderr = (lost, None) if lost.isdigit() else ("", os.open("/dev/full", os.O_WRONLY))
    command = [sys.executable, "-c", PREPARED, tmp_path / "file", closed]
    ran = subprocess.run(command, env=environment, stderr=stderr, cwd=REPOSITORY)
    assert ran.returncode == 0
    assert (tmp_path / "file").read_text(encoding="utf-8") == "/"


_SLOW = ("torch", "scipy.stats", "pandas", "opacus", "matplotlib", "dp_accounting")
_ANSWER = f"""
import runpy, sys
for command in sys.argv[1:]:
    sys.argv = ["runner", *command.split()]
    try:
        runpy.run_module("runner", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        assert not ended.code, ended.code
print("imported:", [name for name in {_SLOW} if name in sys.modules])
"""


def test_no_answer_waits_for_a_library_that_it_does_not_need(tmp_path: Path) -> None:
    plan = "reproduce tempered-sigmoid --plan --jobs 2 runtime.device=cpu"
    answered("--help", f"show --results {tmp_path}", "explain --help", "claims", plan)
    answered("epsilon --noise 1 --batch 256 --examples 60000 --steps 14040", needless=("torch",))


def answered(*commands: str, needless: Sequence[str] = _SLOW) -> None:
    """Carry out commands in one process, which has to import none of some libraries."""
    program = _ANSWER.replace(str(_SLOW), str(needless))
    made = subprocess.run([sys.executable, "-c", program, *commands], cwd=REPOSITORY, capture_output=True, text=True)
    assert made.stdout.splitlines()[-1:] == ["imported: []"], made.stderr


_NEEDLESS = ("torch._dynamo", "sympy", "sklearn", "pandas", "matplotlib", "opacus", "wandb", "rich")


def test_make_refuses_a_variable_that_it_does_not_know() -> None:
    """`ITEM=fig-3` would otherwise train a whole paper, and `FRESH=yes` would train nothing anew."""
    answers = {
        name: subprocess.run(["make", "-n", "plan", f"{name}=x"], cwd=REPOSITORY, capture_output=True, text=True)
        for name in ("ITEM", "FRESH", "ITEMS")
    }
    assert [answer.returncode for answer in answers.values()] == [2, 2, 0]
    assert "There is no variable ITEM: `make help` lists them all." in answers["ITEM"].stderr
    assert "FRESH=x: write RECORD=1, FRESH=1, or neither." in answers["FRESH"].stderr


def test_no_run_on_a_cpu_imports_a_compiler(tmp_path: Path) -> None:
    """PyTorch's compiler, with SymPy, takes a second and 120 MB, and no step on a CPU is compiled by it."""
    small = "scale=smoke epochs=1 batch_size=512 scale.batch_size=512 tracking=disabled"
    small += f" runtime={{device:cpu,results_root:{tmp_path}}}"
    methods = ("tempered_sigmoid/mnist_tanh", "backprop_clipping/mnist_clipping optimizer=adam", "lipschitz/mnist_mlp")
    answered(*(f"experiment={method} {small}" for method in methods), needless=_NEEDLESS)
    assert len(list(tmp_path.glob("smoke/runs/*.json"))) == len(methods)
