"""The processes of `verify`, and the file of accountants' answers: they lose no fault, and no damage is believed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runner.accounting.accountants import ANSWERS, pld_epsilon
from runner.accounting.ledger import SampledGaussian
from runner.data.files import SEAL, sealed
from runner.records import answers, verify

QUESTION = (SampledGaussian(0.01, 1.1, 50),), 1e-5, 2e-4


class Deadly:
    """A record that ends the process that receives it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (9,)


def test_every_fault_is_reported_also_of_a_process_that_dies(tmp_path: Path) -> None:
    deadly: Any = Deadly()
    paths = [tmp_path / f"{number}.json" for number in range(3)]
    for path in paths:
        path.write_text("[")
    checked = {each.path: each.faults for each in verify._in_processes([[deadly, paths[0]], paths[1:]], 2)}
    assert checked.pop(deadly) == ["its process ended with exit code 9"]
    assert checked.keys() == set(paths)
    assert all("is not a whole record" in fault for (fault,) in checked.values())


def test_answers_are_kept_exactly_and_damaged_ones_are_not_used(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "answers" / "epsilons.json"
    monkeypatch.setattr(answers, "_path", lambda: path)
    ANSWERS.clear()
    epsilon = pld_epsilon(*QUESTION)
    answers.keep()
    whole = path.read_bytes()
    ANSWERS.clear()
    answers.recall()
    assert list(ANSWERS.items()) == [(QUESTION, epsilon)]
    assert path.stat().st_mode & 0o077 == 0
    forged = json.dumps([[*QUESTION, epsilon / 2]]).encode()
    for content, epsilons in (
        (sealed(forged), [epsilon / 2]),
        (forged + whole[-SEAL:], []),
        (sealed(b"[[1]]"), []),
        (whole[:-1], []),
        (b"", []),
    ):
        path.write_bytes(content)
        ANSWERS.clear()
        answers.recall()
        assert list(ANSWERS.values()) == epsilons
    assert pld_epsilon(*QUESTION) == epsilon


@pytest.mark.parametrize("changed", [((SampledGaussian(0.01, 1.1, 51),), 1e-5), (QUESTION[0], 2e-5)])
def test_an_answer_is_that_of_its_question_alone(changed: tuple[Any, float]) -> None:
    assert pld_epsilon(*QUESTION) != pld_epsilon(*changed, QUESTION[2])
