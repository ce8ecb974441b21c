"""`python -m runner leaderboard`: test accuracy of every paper's methods at the same sound epsilons.

Nothing is trained: the numbers come from the records. A setting counts if its delta is at most the board's and its runs
report on test images. A run counts with the accuracy after its last epoch within the sound epsilon. Epochs are not
chosen by accuracy. A longer run may do worse at a budget than a run that ends there. So the second table has only runs
that end at the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.claims.evidence import PAPER_SCALE, folder_of
from runner.report import plots
from runner.report.files import write_csv, write_text
from runner.report.leaderboard.entries import DELTA, Entry, entries, planned_runs
from runner.report.leaderboard.figure import draw
from runner.report.leaderboard.tables import COLUMNS, board, row
from runner.terminal import Parser

_TEXT = f"""# Leaderboard

Test accuracy in percent: mean ± standard deviation (runs) [95% interval of the mean] at the sound ε spent, with
δ ≤ {DELTA:g}. The sound ε is an upper bound over all that a run released. Of a run that ends where it has kept enough
updates, the number of tries hangs on the data, and with it what they cost: there it is the bound itself, which holds if
the run is also stopped before its tries cost more, or what all the tries that it may make would cost, where that is
less. A single run has no interval. **Bold**: the highest mean of several runs without † or §, if there is one: not the
highest number where that is a single run's; where intervals overlap it may be chance. Settings that
differ in their length only are rows of their own. [The figure](figure.svg) has the highest means of each data set, at
most two methods of a paper, single runs hollow, and † and § last.

A row is a setting under its title. [leaderboard.csv](leaderboard.csv) has its experiment in `conf/experiment` and its
id, of which `python -m runner explain` says more.

The ε of rows are not all of one kind: most are for a data set with an example more or less; ⁰ marks those for one whose
example counts as zero, as where batches are shuffled, and ² those for one of as many examples, one of them another. The
same noise has about twice the ε for the last: an ε of ² is a stronger promise than one as large without it.

Settings are the papers' own where they give them, and how a paper chose them is its own affair: most were compared on
test images. What a paper leaves open was chosen here: [its list of claims](../README.md) says what. Some of that was
picked with the claimed accuracies in view. The Lipschitz paper gives no settings. Those of its rows were chosen here,
in part by an exploration that saw test images. ‡ marks settings chosen here on held-out training images; † marks runs
whose updates were chosen by the very images they report on, which flatters them; § marks accuracies of every second
test image, 5,000 of 10,000, where the others, with their labels, are taken for public (and screen, or not). No ε holds
the mean and deviation of the training images by which backpropagation clipping's rows on MNIST standardise pixels. Of
the sixteen cells of [the composition](../composition/README.md) on MNIST and on FashionMNIST one is here, *four
combined*: the best on held-out images in the mean over both; another may be as good at one ε. Rows are in the order of
their last column.

"""


_MADE = "Runs that end at the budget"
_OF_MADE = """The same, without what is stopped on its way to another budget or ends far below this one: rows are fewer,
and those of a column were all made for it, so that no method is seen in the middle of its course.
"""


def write(folder: Path, found: Sequence[Entry]) -> list[Path]:
    """Write leaderboard/README.md, leaderboard.csv and the figure below a results folder.

    Returns:
        The files.
    """
    place = folder / "leaderboard"
    made = [entry for entry in found if entry.made_for_it]
    text = _TEXT + board(found, "By the last epoch within the budget")
    text += "\n" + board(made, _MADE, _OF_MADE) if made else ""
    written = [write_text(place / "README.md", text), write_csv(place / "leaderboard.csv", COLUMNS, [*map(row, found)])]
    with plots.style():
        return written + plots.save(draw(found), place)


def main(arguments: Sequence[str]) -> int:
    """Write the leaderboard.

    Returns:
        The exit code.
    """
    Parser(prog="python -m runner leaderboard", description=__doc__).parse_args(arguments)
    found = entries(planned_runs())
    if not found:
        raise ValueError("no run is recorded that a leaderboard could show.")
    for path in write(folder_of(PAPER_SCALE), found):
        print(path)
    return 0
