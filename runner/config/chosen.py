"""Values that a search chose, for each setting separately: `${chosen:sweeps/tempered_sigmoid/table_4_chosen.csv,-1}`.

A column of the table is a field of the config ("optimizer.lr", "activation._target_"). A row is one setting and the
values chosen for it. The table is a part of the configuration, like a YAML file. The resolved config still defines a
run.
"""

from __future__ import annotations

import csv
from itertools import chain
from pathlib import Path
from typing import Any

from omegaconf import Container, Node, OmegaConf


def chosen(repository: Path, table: str, otherwise: float, *, _node_: Node, _root_: Container) -> float:
    """Return a table's number for this field from the row that matches the config, or `otherwise` if no row does.

    All other columns of the row have to equal the config. An empty cell stands for a field that is null or missing.
    Numbers are compared as numbers.

    Raises:
        FileNotFoundError: the table does not exist.
        ValueError: two rows match this config, or the field has no column or no number.
    """
    field = _node_._get_full_key("")
    with (repository / table).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    config = {name: OmegaConf.select(_root_, name) for name in dict.fromkeys(chain(*rows)) if name != field}
    found = [row for row in rows if all(_same(value, row[name]) for name, value in config.items())]
    if len(found) > 1 or any(field not in row for row in found):
        raise ValueError(f"{table} has {len(found)} rows for one setting, or no column {field}.")
    return float(found[0][field]) if found else float(otherwise)


def _same(value: Any, text: str) -> bool:
    if value is None or not text:
        return value is None and not text
    try:
        return float(value) == float(text)
    except ValueError:
        return str(value) == text
