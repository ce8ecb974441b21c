"""`python -m runner`: one run, or a Hydra multirun of many; `python -m runner COMMAND`: everything else.

Exit codes: 0 done (or done before), 1 a run failed, 2 bad input, 130 interrupted.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt ends the process at once while modules are imported

import gc
import re
import sys
from importlib.metadata import version
from importlib.util import find_spec

from runner.cli.commands import COMMANDS, carry_out, interrupt_on_termination, unknown
from runner.terminal import prepare_process


def main() -> int:
    """Carry out the command that the first argument names, or the run of the arguments. Return the exit code."""
    prepare_process()
    for needed in ("torch", "hydra"):
        if find_spec(needed) is None:
            print(f"runner: {needed} is not installed here: source .venv/bin/activate", file=sys.stderr)
            return 2
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    interrupt_on_termination()
    if name in COMMANDS:
        return carry_out(name, sys.argv[2:])
    if name in ("", "-h", "--help"):
        return carry_out("help", sys.argv[2:], {"help": ("runner.cli.help", "")})
    if name == "--version":  # Hydra would print its own
        print(f"dp-repro-bench {version('dp-repro-bench')}")
        return 0
    if re.fullmatch(r"[\w-]+", name) and not name.startswith("-"):
        print(unknown("runner", name, COMMANDS), file=sys.stderr)
        return 2
    gc.disable()  # imports make half a million objects that stay: `execute` enables it again
    from runner.cli import run

    run.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
