"""The leaderboard as a page: which method is best on each data set, then a row for each method."""

from __future__ import annotations

from collections.abc import Sequence

from runner.claims.blocks import dataset_name
from runner.claims.summary import summarise
from runner.report.cells import difference_text
from runner.report.files import Table, delta_text, enumerated, markdown, number
from runner.report.leaderboard.comparison import SHOWN, Comparison, Gain, Line, settings_of
from runner.report.leaderboard.entries import DELTA, Entry
from runner.report.leaderboard.methods import ADDED, IDEAS, SEARCHED
from runner.report.leaderboard.published import Published, best_published

_ID = 8  # hex digits of a run's id on the page
_NOT_ALIKE = "not tuned like plain DP-SGD"
_TEXT = """# Leaderboard: accuracy at the same proven privacy

{answers}

![Test accuracy of the best setting of each method at a sound ε of 1 and 3](figure.svg)

## Best of each method

Test accuracy in percent: mean ± standard deviation (runs). *Over plain*: the difference to plain DP-SGD in points, with
its 95% interval (Welch). There is no interval if one of the two is a single run. Bold: the highest mean.

{tables}
## What is compared

- **Privacy.** ε is a proven upper bound for one example more or less, at δ ≤ {delta}, so δ·N is at most 0.6 for N
  training examples. A run counts with its last epoch within the bound, and a screened run with the last attempt within
  it. The {others} rows with another neighbouring relation are in the CSV only. A run made for a larger ε counts with an
  early epoch, and could be better if made for this ε: `made_for_it` in the CSV.
- **Best.** Each method is shown by its best setting at that ε. The best of many settings is too high on average, and a
  method has up to {most}. Settings searched on held-out images come before others, so that methods are
  compared at similar effort. Some searches tried powers of two only, and a rate between them may be better.
  In {higher} of {cells} cells a setting not searched is higher, by up to {by} points,
  even without settings whose updates the test images chose. {outside}
- **Order.** Rows are sorted by ε ≤ {sorted_by:g}. Rows that are closer than their intervals are wide may be in this
  order by chance.
- **Words.** *{searched}*: accuracy on held-out training images chose the learning rate, in some rows
  more. *The paper's*: most papers compared settings on test images. What they leave open was chosen here, some of it
  with the claims in view. A method *with tanh* has this idea, too, and its gain is of both.
  An idea in the best setting need not help: the [studies](../README.md) compare with and without. With ScatterNet
  features, the losing-less loss may have its paper's parameters for them. The study of composition has those for
  pixels.
- **Not charged.** No ε holds the search of settings: {trials:,} recorded runs on held-out images. Nor does it hold the
  mean and deviation by which backpropagation clipping, and DP-Adam with its batches, standardise the pixels of MNIST.
- **Published.** Their ε is as their authors count it, at {published_delta}. The claims of the five papers have
  [verdicts](../README.md). {disputed}

[leaderboard.csv](leaderboard.csv) has all {rows} rows, at ε = {epsilons}, each with its command.
To add yours, see [extending](../../docs/extending.md).

## The command of each row

With `runtime.results_root=again` at its end, it repeats the row's first run. Without that, it shows the recorded run.
`seed=` chooses another run, and `python -m runner explain ID` explains one.

{commands}
"""


def page(found: Sequence[Entry], compared: Sequence[Comparison], known: Sequence[Published], trials: int) -> str:
    """Write the page. `trials` is the number of recorded runs of searches."""
    several = [
        settings_of(found, line.method, one.dataset, e) for one in compared for line in one.rows for e in line.at
    ]
    higher = [max(e.mean for e in of if e is of[0] or not e.by_test_images) - of[0].mean for of in several]
    return _TEXT.format(
        answers="\n".join(_answer(one) for one in compared),
        tables="\n".join(_section(one, known) for one in compared),
        commands="\n".join(_commands(one) for one in compared),
        delta=f"{DELTA:g}".replace("e-0", "e-"),
        others=sum(entry.neighbours != ADDED for entry in found),
        most=max(map(len, several)),
        higher=sum(points > 0 for points in higher),
        cells=len(several),
        by=number(max(higher), places=1),
        searched=SEARCHED.capitalize(),
        trials=trials,
        published_delta=delta_text(*(one.delta for one in known)),
        disputed=_disputed(known),
        outside=_outside(found, compared),
        sorted_by=SHOWN[-1],
        rows=len(found),
        epsilons=enumerated([f"{epsilon:g}" for epsilon in dict.fromkeys(entry.epsilon for entry in found)]),
    )


def _outside(found: Sequence[Entry], compared: Sequence[Comparison]) -> str:
    """Name the settings of no listed method that are above the best one of a table."""
    texts = []
    for one in compared:
        for epsilon in SHOWN:
            line = one.best(epsilon)
            others = settings_of(found, "", one.dataset, epsilon)
            above = max((e for e in others if not e.by_test_images), key=lambda e: e.mean, default=None)
            if line and above and above.mean > line.at[epsilon].mean:
                accuracy = f"{number(above.mean, places=1)}% ({len(above.accuracies)} runs)"
                texts.append(f"{dataset_name(one.dataset)} at ε ≤ {epsilon:g}: *{above.title}*, {accuracy}")
    said = "Settings of no method here are in the CSV only."
    return f"{said} Above the best here are, on {'; on '.join(texts)}." if texts else said


def _answer(compared: Comparison) -> str:
    """Return which method is best on a data set, and by how much over plain DP-SGD."""
    sentences = []
    for epsilon in SHOWN:
        line = compared.best(epsilon)
        if line is None:
            continue
        entry, gain = line.at[epsilon], compared.gain(line, epsilon)
        runs = " (one run)" if len(entry.accuracies) == 1 else ""
        over = "" if gain is None else f", {_over_plain(gain)}"
        sentences.append(f"ε ≤ {epsilon:g}: *{_name(line, [epsilon])}*, {number(entry.mean, places=1)}%{runs}{over}.")
    return f"- **Best on {dataset_name(compared.dataset)}** at " + " At ".join(sentences)


def _over_plain(gain: Gain) -> str:
    points, _, interval = _gain(gain).partition(" ")
    return f"{points} points over plain DP-SGD {interval}".rstrip() + ("" if gain.alike else ", not tuned alike")


def _section(compared: Comparison, known: Sequence[Published]) -> str:
    numbers = (cell for epsilon in SHOWN for cell in (f"ε ≤ {epsilon:g}", f"over plain, ε ≤ {epsilon:g}"))
    header = ["method", *numbers, "how its settings were chosen", "ID"]
    rows = [_row(compared, line) for line in compared.rows if line.at]
    return f"### {dataset_name(compared.dataset)}\n\n{markdown(Table(header, rows))}\n{_published(compared, known)}\n"


def _commands(compared: Comparison) -> str:
    entries = {entry.run: (_name(line), entry) for line in compared.rows for entry in line.at.values()}
    rows = [[name, f"`{run[:_ID]}`", f"`{entry.command}`"] for run, (name, entry) in entries.items()]
    return f"### {dataset_name(compared.dataset)}\n\n{markdown(Table(('method', 'ID', 'command'), rows))}"


def _row(compared: Comparison, line: Line) -> list[str]:
    numbers = []
    for epsilon in SHOWN:
        entry, gain = line.at.get(epsilon), compared.gain(line, epsilon)
        numbers += ["–" if entry is None else _mean(entry, compared.best(epsilon) is line), _gain(gain) if gain else ""]
    words = {e: _words(entry, compared.gain(line, e)) for e, entry in line.at.items()}
    ids = dict.fromkeys(f"`{entry.run[:_ID]}`" for entry in line.at.values())
    name = _name(line)
    name = f"**{name}**" if line is compared.plain else name
    return [name, *numbers, _by_epsilon(words), ", ".join(ids)]


def _mean(entry: Entry, best: bool) -> str:
    std = summarise(entry.accuracies)["std"]
    spread = " (1 run)" if std is None else f" ± {number(std, places=1)} ({len(entry.accuracies)})"
    text = number(entry.mean, places=1) + spread
    return f"**{text}**" if best else text


def _gain(gain: Gain) -> str:
    return difference_text(gain.points, "", gain.interval, places=1)


def _name(line: Line, epsilons: Sequence[float] = SHOWN) -> str:
    """Return the name of a line's method with the other ideas that its settings at these bounds have."""
    known = IDEAS.get(line.method)
    at = {epsilon: entry for epsilon, entry in line.at.items() if epsilon in epsilons}
    ideas = dict.fromkeys(idea for entry in at.values() for idea in entry.ideas if idea != known)
    having = {idea: [epsilon for epsilon, entry in at.items() if idea in entry.ideas] for idea in ideas}
    named = [
        idea + "".join(f" (ε ≤ {epsilon:g})" for epsilon in of if len(of) < len(at)) for idea, of in having.items()
    ]
    return line.method + (f", with {enumerated(named)}" if named else "")


def _words(entry: Entry, gain: Gain | None) -> str:
    """Return how a setting was chosen, and what its number does not tell."""
    notes = (
        (entry.chosen, True),
        ("its updates chosen by the test images", entry.by_test_images),
        ("tested on half of the test images", entry.on_a_part),
        (_NOT_ALIKE, gain is not None and not gain.alike),
    )
    return "; ".join(text for text, holds in notes if holds)


def _by_epsilon(words: dict[float, str]) -> str:
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return ". ".join(f"ε ≤ {epsilon:g}: {text}" for epsilon, text in words.items())


def _published(compared: Comparison, known: Sequence[Published]) -> str:
    """Return the best published number at each bound, and its distance from the best one here."""
    texts = []
    for epsilon in SHOWN:
        one, line = best_published(known, compared.dataset, epsilon), compared.best(epsilon)
        if one is None:
            texts.append(f"No undisputed published number at ε ≤ {epsilon:g} is known here.")
        elif line is not None:
            apart = round(one.accuracy - line.at[epsilon].mean, 1)
            far = f"{abs(apart):.1f} points {'above' if apart > 0 else 'below'}" if apart else "equal, to a tenth, to"
            source = f"{one.method} at ε = {one.epsilon:g} ([{one.source}]({one.read}))"
            texts.append(f"Published at ε ≤ {epsilon:g}: {one.accuracy:g}%, by {source}. It is {far} the best here.")
    return " ".join(texts)


def _disputed(known: Sequence[Published]) -> str:
    """Return the published numbers whose privacy is disputed, by method."""
    texts = []
    for method, read, disputed in dict.fromkeys((p.method, p.read, p.disputed) for p in known if p.disputed):
        of = [one for one in known if one.method == method]
        accuracies = {d: [f"{one.accuracy:g}%" for one in of if one.dataset == d] for d in (one.dataset for one in of)}
        numbers = enumerated([f"{enumerated(each)} on {dataset_name(dataset)}" for dataset, each in accuracies.items()])
        epsilons = enumerated([f"{epsilon:g}" for epsilon in dict.fromkeys(one.epsilon for one in of)])
        texts.append(f"[{method}]({read}) reports {numbers}, at ε = {epsilons}. [Its ε is disputed]({disputed}).")
    return " ".join(texts)
