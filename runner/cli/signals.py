"""Signals: SIGTERM ends a command as an interrupt does."""

from __future__ import annotations

import atexit
import os
import signal
import time
from typing import NoReturn

STOPPED = "Stopped. What is recorded stays; the same command goes on from there."
_TWICE = 1.0  # seconds within which one signal may come in two ways


def on_termination_as_on_interrupt() -> None:
    """Have SIGTERM raise KeyboardInterrupt, as SIGINT does; a second one of either ends the process at once.

    What ends with it needs no more time: records are written whole, and the processes of runs end with their parent.
    One that comes within `_TWICE` of the first is the first again: `make` passes on a SIGTERM that its whole group got.
    """

    def interrupt(number: int, frame: object) -> NoReturn:
        first = time.monotonic()

        def again(number: int, frame: object) -> None:
            if time.monotonic() > first + _TWICE:
                os._exit(130)

        for each in numbers:
            signal.signal(each, again)
        raise KeyboardInterrupt

    # A shell has SIGINT ignored in what it starts by "&", and that stays so.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    for each in numbers:
        signal.signal(each, interrupt)
    # When Python ends, handlers are gone before the process is: a SIGTERM that comes then would change its exit code.
    atexit.register(signal.signal, signal.SIGTERM, signal.SIG_IGN)
