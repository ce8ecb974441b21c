"""A sweep lists its runs: those that Hydra would launch."""

from __future__ import annotations

from runner.records.jobs import sweep_jobs
from tests.forked import run_in_fork


def test_a_scale_lists_as_many_runs_as_it_says_first_seeds_first() -> None:
    jobs = sweep_jobs("noise_screening/table_1", ("scale=smoke",))
    assert (len(jobs), {job.config.seed for job in jobs}) == (12, {0})


def test_sweep_jobs_are_what_hydra_launches(tmp_path) -> None:
    """The listing against `python -m runner --multirun` itself, by run id."""
    sweep = "tempered_sigmoid/text_sgd"
    extra = ("scale=smoke", "scale.epochs=1", "tracking=disabled", f"runtime.results_root={tmp_path}")
    code, _, told = run_in_fork([f"sweeps={sweep}", f"hydra.sweep.dir={tmp_path}/hydra", *extra], tmp_path)
    assert code == 0, told
    recorded = {path.stem for path in tmp_path.rglob("smoke/runs/*.json")}
    assert recorded == {job.run_id for job in sweep_jobs(sweep, extra)}
    assert len(recorded) == 4
