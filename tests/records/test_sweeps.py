"""The runs of all sweeps against a golden file, and their settings: each can be prepared, and costs what is claimed."""

import hashlib
import json
import math
import shlex
from functools import cache
from pathlib import Path

import pytest

from runner.build.prepare import prepare
from runner.clipping.library_noise import LibraryNoise
from runner.config import REPOSITORY
from runner.records.identity import identify, resolved
from runner.records.jobs import Job, composed, sweep_jobs
from runner.report.formats import read_csv
from runner.report.papers import claims_of
from runner.trust.sources import targets
from tests.forked import run_in_fork
from tests.small import NETWORK
from tests.tracked import tracked

GOLDEN = Path(__file__).with_name("sweeps.json")
SWEEPS = sorted(
    path.relative_to(REPOSITORY / "sweeps").with_suffix("").as_posix() for path in tracked("sweeps/**/*.yaml")
)
CLAIMED_EPSILON = {
    "tempered_sigmoid": {"MNIST": 2.93, "FashionMNIST": 2.7, "CIFAR10": 7.54},
    "losing_less": {"MNIST": 3.0, "FashionMNIST": 3.004, "CIFAR10": 3.006},
    "losing_less/pfe": {"MNIST": 3.136, "FashionMNIST": 3.004, "CIFAR10": 2.998},
    "noise_screening": {"MNIST": 3.0, "FashionMNIST": 3.004, "CIFAR10": 3.006},
    "noise_screening to 6": {"MNIST": 6.0, "FashionMNIST": 6.0, "CIFAR10": 6.0},  # table 3 goes up to 6
    "backprop_clipping": {"MNIST": 3.0, "FashionMNIST": 0.87, "CIFAR10": 3.64},
    "lipschitz": {"MNIST": 3.0, "FashionMNIST": 3.0, "CIFAR10": 9.977},
    "composition": {"CIFAR10": 3.0},
}


@cache
def listed() -> dict[str, list[Job]]:
    return {sweep: sweep_jobs(sweep) for sweep in SWEEPS}


def digests() -> dict[str, list[int | str]]:
    """The number of runs of each sweep and a digest of their ids."""
    current: dict[str, list[int | str]] = {}
    for sweep, jobs in listed().items():
        ids = sorted(job.run_id for job in jobs)
        assert len(set(ids)) == len(ids) >= 1, sweep
        current[sweep] = [len(ids), hashlib.sha256("".join(ids).encode()).hexdigest()[:12]]
    return current


def test_the_runs_of_each_sweep_are_those_of_the_golden_file(listed_runs) -> None:
    """A change of the code that gives a run another id would make its record useless."""
    golden, current = json.loads(GOLDEN.read_text()), digests()
    paths = [p for p in tracked("results/*/*/runs.csv") if p.parts[-3] != "studies"]
    recorded = {row["sweep"] for path in paths for row in read_csv(path)}
    changed = sorted(name for name in golden.keys() | recorded if golden.get(name) != current.get(name))
    assert not changed, f"If that is meant: python -m tests.records.test_sweeps writes {GOLDEN.name} anew."


def test_each_experiment_has_a_title_of_its_own(listed_runs) -> None:
    """A method has one title on all data sets; two of one data set have different ones."""
    seen: dict[tuple[str, str], str] = {}
    for job in (job for jobs in listed().values() for job in jobs if job.experiment):
        place = job.field("dataset.name"), job.field("title")
        assert seen.setdefault(place, job.experiment) == job.experiment
        assert 0 < len(place[1]) <= 60, job.experiment


def claimed(job: Job) -> float:
    """The epsilon that the paper claims for the data set of a run, at most."""
    paper, _, name = job.experiment.partition("/")
    if paper == "losing_less" and name.startswith("pfe_"):
        paper = "losing_less/pfe"
    if paper == "noise_screening" and name.endswith(("_relu", "_to_6")):
        paper = "noise_screening to 6"
    dataset = job.field("dataset.name")
    if paper in CLAIMED_EPSILON:
        return CLAIMED_EPSILON[paper][dataset]
    of_claims = [claim.epsilon[0] for claim in claims_of(paper, dataset=dataset) if claim.epsilon]
    return max(epsilon for epsilon in of_claims if math.isfinite(epsilon))


def test_every_class_and_data_set_of_the_papers_can_be_prepared(composed, listed_runs, coarse) -> None:
    """And by its experiment alone, without the overrides of a sweep, it costs what its paper claims."""
    prepared: set[tuple[str, str]] = set()
    for sweep, jobs in sorted(listed().items()):
        for job in jobs:
            classes = {*targets(job.values), (sweep.partition("/")[0], job.field("dataset.name"))}
            if classes <= prepared or not job.experiment:
                continue
            prepared |= classes
            run = prepare(composed(f"experiment={job.experiment}"))
            if run.mechanism.private and type(run.clipping) is not LibraryNoise:  # which charges what holds
                accepted, mechanism = run.paid_for, run.mechanism
                charges = mechanism.charges_of_epochs(run.epochs) if accepted is None else mechanism.charges(accepted)
                assert run.accountant.epsilon(charges.claimed, run.config.delta) <= claimed(job), job.experiment


if __name__ == "__main__":
    lines = (f'"{name}": {json.dumps(ids)}' for name, ids in sorted(digests().items()))
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def test_a_scale_lists_as_many_runs_as_it_says_first_seeds_first() -> None:
    jobs = sweep_jobs("tempered_sigmoid/fig_3", ("scale=smoke",))
    assert (len(jobs), {job.config.seed for job in jobs}) == (12, {0, 1})


def test_sweep_jobs_are_what_hydra_launches(tmp_path) -> None:
    """The listing against `python -m runner --multirun` itself, by run id."""
    sweep = "tempered_sigmoid/text_sgd"
    extra = ("scale=smoke", "scale.epochs=1", "scale.batch_size=400", "tracking=disabled", *NETWORK)
    extra += (f"runtime.results_root={tmp_path}",)
    code, _, errors = run_in_fork([f"sweeps={sweep}", f"hydra.sweep.dir={tmp_path}/hydra", *extra], tmp_path)
    assert code == 0, errors
    recorded = {path.stem for path in tmp_path.rglob("smoke/runs/*.json")}
    assert recorded == {job.run_id for job in sweep_jobs(sweep, extra)}
    assert len(recorded) == 4


@pytest.mark.parametrize("follower", ["${seed}", "${chosen:TABLE,9}"])
def test_a_field_that_follows_from_the_seed_does_so(follower: str, tmp_path: Path) -> None:
    """Runs that differ in their seed are composed once, but not if another field may differ with it."""
    (tmp_path / "rates.csv").write_text("seed,optimizer.lr\n" + "".join(f"{seed},{seed}\n" for seed in range(5)))
    follower = follower.replace("TABLE", str(tmp_path / "rates.csv"))
    jobs = sweep_jobs("tempered_sigmoid/text_sgd", (f"optimizer.lr={follower}",))
    rates = {job.field("seed"): job.field("optimizer.lr") for job in jobs}
    assert rates == {seed: seed for seed in range(5)}
    commands = [shlex.split(job.field("tracking.command"))[3:] for job in jobs[:3]]
    assert [identify(resolved(composed(words)))[0] for words in commands] == [job.run_id for job in jobs[:3]]
