"""Searches: what is tried, and that nothing is run twice."""

from __future__ import annotations

import io
import statistics
from pathlib import Path

import pytest

from runner.claims.evidence import folder_of
from runner.cli.search import main
from runner.config import ConfigError, Dimension
from runner.launch import Work
from runner.launch.processes import Tally
from runner.records.jobs import Job
from runner.search import Space, Trial, best, pareto, space_of, trials_of
from runner.search.carry_out import carry_out, next_jobs
from runner.search.suggest import Tried, rounded, suggested
from runner.terminal import Line
from tests.conftest import Fabricate, Refusal

SWEEP = "lipschitz/fig_5a_search"


@pytest.fixture(scope="module")
def space() -> Space:
    return space_of(SWEEP, ("scale=smoke",))


def test_the_dimensions_are_what_the_experiment_draws(space: Space) -> None:
    found = {name: (of.low, of.high, of.log) for name, of in space.dimensions.items()}
    assert found == {
        "noise_multiplier": (0.8, 4.0, False),
        "loss.inverse_temperature": (10.0, 300.0, True),
        "loss.gradient_bound": (0.02, 1.4, True),
        "optimizer.lr": (0.3, 30.0, True),
    }


def test_the_values_of_a_draw_make_the_run_of_the_draw(space: Space) -> None:
    for draw in space.draws[:3]:
        assert space.job(space.values(draw.config)).run_id == draw.run_id
    assert len({draw.run_id for draw in space.draws}) == len(space.draws)


def test_what_is_chosen_is_trained_with_other_seeds_on_all_images(space: Space) -> None:
    whole = space_of(SWEEP)
    again = whole.retrained(whole.values(whole.draws[0].config))
    assert [job.config.seed for job in again] == [1, 2, 3, 4, 5]
    assert {job.config.evaluation.value for job in again} == {"test"}
    assert len({job.setting_id for job in again}) == 1


def test_only_searches_on_held_out_images_are_searched() -> None:
    with pytest.raises(ConfigError, match="varies draw and nothing else"):
        space_of("lipschitz/fig_5a")
    with pytest.raises(ConfigError, match="would choose by test images"):
        space_of(SWEEP, ("scale=smoke", "evaluation=test"))


def trial(name: str, epsilons: list[float], accuracies: list[float]) -> Trial:
    return Trial(name, {}, {"history": {"epsilon_sound": epsilons, "test_accuracy": accuracies}})


def test_a_trial_is_judged_at_its_last_epoch_within_the_budget() -> None:
    one = trial("one", [1.0, 2.0, 4.0], [60.0, 50.0, 90.0])
    other = trial("other", [1.0, 3.0], [40.0, 55.0])
    beyond = trial("beyond", [3.5], [99.0])
    assert [each.accuracy_within(3.0) for each in (one, other, beyond)] == [50.0, 55.0, None]
    assert best([one, other, beyond], 3.0) is other
    assert best([beyond], 3.0) is None


def test_a_front_has_the_points_that_no_cheaper_one_matches() -> None:
    curves = [([1.0, 2.0, 3.0], [50.0, 40.0, 70.0]), ([0.5, 2.5, 3.0], [30.0, 60.0, 69.0])]
    assert pareto(curves) == [(0.5, 30.0), (1.0, 50.0), (2.5, 60.0), (3.0, 70.0)]


def test_draws_come_first_then_suggestions_of_three_digits(space: Space, tmp_path: Path, fabricate: Fabricate) -> None:
    folder, asked = folder_of("smoke", tmp_path), list[Job]()
    while jobs := next_jobs(space, folder, 3.0, 5, draws=2):
        assert [job.run_id for job in jobs] == [job.run_id for job in next_jobs(space, folder, 3.0, 5, draws=2)]
        for job in jobs:
            fabricate(job, [50.0, 60.0, 70.0], sound=[1.0, 2.0, 4.0])
        asked += jobs
    assert [job.run_id for job in asked[:2]] == [job.run_id for job in space.draws[:2]]
    for job in asked[2:]:
        for name, value in space.values(job.config).items():
            assert value == float(f"{value:.3g}")
            assert space.dimensions[name].low <= value <= space.dimensions[name].high
    assert len({job.run_id for job in asked}) == 5


def test_suggestions_are_near_the_good_trials() -> None:
    of = {"lr": Dimension(0.01, 100.0, log=True)}
    tried = [Tried({"lr": rounded(10.0 ** (k / 5 - 2))}, -abs(k - 5.0)) for k in range(20)]  # the best is 0.1
    found = [float(point["lr"]) for point in suggested(of, tried, wanted=9, draws=5)]
    assert 0.05 < statistics.median(found) < 0.3


def test_what_is_recorded_counts_as_tried(space: Space, tmp_path: Path, fabricate: Fabricate) -> None:
    one = space.job({name: 1.0 if "bound" in name else 20.0 for name in space.dimensions} | {"noise_multiplier": 2})
    for job in (space.draws[3], one):
        fabricate(job, [50.0, 60.0, 70.0], sound=[1.0, 2.0, 4.0])
    fabricate(space.draws[0], [90.0] * 3, sound=[1.0, 2.0, 4.0]).rename(tmp_path / "another.json")
    folder = folder_of("smoke", tmp_path)
    assert [trial.run_id for trial in trials_of(space, folder)] == [space.draws[3].run_id, one.run_id]
    assert [job.run_id for job in next_jobs(space, folder, 3.0, 3, draws=5)] == [space.draws[0].run_id]
    assert next_jobs(space, folder, 3.0, 2) == []


class Fake:
    """A launcher that records what it is told to: the n-th run ends as the n-th of `fates` says."""

    def __init__(self, fabricate: Fabricate, *fates: str) -> None:
        self.fabricate, self.fates, self.began = fabricate, list(fates), list[str]()

    def check(self, wait: bool) -> None:
        """Carry anything out."""

    def carry_out(self, work: Work, line: Line) -> Tally:
        tally = Tally()
        for job in work.jobs:
            self.began.append(job.run_id)
            fate = self.fates.pop(0) if self.fates else "finished"
            if fate == "finished":
                self.fabricate(job, [50.0, 60.0, 70.0], sound=[1.0, 2.0, 2.5])
            tally.failed += [(job, "why")] if fate == "failed" else []
        return tally


@pytest.mark.parametrize(("fate", "why"), [("failed", "why"), ("vanished", "it left no record")])
def test_a_trial_that_fails_is_told_and_begins_again_with_the_same_command(
    fate: str, why: str, space: Space, tmp_path: Path, fabricate: Fabricate
) -> None:
    fake, folder, line = Fake(fabricate, fate), folder_of("smoke", tmp_path), Line(io.StringIO())
    failed = carry_out(space, folder, 3.0, 3, fake, line, draws=2)
    assert [(job.run_id, said) for job, said in failed] == [(space.draws[0].run_id, why)]
    assert fake.began == [draw.run_id for draw in space.draws[:2]]
    assert carry_out(space, folder, 3.0, 3, fake, line, draws=2) == []
    assert fake.began[2] == space.draws[0].run_id, "what failed begins again"
    assert len(set(fake.began)) == len(trials_of(space, folder)) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "sweep"),
        (["lipschitz/fig_5a"], "varies draw"),
        (["lipschitz/fig_9z"], "fig_9z"),
        ([SWEEP, "--jobs", "0"], "--jobs"),
        ([SWEEP, "--epsilon", "0"], "--epsilon"),
        ([SWEEP, "--scale", "smoke", "optimizer.lr=1"], "optimizer.lr=1"),
    ],
)
def test_wrong_requests_are_one_sentence_and_exit_code_2(arguments: list[str], said: str, refusal: Refusal) -> None:
    assert said in refusal(main, arguments)
