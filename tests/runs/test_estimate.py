"""What a plan says: which runs are timed together, and that hours are added once."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import DictConfig

from runner.config import ConfigError
from runner.records.identity import identify, resolved
from runner.records.jobs import Job
from runner.runs import estimate, timed, timings
from runner.runs.alike import alike
from runner.runs.estimate import TIMED, TIMED_BEFORE, Estimate, Estimator
from runner.runs.paces import START_SECONDS, Pace
from runner.runs.plan import plan_text
from runner.runs.timings import Timing
from runner.speed.yardstick import Yardstick
from runner.training.prepare import prepare

BASE = ("architecture=tempered_sigmoid_mnist",)
SAME = ("seed=3", "epochs=3", "optimizer=adam", "activation=relu", "dataset=fashion_mnist")
SAME += ("clipping.norm=0.2", "optimizer.lr=0.5", "noise_multiplier=2", "delta=1e-6")
OTHER = ("batch_size=512", "architecture.units=16", "screening=annealing", "dataset=cifar10", "loss=losing_less")


@pytest.mark.parametrize("override", SAME)
def test_runs_that_differ_in_what_costs_no_time_are_timed_once(composed, override: str) -> None:
    assert alike(composed(*BASE, override)) == alike(composed(*BASE))


@pytest.mark.parametrize("override", [*OTHER, "clipping=automatic", "evaluation=holdout", "diagnostics=[hessian]"])
def test_runs_that_cost_another_time_are_timed_themselves(composed, override: str) -> None:
    assert alike(composed(*BASE, override)) != alike(composed(*BASE))


@pytest.mark.parametrize(
    "override", ["noise_multiplier=2", "max_epsilon=1", "delta=1e-6", "accountant=gdp", "clipping.norm=0.2"]
)
def test_where_a_budget_ends_runs_the_numbers_that_cost_privacy_count(composed, override: str) -> None:
    budget = (*BASE, "max_epsilon=2.93")
    assert alike(composed(*budget, override)) != alike(composed(*budget))
    assert alike(composed(*budget, "epochs=3")) != alike(composed(*budget))
    for other in ("seed=3", "optimizer.lr=0.5", "draw=4"):
        assert alike(composed(*budget, other)) == alike(composed(*budget))
    screened = (*budget, "screening=annealing")
    assert alike(composed(*screened, "optimizer.lr=0.5")) != alike(composed(*screened))


def estimator(config: DictConfig, pace: Pace | None, epochs: float | None = None) -> Estimator:
    """One whose records say one thing."""
    found = Estimator(config)
    found.paces = Told(pace, epochs)
    return found


def job(config: DictConfig) -> Job:
    return Job("", {}, *identify(config), config)


def test_no_noise_is_calibrated_for_a_clock(smoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It takes long, and how much noise there is costs no time; where a budget ends the run, it says when."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(estimate, "timed_seconds", lambda config, run: START_SECONDS + run.mechanism.noise_multiplier)
    promise = ("noise_multiplier=null", "target_epsilon=3", "runtime.device=cpu", "epochs=1")
    config = smoke(*promise)
    assert estimator(config, None).of(job(config), prepare).seconds == START_SECONDS + 1.0
    config.max_epsilon = 3.5
    noise = prepare(config).mechanism.noise_multiplier
    assert estimator(config, None).of(job(config), prepare).seconds == START_SECONDS + noise != START_SECONDS + 1.0


def test_a_run_of_two_items_counts_once_in_all(jobs) -> None:
    tanh, relu = jobs("fig_3", "mnist_tanh")[:2], jobs("fig_3", "mnist_relu")[:1]
    hour = {job.run_id: Estimate(1800.0, 3600.0, 7200.0, "timed") for job in (tanh[1], *relu)}  # the first is recorded
    items = {"fig-3": [*tanh, *relu], "table-3": tanh, "table-1": []}
    said = plan_text(items, hour, workers=2, crowded=3.0).splitlines()
    assert [line.split() for line in said[1:4]] == [
        ["fig-3", "3", "1", "2", "1h00m", "(30m00s", "to", "2h00m)", "3h00m", "(1h30m", "to", "6h00m)"],
        ["table-3", "2", "1", "1", "30m00s", "(15m00s", "to", "1h00m)", "1h30m", "(45m00s", "to", "3h00m)"],
        ["in", "all", "3", "1", "2", "1h00m", "(30m00s", "to", "2h00m)", "3h00m", "(1h30m", "to", "6h00m)"],
    ]


def test_records_of_like_runs_tell_and_nothing_is_timed(smoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten epochs at the pace of the records, and what a start takes; a run that ends by its budget, at its own."""
    monkeypatch.setattr(estimate, "timed_seconds", lambda *_: pytest.fail("timed"))
    config = smoke("runtime.device=cpu")
    config.epochs = 10
    told = estimator(config, Pace(7.0, "like settings"), epochs=4.0)
    found = told.of(job(config), lambda _: pytest.fail("prepared"))
    assert found == Estimate(2 + 0.5 * 70, 2 + 70, 2 + 2 * 70, "like settings")
    config.max_epsilon = 3.0
    assert told.of(job(config), lambda _: pytest.fail("prepared")).seconds == 2 + 4 * 7


@pytest.mark.parametrize("override", ["runtime.lockstep=4", "runtime.threads=2", "runtime.engine=isolated", None])
def test_what_no_record_resembles_is_timed_once_for_any_number_of_epochs(
    smoke, override: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(estimate, "timed_seconds", lambda config, run: START_SECONDS + 5.0 * config.epochs)
    config = smoke("runtime.device=cpu", "epochs=2", *([override] if override else []))
    told = estimator(config, Pace(7.0, "like settings") if override else None)
    assert told.of(job(config), lambda _: None).seconds == START_SECONDS + 10.0
    monkeypatch.setattr(estimate, "timed_seconds", lambda *_: pytest.fail("timed again"))
    config.epochs = 3
    again = told.of(job(config), lambda _: pytest.fail("prepared again"))
    assert (again.seconds, again.by) == (START_SECONDS + 15.0, "timed")
    assert again.low < again.seconds < again.high


KEPT = Timing(seconds=30.0, yardstick_seconds=0.01)


def kept_timing(config: DictConfig, pace: Pace | None, monkeypatch: pytest.MonkeyPatch) -> Estimator:
    """An estimator on a machine half as fast as the one that timed an epoch of the config's kind: 30 s."""
    monkeypatch.setattr(timings, "read", lambda _: {job(config).kind: KEPT})
    found = estimator(config, pace)
    found.yardstick = Yardstick(0.02, 1.0)
    return found


def test_what_was_timed_before_is_carried_over_by_the_yardstick(smoke, monkeypatch: pytest.MonkeyPatch) -> None:
    config = smoke("runtime.device=cpu")
    config.epochs = 4
    found = kept_timing(config, None, monkeypatch).of(job(config), lambda _: pytest.fail("prepared"))
    assert (found.seconds, found.by) == (START_SECONDS + 4 * 60.0, TIMED_BEFORE)
    assert found.low < found.seconds < found.high
    recorded = kept_timing(config, Pace(7.0, "like settings"), monkeypatch)
    assert recorded.of(job(config), lambda _: pytest.fail("prepared")).by == "like settings", (
        "records are believed first"
    )


OTHER_WAYS = ("runtime.threads=2", "runtime.engine=isolated", "runtime.physical_batch=4")


@pytest.mark.parametrize("override", [*OTHER_WAYS, "batch_size=17"])
def test_what_was_timed_before_tells_nothing_of_other_ways_and_kinds(
    smoke, override: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(estimate, "timed_seconds", lambda config, run: START_SECONDS + 5.0 * config.epochs)
    told = kept_timing(smoke("runtime.device=cpu"), None, monkeypatch)
    config = smoke("runtime.device=cpu", "epochs=4", override)
    if override.startswith("runtime"):
        told = kept_timing(config, None, monkeypatch)
    assert told.of(job(config), lambda _: None).by == TIMED


@pytest.mark.parametrize("said", [{"DP_REPRO_KERNELS": "0"}, {"CXX": "no-such-compiler"}])
def test_without_the_usual_kernels_neither_records_nor_timings_tell(
    smoke, said: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps take about twice as long without them."""
    config = smoke("runtime.device=cpu")
    for name, value in {**said, "XDG_CACHE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(estimate, "timed_seconds", lambda *_: START_SECONDS + 5.0)
    told = kept_timing(config, Pace(7.0, "like settings"), monkeypatch)
    assert told.of(job(config), lambda _: None).by == TIMED
    with pytest.raises(ConfigError, match="kernels"):
        told.check_keeps()


def test_how_long_a_screened_run_takes_is_guessed_more_widely(
    smoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(estimate, "timed_seconds", lambda *_: START_SECONDS + 100.0)
    plain, screened = (smoke("runtime.device=cpu", *more) for more in ((), ("screening=annealing",)))
    for config, low, high in ((plain, 0.67, 1.5), (screened, 0.67 * 0.7, 1.5 * 1.6)):
        config.max_epsilon = 3.5  # ends the run
        clocked = estimator(config, None)
        found = clocked.of(job(config), lambda _: None)
        assert (found.low, found.high) == pytest.approx((low * found.seconds, high * found.seconds))
        timing = clocked.to_keep([job(config)], {job(config).run_id: found})[job(config).kind]
        assert timing == Timing(100.0, clocked.yardstick.seconds, guessed=config is screened)
        again = estimator(config, None)
        again.timings, again.yardstick = {job(config).kind: timing}, clocked.yardstick
        assert again.of(job(config), lambda _: pytest.fail("prepared")) == replace(found, by=TIMED_BEFORE)


def test_what_is_to_be_kept_is_timed_anew(smoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what was kept among the results nor the user's cache is asked, and a kind is timed once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(estimate, "timed_seconds", lambda config, run: START_SECONDS + 5.0 * config.epochs)
    one, other = (job(smoke("runtime.device=cpu", f"batch_size={size}")) for size in (16, 32))
    kept_timing(one.config, None, monkeypatch).of(other, lambda _: None)  # which leaves it in the cache
    clocked: list[int] = []

    def clock(config: DictConfig, run: object) -> float:
        clocked.append(config.batch_size)
        return START_SECONDS + 8.0 * config.epochs

    monkeypatch.setattr(estimate, "timed_seconds", clock)
    told = Estimator(one.config, anew=True)
    told.paces, told.yardstick = Told(None, None), Yardstick(0.02, 1.0)
    told.check_keeps()
    runs = [one, other, one]
    estimates = {run.run_id: told.of(run, lambda _: None) for run in runs}
    assert told.to_keep(runs, estimates) == {one.kind: Timing(8.0, 0.02), other.kind: Timing(8.0, 0.02)}
    assert clocked == [16, 32]
    recorded = {run.run_id: Estimate(1.0, 1.0, 1.0, "like settings") for run in runs}
    assert told.to_keep(runs, recorded) == {}


@pytest.mark.parametrize("override", OTHER_WAYS)
def test_other_ways_to_compute_leave_no_timings(smoke, override: str) -> None:
    with pytest.raises(ConfigError, match="one core"):
        Estimator(smoke("runtime.device=cpu", override), anew=True).check_keeps()


@pytest.mark.parametrize(
    "damaged", ["3", "null", "{}", "[]", '{"seconds": 1, "guessed": false}', *(
        f'{{"seconds": {seconds}, "yardstick_seconds": {yardstick}, "guessed": false}}'
        for seconds, yardstick in (("0", "1"), ("1", "NaN"), ("Infinity", "1"), ("[]", "1"), ("1", "1e300"),
                                   ("1e-320", "1"), ("1" + "0" * 400, "1"), ('"x"', "1"))
    )]
)  # fmt: skip
def test_kept_timings_are_read_of_every_paper_and_damaged_ones_tell_nothing(damaged: str, tmp_path: Path) -> None:
    known = {"kind": KEPT, "other": Timing(1.0, 2.0, guessed=True)}
    files = {"one": timings.text(known), "two": damaged, "three": f'{{"a": {damaged}}}', "four": ""}
    for paper, content in files.items():
        (tmp_path / paper).mkdir()
        (tmp_path / paper / timings.FILE).write_text(content)
    assert timings.read([tmp_path, tmp_path / "absent"]) == known


class Told:
    """Paces of records that say one thing."""

    scatter = (0.5, 2.0)

    def __init__(self, pace: Pace | None, epochs: float | None) -> None:
        self.pace, self.epochs_told = pace, epochs

    def of(self, *_: object) -> Pace | None:
        return self.pace

    def epochs(self, _: str) -> float | None:
        return self.epochs_told


def test_waiting_for_the_processor_is_not_counted(smoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that sleeps for a second, as if others had the processor, takes no longer."""
    config = smoke("epochs=1")
    monkeypatch.setattr(timed, "_measured", {})
    monkeypatch.setattr(timed, "gradient_sum", lambda *_: time.sleep(0.3))
    assert timed.timed_seconds(config, prepare(config)) < START_SECONDS + 0.3


def test_examples_are_timed_with_labels_of_every_class(smoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """One label for all gives a sharp loss gradients that no run has, and that take longer."""
    seen: list[int] = []
    monkeypatch.setattr(timed, "_measured", {})
    monkeypatch.setattr(timed, "gradient_sum", lambda *arguments: seen.extend(arguments[3].tolist()))
    config = smoke("epochs=1")
    timed.timed_seconds(config, prepare(config))
    assert set(seen) == set(range(config.dataset.classes))


def test_networks_that_keep_weights_for_evaluation_are_timed(composed) -> None:
    """A Lipschitz network's step has to compute its weights anew after an evaluation."""
    config = resolved(composed("experiment=lipschitz/mnist_notebook", "runtime.device=cpu", "runtime.threads=1"))
    assert timed.timed_seconds(config, prepare(config)) > START_SECONDS
