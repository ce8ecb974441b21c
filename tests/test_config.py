"""Bad input: one sentence, exit code 2, before any data is read. Good input: every shipped config is sound."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from runner import __main__ as command
from runner.config import REPOSITORY, ConfigError, register
from runner.data.datasets import ImageDataset
from runner.runs.identity import identify, plain, resolved
from runner.runs.jobs import sweep_jobs
from runner.training.prepare import prepare

BAD = {
    "activation=rleu": "activation has no option 'rleu': choose from ",
    "sweeps=tempered_sigmoid/fig_33": "fig_33",
    "experiment=tempered_sigmoid/nonsense": "nonsense",
    "scale=large": "scale has no option 'large': choose from paper, smoke",
    "epochs=many": "epochs",
    "epochs=0": "epochs=0",
    "seed=-1": "seed",
    "foo=1": "foo",
    "+foo=1": "foo",
    "optimizer.learning_rate=1": "optimizer.learning_rate: there is no field 'learning_rate'. There are lr",
    "clipping._target_=runner.networks.activations.TemperedSigmoid": "clipping",
    "accountant._target_=runner.accounting.Ledger": "epsilon",
    "runtime.engine=vmap loss._target_=tests.failing.NeedsOneHot": "one example",
    "epochs": "epochs",
    "delta=1": "delta",
    "batch_size=60001": "60000",
    "noise_multiplier=-1": "noise_multiplier",
    "noise_multiplier=null": "target_epsilon",
    "target_epsilon=3": "not both",
    "max_epsilon=0.1": "single epoch",
    "clipping=none": "clipping",
    "clipping.norm=0": "clipping.norm",
    "clipping.norm=big": "clipping.norm",
    "clipping.nrom=1": "nrom",
    "clipping._target_=runner.nothing": "runner.nothing",
    "optimizer.lr=fast": "optimizer.lr",
    "optimizer.lr=-1": "learning rate",
    "architecture.filters=[16]": "architecture",
    "architecture.filters=3": "architecture.filters",
    "architecture=tempered_sigmoid_mnist architecture.padding=-9": "architecture",
    "architecture=tempered_sigmoid_mnist architecture.padding=-3": "architecture: Expected padding >= 0, got -3.",
    "features=pixels_imagenet": "channels",
    "features=scatternet features.J=3": "features.J",
    "features=scatternet features.L=0": "features.L",
    "features=scatternet_imagenet": "channels",
    "features=scatternet architecture=tempered_sigmoid_mnist": "7 x 7",
    "normalization=batch_norm": "normalization has no option 'batch_norm'",
    "normalization=group_norm": "divisible",
    "normalization=private_statistics normalization.square_norm=0": "normalization.square_norm",
    "normalization=private_statistics normalization.mean_norm=median": "normalization.mean_norm",
    "+normalization._target_=runner.networks.activations.TemperedSigmoid": "normalization",
    "dataset.shape=[1,4,4]": "vanishes",
    "loss.reduction=mean": "one loss per example",
    "loss._target_=torch.nn.NLLLoss loss.reduction=sum": "one loss per example",
    "activation=tempered_sigmoid activation.scale=-1": "activation.scale",
    "activation._target_=torch.nn.BatchNorm2d +activation.num_features=16": "BatchNorm2d",
    "activation._target_=torch.nn.InstanceNorm2d +activation.num_features=16 +activation.track_running_stats=true": (
        "InstanceNorm2d"
    ),
    "diagnostics=[weights]": "weights",
    "sampling=sequential": "sampling",
    "accountant=moments": "accountant has no option 'moments'",
    "epoch=3": "there is no field 'epoch'. Did you mean epochs?",
    "screening=anneling": "choose from annealing, none. Did you mean annealing?",
    "screening.images=test": "there is no field 'images'. It belongs to screening=annealing",
    "optimizer.momentum=1.5": "optimizer.momentum=1.5 is out of range",
    "+screening=annealing": "screening has a value already: write screening=annealing without +",
    "experiment=mnist_tanh": "Did you mean tempered_sigmoid/mnist_tanh?",
    "experiment=zzz": "the files of conf/experiment/",
    "sweeps=tempered_sigmoid/fig3": "Did you mean tempered_sigmoid/fig_3",
    "runtime.device=tpu": "runtime.device",
    "runtime.engine=magic": "engine",
    "runtime.physical_batch=0": "physical_batch",
    "runtime.threads=100000": "runtime.threads=100000 is out of range: it has to be a whole number from 1 to 1024.",
    "scale=smoke scale.seeds=0": "scale.seeds=0 is out of range",
    "mechanism=null": "mechanism cannot be null: leave it out, or where an experiment chooses one, take it away with ~",
    "runtime.data_root=/nowhere/at/all": "/nowhere/at/all",
}


@pytest.mark.parametrize("overrides", BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(overrides: str, tmp_path) -> None:
    arguments = [f"runtime.results_root={tmp_path}", "tracking=disabled", *overrides.split()]
    code, _, errors = _run_in_fork(arguments, tmp_path)
    assert code == 2
    said = errors.strip().splitlines()
    assert len(said) == 1, said
    assert said[0].startswith("runner: ")
    assert BAD[overrides] in said[0]
    assert not list(tmp_path.rglob("*.json"))


def _run_in_fork(arguments: list[str], folder) -> tuple[int, str, str]:
    """The command line in a forked process (Hydra keeps hold of the streams of the one it ran in).

    Returns its exit code and what it wrote to stdout and stderr. It reads no data and has no network.
    """
    child = os.fork()
    if child == 0:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
        sys.argv = ["runner", *arguments]
        if not any(a.startswith("runtime.data_root") for a in arguments):
            ImageDataset.load = _data_was_read  # type: ignore[method-assign]
        urllib.request.urlopen = _no_network  # type: ignore[assignment]
        code = 0
        try:
            command.main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        except BaseException:
            code = 99
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    written = ((folder / name).read_text() for name in ("stdout", "stderr"))
    return (os.waitstatus_to_exitcode(status), *written)


def _data_was_read(*_: object) -> None:
    os._exit(98)


def _no_network(*_: object, **__: object) -> None:
    raise OSError("no network in tests")


def test_cuda_that_is_not_there_is_refused(composed, monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="no CUDA device"):
        prepare(composed("runtime.device=cuda"))


@pytest.mark.parametrize(
    "overrides",
    [
        ("scale=smoke", "tracking=disabled", "batch_size=20", "diagnostics=[weights]", "optimizer.lr=.inf"),
        ("experiment=losing_less/mnist_ours", "~loss.gamma", "+optimizer.weight_decay=0.1", "loss.threshold_epoch=0.5"),
        ("experiment=losing_less/pfe_mnist_ours", "~normalization", "screening=annealing", "noise_multiplier=null"),
        ("mechanism=printed", "mechanism.neighbours=replace_one", "activation._target_=torch.nn.ReLU6", "seed=3"),
    ],
)
def test_a_composed_config_of_these_tests_is_what_hydra_composes(composed, tmp_path, overrides) -> None:
    """The fixture takes options of groups from a cache and sets values afterwards."""
    folders = [f"runtime.results_root={tmp_path}/results", f"tracking.directory={tmp_path}/tracking"]
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        expected = resolved(compose("config", [*folders, *overrides]))
    for _ in range(2):
        found = composed(*overrides)
        assert plain(found) == plain(expected)
        assert identify(found) == identify(expected)
        found.delta = 0.5  # a test may change its config, and no other sees it


def test_help_shows_the_groups(tmp_path) -> None:
    code, shown, _ = _run_in_fork(["--help"], tmp_path)
    assert code == 0
    groups = "dataset features normalization architecture activation loss clipping accountant optimizer"
    for group in groups.split():
        assert re.search(rf"^{group}: ", shown, re.MULTILINE)
    assert re.search(r"^experiment/tempered_sigmoid: .*mnist_tanh", shown, re.MULTILINE)
    assert re.search(r"^sweeps/tempered_sigmoid: .*fig_3", shown, re.MULTILINE)


EXPERIMENTS = sorted(
    path.relative_to(REPOSITORY / "conf/experiment").with_suffix("").as_posix()
    for path in (REPOSITORY / "conf/experiment").rglob("*.yaml")
    if not path.name.startswith("base_")
)
SWEEPS = sorted(
    path.relative_to(REPOSITORY / "sweeps").with_suffix("").as_posix()
    for path in (REPOSITORY / "sweeps").rglob("*.yaml")
)


def test_the_listings_above_are_not_empty() -> None:
    assert len(EXPERIMENTS) >= 20
    assert len(SWEEPS) >= 9


CLAIMED_EPSILON = {
    "tempered_sigmoid": {"mnist": 2.93, "fashion_mnist": 2.7, "cifar10": 7.54},
    "losing_less": {"mnist": 3.0, "fashion_mnist": 3.004, "cifar10": 3.006},
    "losing_less/pfe": {"mnist": 3.136, "fashion_mnist": 3.004, "cifar10": 2.998},
    "noise_screening": {"mnist": 3.0, "fashion_mnist": 3.004, "cifar10": 3.006},
    "noise_screening to 6": {"mnist": 6.0, "fashion_mnist": 6.0, "cifar10": 6.0},  # table 3 looks as far as 6
    "backprop_clipping": {"mnist": 3.0, "fashion_mnist": 0.87, "cifar10": 3.64},
}


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_can_be_run(composed, experiment: str) -> None:
    header = (REPOSITORY / f"conf/experiment/{experiment}.yaml").read_text()
    assert f"# python -m runner experiment={experiment}\n" in header
    run = prepare(composed(f"experiment={experiment}"))
    assert run.config.scale.name == "paper"
    if run.mechanism.private:
        kept, mechanism = run.paid_for, run.mechanism
        releases = mechanism.charges_of_epochs(run.epochs).claimed if kept is None else mechanism.charges(kept).claimed
        cost = run.accountant.epsilon(releases, run.config.delta)
        paper = experiment.partition("/")[0]
        if paper == "losing_less" and "/pfe_" in experiment:
            paper = "losing_less/pfe"
        if paper == "noise_screening" and experiment.endswith(("_relu", "_to_6")):
            paper = "noise_screening to 6"
        assert cost <= CLAIMED_EPSILON[paper][run_dataset(run)]
    assert prepare(composed(f"experiment={experiment}", "scale=smoke")).epochs <= 3


def run_dataset(run) -> str:
    return {"MNIST": "mnist", "FashionMNIST": "fashion_mnist", "CIFAR10": "cifar10"}[run.dataset.name]


@pytest.mark.slow
@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_sweep_lists_runs(sweep: str) -> None:
    jobs = sweep_jobs(sweep)
    assert len({job.run_id for job in jobs}) == len(jobs) > 1
    assert all(f"experiment/{job.experiment}" and job.experiment in EXPERIMENTS for job in jobs)
    assert len(sweep_jobs(sweep, ("scale=smoke",))) <= 12


@pytest.mark.slow
def test_sweep_jobs_are_what_hydra_launches(tmp_path) -> None:
    """The listing against `python -m runner --multirun` itself, by run id."""
    sweep = "tempered_sigmoid/text_sgd"
    extra = ("scale=smoke", "scale.epochs=1", "tracking=disabled", f"runtime.results_root={tmp_path}")
    launched = subprocess.run(
        [sys.executable, "-m", "runner", f"sweeps={sweep}", *extra], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert launched.returncode == 0, launched.stderr
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
        assert {key for key in relu if relu[key] != tanh[key]} == {"activation", "tracking"}


def test_random_triples_are_drawn_apart_and_within_their_ranges() -> None:
    jobs = [job for job in sweep_jobs("tempered_sigmoid/fig_2") if "fashion" in job.label]
    triples = [
        (j.config.activation.scale, j.config.activation.inverse_temperature, j.config.activation.offset) for j in jobs
    ]
    assert len(set(triples)) == 60
    for values, (low, high) in zip(zip(*triples, strict=True), [(0.5, 4), (0.5, 5), (0, 3)], strict=True):
        assert low <= min(values) < low + 0.2 * (high - low)
        assert high - 0.2 * (high - low) < max(values) <= high


def test_calibration_meets_its_target_from_below(composed) -> None:
    run = prepare(composed("noise_multiplier=null", "target_epsilon=2.7", "epochs=40"))
    cost = run.accountant.epsilon(run.mechanism.charges_of_epochs(40).claimed, 1e-5)
    assert 2.7 - 1e-3 < cost <= 2.7
    assert math.isclose(run.mechanism.noise_multiplier, 1.0394, abs_tol=1e-4)


def test_max_epsilon_stops_at_the_last_whole_epoch(composed) -> None:
    run = prepare(composed("experiment=tempered_sigmoid/mnist_tanh"))
    costs = [run.accountant.epsilon(run.mechanism.charges_of_epochs(e).claimed, 1e-5) for e in (57, 58)]
    assert run.epochs == 57
    assert costs[0] <= 2.93 < costs[1]


YAML = [*(REPOSITORY / "conf").rglob("*.yaml"), *(REPOSITORY / "sweeps").rglob("*.yaml")]


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_no_line_of_yaml_is_longer_than_one_of_python(path: Path) -> None:
    assert [line for line in path.read_text(encoding="utf-8").splitlines() if len(line) > 120] == []
