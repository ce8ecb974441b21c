"""Faults on a real Slurm and a real Ray of two nodes while they run a small paper: `python -m checks cluster`.

All nodes are on this machine, with one CPU each. Afterwards every record has to be there once, whole, and equal to that
of an undisturbed run. It needs root, `apt-get install slurm-wlm munge` and `pip install -e '.[slurm,ray]'`.

Exit codes: 0 nothing was lost, 1 something was, 2 a program is missing.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checks.faults.command import family, kill, measured, running
from runner.config import REPOSITORY, ConfigError
from runner.launch.slurm import queue_states, queued_runs
from runner.records.disk import progress
from runner.report.formats import Table, markdown, write_text

_PAPER = (sys.executable, "-m", "runner", "reproduce", "tempered-sigmoid", "--scale=smoke", "--items=fig-3,fig-4")
_RAY = (sys.executable, "-m", "ray.scripts.scripts")
_SLURM_CONF = """ClusterName=two
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdTimeout=15
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=1 RealMemory=4000
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE
"""


def main(arguments: Sequence[str]) -> int:
    """Play the scenes and write their table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m checks cluster", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=("slurm", "ray"), help="this cluster alone; writes no table")
    only = parser.parse_args(arguments).only
    os.environ["PATH"] += ":/usr/sbin"
    if only != "ray" and shutil.which("slurmctld") is None:
        raise ConfigError("There is no Slurm: apt-get install slurm-wlm munge.")
    rows, wrong = list[tuple[str, str, str]](), list[str]()
    with tempfile.TemporaryDirectory(prefix="dp") as folder:
        undisturbed = Path(folder) / "undisturbed"
        wait(start_paper(undisturbed, "--jobs=2"), undisturbed, 0)
        for name, scene in {"slurm": play_slurm, "ray": play_ray}.items():
            if only in (None, name):
                rows += [(name, fault, effect) for fault, effect in scene(Path(folder) / name)]
                wrong += differences(Path(folder) / name, undisturbed)
    text = "\n".join(wrong) or "Every record is there once, and equal to that of an undisturbed run (`make cluster`)."
    table = markdown(Table(("cluster", "fault", "what followed"), rows))
    print(page := f"# A paper in small on clusters of two nodes, with faults\n\n{text}\n\n{table}")
    if only is None and not wrong:
        write_text(REPOSITORY / "results" / "cluster" / "README.md", page)
    return int(bool(wrong))


def play_slurm(root: Path) -> Iterator[tuple[str, str]]:
    """Signal a task, lose a node, and kill a task, while a command waits. Then repeat the command."""

    def training(*tried: str) -> str:
        tasks = [task for run_id, task in (queued_runs(root) or {}).items() if progress(root, run_id) is not None]
        return next((task for task in tasks if task not in tried), "")

    with slurm(root.parent) as daemons:
        command = start_paper(root, *(request := ("--launcher=slurm", "launcher.minutes=0.05")))
        signalled = wait_until(training)
        subprocess.Popen(["scancel", "--signal=USR2", signalled], stderr=subprocess.DEVNULL)  # it waits for an end
        wait_until(lambda: any("Requeued job" in path.read_text() for path in root.rglob("*_log.*")))
        yield "the signal before a time limit", "the task queued itself again"
        victim = wait_until(lambda: training(signalled))
        node = output("squeue", "--noheader", f"--jobs={victim}", "--format=%N")
        kill(processes_of_job(victim) | descendants([daemons[node]]))
        wait_until(lambda: (queue_states() or {}).get(victim) == "PENDING")
        yield "a node lost", "Slurm queued its task again"
        job = wait_until(lambda: training(signalled, victim))
        kill(pid for pid, line in processes_of_job(job).items() if not line.startswith("slurmstepd"))
        count = wait(command, root, 1).count(f"Slurm job {job} left the queue without a result")
        wait(start_paper(root, *request), root, 0)
        yield "a task killed", f"{count} run was reported as failed, and the same command trained it"


def play_ray(root: Path) -> Iterator[tuple[str, str]]:
    """Kill a process that trains, then lose a node, while a command waits."""

    def training() -> list[int]:
        return [p for p, line in descendants([daemons["n1"]]).items() if line.startswith("ray::run_on_node")]

    with ray(root.parent) as (daemons, address):
        command = start_paper(root, "--launcher=ray", f"launcher.address={address}")
        for fault in ("a process killed", "a node lost"):
            wait_until(training)
            kill(training() if fault == "a process killed" else descendants([daemons["n1"]]))
            yield fault, "its run was trained again"
        wait(command, root, 0)


def differences(root: Path, undisturbed: Path) -> list[str]:
    """List the records that are missing, changed or too many."""
    ours, theirs = measured(root), measured(undisturbed)
    return [f"{name}: another record" for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]


def start_paper(root: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start `make reproduce-tempered-sigmoid SCALE=smoke` for two figures, with its output in a file."""
    with root.with_suffix(".log").open("wb") as log:
        command = [*_PAPER, "tracking=disabled", f"runtime.results_root={root}", *options]
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)


def wait(command: subprocess.Popen[bytes], root: Path, code: int) -> str:
    ended, printed = command.wait(1800), root.with_suffix(".log").read_text()
    if ended != code:
        raise RuntimeError(f"the command ended with exit code {ended}: {printed[-3000:]}")
    return printed


def start(log: Path, *command: str) -> int:
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True).pid


def descendants(roots: Iterable[int]) -> dict[int, str]:
    processes = running()
    return {pid: processes[pid].command for pid in family(set(roots), processes) if pid in processes}


def processes_of_job(job: str) -> dict[int, str]:
    """Return the command lines of a Slurm job's processes, with the daemons of its steps."""
    number = output("scontrol", "show", "job", job).partition("JobId=")[2].split()[0]
    return descendants(
        pid for pid, process in running().items() if process.command.startswith(f"slurmstepd: [{number}.")
    )


def output(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else ""


def wait_until(ready: Callable[[], Any], seconds: float = 900.0) -> Any:
    until = time.monotonic() + seconds
    while not (answer := ready()):
        if time.monotonic() > until:
            raise TimeoutError(f"a cluster did not answer within {seconds:.0f} s")
        time.sleep(0.2)
    return answer


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, int]]:
    """Start Slurm without cgroups, which a container seldom may use. Its daemons end with the context."""
    daemons = dict[str, int]()
    (folder / "slurm.conf").write_text(_SLURM_CONF.format(host=socket.gethostname(), folder=folder))
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    try:
        munged = "munge -n || { install -d -o munge /run/munge; exec runuser -u munge -- munged -Ff; }"
        daemons["munged"] = start(folder / "munged.out", "sh", "-c", munged)
        wait_until(lambda: output("munge", "-n"), 60)
        daemons["slurmctld"] = start(folder / "slurmctld.out", "slurmctld", "-D", "-c")
        daemons |= {node: start(folder / f"{node}.out", "slurmd", "-D", "-N", node) for node in ("n1", "n2")}
        wait_until(lambda: output("sinfo", "--noheader", "--format=%T %D") == "idle 2", 60)
        yield daemons
    finally:
        output("scancel", "--user=root")
        kill(descendants(daemons.values()))


@contextmanager
def ray(folder: Path) -> Iterator[tuple[dict[str, int], str]]:
    """Start Ray with a head without CPUs. Yield its daemons, which end with the context, and its address."""
    daemons, address = dict[str, int](), f"{socket.gethostbyname(socket.gethostname())}:6399"
    line = (*_RAY, "start", "--block", "--disable-usage-stats", "--object-store-memory=100000000")
    head = ("--head", "--port=6399", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}/t")
    try:
        for count, node in enumerate(("head", "n1", "n2")):  # one after the other: on few cores two take too long
            role = head if node == "head" else (f"--address={address}", "--num-cpus=1")
            daemons[node] = start(folder / f"{node}.out", *line, *role)
            wait_until(lambda: output(*_RAY, "status", f"--address={address}").count("1 node_") > count, 120)  # noqa: B023
        yield daemons, address
    finally:
        kill(descendants(daemons.values()))
