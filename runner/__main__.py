"""`python -m runner`: one run, or a Hydra multirun of many; `python -m runner COMMAND`: everything else.

Exit codes: 0 done (or done before), 1 a run failed, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt ends the process at once while modules are imported

import sys

from runner.cli.commands import COMMANDS, carry_out, check_known
from runner.cli.signals import on_termination_as_on_interrupt


def main() -> None:
    """Carry out the command that the first argument names; without one, the run that the arguments compose."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    check_known(name)
    on_termination_as_on_interrupt()
    if name in COMMANDS:
        sys.exit(carry_out(name, sys.argv[2:]))
    from runner.cli import run

    run.main()


if __name__ == "__main__":
    main()
