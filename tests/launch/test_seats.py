"""Places for a search's trials on other machines: who may take one, what passes, and what happens when one is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.config import ConfigError
from runner.launch import seats as seats_module
from runner.launch.seats import Place, listening
from runner.records.files import read_record, recorded, results_folder, stopped_path
from runner.records.jobs import Job
from runner.search import Space, space_of
from runner.search.carry_out import carry_out
from runner.search.study import study_of


@pytest.fixture
def door(line) -> Iterator[Any]:
    """A door, and the places behind it."""
    with listening(1, lambda: True, line, away=True) as (door, seats):
        yield SimpleNamespace(port=door.port, key=door.key, seats=seats)


def test_nobody_takes_a_trial_without_the_key(door) -> None:
    with pytest.raises(AuthenticationError):
        Client(("localhost", door.port), authkey=b"another")
    assert door.seats.free == 0
    with Client(("localhost", door.port), authkey=door.key):
        assert door.seats.wait([]) == []
        assert door.seats.free == 1


def test_a_place_that_is_gone_is_lost_and_its_trial_is_not(door, smoke_jobs) -> None:
    (job,) = smoke_jobs(1)
    with Client(("localhost", door.port), authkey=door.key) as place:
        door.seats.wait([])
        seat = door.seats.start(job, 3)
        sent, number, threads = place.recv()
    assert (sent.run_id, number, threads) == (job.run_id, 3, 1)
    assert door.seats.wait([seat]) == [seat]
    assert seat.received()[0] == "lost"
    assert door.seats.free == 0


def test_a_search_without_a_place_left_says_so(line, monkeypatch) -> None:
    monkeypatch.setattr(seats_module, "_LOOK", 0.01)
    with listening(1, lambda: False, line) as (_, seats), pytest.raises(ConfigError, match="No task of the search"):
        seats.wait([])


@pytest.mark.slow
def test_a_place_far_away_carries_trials_out_as_it_is_answered(door, smoke_jobs, tmp_path: Path) -> None:
    """Two trials, of which one is stopped after its second epoch; records come back and are written here."""
    for job in (jobs := smoke_jobs(2)):
        job.config.epochs = 3
    whole, stopped = (Job.of(job.sweep, job.overrides, job.config) for job in jobs)
    place = Place("localhost", door.port, door.key, away=True)
    thread = threading.Thread(target=place)
    thread.start()
    for job, most in ((whole, 3), (stopped, 2)):
        while not door.seats.free:
            door.seats.wait([])
        seat = door.seats.start(job, 0)
        while (message := seat.received())[0] == "epoch":
            seat.answer(message[1].row["epoch"] < most or most == 3)
        assert message[1][0][0] == ("finished" if most == 3 else "stopped")
    door.seats.close()
    thread.join(20)
    assert not thread.is_alive()
    assert recorded(whole.config)
    assert not recorded(stopped.config)
    kept = read_record(stopped_path(results_folder(stopped.config), stopped.run_id))
    assert kept["history"]["epoch"] == [1, 2]


class Fake:
    """Places that do as they are told: the n-th trial that is started ends as the n-th of `fates` says."""

    def __init__(self, *fates: str) -> None:
        self.fates, self.began = list(fates), list[str]()
        self.free = 1

    def start(self, job: Any, number: int) -> Any:
        self.free -= 1
        self.began.append(job.run_id)
        fate = self.fates.pop(0) if self.fates else "finished"

        def received() -> tuple[str, Any]:
            self.free += 1
            return ("lost", "its node is gone") if fate == "lost" else ("ended", [(fate, "why")])

        return SimpleNamespace(received=received)

    def wait(self, taken: Sequence[Any]) -> list[Any]:
        return list(taken)


@pytest.fixture(scope="module")
def space() -> Space:
    return space_of("lipschitz/fig_5a_search", ("scale=smoke",))


def test_a_trial_whose_place_is_lost_begins_again_and_counts_once(space: Space, tmp_path: Path, line) -> None:
    fake = Fake("lost", "lost", "finished")
    with study_of(space, tmp_path, 3.0, draws=2) as study:
        assert carry_out(study, 2, fake, line) == []
        assert study.taken == 2
    assert fake.began == [space.draws[0].run_id] * 3 + [space.draws[1].run_id]


def test_a_trial_that_loses_every_place_fails(space: Space, tmp_path: Path, line) -> None:
    with study_of(space, tmp_path, 3.0, draws=1) as study:
        ((job, why),) = carry_out(study, 1, Fake(*["lost"] * 4), line)
    assert (job.run_id, why) == (space.draws[0].run_id, "its node is gone")


def test_a_trial_that_fails_is_told_and_the_others_go_on(space: Space, tmp_path: Path, line) -> None:
    fake = Fake("failed")
    with study_of(space, tmp_path, 3.0, draws=2) as study:
        failed = carry_out(study, 2, fake, line)
    assert [(job.run_id, why) for job, why in failed] == [(space.draws[0].run_id, "why")]
    assert len(fake.began) == 2
