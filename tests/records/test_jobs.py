"""A sweep lists its runs: those that Hydra would launch."""

from __future__ import annotations

from omegaconf import OmegaConf

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


def test_figure_3_pairs_differ_in_the_activation_only() -> None:
    jobs = {job.label: job for job in sweep_jobs("tempered_sigmoid/fig_3")}
    assert len(jobs) == 60
    for dataset in ("mnist", "fashion_mnist", "cifar10"):
        relu, tanh = (OmegaConf.to_container(jobs[f"{dataset}_{a} seed=3"].config) for a in ("relu", "tanh"))
        assert isinstance(relu, dict)
        assert isinstance(tanh, dict)
        assert {key for key in relu if relu[key] != tanh[key]} == {"activation", "tracking", "title"}


def test_random_triples_are_drawn_apart_and_within_their_ranges() -> None:
    jobs = [job for job in sweep_jobs("tempered_sigmoid/fig_2") if "fashion" in job.label]
    triples = [
        (j.config.activation.scale, j.config.activation.inverse_temperature, j.config.activation.offset) for j in jobs
    ]
    assert len(set(triples)) == 60
    for values, (low, high) in zip(zip(*triples, strict=True), [(0.5, 4), (0.5, 5), (0, 3)], strict=True):
        assert low <= min(values) < low + 0.2 * (high - low)
        assert high - 0.2 * (high - low) < max(values) <= high
