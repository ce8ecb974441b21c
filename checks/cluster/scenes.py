"""Faults on a cluster while a paper is made on it, and the time until their detection."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from checks.cluster import paper, ray, slurm
from checks.cluster.processes import kill, wait_until
from checks.cluster.report import Played

_PATIENCE = 900.0  # seconds for anything to happen
_SLURM = ("--launcher", "slurm", "launcher.minutes=0.05", "launcher.poll=1")
_RAY = ("--launcher", "ray", "launcher.minutes=0.15")


def on_slurm(folder: Path, played: Played, accounts: bool) -> None:
    """Play the scenes on Slurm.

    A command that does not wait hands the paper over. While another one waits and follows the jobs, three faults
    happen: a requeue by the signal before a time limit, a killed job, and a lost node.
    """
    root, log = folder / "results", folder / "said"
    with slurm.two_nodes(folder / "slurm", accounts) as cluster:
        if not accounts:
            first = paper.command(root, *_SLURM, items=paper.FIRST)
            played.note("handed over, not waited for", paper.said([*first, "launcher.wait=false"], cluster.environment))
            played.note("asked how far it is", _short(paper.said([*first, "--status"], cluster.environment)))
        command = paper.started(paper.command(root, *_SLURM), log, cluster.environment)
        try:
            wait_until(lambda: "handed to Slurm" in log.read_text(), _PATIENCE, "a command that waits")
            began = _beating(cluster, root)
            cluster.warn(began)
            took = wait_until(lambda: "Requeued job" in _logs(root), _PATIENCE, "the requeue")
            played.deal("the signal that precedes a time limit", f"the task queued itself again after {took:.0f} s")

            killed, when = _beating(cluster, root, but=began), time.monotonic()
            cluster.kill_job(killed)
            victim = _beating(cluster, root, but=killed)
            node = cluster.running()[victim]
            cluster.lose_node(node)
            wait_until(lambda: f"job {killed} ended without" in log.read_text(), _PATIENCE, "the killed job")
            took = time.monotonic() - when
            played.deal("a job killed", f"noticed within {took:.0f} s{_by(log, killed)}, handed over again")

            def back() -> bool:
                waits = cluster.said("squeue", "--noheader", f"--jobs={victim}", "--format=%T") == "PENDING"
                return waits or cluster.running().get(victim) not in (None, node) or bool(_of(log, victim))

            wait_until(back, _PATIENCE, "the lost node")
            what = "handed over again" if _of(log, victim) else "queued again by Slurm"
            played.deal("a node lost", f"its task was {what}; the other node made the rest")
            _end(command, played, log)
        finally:
            command.kill()


def on_ray(folder: Path, played: Played) -> None:
    """Kill a process that takes tasks, then lose a node."""
    root, log = folder / "results", folder / "said"
    with ray.two_nodes(folder / "r") as cluster:
        line = paper.command(root, *_RAY, f"launcher.address={cluster.address}")
        command = paper.started(line, log, {})
        try:
            _recorded(root, 1, command, log)
            wait_until(lambda: bool(cluster.busy()), _PATIENCE, "a busy node")
            kill(next(iter(cluster.busy().values())))
            before = len(_records(root))
            played.deal("a job killed", f"with {before} records there; its runs were computed again")
            _recorded(root, before + 4, command, log)
            wait_until(lambda: bool(cluster.busy()), _PATIENCE, "a busy node")
            lost = next(iter(cluster.busy()))
            cluster.lose_node(lost)
            played.deal("a node lost", f"with {len(_records(root))} records there; the other node made the rest")
            _end(command, played, log)
        finally:
            command.kill()


def _end(command: subprocess.Popen[bytes], played: Played, log: Path) -> None:
    command.wait(2 * _PATIENCE)
    said = log.read_text(encoding="utf-8", errors="replace")
    if command.returncode != 0:
        played.wrong.append(f"the command ended with exit code {command.returncode}: {said[-1500:]}")
    played.note("the command that waited", "\n".join(_without_paths(said)))


def _without_paths(said: str) -> list[str]:
    """Keep the output on runs and tasks; of the many runs that ended well, only the last."""
    lines = [line for line in said.splitlines() if "/" not in line or " · " in line or " of " in line.partition("/")[0]]
    kept = [line for line in lines if "Slurm" in line or "Ray" in line or "lost" in line or "failed" in line]
    ended = [line for line in lines if " · finished" in line or " · skipped" in line]
    return [*kept, f"... {len(ended)} lines of runs that ended, the last of which:", *ended[-1:]]


def _short(table: str) -> str:
    lines = table.splitlines()
    return "\n".join([*(line for line in lines if not line.startswith("running")), *_running(lines)[:2]])


def _running(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("running")]


def _beating(cluster: slurm.Slurm, root: Path, but: str = "") -> str:
    """Find a running job, any but one, whose task has begun to compute."""
    found: list[str] = []

    def there() -> bool:
        busy = _computing(root)
        found[:] = [job for job in cluster.running() if job in busy and job != but]
        return bool(found)

    wait_until(there, _PATIENCE, "a job that computes")
    return found[0]


def _computing(root: Path) -> set[str]:
    from runner.launch import notes

    folder = notes.folder_of(root)
    reports = {note.job: notes.last_report(folder, note.name) for note in notes.notes(folder)}
    fresh = 2 * notes.HEARTBEAT
    return {job for job, report in reports.items() if report is not None and report.running and report.age < fresh}


def _logs(root: Path) -> str:
    logs = sorted((root / ".launch" / "logs").glob("*_log.*"))
    return "\n".join(path.read_text(errors="replace") for path in logs)


def _of(log: Path, job: str) -> str:
    return "\n".join(
        line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if f"job {job} " in line
    )


def _by(log: Path, job: str) -> str:
    """Describe the job's end in the accounts, if there are any."""
    said = _of(log, job)
    return f" ({said.partition('(')[2].partition(')')[0]} by sacct)" if "(" in said else ", without accounts"


def _records(root: Path) -> list[Path]:
    return list((root / "smoke" / "runs").glob("*.json"))


def _recorded(root: Path, count: int, command: subprocess.Popen[bytes], log: Path) -> None:
    def there() -> bool:
        if command.poll() is not None:
            raise RuntimeError(
                f"the command ended before anything was done to it: {log.read_text(encoding='utf-8')[-1500:]}"
            )
        return len(_records(root)) >= count

    wait_until(there, _PATIENCE, f"{count} records")
