"""A Slurm of two nodes with one CPU each, on this machine: its daemons, and faults for them and their jobs.

It needs root and Debian's packages `slurm-wlm` and `munge`, and for accounts (`sacct`) `slurmdbd` and `mariadb-server`.
All files are in the given folder, except munge's socket.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from checks.cluster.processes import daemon, descendants, kill, wait_until

NODES = ("n1", "n2")
_PORTS = {"controller": 16817, "accounts": 16819, "database": 13306, "n1": 17001, "n2": 17002}
_START = 60.0  # seconds for a daemon to answer
_LOST = 15  # seconds without a message from a node after which the controller gives it up


def why_not(accounts: bool) -> str:
    """Explain why there can be no such cluster here; "" if there can."""
    needed = ["slurmctld", "slurmd", "munged", "sbatch", *(["slurmdbd", "mariadbd", "sacct"] if accounts else [])]
    absent = [name for name in needed if shutil.which(name) is None and not Path("/usr/sbin", name).exists()]
    if absent:
        packages = "slurm-wlm munge" + (" slurmdbd mariadb-server" if accounts else "")
        return f"no {', '.join(absent)}: apt-get install {packages}"
    return "" if os.geteuid() == 0 else "starting Slurm's daemons takes root"


@dataclass
class Slurm:
    """The cluster.

    Attributes:
        environment: the environment of commands for it.
    """

    folder: Path
    environment: dict[str, str]
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def said(self, *command: str) -> str:
        """Return the output of one of Slurm's commands; "" if it fails."""
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **self.environment})
        return done.stdout.strip() if done.returncode == 0 else ""

    def running(self) -> dict[str, str]:
        """Return the running jobs and their nodes."""
        lines = self.said("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i|%N").splitlines()
        return dict(line.split("|") for line in lines)

    def start_node(self, name: str) -> None:
        """Start a node, or bring it back."""
        self._daemons[name] = daemon(["slurmd", "-D", "-N", name], self.folder / f"{name}.out", self.environment)

    def lose_node(self, name: str) -> None:
        """Kill all processes of a node, its jobs included, without notice."""
        steps = [each for job, node in self.running().items() if node == name for each in self.processes(job)]
        kill([*descendants(self._daemons[name].pid), *steps])

    def warn(self, job: str) -> None:
        """Send a job the signal that Slurm sends before its time limit (`scancel` would wait until the job ends)."""
        line = ["scancel", "--signal=USR2", job]
        self._daemons["scancel"] = daemon(line, self.folder / "scancel.out", self.environment)

    def kill_job(self, job: str) -> None:
        """Kill the processes of a job without notice; its node stays."""
        kill([each for each in self.processes(job) if b"slurmstepd" not in _command(each)])

    def processes(self, job: str) -> list[int]:
        """List the processes of a job on its node: the daemons of its steps, and their descendants."""
        number = self.said("scontrol", "show", "job", job).partition("JobId=")[2].split(maxsplit=1)[0]
        steps = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if _command(int(path.parent.name)).startswith(f"slurmstepd: [{number}.".encode())
        ]
        return sorted({each for step in steps for each in descendants(step)})


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def two_nodes(folder: Path, accounts: bool = False) -> Iterator[Slurm]:
    """Start the cluster; all of its daemons end with the context."""
    (folder / "state").mkdir(parents=True)
    (folder / "slurm.conf").write_text(configuration(folder, accounts))
    cluster = Slurm(folder, {"SLURM_CONF": str(folder / "slurm.conf")})
    with ExitStack() as stack:
        stack.callback(lambda: kill([p for each in cluster._daemons.values() for p in descendants(each.pid)]))
        stack.callback(lambda: cluster.said("scancel", "--user=root"))
        if subprocess.run(["munge", "-n"], capture_output=True).returncode != 0:
            Path("/run/munge").mkdir(exist_ok=True)
            shutil.chown("/run/munge", "munge", "munge")
            munged = ["runuser", "-u", "munge", "--", "/usr/sbin/munged", "--foreground", "--force"]
            cluster._daemons["munged"] = daemon(munged, folder / "munged.out")
            answers = ["munge", "-n"]
            wait_until(lambda: subprocess.run(answers, capture_output=True).returncode == 0, _START, "munge")
        if accounts:
            _start_accounts(cluster)
        cluster._daemons["slurmctld"] = daemon(["slurmctld", "-D", "-c"], folder / "ctld.out", cluster.environment)
        for name in NODES:
            cluster.start_node(name)
        wait_until(lambda: cluster.said("sinfo", "--noheader", "--format=%T %D") == "idle 2", _START, "two idle nodes")
        yield cluster


def _start_accounts(cluster: Slurm) -> None:
    folder, data = cluster.folder, cluster.folder / "database"
    quiet = {"capture_output": True, "check": True}
    subprocess.run(["mariadb-install-db", "--user=root", f"--datadir={data}", "--no-defaults"], **quiet)  # type: ignore
    server = [
        "/usr/sbin/mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={data}/socket",
        "--bind-address=127.0.0.1", f"--port={_PORTS['database']}", f"--pid-file={data}/pid",
    ]  # fmt: skip
    cluster._daemons["mariadbd"] = daemon(server, folder / "database.out")
    client = ["mariadb", "--no-defaults", f"--socket={data}/socket", "--execute"]
    user = "CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm'; GRANT ALL ON *.* TO slurm@'127.0.0.1';"
    names = user + user.replace("127.0.0.1", "localhost")
    wait_until(lambda: subprocess.run([*client, names], capture_output=True).returncode == 0, _START, "the database")
    settings = folder / "slurmdbd.conf"
    settings.write_text(
        f"AuthType=auth/munge\nDbdHost=localhost\nDbdPort={_PORTS['accounts']}\nSlurmUser=root\n"
        f"LogFile={folder}/slurmdbd.log\nPidFile={folder}/slurmdbd.pid\nStorageType=accounting_storage/mysql\n"
        f"StorageHost=127.0.0.1\nStoragePort={_PORTS['database']}\nStorageUser=slurm\nStoragePass=slurm\n"
    )
    settings.chmod(0o600)
    cluster._daemons["slurmdbd"] = daemon(["slurmdbd", "-D"], folder / "dbd.out", cluster.environment)
    add = ["sacctmgr", "--immediate", "add", "cluster", "two"]

    def answers() -> bool:
        return bool(cluster.said(*add)) or "two" in cluster.said("sacctmgr", "--noheader", "list", "cluster")

    wait_until(answers, _START, "slurmdbd")


def configuration(folder: Path, accounts: bool) -> str:
    """Write slurm.conf, without cgroups, which a container seldom may use."""
    here = socket.gethostname()
    storage = "AccountingStorageType=accounting_storage/none"
    if accounts:
        storage = "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=localhost"
        storage += f"\nAccountingStoragePort={_PORTS['accounts']}"
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={here} NodeAddr=127.0.0.1 Port={_PORTS[name]} CPUs=1 RealMemory=4000"
        for name in NODES
    )
    return f"""ClusterName=two
SlurmctldHost={here}(127.0.0.1)
SlurmctldPort={_PORTS["controller"]}
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdTimeout={_LOST}
KillWait=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=5
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
{storage}
{nodes}
PartitionName=main Nodes={",".join(NODES)} Default=YES MaxTime=INFINITE State=UP
"""
