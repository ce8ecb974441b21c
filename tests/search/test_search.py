"""Searches: what is tried, what is stopped, what is recorded of both, and that nothing is run twice."""

from __future__ import annotations

import io
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.claims.evidence import folder_of
from runner.cli import search as command
from runner.config import ConfigError
from runner.launch import Work
from runner.launch.processes import Tally
from runner.records.files import read_record, record_path, recorded, stopped_path, write_stopped
from runner.records.identity import identify
from runner.runs.execute import execute
from runner.search import Space, Trial, best, pareto, space_of, trials_of
from runner.search.carry_out import carry_out
from runner.search.judge import report
from runner.search.study import study_of
from runner.terminal import Line
from tests.conftest import Fabricate

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
    with pytest.raises(ConfigError, match="would choose by test images"):
        space_of(SWEEP, ("scale=smoke", "evaluation=test"))


def trial(name: str, epsilons: list[float], accuracies: list[float], status: str = "finished") -> Trial:
    history = {"epsilon_sound": epsilons, "test_accuracy": accuracies}
    return Trial(name, {}, {"status": status, "history": history})


def test_a_trial_is_judged_at_its_last_epoch_within_the_budget() -> None:
    one = trial("one", [1.0, 2.0, 4.0], [60.0, 50.0, 90.0])
    other = trial("other", [1.0, 3.0], [40.0, 55.0])
    stopped = trial("stopped", [1.0], [99.0], "stopped")
    beyond = trial("beyond", [3.5], [99.0])
    assert [each.accuracy_within(3.0) for each in (one, other, beyond)] == [50.0, 55.0, None]
    chosen = best([one, other, stopped, beyond], 3.0)
    assert chosen is other
    assert best([stopped, beyond], 3.0) is None


def test_a_front_has_the_points_that_no_cheaper_one_matches() -> None:
    curves = [([1.0, 2.0, 3.0], [50.0, 40.0, 70.0]), ([0.5, 2.5, 3.0], [30.0, 60.0, 69.0])]
    assert pareto(curves) == [(0.5, 30.0), (1.0, 50.0), (2.5, 60.0), (3.0, 70.0)]


def finish(study, trial, accuracies: list[float]) -> str:
    """Report these accuracies by epoch, at a small epsilon, until the trial is stopped or at its end."""
    for epoch, accuracy in enumerate(accuracies, 1):
        row = {"epoch": epoch, "epsilon_sound": 0.1 * epoch, "test_accuracy": accuracy}
        if not report(trial, row, 3.0) and epoch < len(accuracies):
            study.ended(trial, "stopped")
            return "stopped"
    study.ended(trial, "finished")
    return "finished"


def test_draws_come_first_then_suggestions_of_three_digits(space: Space, tmp_path: Path) -> None:
    with study_of(space, tmp_path, 3.0, draws=2) as study:
        asked = []
        for _ in range(5):
            trial, job = study.ask()
            asked.append(job)
            finish(study, trial, [50.0, 60.0, 70.0])
    assert [job.run_id for job in asked[:2]] == [job.run_id for job in space.draws[:2]]
    for job in asked[2:]:
        for name, value in space.values(job.config).items():
            assert value == float(f"{value:.3g}")
            assert space.dimensions[name].low <= value <= space.dimensions[name].high
    assert len({job.run_id for job in asked}) == 5


def test_bad_trials_are_stopped_and_good_ones_are_not(space: Space, tmp_path: Path) -> None:
    with study_of(space, tmp_path, 3.0, draws=0) as study:
        outcomes = {"good": [], "bad": []}
        for number in range(24):
            kind, accuracy = ("good", 90.0 + number) if number % 3 == 0 else ("bad", 20.0 - number)
            outcomes[kind].append(finish(study, study.ask()[0], [accuracy] * 3))
    assert set(outcomes["good"]) == {"finished"}, "each was the best so far"
    assert outcomes["bad"].count("stopped") >= len(outcomes["bad"]) // 3


def test_a_killed_search_begins_its_trials_again_and_no_other(space: Space, tmp_path: Path) -> None:
    with study_of(space, tmp_path, 3.0, draws=1) as study:
        finish(study, study.ask()[0], [50.0] * 3)
        interrupted = study.ask()[1]
        assert study.taken == 2
    journal = next(tmp_path.rglob("*.journal"))
    with journal.open("a") as file:
        file.write('{"op_code": 5, "wor')  # killed while it wrote
    with study_of(space, tmp_path, 3.0, draws=1) as study:
        assert study.taken == 1
        trial, job = study.ask()
        assert job.run_id == interrupted.run_id
        finish(study, trial, [50.0] * 3)
        assert study.taken == 2
        assert study.ask()[1].run_id not in {interrupted.run_id, space.draws[0].run_id}


def test_what_is_recorded_is_taken_from_its_record_also_without_a_journal(space, tmp_path, fabricate) -> None:
    suggested = space.job(
        {name: 1.0 if "bound" in name else 20.0 for name in space.dimensions} | {"noise_multiplier": 2}
    )
    for job in (space.draws[3], suggested):
        fabricate(job, [50.0, 60.0, 70.0], sound=[1.0, 2.0, 4.0])
    fabricate(space.draws[0], [90.0] * 3, sound=[1.0, 2.0, 4.0]).rename(tmp_path / "another.json")
    folder = folder_of("smoke", tmp_path)
    assert [trial.run_id for trial in trials_of(space, folder)] == [space.draws[3].run_id, suggested.run_id]
    for _ in range(2):
        with study_of(space, folder, 3.0, draws=1) as study:
            replayed = {}
            while study.taken < 3:
                trial, job = study.ask()
                replayed[job.run_id] = study.replay(trial, job)
                if not replayed[job.run_id]:
                    study.ended(trial, "failed")
        assert replayed == {space.draws[3].run_id: True, suggested.run_id: True, space.draws[0].run_id: False}
        next(folder.rglob("*.journal")).unlink()


def test_a_study_is_of_one_process(space: Space, tmp_path: Path) -> None:
    with (
        study_of(space, tmp_path, 3.0),
        pytest.raises(ConfigError, match="by another process"),
        study_of(space, tmp_path, 3.0),
    ):
        pass


def test_a_stopped_run_leaves_its_epochs_and_can_still_be_made(smoke) -> None:
    """Another search may let it go further. The longer record has all that the shorter had."""
    config = smoke("experiment=lipschitz/mnist_drawn", "diagnostics=[]")
    folder, (run_id, _) = Path(config.runtime.results_root) / "smoke", identify(config)
    path = stopped_path(folder, run_id)
    assert execute(config, lambda row, run: row["epoch"] < 1) == "stopped"
    shorter = read_record(path)
    assert execute(config, lambda row, run: row["epoch"] < 2) == "stopped"
    stopped = read_record(path)
    assert (shorter["status"], stopped["status"]) == ("stopped", "stopped")
    assert (shorter["history"]["epoch"], stopped["history"]["epoch"]) == ([1], [1, 2])
    assert stopped["history"]["test_accuracy"][:1] == shorter["history"]["test_accuracy"]
    assert not recorded(config)
    written = path.read_bytes()
    assert execute(config, lambda row, run: row["epoch"] < 1) == "stopped"
    assert path.read_bytes() == written, "what was measured stays"
    assert execute(config, lambda row, run: True) == "finished"
    whole = read_record(record_path(folder, run_id))
    assert whole["history"]["test_accuracy"][:2] == stopped["history"]["test_accuracy"]
    assert path.read_bytes() == written
    path.replace(record_path(folder, run_id))
    assert not recorded(config), "epochs of a run are no run"


def test_what_another_budget_stopped_is_tried_again(space, tmp_path: Path, fabricate) -> None:
    """Stopped beyond a sound epsilon of 3, after an epoch of three: with 8, nothing tells against going on."""
    folder, draw = folder_of("smoke", tmp_path), space.draws[0]
    record = read_record(fabricate(draw, [50.0], sound=[3.5]))
    record_path(folder, draw.run_id).unlink()
    write_stopped(stopped_path(folder, draw.run_id), record | {"status": "stopped"})
    for budget, known in ((3.0, True), (8.0, False)):
        with study_of(space, folder, budget, draws=1) as study:
            trial, job = study.ask()
            assert job.run_id == draw.run_id
            assert study.replay(trial, job) is known


class Fake:
    """A launcher that records what it is told to: the n-th run ends as the n-th of `fates` says."""

    def __init__(self, fabricate: Fabricate, *fates: str) -> None:
        self.fabricate, self.fates, self.began = fabricate, list(fates), list[str]()

    def carry_out(self, work: Work, line: Line) -> Tally:
        (job,) = work.jobs
        self.began.append(job.run_id)
        fate = self.fates.pop(0) if self.fates else "finished"
        if fate == "failed":
            return Tally(failed=[(job, "why")])
        if fate == "finished":
            self.fabricate(job, [50.0, 60.0, 70.0], sound=[1.0, 2.0, 2.5])
        return Tally(recorded=[job])


@pytest.mark.parametrize(("fate", "why"), [("failed", "why"), ("vanished", "it left no record")])
def test_a_trial_that_fails_is_told_and_the_others_go_on(fate: str, why: str, space, tmp_path, fabricate) -> None:
    fake, folder = Fake(fabricate, fate), folder_of("smoke", tmp_path)
    with study_of(space, folder, 3.0, draws=2) as study:
        failed = carry_out(study, 3, fake, Line(io.StringIO()), at_once=2)
        assert study.taken == 3
    assert [(job.run_id, said) for job, said in failed] == [(space.draws[0].run_id, why)]
    assert len(fake.began) == 3
    assert fake.began[:2] == [draw.run_id for draw in space.draws[:2]]
    with study_of(space, folder, 3.0, draws=2) as study:
        assert carry_out(study, 3, fake, Line(io.StringIO())) == []
    assert fake.began[3:] == [space.draws[0].run_id], "what failed begins again, and nothing else"


def test_what_a_launcher_cannot_do_ends_the_search(space: Space, tmp_path: Path, monkeypatch) -> None:
    fake = Fake(lambda *_, **__: Path())
    monkeypatch.setattr(fake, "carry_out", lambda work, line: (_ for _ in ()).throw(ConfigError("Slurm refuses")))
    with study_of(space, tmp_path, 3.0, draws=1) as study, pytest.raises(ConfigError, match="Slurm refuses"):
        carry_out(study, 1, fake, Line(io.StringIO()))


def test_a_search_that_does_not_wait_for_its_trials_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "requested", lambda _: (SimpleNamespace(wait=False), []))
    with pytest.raises(ConfigError, match="has to wait"):
        command.main(["lipschitz/fig_5a_search"])


def test_a_trial_reports_to_the_study_from_a_process_of_its_own(space: Space, tmp_path: Path) -> None:
    row = {"epoch": 1, "epsilon_sound": 0.5, "test_accuracy": 50.0}
    beyond = {"epoch": 2, "epsilon_sound": 3.5, "test_accuracy": 90.0}
    with study_of(space, tmp_path, 3.0, draws=0) as study:
        for number in range(9):
            finish(study, study.ask()[0], [60.0 + number] * 3)
        asked = [study.ask() for _ in range(6)]
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            answers = [pool.submit(job.goes_on, each).result() for _, job in asked for each in (row, row, beyond)]
        assert False in answers, "they are behind all others"
        for trial, _ in asked:
            there = study._study.get_trials()[trial.number]
            assert there.intermediate_values == {1: 50.0, 2: 50.0}, "an epoch that is made again is reported once"
            assert there.user_attrs["within"] == 50.0
            study.ended(trial, "failed")
        given_up = asked[0][1]
        assert given_up.goes_on({"epoch": 3, "epsilon_sound": 3.6, "test_accuracy": 90.0})


def test_a_trial_beyond_the_budget_is_stopped(space: Space, tmp_path: Path) -> None:
    with study_of(space, tmp_path, 3.0, draws=0) as study:
        assert not report(study.ask()[0], {"epoch": 1, "epsilon_sound": 3.1, "test_accuracy": 99.0}, 3.0)
