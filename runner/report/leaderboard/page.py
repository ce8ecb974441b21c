"""The pages of the leaderboard: all methods with published numbers, the gains of all pairs, and the best settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic.dataclasses import dataclass

from runner.claims.claim import dataset_name
from runner.claims.evidence import grouped
from runner.claims.intervals import difference, summarise
from runner.config.yaml_file import read_yaml
from runner.report.claim_rows import difference_text, signed
from runner.report.formats import Table, enumerated, markdown, number, plus_minus
from runner.report.leaderboard.entries import DELTA, FEW, SHOWN, Comparison, Entry, gain_over, settings_of, standing
from runner.report.leaderboard.methods import ADDED, CLASSES, FRONT, NAMES, further_ideas, trains_from_scratch

_SETTING = ("learning rate", "clipping norm", "batch size", "epochs")  # the last one says where ε cuts it
_BASELINE = (1.0, 2.0, 3.0, 8.0)
_FOLDER = Path(__file__).parent  # of the texts of the pages, and of published.yaml


@dataclass(frozen=True)
class Published:
    """A published accuracy (percent) at a privacy budget, which its authors counted.

    kind: what training saw besides the private images: one of CLASSES.
    accountant: how its authors count epsilon.
    source: authors, venue, year, and the place of the number in their work.
    read: the address at which the number was read.
    disputed: the address of a work that disputes the budget, or "".
    """

    dataset: str
    method: str
    accuracy: float
    epsilon: float
    delta: float
    source: str
    read: str
    disputed: str = ""
    kind: str = "from scratch"
    accountant: str = ""


def read_published() -> list[Published]:
    """Read published.yaml, which has each work once, with its accuracies by data set and epsilon."""
    numbers = []
    for work in read_yaml(_FOLDER / "published.yaml").plain:
        accuracies, kind = work.pop("accuracies"), work.pop("class")
        for dataset, by_epsilon in accuracies.items():
            numbers += [Published(dataset, accuracy=a, epsilon=e, kind=kind, **work) for e, a in by_epsilon.items()]
    return numbers


def best_published(
    works: Sequence[Published], dataset: str, epsilon: float, kind: str = CLASSES[0]
) -> Published | None:
    """Return the highest undisputed accuracy of a kind on a data set within a budget, if there is one."""
    numbers = (work for work in works if (work.dataset, work.kind) == (dataset, kind) and not work.disputed)
    return max((n for n in numbers if n.epsilon <= epsilon), key=lambda number: number.accuracy, default=None)


def page(entries: Sequence[Entry], compared: Sequence[Comparison], published: Sequence[Published], trials: int) -> str:
    """Write the page. `trials` is the number of recorded runs of searches."""
    cells = [
        settings_of(entries, method, board.dataset, epsilon)
        for board in compared
        for method, settings in board.settings.items()
        for epsilon in settings
    ]
    plain = compared[0].settings[NAMES[0]].get(SHOWN[-1])
    place = f"{dataset_name(compared[0].dataset)} at ε ≤ {SHOWN[-1]:g}"
    higher = [max(e.mean for e in s) - s[0].mean for s in cells]
    return (
        (_FOLDER / "page.md")
        .read_text(encoding="utf-8")
        .format(
            answers=" ".join(_answer(board) for board in compared),
            delta=f"{DELTA:g}".replace("e-0", "e-"),
            few=FEW,
            table=markdown(_table(compared, published)),
            settings=len({entry.setting for entry in entries}),
            epsilons=enumerated([f"{epsilon:g}" for epsilon in dict.fromkeys(entry.epsilon for entry in entries)]),
            baseline=markdown(_baseline(entries, compared)),
            repeat=f"The first seed on {place}: `{plain.command} runtime.results_root=again`\n" if plain else "",
            published=markdown(_published(published)),
            disputed=_disputed(published),
            most=max(map(len, cells)),
            higher=sum(points > 0 for points in higher),
            cells=len(cells),
            by=number(max(higher), places=1),
            trials=trials,
            others=len({entry.setting for entry in entries if entry.neighbours != ADDED}),
            outside=_outside(entries, compared),
        )
    )


def _answer(board: Comparison) -> str:
    """Say which method is best on a data set at the largest bound, and by how much over plain DP-SGD."""
    epsilon = SHOWN[-1]
    method = board.best(epsilon)
    if method is None:
        return ""
    entry, gain = board.settings[method][epsilon], board.gain(method, epsilon)
    ideas = further_ideas(method, entry.ideas)
    name = method + (f", with {enumerated(ideas)}" if ideas else "")
    over = f", {difference_text(gain.points, '', gain.interval, places=1)} over plain DP-SGD" if gain else ""
    if gain and gain.interval is None:
        over += ", which has one run" if len(entry.accuracies) > 1 else ", by one run"
    alike = "" if gain is None or gain.alike else ". The two are not tuned alike"
    best = f"*{name}* has {number(entry.mean, places=1)}%{flags_text(entry)}"
    means = {other: number(board.settings[other][epsilon].mean, places=1) for other in _undecided(board, epsilon)[1:]}
    ties = enumerated([f"*{other}* ({mean}%)" for other, mean in means.items()])
    tied = f" It is not told apart from {ties}." if ties else ""
    return f"On {dataset_name(board.dataset)} at ε ≤ {epsilon:g}, {best}{over}{alike}.{tied}"


def _table(compared: Sequence[Comparison], published: Sequence[Published]) -> Table:
    """Make a row for each method, by its mean gain over plain DP-SGD, which is last; then rows of published numbers."""
    columns = [(board, epsilon) for board in compared for epsilon in SHOWN]
    best = [_undecided(board, epsilon) for board, epsilon in columns]

    def rank(method: str) -> tuple[bool, float]:
        boards = (board for board in compared if method in board.settings)
        gains = [gain.points for board in boards if (gain := board.gain(method, SHOWN[-1]))]
        return method == NAMES[0], -sum(gains) / len(gains) if gains else 0.0

    rows = []
    for method in sorted(NAMES, key=rank):
        cells = []
        for (board, epsilon), top in zip(columns, best, strict=True):
            if (entry := board.settings.get(method, {}).get(epsilon)) is None:
                cells.append("–")
                continue
            ideas, text = further_ideas(method, entry.ideas), mean_text(entry)
            idea = f" ({ideas[0]})" if len(ideas) == 1 else ""
            cells.append(f"{f'**{text}**' if method in top else text}{idea}{flags_text(entry)}")
        if any(cell != "–" for cell in cells):
            rows.append([f"**{method}**" if method == NAMES[0] else method, *cells])
    for kind in CLASSES:
        numbers = [best_published(published, board.dataset, epsilon, kind) for board, epsilon in columns]
        if any(numbers):
            rows.append([f"*Published, {kind}*", *("–" if n is None else f"*{n.accuracy:g}*" for n in numbers)])
    return Table(["method", *(f"{dataset_name(board.dataset)} ε ≤ {bound:g}" for board, bound in columns)], rows)


def _undecided(board: Comparison, epsilon: float) -> list[str]:
    """List the method with the highest mean, and those that Welch's interval does not tell from it."""
    best = board.best(epsilon)
    if best is None:
        return []
    methods, top = [best], board.settings[best][epsilon]
    for method, settings in board.settings.items():
        entry = settings.get(epsilon)
        if entry is None or method == best or min(len(entry.accuracies), len(top.accuracies)) < FEW:
            continue
        low = difference(top.accuracies, entry.accuracies).low
        if low <= 0 and trains_from_scratch(method) and not (entry.by_test_images or entry.on_a_part):
            methods.append(method)
    return methods


def mean_text(entry: Entry) -> str:
    """Format an accuracy: `98.0 ± 0.1 (5)`."""
    return f"{plus_minus(entry.mean, summarise(entry.accuracies)['std'], places=1)} ({len(entry.accuracies)})"


def flags_text(entry: Entry) -> str:
    """Mark an entry of few runs, one that was not searched, and one whose updates the test images chose."""
    flags = (len(entry.accuracies) < FEW, not entry.held_out, entry.by_test_images or entry.on_a_part)
    marks = "".join(mark for mark, holds in zip("◐⚠☒", flags, strict=True) if holds)
    return f" {marks}" if marks else ""


def _baseline(entries: Sequence[Entry], compared: Sequence[Comparison]) -> Table:
    """Tabulate plain DP-SGD at several bounds, with how it was chosen and whether its runs were made for the bound."""
    rows = []
    for board in compared:
        cells = []
        for epsilon in _BASELINE:
            entry = standing(entries, board.dataset, epsilon).get(NAMES[0])
            if entry is None:
                cells.append("–")
                continue
            spent = f", of a run made for another ε, which had spent {number(entry.sound, places=2, bound='upper')}"
            searched = "searched" if entry.held_out else "not searched"
            cells.append(f"{mean_text(entry)}, {searched}{'' if entry.made_for_it else spent}")
        rows.append([dataset_name(board.dataset), *cells])
    return Table(["data set", *(f"ε ≤ {epsilon:g}" for epsilon in _BASELINE)], rows)


def _published(published: Sequence[Published]) -> Table:
    rows = []
    for kind in CLASSES:
        undisputed = (number for number in published if number.kind == kind and not number.disputed)
        for (method, source), numbers in grouped(undisputed, lambda number: (number.method, number.source)).items():
            texts = [
                f"{dataset_name(dataset)} {', '.join(f'{n.accuracy:g} at {n.epsilon:g}' for n in group)}"
                for dataset, group in grouped(numbers, lambda number: number.dataset).items()
            ]
            rows.append([kind, method, "; ".join(texts), numbers[0].accountant, f"[{source}]({numbers[0].read})"])
    return Table(("class", "method", "accuracy at ε", "accountant", "source"), rows)


def _disputed(published: Sequence[Published]) -> str:
    """Name the published numbers whose privacy is disputed, by method."""
    texts = []
    for method, numbers in grouped((n for n in published if n.disputed), lambda number: number.method).items():
        accuracies = [
            f"{enumerated([f'{n.accuracy:g}%' for n in group])} on {dataset_name(dataset)}"
            for dataset, group in grouped(numbers, lambda number: number.dataset).items()
        ]
        epsilons = enumerated([f"{epsilon:g}" for epsilon in dict.fromkeys(n.epsilon for n in numbers)])
        disputed = f"[Its ε is disputed]({numbers[0].disputed})."
        texts.append(f"[{method}]({numbers[0].read}) reports {enumerated(accuracies)}, at ε = {epsilons}. {disputed}")
    return " ".join(texts)


def _outside(entries: Sequence[Entry], compared: Sequence[Comparison]) -> str:
    """Name the settings of no listed method that are above the best one of a table."""
    texts = []
    for board in compared:
        for epsilon in SHOWN:
            best, unlisted = board.best(epsilon), settings_of(entries, "", board.dataset, epsilon)
            above = max((e for e in unlisted if not e.by_test_images), key=lambda e: e.mean, default=None)
            if best and above and above.mean > board.settings[best][epsilon].mean:
                accuracy = f"{number(above.mean, places=1)}% ({len(above.accuracies)} runs)"
                texts.append(f"{dataset_name(board.dataset)} at ε ≤ {epsilon:g}: *{above.title}*, {accuracy}")
    text = "Parts of a method, such as a loss without its regulariser, and controls are in the CSV only."
    return f"{text} Above the best here are, on {'; on '.join(texts)}." if texts else text


def matrix_page(compared: Sequence[Comparison]) -> str:
    """Write a table of methods by methods for each data set and each bound on the sound epsilon."""
    parts = [(_FOLDER / "matrix.md").read_text(encoding="utf-8")]
    for board in compared:
        for epsilon in SHOWN:
            best = {m: settings[epsilon] for m, settings in board.settings.items() if epsilon in settings}
            if len(best) > 1:
                parts.append(f"## {dataset_name(board.dataset)} at ε ≤ {epsilon:g}\n\n{markdown(_pairs(best))}")
    return "\n".join(parts)


def settings_page(compared: Sequence[Comparison]) -> str:
    """Write a table of settings for each method: its best one on each data set at each bound, with the commands."""
    parts = [(_FOLDER / "settings.md").read_text(encoding="utf-8")]
    for method in NAMES:
        best = [
            (f"{dataset_name(board.dataset)} at ε ≤ {epsilon:g}", settings[epsilon])
            for board in compared
            if (settings := board.settings.get(method, {}))
            for epsilon in SHOWN
            if epsilon in settings
        ]
        if not best:
            continue
        rows = []
        for place, entry in best:
            texts = [entry.settings[name] for name in _SETTING]
            texts[-1] += "" if entry.made_for_it and entry.to_the_end else ", up to ε"
            ideas = ", ".join(further_ideas(method, entry.ideas)) or "–"
            rows.append([place, *texts, ideas, f"{mean_text(entry)}{flags_text(entry)}"])
        header = ("data set", *_SETTING, "also has", "test accuracy (%)")
        commands = "".join(f"# {place}\n{entry.command}\n" for place, entry in best)
        parts.append(
            f"## {method}\n\n{markdown(Table(header, rows))}\n<details><summary>Commands</summary>\n\n"
            f"```bash\n{commands}```\n\n</details>\n"
        )
    return "\n".join(parts)


def _pairs(best: Mapping[str, Entry]) -> Table:
    """Tabulate the gain of each method over each other, bold if Welch's interval tells the two apart."""
    rows = []
    for method, entry in best.items():
        cells = [f"{FRONT[method]['label']}{flags_text(entry)}"]
        for gain in (gain_over(entry, other) for other in best.values()):
            text = "–" if gain is None else signed(gain.points, "", 1)
            apart = gain and gain.interval and (gain.interval.low > 0 or gain.interval.high < 0)
            cells.append(f"**{text}**" if apart else text)
        rows.append(cells)
    return Table(["over →", *(FRONT[method]["label"] for method in best)], rows)
