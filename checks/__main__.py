"""Checks of the whole project: `python -m checks COMMAND`.

Exit codes: 0 all is well, 1 a check found something, 2 bad input, 130 interrupted.
"""

import sys

from runner.cli.commands import carry_out, interrupt_on_termination, listed, unknown
from runner.terminal import prepare_process

COMMANDS = {
    "style": ("checks.style", "the English of docstrings, comments, texts and pages"),
    "browser": ("checks.browser", "the built site in a headless Chromium: menu, links, filters, widths, dark mode"),
    "audit": ("checks.audit.run", "attack the private code: lower bounds on ε"),
    "mutants": ("checks.mutants.run", "plant small faults in a copy of the code: the tests notice each"),
    "faults": ("checks.faults.run", "kill, stop and starve a command with many runs: nothing is lost"),
    "cluster": ("checks.cluster", "a small paper on a real Slurm and a real Ray of two nodes, with faults"),
    "gpu": ("checks.gpu", "what a GPU is wanted for, in some minutes: parity, speed, runs"),
    "parity": ("checks.parity.run", "compare a GPU with the CPU, in numbers"),
    "benchmark": ("checks.benchmarks.run", "speed of the engines against ordinary training"),
    "benchmark-opacus": ("checks.benchmarks.to_accuracy", "time to an accuracy, here and with Opacus"),
    "benchmark-clipless": ("checks.benchmarks.clipless", "figure 4 of the Lipschitz paper, measured"),
}


def main() -> int:
    """Carry out the command that the first argument names, and return the exit code."""
    prepare_process()
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print(f"python -m checks COMMAND [options]\n\n{listed(COMMANDS)}")
        return 0
    if name not in COMMANDS:
        print(unknown("checks", name, COMMANDS), file=sys.stderr)
        return 2
    interrupt_on_termination()
    return carry_out(name, sys.argv[2:], COMMANDS)


if __name__ == "__main__":
    sys.exit(main())
