"""`python -m runner --help`: commands, groups and defaults; `--help GROUP`: the options of one group.

It reads conf/ as text, so that it answers at once.
"""

import ast
import re
from collections.abc import Sequence
from itertools import takewhile

from runner.cli.commands import COMMANDS
from runner.config import PACKAGE, REPOSITORY, ConfigError
from runner.config.checkout import scan
from runner.terminal import nearest

EXAMPLES = {
    "experiment=tempered_sigmoid/mnist_tanh sound_epsilon=3": "train at a sound ε of 3",
    "experiment=tempered_sigmoid/mnist_tanh activation=relu": "with another option of a group",
    "-m experiment=tempered_sigmoid/mnist_tanh seed=0,1,2": "several runs, one after another",
    "--config-dir options loss=mine scale=smoke": "an option of your own, tested in seconds",
    "-m sweeps=tempered_sigmoid/fig_3": "all runs of a figure",
}
_HYDRA = {
    "-m": "several runs: every combination of values with commas between them",
    "--config-dir FOLDER": "options of your own: FOLDER/loss/mine.yaml is loss=mine (default: conf/ here)",
    "--cfg job": "print the config that would be run; -p loss prints only this group",
    "--info": "print how the config was composed",
    "-sc install=bash": "complete the command `dp-bench` by the tabulator",
}
_LAUNCHER = "what carries out the runs of a paper or a study, by --launcher [local]"


def text() -> str:
    config = (REPOSITORY / "conf" / "config.yaml").read_text(encoding="utf-8")
    groups = re.findall(r"(?m)^  - (\w+): (\S+) *# (.*)$", config)
    _, defaults = config.split("\n\n", 1)
    sections = {
        "Examples": _listed({f"python -m runner {words}": does for words, does in EXAMPLES.items()}),
        "Options": _listed(_HYDRA),
        "Commands: python -m runner COMMAND --help": _listed({name: words for name, (_, words) in COMMANDS.items()}),
        "Groups: python -m runner --help GROUP lists the options": _listed(
            {name: f"{words} [{option}]" for name, option, words in groups} | {"launcher": _LAUNCHER}
        ),
        "Diagnostics: diagnostics=[NAME,NAME]": _listed(diagnostics()),
        "Fields and their defaults": defaults.partition("\nhydra:")[0].strip().splitlines(),
    }
    lines = [
        "python -m runner [group=option ...] [field=value ...]",
        "",
        "One run, made of one option per group. Exit codes: 0 recorded, 1 failed, 2 it cannot be run as asked.",
    ]
    return "\n".join([*lines, *(line for title, text in sections.items() for line in ["", f"== {title} ==", *text])])


def group_text(group: str) -> str:
    """Return the options of a group, each with the first sentence of the comment at the top of its file.

    Raises:
        ConfigError: there is no such group.
    """
    folders = {path.name: path for path in (REPOSITORY / "conf").iterdir() if path.is_dir()}
    folders |= {"sweeps": REPOSITORY / "sweeps"}
    if group not in folders:
        raise ConfigError(f"There is no group {group!r}. {nearest(group, folders)}")
    options = {}
    for path in scan(folders[group], "**/*.yaml"):
        name = path.relative_to(folders[group]).with_suffix("").as_posix()
        if not path.name.startswith("base_"):
            text = path.read_text(encoding="utf-8")
            comment = takewhile(lambda line: line.startswith("#"), text.splitlines())
            words = " ".join(line[1:].strip() for line in comment if not line.startswith("# @package"))
            options[name] = re.split(r"(?<=[a-z)])\. ", words)[0].rstrip(".")  # the first sentence
    return "\n".join(_listed({f"{group}={name}": words for name, words in options.items()}))


def diagnostics() -> dict[str, str]:
    described = {}
    for path in scan(PACKAGE / "training" / "diagnostics", "*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and "Diagnostic" in map(ast.unparse, node.bases):
                name = re.sub(r"(?<!^)(?=[A-Z])", "_", node.name).lower()
                described[name] = str(ast.get_docstring(node)).partition("\n")[0].rstrip(".")
    return dict(sorted(described.items()))


def main(arguments: Sequence[str]) -> int:
    print(group_text(arguments[0]) if arguments else text())
    return 0


def _listed(texts: dict[str, str]) -> list[str]:
    width = max(map(len, texts))
    return [f"{name.ljust(width)}  {words}".rstrip() for name, words in texts.items()]
