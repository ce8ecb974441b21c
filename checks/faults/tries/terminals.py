"""Terminals and machines of every kind: what is printed is readable, and can be pasted."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

from checks.faults.tries.attempt import ABSENT, Try
from checks.faults.tries.files import RUN
from runner.config import REPOSITORY

_ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
_LATIN = {"PYTHONIOENCODING": "latin-1"}
_GIT = {"PATH": "{here}/bin"}


def _pasted(here: Path, said: str) -> str:
    """Give the last command that was printed to a shell. Return its error, or ""."""
    commands = re.findall(r"(?:[A-Z_]+=\S+ )*python -m runner [^\n]*", said)
    if not commands:
        return "no command is printed"
    line = commands[-1].replace("python -m", f"{shlex.quote(sys.executable)} -m", 1)
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ran = subprocess.run(["bash", "-c", line], cwd=here, env=environment, capture_output=True, text=True, timeout=90)
    return "" if ran.returncode == 0 else f"pasted, {commands[-1]!r} says: {ran.stderr.strip()[-300:]}"


def _root(name: str) -> tuple[str, ...]:
    quoted = name.replace("'", "\\'")
    return (*RUN[:4], f"runtime.results_root='{{here}}/{quoted}'")


def _ascii_only(here: Path, said: str) -> str:
    """Return an error if a terminal of ASCII would not show the output."""
    return "" if said.isascii() else f"it prints {sorted(set(said) - set(map(chr, range(128))))}"


def tries() -> list[Try]:
    """List the tries."""
    t = partial(Try, "terminal")
    ascii_ = partial(t, environment=_ASCII, fresh=True)
    latin = partial(t, environment=_LATIN, fresh=True)
    records = str(REPOSITORY / "results")
    found = [
        ascii_("ASCII: a run", RUN, records=1, then=_ascii_only),
        ascii_("ASCII: a multirun", ("-m", *RUN, "seed=1,2"), records=2, then=_ascii_only),
        ascii_("ASCII: show", ("show", "--results", records), then=_ascii_only),
        ascii_("ASCII: claims", ("claims", "--paper", "tempered-sigmoid"), then=_ascii_only),
        ascii_("ASCII: explain an item", ("explain", "tempered_sigmoid/fig-3"), then=_ascii_only),
        ascii_("ASCII: --help", ("--help",), then=_ascii_only),
        ascii_("ASCII: a refusal", (*RUN, "activation=für"), 2, "activation", then=_ascii_only),
        ascii_("ASCII: bounds", ("bounds", *RUN[:3]), then=_ascii_only),
        latin("Latin-1: a run", RUN, records=1),
        latin("Latin-1: show", ("show", "--results", records)),
        latin("Latin-1: claims", ("claims", "--paper", "losing-less")),
        latin("Latin-1: a plan", ("reproduce", "tempered-sigmoid", "--plan", "--items", "fig-3")),
        t("no HOME", RUN, records=1, environment={"HOME": ABSENT, "XDG_CACHE_HOME": ABSENT}),
        t("an absent HOME", RUN, records=1, environment={"HOME": "/proc/none", "XDG_CACHE_HOME": ABSENT}),
        t("no HOME and no name of the user", RUN, records=1, inside=_nobody,
          environment={"HOME": ABSENT, "XDG_CACHE_HOME": ABSENT}),
        t("no HOME and no name: offline", (*RUN[:3], RUN[4], "tracking.directory={here}"), records=1, inside=_nobody,
          environment={"HOME": ABSENT, "XDG_CACHE_HOME": ABSENT}, seconds=120.0),
        t("no HOME, results in ~", (*RUN[:4], "runtime.results_root=~/results"), 2, r"needs quotes.*~/results",
          inside=_nobody,
          environment={"HOME": ABSENT}),
        t("no HOME: show", ("show", "--results", "~/x"), 2, r"/x is no folder", inside=_nobody,
          environment={"HOME": ABSENT}),
        t("no git: a run", RUN, records=1, environment=_GIT),
        t("no git: show", ("show",), 0, "without git", environment=_GIT),
        t("no git: an own class", (*RUN, "activation=relu"), records=1, environment=_GIT),
        t("TERM=dumb, COLUMNS=5", RUN, records=1, environment={"TERM": "dumb", "COLUMNS": "5"}),
        t("stderr closed", RUN, records=1, inside=lambda: os.close(2)),
        t("stdout closed", RUN, records=1, inside=lambda: os.close(1)),
        t("stdin closed", RUN, records=1, inside=lambda: os.close(0)),
        t("output that nobody reads", RUN, 0, records=1, inside=_unread),
        t("stderr that nobody reads", RUN, 0, records=1, inside=partial(_unread, 2)),
        t("output on a full disk", RUN, records=1, inside=_full),
    ]  # fmt: skip
    names = ("a b", "it's", "a=b", "a,b", "a$HOME", 'say "x"', "für ε", "[1]", "-x", "a;b", "a b/c=d,e", "~", "%s {x}")
    found += [
        t(f"results in {name!r}: what is printed can be pasted", _root(name), then=_pasted, seconds=90.0)
        for name in names
    ]
    again = [("a title", "title='a b=c, \\'d\\''"), ("tags", "tracking.tags=[a b,c]")]
    found += [
        t(f"{what} with quotes: what is printed can be pasted", (*RUN, text), then=_pasted) for what, text in again
    ]
    return found


def _nobody() -> None:
    import pwd

    def unknown(_: int) -> None:
        raise KeyError("getpwuid(): uid not found: 4712")

    pwd.getpwuid = unknown  # type: ignore[assignment]


def _unread(descriptor: int = 1) -> None:
    reading, writing = os.pipe()
    os.dup2(writing, descriptor)
    os.close(reading)
    os.close(writing)


def _full() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
