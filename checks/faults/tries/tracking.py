"""W&B that is silent, killed, full or damaged: a run and its record wait for nothing without a bound."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from checks.faults.tries.attempt import Try
from checks.faults.tries.files import RUN, failing
from checks.processes import running
from runner.config import REPOSITORY
from runner.report.dashboard import command
from runner.runs import tracking as runs_tracking

_KEY = {"WANDB_API_KEY": "0" * 40}
_RUN = (*RUN[:3], RUN[4], "tracking.directory={here}/tracking")
_SERVER = """
import sys; sys.path.insert(0, sys.argv[1])
from checks.wandb_server import Server
server = Server(sleepy=sys.argv[2] == "sleepy"); server.silent = sys.argv[2] == "silent"
print(server.url, flush=True); server.serve_forever()
"""
_WRITER = """
import sys, wandb
for name in sys.argv[2:]:
    settings = wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True)
    run = wandb.init(mode="offline", project="sent", dir=sys.argv[1], id=name, settings=settings)
    run.log({"epoch": 1}); run.finish()
"""


class _Serving:
    """A server in a process of its own, for a try."""

    def __init__(self, how: str, damage: Callable[[Path], None] = lambda folder: None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.how, self.damage = how, damage
        self._process: subprocess.Popen[str] | None = None

    def before(self, here: Path) -> None:
        """Start the server at the port."""
        code = _SERVER.replace("Server(", f"Server(port={self.port}, ")
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(REPOSITORY), self.how], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.damage(here)

    def after(self, here: Path) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def environment(self) -> dict[str, str]:
        return _KEY | {"WANDB_BASE_URL": f"http://127.0.0.1:{self.port}", "http_proxy": "", "no_proxy": "127.0.0.1"}


def _kill_service(how: signal.Signals) -> None:
    """Send a signal to W&B's process as soon as there is one."""

    def look() -> None:
        while True:
            for process, its in running().items():
                if its.session == session and "wandb-core" in its.command:
                    threading.Event().wait(1.0)
                    os.kill(process, how)
                    return
            threading.Event().wait(0.05)

    session = os.getsid(0)
    threading.Thread(target=look, daemon=True).start()


def _written(here: Path) -> None:
    """Write offline runs."""
    (here / "tracking").mkdir()
    subprocess.run([sys.executable, "-c", _WRITER, str(here / "tracking"), "good", "fine"], check=True)


def _written_and_damaged(here: Path) -> None:
    """Write offline runs, and put a damaged file next to them."""
    _written(here)
    folder = here / "tracking" / "wandb" / "offline-run-20260101_000000-bad"
    folder.mkdir()
    file = folder / "run-bad.wandb"
    file.write_bytes(b"no file of W&B's")
    os.utime(file, (0, 0))


def _all_sent(here: Path, said: str) -> str:
    marks = list((here / "tracking" / "wandb").glob("offline-run-*-[gf]*/*.synced"))
    sent = {mark.parent.name.rpartition("-")[2] for mark in marks} & {"good", "fine"}
    return "" if sent == {"good", "fine"} else f"only {sorted(sent)} are sent"


def _hurried() -> None:
    """Wait for W&B a third as long, as a run does it."""
    vars(runs_tracking)["_PATIENCE"] = 10.0


def _undrawn() -> None:
    """Draw no page of the dashboard, which has nothing to do with W&B."""
    vars(command)["_write_page"] = lambda *_: None


def tries() -> list[Try]:
    """List the tries."""
    w = partial(Try, "W&B", seconds=150.0)

    def served(how: str, name: str, *arguments: Any, damage: Any = lambda here: None, **options: Any) -> Try:
        server = _Serving(how, damage)
        every = {"before": server.before, "after": server.after, "environment": server.environment, **options}
        return w(name, *arguments, **every)

    online = (*_RUN, "tracking=online")
    sync = ("wandb-sync", "--folder", "{here}/tracking")
    later = r"finished: accuracy.*wandb sync"
    return [
        served("well", "online", online, 0, "finished: accuracy", 1),
        served("sleepy", "online, silent after the run began", online, 0, later, 1, inside=_hurried),
        served("sleepy", "online, silent after the first of two runs began", ("-m", *online, "seed=1,2"), 0,
               later, 2, inside=_hurried),
        served("silent", "online, silent from the start", online, 2, "tracking=online", 0),
        w("online, no network", online, 2, "tracking=online", 0,
          environment=_KEY | {"WANDB_BASE_URL": "http://127.0.0.1:9"}),
        w("online, no login", online, 2, "wandb login", 0),
        w("offline", _RUN, 0, "finished: accuracy", 1),
        w("offline, its process killed", _RUN, 0, r"finished: accuracy.*", 1,
          inside=partial(_kill_service, signal.SIGKILL)),
        w("offline, its process stopped", _RUN, 0, r"finished: accuracy.*", 1,
          inside=partial(_kill_service, signal.SIGSTOP)),
        w("offline, its folder is a file", _RUN, 0, "W&B failed.*finished", 1,
          before=lambda here: (here / "tracking").touch()),
        w("offline, no hard links or locks", _RUN, 0, "finished", 1, inside=failing(os, "link", 1)),
        served("well", "sync", sync, 0, "sent 2 of 2", damage=_written, then=_all_sent),
        served("well", "sync, one damaged", sync, 1, "bad", damage=_written_and_damaged, then=_all_sent),
        served("silent", "sync, a silent server", sync, 2, "wandb-sync", damage=_written),
        served("silent", "dashboard, a silent server", ("dashboard", "tempered-sigmoid", "--output", "{here}/d"), 0,
               "nothing was sent to W&B", inside=_undrawn),
    ]  # fmt: skip
