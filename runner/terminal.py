"""Numbers and progress for people: a line that is rewritten in a terminal, and repeated at intervals in a log file."""

import argparse
import codecs
import difflib
import io
import math
import os
import shlex
import sys
import time
import warnings
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import Path
from typing import Any, Literal, NoReturn, TextIO

_LISTED = 20  # names that a refusal lists, at most
_LOG_INTERVAL = 30.0  # seconds between two lines of one kind in a log file
_SILENCE, _LOG_SILENCE = 10.0, 300.0  # seconds without output, in a terminal and in a log file


_PLAIN = {
    "ε": "epsilon", "δ": "delta", "σ": "sigma", "·": "-", "–": "-", "−": "-", "—": "-", "±": "+/-", "×": "x",
    "∞": "inf", "≤": "<=", "≥": ">=", "≈": "~", "†": "+", "‡": "++", "…": "...", "’": "'", "→": "->", "√": "sqrt",
}  # fmt: skip


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that a terminal's encoding lacks: by words of ASCII, else by Python escapes."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode("ascii") for c in lacking), error.end


codecs.register_error("plain", _plain)


class _Unread(io.FileIO):
    """A file descriptor that takes what is written to it, also if it is a pipe without a reader, or a full disk."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content) or 0
        except OSError:
            return memoryview(content).nbytes


def _stream(kind: type[io.FileIO], descriptor: int, before: TextIO | None) -> TextIO:
    """Return a stream in place of a standard one, in its encoding, for every character."""
    file = kind(descriptor, "w", closefd=False)
    encoding = getattr(before, "encoding", None) or "utf-8"
    by_line = descriptor == 2 or file.isatty()
    return io.TextIOWrapper(io.BufferedWriter(file), encoding, "plain", line_buffering=by_line)


def prepare_process() -> None:
    """Make this process and its workers able to print on any terminal, to find a home, and to draw figures.

    The three standard descriptors are open, so that no file becomes one of them. Every text can be printed in any
    encoding. Losing stderr ends nothing. Without a home, `~` is the root folder. A warning that importing a part of
    PyTorch gives about PyTorch itself is left out. Notebooks pass on a backend of matplotlib that exists in their own
    environment, and `import matplotlib` fails where it does not, or where a user's matplotlibrc is no UTF-8.
    """
    os.environ |= {"MPLBACKEND": "agg", "MATPLOTLIBRC": os.devnull}
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout, sys.stderr = _stream(io.FileIO, 1, sys.stdout), _stream(_Unread, 2, sys.stderr)
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"


class Parser(argparse.ArgumentParser):
    """A command line that is refused in one sentence, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Exit with the sentence alone, without the usage text that argparse would print first."""
        self.exit(2, f"{self.prog.rpartition(' ')[2]}: {' '.join(message.split())}\n")


def nearest(name: str, names: Iterable[str]) -> str:
    """Suggest in a sentence the names that are most like one that does not exist, or all names if they are few."""
    choices = {choice.casefold(): choice for choice in names}
    near = difflib.get_close_matches(name.casefold(), choices, n=3, cutoff=0.0 if len(choices) > _LISTED else 0.6)
    if near:
        return f"Did you mean {' or '.join(choices[match] for match in near)}?"
    return f"Choose from {', '.join(choices.values())}." if choices else "There is none."


def command(*words: str) -> str:
    """Return a command of this package, quoted for a shell."""
    return shlex.join(["python", "-m", "runner", *words])


class Line:
    """A progress line on `stream`."""

    def __init__(self, stream: TextIO | None = None, *, at_once: bool = True) -> None:
        """Begin without a line. A command that may still be refused in one line does not print it `at_once`."""
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._last = 0.0 if at_once else time.monotonic()
        self._said = time.monotonic()

    @property
    def silent(self) -> bool:
        """Return True if nothing was printed for so long that a reader may wonder, in a log file minutes."""
        return time.monotonic() - self._said > (_SILENCE if self._terminal else _LOG_SILENCE)

    def show(self, text: str) -> None:
        """Replace the line (terminal), or print it if none was printed for a while (log file)."""
        if self._terminal:
            self._stream.write(f"\r\x1b[K{text}")
            self._said = time.monotonic()
        elif time.monotonic() - self._last >= _LOG_INTERVAL:
            self._stream.write(text + "\n")
            self._last = self._said = time.monotonic()
        self._stream.flush()

    def keep(self, text: str) -> None:
        self._stream.write((f"\r\x1b[K{text}" if self._terminal else text) + "\n")
        self._said = time.monotonic()
        self._stream.flush()

    def clear(self) -> None:
        if self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def one_line(text: str) -> str:
    return " ".join(text.split())


def printable(text: str) -> str:
    r"""Replace characters that a terminal would obey or hide by their Python escapes.

    These are control characters, line breaks, marks of text direction, and halves of surrogate pairs.

    >>> printable("a\x1b[31m\n")
    'a\\x1b[31m\\n'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def number(
    value: float | None, unit: str = "", *, places: int | None = None, bound: Literal["upper", "lower"] | None = None
) -> str:
    """Write a number for people: with `places` decimals, else two for percentages, else four significant digits.

    Below ten billion it has no exponent: 15180. ∞ stands for infinity, a dash for no number, − for minus. An upper
    bound is rounded up, a lower bound down.
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "∞" if value > 0 else str(value)
    # The mean of 97.85 and 97.92 is a half, 0.87 not to become 0.8701, however computed, and a bound of 1e-16 not 0.
    value = float(f"{value:.10g}") if bound else round(value, 9)
    if places is None and unit == "%":
        places = 2
    if bound:
        exact, rounding = Decimal(repr(value)), ROUND_CEILING if bound == "upper" else ROUND_FLOOR
        digits = Context(prec=4, rounding=rounding)
        unit_in_last_place = Decimal(1).scaleb(-(places or 0))
        value = float(digits.create_decimal(exact) if places is None else exact.quantize(unit_in_last_place, rounding))
    text = f"{value:.4g}" if places is None else f"{value:.{places}f}"
    text = f"{float(text):.0f}" if "e+0" in text else text
    return f"−{text[1:]}" if text.startswith("-") else text


def bound_text(value: float | None) -> str:
    """Write an epsilon or another upper bound as `number` does, and never less than it is."""
    return number(value, bound="upper")


def duration(seconds: float) -> str:
    """Write seconds for people: 48s, 12m05s, 3h20m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def part_done(row: dict[str, float], epochs: int, most_kept: int | None) -> float:
    """Return the part of a run that is done after this epoch, in (0, 1].

    A run ends with its last epoch, or with the last of `most_kept` updates, whichever comes first.
    """
    return max(row["epoch"] / epochs, row["accepted"] / most_kept if most_kept else 0.0)


def epoch_text(row: dict[str, float], epochs: int, most_kept: int | None = None) -> str:
    """Describe an epoch's row of the history in a few words."""
    privacy = "not private"
    if "epsilon_spent" in row:
        spent = number(row["epsilon_spent"], places=2, bound="upper")
        privacy = f"ε {number(row['epsilon'], places=2, bound='upper')} (spent so far {spent})"
    elif row["epsilon_sound"] is None:
        privacy = f"ε {number(row['epsilon'], places=2, bound='upper')} as stated by its class"
    elif row["epsilon"] != float("inf") or row["epsilon_sound"] != float("inf"):
        epsilon, sound = (number(row[name], places=2, bound="upper") for name in ("epsilon", "epsilon_sound"))
        alike = row["epsilon"] == row["epsilon_sound"]
        privacy = f"sound ε {sound}" if alike else f"ε {epsilon} (sound {sound})"
    progress = f", {row['accepted']} of {most_kept} updates" if most_kept else f"/{epochs}"
    return f"epoch {row['epoch']}{progress} · accuracy {number(row['test_accuracy'], '%')}% · {privacy}"
