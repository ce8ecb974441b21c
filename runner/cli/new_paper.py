"""A paper to fill in: `python -m runner new-paper NAME` writes one that runs as it is.

It has one table of two settings on MNIST, and one claim: that the method is more accurate than its baseline.

Exit codes: 0 written, 2 the name is no identifier, or it exists.
"""

import keyword
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template

from runner.config import REPOSITORY, ConfigError, options_of
from runner.config.yaml_file import read_yaml
from runner.report.formats import write_text
from runner.terminal import Parser, command

_FOLDERS = ("runner/papers", "conf/experiment", "sweeps", "results")  # with a folder for each paper

_TEMPLATES = {  # in the folder paper/ next to this file, by the place of what is made of them
    "runner/papers/$name/__init__.py": "init.txt",
    "runner/papers/$name/paper.yaml": "paper.yaml",
    "runner/papers/$name/claims.yaml": "claims.yaml",
    "conf/experiment/$name/base_mnist.yaml": "base_mnist.yaml",
    "conf/experiment/$name/mnist_baseline.yaml": "mnist_baseline.yaml",
    "conf/experiment/$name/mnist_method.yaml": "mnist_method.yaml",
    "sweeps/$name/table_1.yaml": "table_1.yaml",
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
    existing = [folder for folder in _FOLDERS if (root / folder / name).exists()]
    if existing or name in options_of("scale"):
        raise ConfigError(f"{name} exists{f': {existing[0]}/{name}' if existing else ''}. Choose another name.")
    files = map(read_yaml, (root / "runner" / "papers").glob("*/paper.yaml"))
    last = max((file.entries["place"].whole or 0 for file in files), default=0)
    words = {"name": name, "words": name.replace("_", " "), "place": str(last + 1)}
    written = []
    for place, template in _TEMPLATES.items():
        text = Path(__file__).with_name("paper").joinpath(template).read_text(encoding="utf-8")
        path = root / Template(place).substitute(words)
        written.append(write_text(path, Template(text).substitute(words)))
    return written


def main(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m runner new-paper", description=__doc__.partition("\n")[0])
    parser.add_argument("name", help="of its folders: small letters, digits and underscores")
    name = parser.parse_args(arguments).name
    for path in write_paper(name):
        print(path.relative_to(REPOSITORY))
    print("Fill in what says TODO. It runs already, on bundled data:")
    print(command("reproduce", name, "--scale", "smoke"))
    return 0
