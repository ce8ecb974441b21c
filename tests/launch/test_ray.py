"""Runs on a Ray cluster. A list of fates stands in for Ray, and `make cluster` tests a real one."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from runner.config import ConfigError
from runner.launch import Work, launcher_of, processes, ray, run_jobs
from runner.records.files import recorded
from tests.small import run_here


class FakeRay(ModuleType):
    """Carries a task out when it is handed over, and loses those in `lost`, a list of their numbers."""

    def __init__(self, lost: list[int]) -> None:
        super().__init__("ray")
        self.lost, self.options_given, self.most = lost, dict[str, Any](), 0
        self.results: list[Any] = []

    def init(self, address: str, **options: Any) -> None:
        if address != "auto":
            raise ConnectionError("nobody answers")

    def remote(self, function: Any) -> Any:
        class Remote:
            @staticmethod
            def options(**options: Any) -> Any:
                self.options_given = options
                return Remote

            @staticmethod
            def remote(work: Work) -> int:
                self.results.append(None if len(self.results) in self.lost else function(work))
                return len(self.results) - 1

        return Remote

    def wait(self, references: list[Any]) -> tuple[list[Any], list[Any]]:
        self.most = max(self.most, len(references))
        return references[:1], references[1:]

    def get(self, reference: int) -> Any:
        if self.results[reference] is None:
            raise RuntimeError("Task failed because\nits node is dead")
        return self.results[reference]


@pytest.fixture
def fake(monkeypatch) -> FakeRay:
    module = FakeRay([1])
    monkeypatch.setattr(processes, "run_processes", run_here)
    monkeypatch.setattr(ray, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "ray", module)
    return module


def test_each_run_is_a_task_and_a_lost_one_fails(fake: FakeRay, smoke_jobs, line) -> None:
    jobs = smoke_jobs(4, r3="tests.failing.RaisesInTraining")
    tally = run_jobs(launcher_of("ray", ["gpus=0.5", "retries=2"]), Work(jobs, at_once=2), line)
    assert {job.run_id for job in tally.recorded} == {jobs[0].run_id, jobs[2].run_id}
    assert all(recorded(job.config) for job in tally.recorded)
    assert [(job.run_id, reason) for job, reason in tally.failed] == [
        (jobs[1].run_id, "RuntimeError: Task failed because its node is dead"),
        (jobs[3].run_id, "RuntimeError: made to fail"),
    ]
    assert fake.most == 2
    assert (fake.options_given["num_gpus"], fake.options_given["max_retries"]) == (0.5, 2)


def test_an_address_without_a_cluster_gives_one_sentence(fake: FakeRay, smoke_jobs, line) -> None:
    with pytest.raises(ConfigError, match="There is no Ray cluster at far:1"):
        run_jobs(launcher_of("ray", ["address=far:1"]), Work(smoke_jobs(1)), line)
