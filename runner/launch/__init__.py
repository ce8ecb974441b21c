"""Launchers, which execute many runs: on this machine, on a Slurm cluster, on a Ray cluster."""

from runner.launch.launcher import Launcher, launcher_of, run_jobs
from runner.launch.processes import Work

__all__ = ["Launcher", "Work", "launcher_of", "run_jobs"]
