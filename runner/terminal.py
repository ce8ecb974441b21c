"""One line that says how far the work is: rewritten in a terminal, repeated now and then in a log file."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_LOG_INTERVAL = 30.0  # seconds between two lines of one kind in a log file


class Line:
    """A progress line on `stream`."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._last = 0.0
        self._said = time.monotonic()

    @property
    def silent(self) -> float:
        """Seconds since this line last said anything."""
        return time.monotonic() - self._said

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
        """Print a line that stays."""
        self._stream.write((f"\r\x1b[K{text}" if self._terminal else text) + "\n")
        self._said = time.monotonic()
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away from a terminal, for other output to begin there."""
        if self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def duration(seconds: float) -> str:
    """Seconds as people say them: 48s, 12m05s, 3h20m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def part_done(row: dict[str, float], epochs: int, most_kept: int | None) -> float:
    """How much of a run is behind it after this epoch, in (0, 1].

    It ends with its last epoch, or with the last of `most_kept` updates, whichever comes first.
    """
    return max(row["epoch"] / epochs, row["accepted"] / most_kept if most_kept else 0.0)


def epoch_text(row: dict[str, float], epochs: int, most_kept: int | None = None) -> str:
    """An epoch's row of the history in a few words."""
    privacy = "not private"
    if row["epsilon"] != float("inf") or row["epsilon_sound"] != float("inf"):
        privacy = f"ε {row['epsilon']:.2f} (sound {row['epsilon_sound']:.2f})"
    of = f", {row['accepted']} of {most_kept} updates" if most_kept else f"/{epochs}"
    return f"epoch {row['epoch']}{of} · accuracy {row['test_accuracy']:.2f}% · {privacy}"
