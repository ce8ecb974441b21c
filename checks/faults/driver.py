"""Ten short runs by the code of `make reproduce-...`, without estimates before and tables after.

`python -m checks.faults.driver FOLDER` has the exit codes of `runner.cli.reproduce`.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` can report it, an interruption just ends this

import sys
from typing import TYPE_CHECKING

from runner.cli.commands import STOPPED, interrupt_on_termination

if TYPE_CHECKING:
    from runner.records.jobs import Job


def planned(folder: str) -> "list[Job]":
    from runner.records.jobs import sweep_jobs

    limits = ("scale=smoke", "scale.epochs=1", "scale.seeds=2", "scale.runs_per_sweep=null")
    folders = (f"runtime.results_root={folder}/results", f"tracking.directory={folder}/tracking")
    sweeps = ("tempered_sigmoid/text_sgd", "tempered_sigmoid/fig_4")
    return list({job.run_id: job for sweep in sweeps for job in sweep_jobs(sweep, (*limits, *folders))}.values())


def main(folder: str) -> int:
    """Carry out the runs that are not recorded in the folder, and return the exit code."""
    interrupt_on_termination()
    try:
        from runner.launch.processes import Work, run_processes
        from runner.records.disk import recorded
        from runner.terminal import Line

        left = [job for job in planned(folder) if not recorded(job.config)]
        tally = run_processes(Work(left, at_once=2), Line())
        for job, why in tally.failed:
            print(f"failed: {job.label}: {why}", file=sys.stderr)
        return 1 if tally.failed else 0
    except KeyboardInterrupt:
        print(f"\n{STOPPED}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
