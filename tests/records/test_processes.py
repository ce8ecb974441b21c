"""The processes of `verify`, and the file of accountants' answers: they lose no fault, and no damage is believed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runner.accounting.accountants import ANSWERS, pld_epsilon
from runner.accounting.ledger import SampledGaussian
from runner.config import ConfigError
from runner.files import SEAL, sealed
from runner.records import verify

QUESTION = (SampledGaussian(0.01, 1.1, 50),), 1e-5, 2e-4


class Deadly:
    """A record that ends the process that receives it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (9,)


def test_every_fault_is_reported_and_a_killed_process_refused(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.json" for number in range(3)]
    for path in paths:
        path.write_text("[")
    checked = {record.path: record.faults for record in verify._checked_by_processes([paths[:1], paths[1:]], 2)}
    assert checked.keys() == set(paths)
    assert all("is not a whole record" in fault for (fault,) in checked.values())
    deadly: Any = Deadly()
    with pytest.raises(ConfigError, match="a process was killed"):
        list(verify._checked_by_processes([[deadly], paths], 2))


def test_answers_are_kept_exactly_and_damaged_ones_are_not_used(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "answers" / "epsilons.json"
    monkeypatch.setattr(verify, "_answers_path", lambda: path)
    ANSWERS.clear()
    epsilon = pld_epsilon(*QUESTION)
    verify._store_answers()
    content = path.read_bytes()
    assert verify._stored_answers() == {QUESTION: epsilon}
    assert path.stat().st_mode & 0o077 == 0
    forged = json.dumps([[*QUESTION, epsilon / 2]]).encode()
    for changed, epsilons in (
        (sealed(forged), [epsilon / 2]),
        (forged + content[-SEAL:], []),
        (sealed(b"[[1]]"), []),
        (content[:-1], []),
        (b"", []),
    ):
        path.write_bytes(changed)
        assert list(verify._stored_answers().values()) == epsilons
    assert pld_epsilon(*QUESTION) == epsilon


@pytest.mark.parametrize("changed", [((SampledGaussian(0.01, 1.1, 51),), 1e-5), (QUESTION[0], 2e-5)])
def test_an_answer_is_that_of_its_question_alone(changed: tuple[Any, float]) -> None:
    assert pld_epsilon(*QUESTION) != pld_epsilon(*changed, QUESTION[2])
