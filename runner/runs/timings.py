"""How long runs take that no record tells of, timed once for every checkout.

A first plan would time a step of each kind of run (`runner.runs.alike`) that nothing recorded resembles, which takes up
to half a minute. `python -m runner reproduce PAPER --plan --keep-timings` leaves what it timed in `timings.json` among
the paper's results, all of it timed anew: after a change that makes steps faster or slower it is to be said again. Like
records, timings are of one core, and are carried over to another machine by the yardstick of both
(`runner.speed.yardstick`); a record of a like run is believed first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = "timings.json"
_LEAST, _MOST = 1e-9, 1e9  # seconds, beyond which a number is damaged


@dataclass(frozen=True)
class Timing:
    """Processor seconds of an epoch of one kind of run, or of a run that its budget ends, and of the yardstick on the
    machine that timed it. `guessed`: how many epochs the run takes is, as its budget ends it and it is screened."""

    seconds: float
    yardstick_seconds: float
    guessed: bool = False

    def on(self, yardstick_seconds: float) -> float:
        """Seconds on a machine whose yardstick takes so long."""
        return self.seconds * yardstick_seconds / self.yardstick_seconds


def read(folders: Iterable[Path]) -> dict[str, Timing]:
    """What is kept among the papers' results in some folders, by kind. What is damaged tells nothing."""
    paths = [path for folder in folders for path in sorted(folder.glob(f"*/{FILE}"))]
    return {kind: timing for path in paths for kind, timing in _of_file(path).items()}


def text(timings: Mapping[str, Timing]) -> str:
    """The file of a paper: a line a kind."""
    lines = [f"  {json.dumps(kind)}: {json.dumps(asdict(timing))}" for kind, timing in sorted(timings.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _of_file(path: Path) -> dict[str, Timing]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8")).items()
    except (OSError, ValueError, AttributeError):
        return {}
    return {kind: timing for kind, entry in entries if (timing := _of_entry(entry)) is not None}


def _of_entry(entry: Any) -> Timing | None:
    """None where it is damaged."""
    try:
        timing = Timing(float(entry["seconds"]), float(entry["yardstick_seconds"]), bool(entry["guessed"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return timing if _LEAST < timing.seconds < _MOST and _LEAST < timing.yardstick_seconds < _MOST else None
