"""One command in surroundings of its own, and its answer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from runner.config import REPOSITORY
from runner.records.files import read_record

_BLOCKED = "http://127.0.0.1:9"  # a proxy that refuses, so that no try reaches a network
ABSENT = "\0"  # the value of a variable of the environment that a try lacks


@dataclass(frozen=True)
class Try:
    """A command, its surroundings, and the answer that it has to give.

    Attributes:
        kind: the kind of fault.
        name: the surroundings or the input, in a few words.
        arguments: of `python -m runner`, with `{here}` for the folder of the try, which is also the current folder.
        code: the exit code.
        says: a regular expression that its output has to contain.
        records: the number of records afterwards in `results/` of the folder, or None if there is no matter.
        before: prepares the folder.
        after: undoes what outlives the folder, such as a mount.
        then: returns an error that the answer does not show, or "".
        inside: changes the process, before it begins.
        environment: variables to set; `ABSENT` to unset one.
        seconds: the time in which it has to end.
        fresh: True if it needs a Python of its own: it depends on variables that Python reads when it starts.
        why_not: the reason why it cannot be tried here; "" if it can.
    """

    kind: str
    name: str
    arguments: tuple[str, ...]
    code: int = 0
    says: str = ""
    records: int | None = None
    before: Callable[[Path], None] = lambda here: None
    after: Callable[[Path], None] = lambda here: None
    then: Callable[[Path, str], str] = lambda here, said: ""
    inside: Callable[[], None] = lambda: None
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 60.0
    fresh: bool = False
    why_not: str = ""


@dataclass(frozen=True)
class Answer:
    """The answer to a try: the exit code (None: it did not end), the seconds, the output, and the fault or ""."""

    code: int | None
    seconds: float
    said: str
    fault: str


def attempt(each: Try, here: Path) -> Answer:
    """Carry out a try in an empty folder."""
    here.mkdir(parents=True)
    began = time.monotonic()
    try:
        each.before(here)
        log = here.with_suffix(".log")
        arguments = [text.replace("{here}", str(here)) for text in each.arguments]
        environment = _environment(each, here)
        began = time.monotonic()
        start = _started if each.fresh else _forked
        process = start(arguments, environment, each, here, log)
        code = _ended(process, each.seconds)
        seconds = time.monotonic() - began
        said = log.read_text(errors="backslashreplace")
        return Answer(code, seconds, said, _fault(each, here, code, said))
    finally:
        each.after(here)


def _environment(each: Try, here: Path) -> dict[str, str]:
    foreign = ("WANDB", "DP_", "LC_", "LANG")
    base = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    proxies = {f"{name}_proxy": _BLOCKED for name in ("http", "https")}
    given = {name: value.replace("{here}", str(here)) for name, value in each.environment.items()}
    every = base | proxies | {"LC_ALL": "C.UTF-8"} | given
    return {name: value for name, value in every.items() if value != ABSENT}


def _started(arguments: list[str], environment: dict[str, str], each: Try, here: Path, log: Path) -> int:
    environment = {"PYTHONPATH": str(REPOSITORY)} | environment
    with log.open("w", encoding="utf-8") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "runner", *arguments],
            cwd=here, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=each.inside,
        ).pid  # fmt: skip


def _forked(arguments: list[str], environment: dict[str, str], each: Try, here: Path, log: Path) -> int:
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()
        os.chdir(here)
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["runner", *arguments]
        sys.path.insert(0, str(here))
        each.inside()
        from runner.__main__ import main

        code = main()
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(process: int, seconds: float) -> int | None:
    """Wait for a process, and kill its session. Return its exit code, or None if it had to be killed."""
    until, status = time.monotonic() + seconds, None
    while status is None and time.monotonic() < until:
        found, code = os.waitpid(process, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if found else None
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if status is None:
        os.waitpid(process, 0)
    return status


def _fault(each: Try, here: Path, code: int | None, said: str) -> str:
    """Return the first difference from the answer that was due, or ""."""
    if code is None:
        return f"it does not end in {each.seconds:.0f} seconds"
    if "Traceback (most recent call last)" in said:
        return "a traceback"
    if code != each.code:
        return f"exit code {code}, not {each.code}"
    if each.says and not re.search(each.says, said, re.DOTALL):
        return f"it does not say {each.says!r}"
    if each.records is not None:
        try:
            found = sum(bool(read_record(path)) for path in here.glob("results/**/runs/*.json"))
        except ValueError as error:
            return str(error)
        if found != each.records:
            return f"{found} records, not {each.records}"
    return each.then(here, said)
