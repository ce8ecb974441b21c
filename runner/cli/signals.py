"""Signals: SIGTERM ends a command as an interrupt does."""

from __future__ import annotations

import atexit
import os
import signal
import time
from typing import NoReturn

STOPPED = "Stopped. What is recorded stays; the same command goes on from there."
_TWICE = 1.0  # seconds within which one signal may arrive twice


def on_termination_as_on_interrupt() -> None:
    """Make SIGTERM raise KeyboardInterrupt, as SIGINT does; a second one of either ends the process at once.

    Nothing is lost: records are written whole, and the processes of runs end with their parent. A signal within
    `_TWICE` of the first counts as the first, because `make` passes on a SIGTERM that its whole group also got.
    """

    def interrupt(number: int, frame: object) -> NoReturn:
        first = time.monotonic()

        def again(number: int, frame: object) -> None:
            if time.monotonic() > first + _TWICE:
                os._exit(130)

        for each in numbers:
            signal.signal(each, again)
        raise KeyboardInterrupt

    # A shell has SIGINT ignored in jobs started by "&". It stays ignored.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    for each in numbers:
        signal.signal(each, interrupt)
    # At its end, Python removes handlers before the process ends. A SIGTERM in between would change the exit code.
    atexit.register(signal.signal, signal.SIGTERM, signal.SIG_IGN)
