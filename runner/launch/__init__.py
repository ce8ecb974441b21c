"""Launchers, which execute many runs: on this machine, on a Slurm cluster, on a Ray cluster."""

from runner.launch.choice import launcher_of
from runner.launch.interface import Launcher, Work, run_jobs

__all__ = ["Launcher", "Work", "launcher_of", "run_jobs"]
