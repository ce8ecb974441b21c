"""How long runs take that no record tells of, timed once for every checkout.

A first plan would time a step of each kind of run (`runner.runs.alike`) that nothing recorded resembles, which takes up
to half a minute. `python -m runner.reproduce PAPER --plan --keep-timings` leaves what it timed in `timings.json` among
the paper's results. Like records, timings are of one core, and are carried over to another machine by the yardstick of
both (`runner.speed.yardstick`); a record of a like run is believed first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "timings.json"


@dataclass(frozen=True)
class Timing:
    """Processor seconds of an epoch of one kind of run, or of a run that its budget ends, and of the yardstick on the
    machine that timed it."""

    seconds: float
    yardstick_seconds: float

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
        found = {kind: Timing(**values) for kind, values in json.loads(path.read_text(encoding="utf-8")).items()}
        return {kind: timing for kind, timing in found.items() if _tells(timing)}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _tells(timing: Timing) -> bool:
    return all(math.isfinite(value) and value > 0 for value in asdict(timing).values())
