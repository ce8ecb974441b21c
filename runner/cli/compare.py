"""Two methods of the leaderboard at the same sound ε: `python -m runner compare tanh losing_less --epsilon 1`.

It reads leaderboard.csv, so it answers at once, and also where the package is installed without its records.

Exit codes: 0 compared, 2 no such method, data set or ε, with one sentence.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.claims.claim import DATASETS, dataset_name
from runner.claims.intervals import Mean, Spread, less_claim
from runner.config import REPOSITORY, RESULTS, ConfigError
from runner.report.claim_rows import difference_text
from runner.report.formats import bound_text, read_csv
from runner.report.leaderboard.methods import IDEAS, LOOKS, NAMES, accuracy_text, standing
from runner.terminal import Parser, nearest

_PLACE = Path("leaderboard") / "leaderboard.csv"

Row = Mapping[str, str]


def main(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m runner compare", description="Compare two methods of the leaderboard.")
    parser.add_argument("first", help="a method: tanh, losing_less, plain, ScatterNet ...")
    parser.add_argument("second", help="the method whose gain over the first is printed")
    parser.add_argument("--dataset", help=f"one of {', '.join(DATASETS.values())} (default: all)")
    parser.add_argument(
        "--epsilon", type=float, default=3.0, help="the bound on the sound ε: 0.5, 1, 2, 3 (default) or 8"
    )
    chosen = parser.parse_args(arguments)
    first, second = (named_method(name) for name in (chosen.first, chosen.second))
    if first == second:
        raise ConfigError(f"{chosen.first} and {chosen.second} are the same method: {first}.")
    rows = leaderboard_rows()
    bounds = sorted({float(row["sound_epsilon_at_most"]) for row in rows})
    if chosen.epsilon not in bounds:
        choices = ", ".join(f"{bound:g}" for bound in bounds)
        raise ConfigError(f"The leaderboard has no bound of {chosen.epsilon:g}: choose from {choices}.")
    for dataset in [*DATASETS] if chosen.dataset is None else [named_dataset(chosen.dataset)]:
        print(f"{dataset_name(dataset)}, at a sound ε of at most {chosen.epsilon:g}:")
        best = standing(rows, dataset, chosen.epsilon)
        for name in (first, second):
            text = "not run"
            if row := best.get(name):
                ideas = f", with {row['ideas']}" if row["ideas"] else ""
                sound = bound_text(float(row["sound_epsilon"]))
                text = f"{accuracy_text(row)}%{ideas}; {row['settings_chosen']}; sound ε {sound}"
            print(f"  {name}: {text}")
        if first in best and second in best:
            print(f"  {_difference(best[first], best[second])}")
    return 0


def leaderboard_rows() -> list[dict[str, str]]:
    """Read leaderboard.csv, of these results or of the installed package."""
    return read_csv(RESULTS / _PLACE if (RESULTS / _PLACE).exists() else REPOSITORY / "results" / _PLACE)


def named_method(text: str) -> str:
    """Find the method of the leaderboard that a text names, by the beginning of its name or by its idea."""
    plain = _plain(text)
    names = {name: (name, " ".join(IDEAS.get(name, ())), LOOKS[name]) for name in NAMES}
    exact = [name for name, words in names.items() if plain in map(_plain, words)]
    begun = [name for name, words in names.items() if any(_plain(word).startswith(plain) for word in words)]
    near = exact or begun or [name for name, words in names.items() if any(plain in _plain(word) for word in words)]
    if len(near) == 1:
        return near[0]
    if near:
        raise ConfigError(f"{text} could be {' or '.join(near)}.")
    raise ConfigError(f"The leaderboard has no method {text!r}. {nearest(text, NAMES)}")


def _plain(text: str) -> str:
    return re.sub(r"[\s_,-]+", "", text).casefold()


def named_dataset(text: str) -> str:
    """Return the data set that a text names, as the leaderboard writes it."""
    datasets = {_plain(name): dataset for dataset, file in DATASETS.items() for name in (dataset, file)}
    if _plain(text) not in datasets:
        raise ConfigError(f"There is no data set {text!r}. {nearest(text, DATASETS.values())}")
    return datasets[_plain(text)]


def _difference(first: Row, second: Row) -> str:
    points, gain = float(second["mean"]) - float(first["mean"]), f"{second['method']} over {first['method']}"
    if not (first["std"] and second["std"]):
        gap = difference_text(points, "", None, places=2)
        return f"{gain}: {gap} points, without an interval, as one is one run."
    means = [Mean(float(r["mean"]), int(r["n"]), Spread(float(r["std"]), int(r["n"]) - 1)) for r in (second, first)]
    interval = less_claim(means, 0.0, None)
    word = "the two are told apart" if interval.low > 0 or interval.high < 0 else "the two are not told apart"
    alike = "" if first["held_out"] == second["held_out"] == "yes" else ". They were not tuned alike"
    return f"{gain}: {difference_text(points, '', interval, places=2)} points (Welch, 95%): {word}{alike}."
