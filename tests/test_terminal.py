"""Progress lines and numbers of a run under way."""

import io
import os
import subprocess
import sys

import pytest

from runner.cli import explain, show
from runner.config import REPOSITORY
from runner.terminal import Line, bound_text, epoch_text, number, part_done, printable
from tests.conftest import Refusal

ROW = {"epoch": 2, "test_accuracy": 91.234, "epsilon": 1.0, "epsilon_sound": 0.875, "accepted": 30}


def test_a_wrong_command_line_is_one_sentence_that_names_the_command(refusal: Refusal):
    assert refusal(show.main, ["--last", "x"]) == "show: argument --last: invalid int value: 'x'"
    assert refusal(explain.main, []) == "explain: the following arguments are required: what"


def test_a_run_is_measured_by_its_epochs():
    assert part_done({"epoch": 2}, 8, None) == 0.25
    assert epoch_text(ROW, 8) == "epoch 2/8 · accuracy 91.23% · ε 1.00 (sound 0.88)"


@pytest.mark.parametrize(("most_kept", "done"), [(40, 0.75), (1000, 0.25)])
def test_a_screened_run_by_what_ends_it_first(most_kept, done):
    assert part_done(ROW, 8, most_kept) == done
    assert f"epoch 2, 30 of {most_kept} updates · " in epoch_text(ROW, 8, most_kept)


def test_a_sound_epsilon_under_way_is_not_said_to_be_less_than_it_is():
    assert epoch_text(ROW | {"epsilon": 2.934, "epsilon_sound": 2.312}, 8).endswith("ε 2.93 (sound 2.32)")


def test_a_number_has_four_digits_or_so_many_decimals_and_a_bound_stays_one():
    assert [number(v) for v in (2.31449, 0.00123456, 20338.0, None)] == ["2.314", "0.001235", "2.034e+04", "–"]
    assert [number(v, "%") for v in (97.885, 5.0, float("inf"))] == ["97.89", "5.00", "∞"]
    assert [number(2.3144, places=3), number(2.3, places=3)] == ["2.314", "2.300"]
    assert [number(2.31441, places=3, bound=of) for of in ("lower", "upper")] == ["2.314", "2.315"]
    assert [number(97.899, "%", bound=of) for of in ("lower", "upper")] == ["97.89", "97.90"]
    assert [number(0.87 + 1e-12, places=3, bound="upper"), bound_text(0.87 + 1e-12)] == ["0.870", "0.87"]
    assert [bound_text(2.31441), bound_text(None), bound_text(float("inf"))] == ["2.315", "–", "∞"]


def test_a_run_without_noise_is_called_not_private():
    assert epoch_text(ROW | {"epsilon": float("inf"), "epsilon_sound": float("inf")}, 8).endswith("not private")


def test_a_line_knows_how_long_it_has_been_silent(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("runner.terminal.time.monotonic", lambda: now[0])
    line = Line(io.StringIO())
    now[0] += 40
    assert line.silent == 40
    line.show("first")
    assert line.silent == 0
    now[0] += 5
    line.show("too soon for a log file")
    assert line.silent == 5
    line.keep("kept")
    assert line.silent == 0


def test_a_command_whose_output_nobody_reads_on_ends_without_a_word():
    # 1 MB, more than any pipe holds; the reader takes a line of it and closes the pipe
    code = (
        "import sys, types\n"
        "sys.modules['long'] = types.SimpleNamespace(main=lambda _: print('line\\n' * 200_000) or 0)\n"
        "from runner.cli.commands import Command, carry_out\n"
        "sys.exit(carry_out('long', [], {'long': Command('long', '')}))"
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


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_every_text_can_be_printed_in_every_encoding(encoding: str) -> None:
    """Words stand for the signs that results are made of, escapes for all others."""
    text = "ε 2.93 · accuracy 97.6% ± 0.1 – ∞ für 数"
    printed = text.encode(encoding, "plain").decode(encoding)
    assert printed == text if encoding == "utf-8" else "epsilon 2.93" in printed
    if encoding == "ascii":
        assert printed == "epsilon 2.93 - accuracy 97.6% +/- 0.1 - inf f\\xfcr \\u6570"


PREPARED = """
import os, sys
for number in map(int, sys.argv[2]): os.close(number)
from runner.terminal import prepare_process
prepare_process()
file = open(sys.argv[1], "w")
assert file.fileno() > 2
print("\\u03b5", file=sys.stderr)
print("\\u03b5", flush=True)
file.write(os.path.expanduser("~"))
"""


@pytest.mark.parametrize("closed", ["", "2", "12", "012"])
def test_a_closed_stream_ends_nothing_and_no_file_takes_its_place(tmp_path, closed: str) -> None:
    environment = os.environ | {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run([sys.executable, "-c", PREPARED, tmp_path / "file", closed], env=environment, cwd=REPOSITORY)
    assert ran.returncode == 0
    assert (tmp_path / "file").read_text(encoding="utf-8") == os.path.expanduser("~")


@pytest.mark.parametrize("lost", ["a pipe that nobody reads", "a full disk"])
def test_losing_stderr_ends_nothing(tmp_path, lost: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    target = writing if lost.startswith("a pipe") else os.open("/dev/full", os.O_WRONLY)
    ran = subprocess.run([sys.executable, "-c", PREPARED, tmp_path / "file", ""], stderr=target, cwd=REPOSITORY)
    assert ran.returncode == 0
    assert (tmp_path / "file").exists()
