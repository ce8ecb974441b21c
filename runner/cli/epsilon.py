"""What training costs by every accountant, for a script that stays where it is: `python -m runner epsilon`.

    python -m runner epsilon --noise 1.1 --batch 256 --examples 60000 --epochs 60
    python -m runner epsilon --target 3 --rate 0.004 --steps 15000

Either ε for a noise multiplier, or the least noise multiplier for an ε. No data is read, and PyTorch is not loaded.

Exit codes: 0 the table is printed, 2 bad input, with one sentence.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from omegaconf import OmegaConf

from runner import accounting
from runner.accounting import Releases, calibrate_noise_multiplier, check_delta, training_loop
from runner.config import REPOSITORY
from runner.config.checkout import scan
from runner.config.options import check_options, search_path
from runner.records.identity import resolved
from runner.records.jobs import composed
from runner.report.formats import Table, aligned
from runner.terminal import Parser, bound_text, number

if TYPE_CHECKING:
    from runner.training.run import Run

Charged: TypeAlias = Callable[[float], Releases]  # the events of a training loop at a noise multiplier


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    check_delta(options.delta, options.examples)
    loop = training_loop(
        sampling_rate=options.rate,
        batch_size=options.batch,
        examples=options.examples,
        steps=options.steps,
        epochs=options.epochs,
        shuffled=options.sampling == "shuffled",
    )
    rates = f"{options.batch:,}/{options.examples:,} = " if options.rate is None else ""
    batches = f"{loop.steps:,} Poisson batches at a rate of {rates}{loop.sampling_rate:.4g}"
    if loop.epochs is not None:
        batches = f"shuffled examples, passed {loop.epochs:,} times, {loop.steps:,} batches"
    noise = f", noise multiplier {options.noise:g}" if options.noise is not None else f", ε = {options.target:g}"
    print(f"{batches}{noise}, δ = {options.delta:g}")  # so that a wrong number shows
    loops: dict[str, Charged] = {"ε": loop.releases}
    if loop.epochs is not None:  # papers count shuffled batches as if they were Poisson samples
        loops = {"ε, shuffled": loop.releases, "as if Poisson": loop._replace(epochs=None).releases}
    print(aligned(_table(loops, options)))
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="python -m runner epsilon",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    goal = parser.add_mutually_exclusive_group(required=True)
    goal.add_argument("--noise", type=_positive, help="the noise's standard deviation over the clipping norm")
    goal.add_argument("--target", type=_positive, help="an ε, for which the least noise multiplier is computed")
    parser.add_argument("--batch", type=_whole, help="the (expected) batch size")
    parser.add_argument("--examples", type=_whole, help="the number of training examples")
    parser.add_argument("--rate", type=_positive, help="the sampling rate, in place of --batch and --examples")
    parser.add_argument("--epochs", type=_whole, help="epochs of examples / batch steps, rounded up")
    parser.add_argument("--steps", type=_whole, help="the number of steps, in place of --epochs")
    parser.add_argument("--sampling", choices=("poisson", "shuffled"), default="poisson")
    parser.add_argument("--all", action="store_true", help="Opacus' PRV accountant, too, which loads PyTorch")
    parser.add_argument("--delta", type=_positive, default=1e-5, help="1e-5 by default")
    return parser


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and finite")
    return value


def _whole(text: str) -> int:
    digits = text.replace(",", "").replace("_", "")
    if not digits.isdecimal() or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 up")
    return int(digits)


def _table(loops: Mapping[str, Charged], options: argparse.Namespace) -> Table:
    """Tabulate ε by every accountant, or the least noise multiplier and what that costs soundly."""
    rows, sound = [], accounting.Pld()
    for name, accountant, text in _accountants(slow=options.all):
        if options.noise is not None:
            costs = [accountant.epsilon(releases(options.noise), options.delta) for releases in loops.values()]
            cells = list(map(bound_text, costs))
        else:
            cells, releases = ["–", "–"], loops[next(iter(loops))]
            with suppress(ValueError):  # it has no noise multiplier for this ε
                noise = calibrate_noise_multiplier(accountant, releases, options.target, options.delta)
                cells = [number(noise, bound="upper"), bound_text(sound.epsilon(releases(noise), options.delta))]
        rows.append([name, *cells, _KINDS[accountant.bound], text])
    columns = loops if options.noise is not None else ("noise multiplier", "sound ε")
    return Table(("accountant", *columns, "it is", ""), rows)


_KINDS = {True: "a bound", False: "an estimate"}


def _accountants(*, slow: bool) -> list[tuple[str, Any, str]]:
    """Return this package's accountants with the name of its option and a line about each: the sound one is first."""
    accountants = []
    for path in scan(REPOSITORY / "conf" / "accountant", "*.yaml"):
        arguments: Any = OmegaConf.to_container(OmegaConf.load(path))
        package, _, kind = arguments.pop("_target_").rpartition(".")
        if package == accounting.__name__ and (slow or kind != accounting.Prv.__name__):
            about = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            accountants.append((path.stem, getattr(accounting, kind)(**arguments), about))
    return sorted(accountants, key=lambda entry: (entry[0] != "pld", not entry[1].bound))


def bounds_table(run: "Run") -> Table:
    """Return the bounds of a run's gradients: a row for each noise group, with its sensitivity."""
    sizes = {name: p.numel() for name, p in run.new_objective().named_parameters()}
    rows = []
    for group in run.mechanism.noise_groups:
        numbers = sum(sizes.get(name, 1) for name in group.parameters)
        noise = run.mechanism.at(0).noise_std(group) if run.mechanism.private else 0.0
        names = ", ".join(name.removeprefix("network.") for name in group.parameters)
        rows.append((f"{numbers:,}", f"{group.sensitivity:.6g}", f"{noise:.6g}", names))
    return Table(("numbers", "sensitivity", "noise", "parameters"), rows)


def bounds(overrides: Sequence[str]) -> int:
    """Print how far one example can move each gradient sum of a config. No data is read.

    A row for each group of parameters that share their noise has the number of parameters, the sensitivity of their
    sum, the deviation of the noise on each number of the sum, and the names. The exit code is 2 if the configuration
    cannot be run: the message names a module without a bound.
    """
    from runner.build.prepare import prepare  # here, because `epsilon` needs no PyTorch

    parser = Parser(prog="python -m runner bounds", description=bounds.__doc__)
    parser.add_argument("--config-dir", help="the folder of your options, as for a run")
    parser.add_argument("overrides", nargs="*", help="Hydra's overrides: experiment=lipschitz/mnist_mlp")
    chosen = parser.parse_intermixed_args(overrides)
    check_options(chosen.overrides)
    print(aligned(bounds_table(prepare(resolved(composed([*search_path(chosen.config_dir), *chosen.overrides]))))))
    return 0
