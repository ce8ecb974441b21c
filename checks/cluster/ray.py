"""A Ray cluster of two nodes with one CPU each, on this machine, and a head without any; and faults for them."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from checks.cluster.processes import daemon, descendants, kill, wait_until

NODES = ("n1", "n2")
PORT = 6399
_RAY = (sys.executable, "-m", "ray.scripts.scripts")
_START = 90.0  # seconds for the nodes to be there


def why_not() -> str:
    """Explain why there can be no such cluster here; "" if there can."""
    return "" if find_spec("ray") is not None else "no Ray: pip install 'dp-repro-bench[ray]'"


@dataclass
class Ray:
    """The cluster."""

    folder: Path
    address: str
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start_node(self, name: str, *arguments: str) -> None:
        """Start a node."""
        command = [*_RAY, "start", "--block", "--disable-usage-stats", "--object-store-memory=100000000", *arguments]
        quiet = {"RAY_ENABLE_RECORD_ACTOR_TASK_LOGGING": "0"}
        self._daemons[name] = daemon(command, self.folder / f"{name}.out", quiet)

    def lose_node(self, name: str) -> None:
        """Kill all processes of a node, its tasks included."""
        kill(descendants(self._daemons.pop(name).pid))

    def busy(self) -> dict[str, list[int]]:
        """Return the nodes that compute, and the processes that carry out their tasks."""
        found = {}
        for name, process in self._daemons.items():
            workers = [each for each in descendants(process.pid) if _title(each).startswith("ray::_carry_out_on_node")]
            if workers and name in NODES:
                found[name] = workers
        return found

    def close(self) -> None:
        """End all of it."""
        kill([each for process in self._daemons.values() for each in descendants(process.pid)])


def _title(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def two_nodes(folder: Path) -> Iterator[Ray]:
    """Start the cluster; all of its processes end with the context."""
    folder.mkdir(parents=True)
    cluster = Ray(folder, f"{socket.gethostbyname(socket.gethostname())}:{PORT}")
    try:
        head = ["--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false"]
        cluster.start_node("head", *head, f"--temp-dir={folder}/t")
        wait_until(lambda: _nodes(cluster) >= 1, _START, "Ray's head")
        for number, name in enumerate(NODES, 1):  # one after the other: on few cores two take too long for Ray
            cluster.start_node(name, f"--address={cluster.address}", "--num-cpus=1")
            wait_until(lambda: _nodes(cluster) > number, _START, f"Ray's node {name}")  # noqa: B023
        yield cluster
    finally:
        cluster.close()


def _nodes(cluster: Ray) -> int:
    """Count the nodes that the head considers alive."""
    said = subprocess.run([*_RAY, "status", f"--address={cluster.address}"], capture_output=True, text=True)
    return said.stdout.count("1 node_")
