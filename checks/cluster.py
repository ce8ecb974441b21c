"""Faults on a real Slurm and a real Ray of two nodes while they run a small paper: `python -m checks cluster`.

All nodes are on this machine, with one CPU each. Afterwards every record has to be there once, whole, and equal to that
of an undisturbed run. It needs root, `apt-get install slurm-wlm munge` and `pip install -e '.[slurm,ray]'`.

Exit codes: 0 nothing was lost, 1 something was, 2 a program is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from checks.faults.command import measured, send
from checks.processes import running, with_descendants
from runner.config import REPOSITORY, ConfigError
from runner.launch.slurm import queued_runs
from runner.records.files import progress
from runner.report.files import Table, markdown, write_text

_REQUEST = (
    "-m",
    "runner",
    "reproduce",
    "tempered-sigmoid",
    "--scale=smoke",
    "--items=fig-3,fig-4",
    "tracking=disabled",
)
_RAY = (sys.executable, "-m", "ray.scripts.scripts")
_NODES = ("n1", "n2")
_PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "runuser")
_SLURM_CONF = """ClusterName=two
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdTimeout=15
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port=17001 CPUs=1 RealMemory=4000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port=17002 CPUs=1 RealMemory=4000
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
Rows = list[tuple[str, str, str]]  # cluster, fault, what followed


def main(arguments: Sequence[str]) -> int:
    """Play the scenes and write their table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m checks cluster", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=("slurm", "ray"), help="this cluster alone; writes no table")
    only = parser.parse_args(arguments).only
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    os.environ["PATH"] += ":/usr/sbin"
    if only != "ray" and (absent := [name for name in _PROGRAMS if shutil.which(name) is None]):
        raise ConfigError(f"There is no {', '.join(absent)}: apt-get install slurm-wlm munge.")
    rows, wrong = Rows(), list[str]()
    with tempfile.TemporaryDirectory(prefix="dp") as folder:
        undisturbed = Path(folder) / "undisturbed"
        Command(undisturbed, "--jobs=2").wait(0)
        for name, scene in {"slurm": on_slurm, "ray": on_ray}.items():
            if only in (None, name):
                scene(Path(folder) / name, rows)
                wrong += differences(Path(folder) / name, undisturbed)
    table = markdown(Table(("cluster", "fault", "what followed"), rows))
    print(table, *(wrong or ["Every record is equal to that of an undisturbed run."]), sep="\n")
    if only is None and not wrong:
        title = "# A paper in small on clusters of two nodes, with faults\n\nWritten by `make cluster`. Every record is "
        text = f"{title}there once, and equal to that of an undisturbed run.\n\n{table}"
        write_text(REPOSITORY / "results" / "cluster" / "README.md", text)
    return int(bool(wrong))


def on_slurm(root: Path, rows: Rows) -> None:
    """Signal a task as before its time limit, lose a node, kill a task. Then repeat the command."""
    request = ("--launcher=slurm", "launcher.minutes=0.05")

    def training(*others: str) -> str:
        tasks = [task for run_id, task in (queued_runs(root) or {}).items() if progress(root, run_id) is not None]
        return next((task for task in tasks if task not in others), "")

    with slurm(root.with_name("s")) as cluster:
        command = Command(root, *request)
        wait_until(training, "a task that trains")
        signalled = training()
        subprocess.Popen(["scancel", "--signal=USR2", signalled])
        seconds = wait_until(
            lambda: any("Requeued job" in log.read_text() for log in root.rglob("*_log.*")), "a requeue"
        )
        rows.append(("slurm", "the signal before a time limit", f"the task was queued again after {seconds:.0f} s"))
        wait_until(lambda: training(signalled), "another task that trains")
        lost = training(signalled)
        node = output("squeue", "--noheader", f"--jobs={lost}", "--format=%N")
        kill([*processes_of_job(lost), *cluster.processes(node)])
        seconds = wait_until(
            lambda: output("squeue", "--noheader", f"--jobs={lost}", "--format=%T") == "PENDING", "a requeue"
        )
        rows.append(("slurm", "a node lost", f"Slurm queued its task again after {seconds:.0f} s"))
        wait_until(lambda: training(signalled, lost), "a third task that trains")
        killed = training(signalled, lost)
        kill(pid for pid, line in processes_of_job(killed).items() if not line.startswith("slurmstepd"))
        text = command.wait(1)
        assert f"Slurm job {killed} left the queue without a result" in text, text
        Command(root, *request).wait(0)
        rows.append(("slurm", "a task killed", "its runs were reported as failed, and the same command trained them"))


def on_ray(root: Path, rows: Rows) -> None:
    """Kill a process that trains, then lose a node, while a command waits."""
    with ray(root.with_name("r")) as cluster:
        command = Command(root, "--launcher=ray", f"launcher.address={cluster.address}")
        for fault, before in (("a process killed", 1), ("a node lost", 5)):
            wait_until(lambda: len(list(root.rglob("runs/*.json"))) >= before, f"{before} records")  # noqa: B023
            busy = {
                node: [pid for pid, line in cluster.processes(node).items() if "ray::run_on_node" in line]
                for node in _NODES
            }
            node = next(name for name in _NODES if busy[name])
            kill(busy[node] if "process" in fault else cluster.processes(node))
            rows.append(("ray", fault, "its run was trained again by the same command"))
        command.wait(0)


def differences(root: Path, undisturbed: Path) -> list[str]:
    """List the records that are missing, too many or changed, and files that are no records."""
    try:
        ours, theirs = measured(root), measured(undisturbed)
    except ValueError as error:
        return [str(error)]
    names = {f"{run_id}.json" for run_id in theirs}
    return [
        *(f"{run_id} is another record" for run_id in theirs if ours.get(run_id) != theirs[run_id]),
        *(f"{path.name} is left over" for path in (root / "smoke" / "runs").iterdir() if path.name not in names),
    ]


class Command:
    """`make reproduce-tempered-sigmoid SCALE=smoke` for two figures, with its output in a file."""

    def __init__(self, root: Path, *options: str) -> None:
        self._log = root.with_name(f"{root.name}.log")
        with self._log.open("wb") as log:
            line = [sys.executable, *_REQUEST, f"runtime.results_root={root}", *options]
            self._process = subprocess.Popen(line, cwd=REPOSITORY, stdout=log, stderr=log)

    def wait(self, code: int) -> str:
        """Wait for its end. Return its output, or raise RuntimeError where it has another exit code."""
        text = f"{self._process.wait(1800)} {self._log.read_text()}"
        if not text.startswith(f"{code} "):
            raise RuntimeError(f"the command ended with exit code {text[-3000:]}")
        return text


class Daemons:
    """The daemons of a cluster by name, with their output in files of a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.address, self._processes = folder, "", dict[str, int]()

    def start(self, name: str, *command: str) -> None:
        """Start a daemon in a session of its own."""
        with (self.folder / f"{name}.out").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True).pid

    def processes(self, *names: str) -> dict[int, str]:
        """Return the command lines of daemons and their descendants, by process. Without names, of all daemons."""
        return descendants(self._processes[name] for name in names or self._processes)


def descendants(roots: Iterable[int]) -> dict[int, str]:
    """Return the command lines of processes and their descendants, by process."""
    processes = running()
    return {pid: processes[pid].command for pid in with_descendants(set(roots), processes) if pid in processes}


def processes_of_job(job: str) -> dict[int, str]:
    """Return the command lines of a Slurm job's processes, with the daemons of its steps."""
    number = output("scontrol", "show", "job", job).partition("JobId=")[2].split()[0]
    return descendants(pid for pid, its in running().items() if its.command.startswith(f"slurmstepd: [{number}."))


def kill(processes: Iterable[int]) -> None:
    """Send SIGKILL to each process that exists."""
    for process in processes:
        send(process, signal.SIGKILL)


def output(*command: str) -> str:
    """Return what a command prints, or "" if it fails."""
    result = subprocess.run(command, capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else ""


def wait_until(ready: Callable[[], object], what: str, seconds: float = 900.0) -> float:
    """Wait for a condition. Return the seconds that it took, or raise TimeoutError."""
    started = time.monotonic()
    while not ready():
        if time.monotonic() - started > seconds:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.2)
    return time.monotonic() - started


@contextmanager
def slurm(folder: Path) -> Iterator[Daemons]:
    """Start Slurm without cgroups, which a container seldom may use. Its daemons end with the context."""
    daemons, host = Daemons(folder), socket.gethostname()
    (folder / "slurm.conf").write_text(_SLURM_CONF.format(host=host, folder=folder))
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    try:
        if not output("munge", "-n"):
            Path("/run/munge").mkdir(exist_ok=True)
            shutil.chown("/run/munge", "munge", "munge")
            daemons.start("munged", "runuser", "-u", "munge", "--", "munged", "--foreground", "--force")
            wait_until(lambda: output("munge", "-n"), "munge", 60)
        daemons.start("slurmctld", "slurmctld", "-D", "-c")
        for name in _NODES:
            daemons.start(name, "slurmd", "-D", "-N", name)
        wait_until(lambda: output("sinfo", "--noheader", "--format=%T %D") == "idle 2", "two idle nodes", 60)
        yield daemons
    finally:
        output("scancel", "--user=root")
        kill(daemons.processes())


@contextmanager
def ray(folder: Path) -> Iterator[Daemons]:
    """Start Ray, with a head without CPUs. Its daemons end with the context."""
    daemons, node = (
        Daemons(folder),
        (*_RAY, "start", "--block", "--disable-usage-stats", "--object-store-memory=100000000"),
    )
    daemons.address = f"{socket.gethostbyname(socket.gethostname())}:6399"
    head = ("--head", "--port=6399", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}/t")
    try:
        for number, name in enumerate(("head", *_NODES)):  # one after the other: on few cores two take too long for Ray
            daemons.start(name, *node, *(head if name == "head" else (f"--address={daemons.address}", "--num-cpus=1")))
            status = (*_RAY, "status", f"--address={daemons.address}")
            wait_until(lambda: output(*status).count("1 node_") > number, f"Ray's {name}", 120)  # noqa: B023
        yield daemons
    finally:
        kill(daemons.processes())
