"""`python -m runner bounds experiment=lipschitz/mnist_mlp`: how far one example can move each gradient sum.

For any config, prints a row for each group of parameters that share their noise. It has the number of parameters, the
sensitivity of their sum, the deviation of the noise on each number of the sum, and the names. No data is read.

Exit codes: 0 the table is printed, 2 the configuration cannot be run (the message names a module without a bound).
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.build.prepare import prepare
from runner.records.identity import resolved
from runner.records.jobs import composed
from runner.records.options import check_options, search_path
from runner.report.files import Table, aligned
from runner.terminal import Parser
from runner.training.run import Run


def table(run: Run) -> Table:
    """Return a table of the groups of a run, in the order of its parameters."""
    sizes = {name: p.numel() for name, p in run.new_objective().named_parameters()}
    rows = []
    for group in run.mechanism.noise_groups:
        numbers = sum(sizes.get(name, 1) for name in group.parameters)
        noise = run.mechanism.at(0).noise_std(group) if run.mechanism.private else 0.0
        names = ", ".join(name.removeprefix("network.") for name in group.parameters)
        rows.append((f"{numbers:,}", f"{group.sensitivity:.6g}", f"{noise:.6g}", names))
    return Table(("numbers", "sensitivity", "noise", "parameters"), rows)


def main(overrides: Sequence[str]) -> int:
    parser = Parser(prog="python -m runner bounds", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--config-dir", help="the folder of your options, as for a run")
    parser.add_argument("overrides", nargs="*", help="Hydra's overrides: experiment=lipschitz/mnist_mlp")
    chosen = parser.parse_intermixed_args(overrides)
    check_options(chosen.overrides)
    print(aligned(table(prepare(resolved(composed([*search_path(chosen.config_dir), *chosen.overrides]))))))
    return 0
