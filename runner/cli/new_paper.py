"""A paper to fill in: `python -m runner new-paper NAME` writes one that runs as it is.

It has one table of two settings on MNIST, and one claim: that the method is more accurate than its baseline.

Exit codes: 0 written, 2 the name is no identifier, or it exists.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template

from runner.config import REPOSITORY, ConfigError, scales
from runner.report.files import write_text
from runner.terminal import Parser, command

_FOLDERS = ("runner/papers", "conf/experiment", "sweeps", "results")  # with a folder for each paper

FILES = {
    "runner/papers/$name/__init__.py": '''\
"""TODO: title of $words, its items, the headline first. By TODO: authors (place and year)."""

from runner.report.items import Item, Paper

ITEMS = (Item("table-1", "Table 1: accuracy of the method and its baseline", sweeps=("$name/table_1",)),)

PAPER = Paper("$name", "TODO: title of $words", ITEMS, place=$place, idea="TODO: the proposal in a few words")
''',
    "runner/papers/$name/claims.yaml": """\
# What the paper claims. What the fields mean: runner/claims/blocks.py, reading.py and claim.py.
defaults:
  epsilon: 3
  delta: 1e-5
  network: CNN
  accounting: unclear
  open: TODO, the settings that the paper does not give

table-1:
  sweep: table_1
  MNIST:
    claims:
      - method: Method above baseline
        runs: ["{dataset}_method", "{dataset}_baseline"]
        unit: "%"
        compare: order
        direction: above_other
        margin: 0.5
        because: "TODO: the reason for the margin"
        claimed: ""
      # - method: Method
      #   runs: "{dataset}_method"
      #   of: mean of 5
      #   margin: 0.5
      #   because: "TODO: the reason for the margin"
      #   claimed: TODO, the number that the paper prints
""",
    "runner/papers/$name/dashboard.yaml": """\
# What `make dashboard` shows of this paper's runs; the words are explained in runner/report/dashboard/definition.py
title: "TODO: title of $words"
items: [table-1]
datasets: [MNIST]
sections:
  Accuracy and its price:
    - {kind: pareto, x: epsilon, y: test_accuracy}
    - {kind: pareto, x: epsilon_sound_guaranteed, y: test_accuracy}
  By epoch:
    - {kind: curve, x: epsilon_sound, y: test_accuracy}
    - {kind: curve, x: epoch, y: test_loss}
table: [test_accuracy, best_test_accuracy, epsilon, epsilon_sound_guaranteed, claims, verdicts]
""",
    "conf/experiment/$name/base_mnist.yaml": """\
# @package _global_
# Settings shared by the MNIST rows. TODO: what the paper gives, and what was chosen here.
defaults:
  - override /dataset: mnist
  - override /architecture: tempered_sigmoid_mnist
epochs: 40
batch_size: 256
noise_multiplier: null
target_epsilon: 3
clipping: {norm: 1.0}
optimizer: {lr: 0.25}
""",
    "conf/experiment/$name/mnist_baseline.yaml": """\
# @package _global_
# TODO: the row of the table, and the accuracy and epsilon expected.
# python -m runner experiment=$name/mnist_baseline
defaults:
  - /experiment/$name/base_mnist
  - override /activation: relu
title: Baseline of $words
""",
    "conf/experiment/$name/mnist_method.yaml": """\
# @package _global_
# TODO: the row of the table, and the accuracy and epsilon expected. tanh stands for the method.
# python -m runner experiment=$name/mnist_method
defaults:
  - /experiment/$name/base_mnist
  - override /activation: tanh
title: Method of $words
""",
    "sweeps/$name/table_1.yaml": """\
# @package _global_
# TODO: the table, its number of seeds
tracking: {group: $name/table-1}
hydra:
  mode: MULTIRUN
  sweeper:
    params:
      experiment: $name/mnist_method, $name/mnist_baseline
      seed: range(0,5)
""",
}


def write_paper(name: str, root: Path = REPOSITORY) -> list[Path]:
    """Write the files of a new paper below a checkout, and return them.

    Raises:
        ConfigError: the name is no identifier in lower case, or it exists.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        near = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_0123456789")
        hint = f": {near} would be" if near and not keyword.iskeyword(near) else ""
        raise ConfigError(f"{name!r} is no identifier of small letters, digits and underscores{hint}.")
    if not (root / "pyproject.toml").is_file():
        raise ConfigError("a paper is written into a checkout of this repository, and this is an installed package.")
    taken = [folder for folder in _FOLDERS if (root / folder / name).exists()]
    if taken or name in scales():
        raise ConfigError(f"{name} exists{f': {taken[0]}/{name}' if taken else ''}. Choose another name.")
    given = {"name": name, "words": name.replace("_", " "), "place": str(_next_place(root))}
    return [write_text(root / _filled(path, given), _filled(text, given)) for path, text in FILES.items()]


def _filled(text: str, given: dict[str, str]) -> str:
    return Template(text).substitute(given)


def _next_place(root: Path) -> int:
    """Return the position after all papers, from their source, because importing them takes seconds."""
    sources = (path.read_text(encoding="utf-8") for path in (root / "runner" / "papers").glob("*/__init__.py"))
    return 1 + max((int(place) for text in sources for place in re.findall(r"\bplace=(\d+)", text)), default=0)


def main(arguments: Sequence[str]) -> int:
    """Write a paper, and print its files and its first command. Return the exit code."""
    parser = Parser(prog="python -m runner new-paper", description=__doc__.partition("\n")[0])
    parser.add_argument("name", help="of its folders: small letters, digits and underscores")
    name = parser.parse_args(arguments).name
    for path in write_paper(name):
        print(path.relative_to(REPOSITORY))
    print("Fill in what says TODO. It runs already, on bundled data:")
    print(command("reproduce", name, "--scale", "smoke"))
    return 0
