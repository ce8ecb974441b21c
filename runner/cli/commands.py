"""The commands by name, and their execution: errors become one sentence and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from runner.cli.signals import STOPPED
from runner.terminal import nearest, one_line

_UNREAD = 141  # a shell's exit code for a command whose pipe was closed

Commands = Mapping[str, tuple[str, str]]  # by name: the module with its `main`, and one line for the list of commands

COMMANDS = {
    "reproduce": ("runner.cli.reproduce", "carry out the runs of a paper, then make its tables and figures"),
    "aggregate": ("runner.cli.aggregate", "make the tables and figures of a paper from its records"),
    "study": ("runner.cli.study", "compare methods of your own at the same sound ε"),
    "show": ("runner.cli.show", "a table of your own runs"),
    "claims": ("runner.cli.claims", "a table of the papers' claims, by paper, verdict or guarantee"),
    "explain": ("runner.cli.explain", "a recorded run, an item of a paper or a study, explained"),
    "epsilon": ("runner.cli.epsilon", "ε by every accountant, for a training script that stays where it is"),
    "bounds": ("runner.cli.bounds", "how far one example can move each gradient sum of a config"),
    "leaderboard": ("runner.cli.leaderboard", "write the leaderboard: all methods at equal sound ε"),
    "compare": ("runner.cli.compare", "the difference of two methods at the same sound ε, with its interval"),
    "pareto": ("runner.cli.pareto", "accuracy against the sound ε for one method, with its runs"),
    "enter": ("runner.cli.enter", "check an entry to the leaderboard"),
    "dashboard": ("runner.cli.dashboard", "workspaces in W&B: charts and runs of each paper"),
    "verify": ("runner.records.verify", "compare the privacy of each record with its config"),
    "migrate": ("runner.records.migrate", "file records under the ids that their configs have now"),
    "new-paper": ("runner.cli.new_paper", "a paper to fill in, which runs as it is"),
}


def unknown(program: str, name: str, commands: Commands) -> str:
    """State in one sentence that a program has no command of this name."""
    return f"{program}: there is no command {one_line(name)!r}. {nearest(name, commands)}"


def listed(commands: Commands) -> str:
    """List commands, a line each."""
    return "\n".join(f"{name}: {text}" for name, (_, text) in commands.items())


def carry_out(name: str, arguments: Sequence[str], commands: Commands = COMMANDS) -> int:
    """Import a command and carry it out, and return the exit code."""
    try:
        code: int = import_module(commands[name][0]).main(arguments)
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

        said = refused(error)
        if said is None:
            raise
        print(f"{name}: {one_line(said)}", file=sys.stderr)
        return 2
