"""The commands by name, and their execution: errors become one sentence and an exit code."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from runner.cli.signals import STOPPED
from runner.terminal import nearest, one_line

_UNREAD = 141  # a shell's exit code for a command whose pipe was closed


@dataclass(frozen=True)
class Command:
    """A command: the module with its `main`, and one line for the list of commands."""

    module: str
    help: str


COMMANDS = {
    "reproduce": Command("runner.cli.reproduce", "carry out the runs of a paper, then make its tables and figures"),
    "aggregate": Command("runner.cli.aggregate", "make the tables and figures of a paper from its records"),
    "study": Command("runner.cli.study", "compare methods of your own at the same sound ε"),
    "search": Command("runner.cli.search", "search the fields that a sweep draws, by Optuna"),
    "show": Command("runner.cli.show", "a table of your own runs"),
    "claims": Command("runner.cli.claims", "a table of the papers' claims, by paper, verdict or guarantee"),
    "explain": Command("runner.cli.explain", "a recorded run, an item of a paper or a study, explained"),
    "bounds": Command("runner.training.bounds", "how far one example can move each gradient sum of a config"),
    "leaderboard": Command("runner.cli.leaderboard", "write the leaderboard: all methods at equal sound ε"),
    "site": Command("runner.report.site.command", "the pages of results and docs as a website in a folder"),
    "dashboard": Command("runner.report.dashboard.command", "charts and runs of each paper, in W&B or as pages"),
    "wandb-sync": Command("runner.runs.offline", "send offline runs to W&B, each once"),
    "verify": Command("runner.records.verify", "compare the privacy of each record with its config"),
    "migrate": Command("runner.records.migrate", "file records under the ids that their configs have now"),
    "schema": Command("runner.records.schema", "write the JSON Schema of records"),
    "new-paper": Command("runner.cli.new_paper", "a paper to fill in, which runs as it is"),
}


def unknown(program: str, name: str, commands: Mapping[str, Command]) -> str:
    """State in one sentence that a program has no command of this name."""
    return f"{program}: there is no command {one_line(name)!r}. {nearest(name, commands)}"


def listed(commands: Mapping[str, Command] = COMMANDS) -> str:
    """List commands, a line each, for `--help`."""
    return "\n".join(f"{name}: {command.help}" for name, command in commands.items())


def diagnostics() -> str:
    """List the diagnostics, a line each, for `--help`: every file with its docstring's first line."""
    lines = []
    for path in sorted((Path(__file__).parents[1] / "training" / "diagnostics").glob("*.py")):
        if path.stem not in ("__init__", "interface"):
            first, *_ = str(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))).splitlines()
            lines.append(f"{path.stem}: {first.rstrip('.')}")
    return "\n".join(lines)


def carry_out(name: str, arguments: Sequence[str], commands: Mapping[str, Command] = COMMANDS) -> int:
    """Import a command and carry it out, and return the exit code."""
    try:
        code: int = import_module(commands[name].module).main(arguments)
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
