"""Keep the ε of `runner.accounting` in the user's cache folder, because `verify` asks for thousands of them.

An answer is found by the charges, δ and grid that it follows from, so it says nothing about a record. A file holds the
answers of one version of the code of accounting, and of the packages that it computes with. It is used only if its
checksum matches and only the user may write it. It can be deleted at any time.
"""

from __future__ import annotations

import json
from pathlib import Path

from runner.accounting.accountants import ANSWERS, Question
from runner.accounting.ledger import SampledGaussian
from runner.data.files import SEAL, cache_folder, is_sealed
from runner.records import cache

_CODE = ("runner/accounting/*.py",)
_PACKAGES = ("dp-accounting", "numpy", "scipy")


def recall() -> None:
    """Take the answers in the cache for those of this process."""
    ANSWERS.update(_read())


def keep() -> None:
    """Add the answers of this process to those in the cache."""
    before = _read()
    if (now := before | ANSWERS) != before:
        cache.write_entry(_path(), json.dumps([[*question, epsilon] for question, epsilon in now.items()]))


def _path() -> Path:
    return cache_folder() / f"epsilons-{cache.hash_of(_PACKAGES, _CODE)[:16]}.json"


def _read() -> dict[Question, float]:
    """Return the answers in the cache: none if there are none, or if the file is damaged or not of the user alone."""
    path = _path()
    try:
        if not is_sealed(path):
            return {}
        rows = json.loads(path.read_bytes()[:-SEAL])
        return {
            (tuple(SampledGaussian(*mechanism) for mechanism in mechanisms), delta, interval): epsilon
            for mechanisms, delta, interval, epsilon in rows
        }
    except (OSError, ValueError, TypeError):
        return {}
