"""The commands by name, and their execution: errors become one sentence and an exit code, a SIGTERM an interrupt."""

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NoReturn

from runner.terminal import nearest, one_line

STOPPED = "Stopped. What is recorded stays; the same command goes on from there."
_TWICE = 1.0  # seconds within which one signal may arrive twice
_UNREAD = 141  # a shell's exit code for a command whose pipe was closed

Commands = Mapping[str, tuple[str, str]]  # by name: the module (and function, or `main`), and one line

COMMANDS = {
    "reproduce": ("runner.cli.reproduce", "carry out the runs of a paper, then make its tables and figures"),
    "aggregate": ("runner.cli.aggregate", "make the tables and figures of a paper from its records"),
    "study": ("runner.cli.study", "compare methods of your own at the same sound ε"),
    "show": ("runner.cli.show", "a table of your own runs"),
    "claims": ("runner.cli.show:claims", "a table of the papers' claims, by paper, verdict or guarantee"),
    "explain": ("runner.cli.show:explain", "a recorded run, an item of a paper or a study, explained"),
    "epsilon": ("runner.cli.epsilon", "ε by every accountant, for a training script that stays where it is"),
    "bounds": ("runner.cli.epsilon:bounds", "how far one example can move each gradient sum of a config"),
    "leaderboard": ("runner.cli.aggregate:leaderboard", "write the leaderboard: all methods at equal sound ε"),
    "compare": ("runner.cli.compare", "the difference of two methods at the same sound ε, with its interval"),
    "pareto": ("runner.cli.study:pareto", "accuracy against the sound ε for one method, with its runs"),
    "enter": ("runner.cli.study:enter", "check an entry to the leaderboard"),
    "dashboard": ("runner.cli.dashboard", "workspaces in W&B: charts and runs of each paper"),
    "verify": ("runner.cli.records:verify", "compare the privacy of each record with its config"),
    "migrate": ("runner.cli.records:migrate", "file records under the ids that their configs have now"),
    "new-paper": ("runner.cli.new_paper", "a paper to fill in, which runs as it is"),
}


def unknown(program: str, name: str, commands: Commands) -> str:
    return f"{program}: there is no command {one_line(name)!r}. {nearest(name, commands)}"


def listed(commands: Commands) -> str:
    return "\n".join(f"{name}: {text}" for name, (_, text) in commands.items())


def function_of(name: str, commands: Commands = COMMANDS) -> Callable[[Sequence[str]], int]:
    """Import a command, which takes its arguments and returns an exit code."""
    module, _, function = commands[name][0].partition(":")
    imported: Callable[[Sequence[str]], int] = getattr(import_module(module), function or "main")
    return imported


def carry_out(name: str, arguments: Sequence[str], commands: Commands = COMMANDS) -> int:
    try:
        code = function_of(name, commands)(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        return _UNREAD
    except KeyboardInterrupt:
        print(f"\n{STOPPED}", file=sys.stderr)
        return 130
    except Exception as error:
        from runner.cli.errors import refused

        sentence = refused(error)
        if sentence is None:
            raise
        print(f"{name}: {one_line(sentence)}", file=sys.stderr)
        return 2


def interrupt_on_termination() -> None:
    """Make SIGTERM raise KeyboardInterrupt, as SIGINT does; a second one of either ends the process at once.

    Nothing is lost: records are written whole, and the processes of runs end with their parent. A signal within
    `_TWICE` of the first counts as the first, because `make` passes on a SIGTERM that its whole group also got.
    """

    def interrupt(number: int, frame: object) -> NoReturn:
        first = time.monotonic()

        def end(number: int, frame: object) -> None:
            if time.monotonic() > first + _TWICE:
                os._exit(130)

        for number in numbers:
            signal.signal(number, end)
        raise KeyboardInterrupt

    # A shell has SIGINT ignored in jobs started by "&". It stays ignored.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    for number in numbers:
        signal.signal(number, interrupt)
    # At its end, Python removes handlers before the process ends. A SIGTERM in between would change the exit code.
    atexit.register(signal.signal, signal.SIGTERM, signal.SIG_IGN)
