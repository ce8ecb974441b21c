"""Commands that commands print: each is read by a shell's rules, and by the parser of the command that it names."""

import shlex
import shutil
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from runner.cli import show
from runner.cli.commands import COMMANDS, function_of
from runner.records.jobs import composed
from runner.report.claim_rows import rows_of
from runner.report.papers import load
from runner.terminal import Parser, command

AWKWARD = "a folder; echo $HOME 'x'"


class ParsedError(Exception):
    """Raised instead of carrying out a command."""


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch):
    """`parsed(text)`: the last command in a text, by the parser of the command, or the config of the run it names."""

    def read(text: str) -> Any:
        hint = next(line for line in reversed(text.splitlines()) if "python -m runner" in line)
        words = shlex.split(hint[hint.index("python -m runner") :])[3:]
        if words[0] not in COMMANDS:
            return composed(words)

        def stop(self: Parser, arguments: list[str]) -> None:
            raise ParsedError(ArgumentParser.parse_intermixed_args(self, arguments))

        with monkeypatch.context() as patched:
            patched.setattr(Parser, "parse_args", stop)
            patched.setattr(Parser, "parse_intermixed_args", stop)
            with pytest.raises(ParsedError) as caught:
                function_of(words[0])(words[1:])
        return caught.value.args[0]

    return read


@pytest.fixture
def results(tmp_path: Path, fabricate, jobs) -> Path:
    """A results folder with an awkward name, and one record."""
    path = fabricate(jobs("fig_3", "mnist_tanh")[0], [97.0])
    folder = tmp_path / AWKWARD
    (folder / "runs").mkdir(parents=True)
    shutil.copy(path, folder / "runs")
    return folder


NAMES = ("it's", "a=b", "a$HOME", 'say "x"', "für ε", "[1]", "-x", "a b/c=d,e;f", "~", "%s {x}")


@pytest.mark.parametrize("name", NAMES)
def test_a_command_keeps_every_name_of_a_folder(name: str) -> None:
    quoted = name.replace("'", "\\'")
    words = shlex.split(command("seed=3", f"runtime.results_root='{quoted}'"))
    assert words[:3] == ["python", "-m", "runner"]
    assert composed(words[3:]).runtime.results_root == name


def test_show_names_the_command_that_explains_a_run(results: Path, parsed, capsys) -> None:
    assert show.main(["--results", str(results)]) == 0
    chosen = parsed(capsys.readouterr().out)
    assert (results / "runs" / f"{chosen.what}.json").exists()
    assert chosen.results == results


def test_explain_names_the_command_that_makes_an_item(results: Path, parsed, capsys) -> None:
    for item, least in (("tempered_sigmoid/fig-3", "reproduce"), ("tempered_sigmoid/theorem-1", "aggregate")):
        assert show.explain([item, "--results", str(results)]) == 0
        text = capsys.readouterr().out
        assert f"Made by: python -m runner {least} " in text
        chosen = parsed(text)
        assert f"{chosen.paper}/{chosen.items}" == item
        overrides = getattr(chosen, "overrides", [])
        where = Path(composed(overrides).runtime.results_root) if overrides else chosen.results
        assert where == results


def test_tables_from_another_version_name_the_command_to_run(results: Path, parsed) -> None:
    paper = load("losing_less")
    old = results / paper.name / "fig-3" / "claims.csv"
    old.parent.mkdir(parents=True)
    old.write_text("item,verdict\nfig-3,reproduced (partial)\n")
    with pytest.raises(ValueError, match="another version") as refused:
        rows_of(results, paper, ["fig-3"])
    chosen = parsed(str(refused.value))
    assert (chosen.paper, chosen.results, chosen.scale) == (paper.name, results, "paper")
