"""Bad input: one sentence, exit code 2, before any data is read. Good input: every shipped config is sound."""

import math
import re
import urllib.request
from functools import partial
from pathlib import Path

import dp_accounting
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.build.prepare import prepare
from runner.cli import help
from runner.cli import run as command
from runner.cli.commands import COMMANDS
from runner.config import REPOSITORY, ConfigError, chosen, register
from runner.config.options import check_budgets, check_options
from runner.data.datasets import ImageDataset
from runner.records.identity import identify, plain, resolved
from runner.runs.execute import execute
from runner.training.diagnostics import diagnostics
from tests.forked import run_in_fork
from tests.tracked import tracked

BAD = {
    "activation=rleu": "activation has no option 'rleu': choose from ",
    "epochs=1.5": "epochs: Value '1.5' of type 'float' could not be converted to Integer",
    "optimizer.learning_rate=1": "optimizer.learning_rate: there is no field 'learning_rate'. Choose from lr",
    "accountant._target_=tests.failing.Dies": "accountant: tests.failing.Dies has no epsilon",
    "batch_size=60001": "60000",
    "noise_multiplier=null": "Set sound_epsilon, noise_multiplier",
    "noise_multiplier=1,1": "noise_multiplier=1,1 has several values: add -m to run them all.",
    "seed=[0,1]": "seed takes one value. For several runs write -m seed=0,1.",
    "diagnostics=null": "diagnostics cannot be null",
    "diagnostics=hessian": "diagnostics takes a list: write diagnostics=[hessian].",
    "hydra/launcher=submitit_local": "goes to Slurm by --launcher slurm",
    "target_epsilon=3": "not both",
    "sound_epsilon=3 noise_multiplier=1": "The noise follows from sound_epsilon=3: leave noise_multiplier out.",
    "sound_epsilon=3 clipping=none": "Noise needs a bounded sensitivity: choose a clipping other than none",
    "sound_epsilon=3 features=pixels_mnist": "sound_epsilon=3: this setting has no sound ε. The features have",
    "sound_epsilon=0.1 normalization=private_statistics": "sound_epsilon=0.1: no noise reaches it, because part",
    "clipping.norm=0": "clipping.norm",
    "clipping.norm=1e-13": "Expected clipping.norm from 1e-12 to 1e+12, got 1e-13",
    "optimizer.lr=-1": "learning rate",
    "architecture=tempered_sigmoid_mnist architecture.padding=-3": "architecture: Expected padding >= 0, got -3.",
    "architecture=wrn_16_4 architecture.depth=1000000000000": "architecture.depth 10, 16, 22",
    "features=pixels_imagenet": "channels",
    "features=scatternet features.J=3": "features.J",
    "normalization=group_norm": "divisible",
    "dataset.shape=[1,4,4]": "architecture: its input is too small: the last feature map vanishes.",
    "loss.reduction=mean": "one loss per example",
    "loss._target_=torch.nn.NLLLoss loss.reduction=sum": "drop .mean() or .sum()",
    "activation._target_=torch.nn.Flatten": "architecture: the network cannot take features of shape [1, 28, 28]",
    "activation._target_=torch.nn.BatchNorm2d +activation.num_features=16": "BatchNorm2d",
    "diagnostics=[weights]": "weights",
    "model=resnet": "there is no field 'model'. Did you mean architecture=lipschitz_resnet?",
    "lr=0.1": "there is no field 'lr'. Did you mean optimizer.lr?",
    "optimizer.weight_decay=1e-4": "Choose from lr, momentum. Write + before any other argument of its class",
    "delta=0.9": "delta=0.9 is out of range: it has to be greater than 0 and less than 0.5",
    "screening.images=test": "there is no field 'images'. It belongs to screening=annealing",
    "+screening=annealing": "screening has a value already: write screening=annealing without +",
    "experiment=mnist_tanh": "Did you mean tempered_sigmoid/mnist_tanh or ",
    "sweeps=tempered_sigmoid/fig3": "Did you mean tempered_sigmoid/fig_3",
    "tempered_sigmoid/mnist_tanh": "Did you mean experiment=tempered_sigmoid/mnist_tanh?",
    "mechanism=null": "mechanism cannot be null: leave it out, or where an experiment chooses one, take it away with ~",
    "runtime.data_root=/nowhere/at/all": "/nowhere/at/all",
    "runtime.data_root=": "runtime.data_root is empty",
    "constraint=1.5": "constraint=1.5 is read as a number or as a truth value, and an option has a name: choose from ",
    "+loss.label_smoothing=5": "loss: label_smoothing must be between 0.0 and 1.0",
    "architecture.filters=['16',32]": "architecture.filters=['16', 32] is text, but it has to be a number",
    "architecture.filters=[16,32,64]": "architecture: Expected 2 filters, got [16, 32, 64].",
    "architecture.filters=[16,900000000000]": "there is not enough memory: architecture: ",
    "+loss.redction=none": "loss.redction=none is not an argument of torch.nn.CrossEntropyLoss. Did you mean reduction",
    "~optimizer._partial_": "'params': its file needs a line `_partial_: true`",
    "+schedule._target_=tests.trust.test_answers.raises +schedule._partial_=true": (
        "(tests/trust/test_answers.py, line "
    ),
    "max_grad_norm=1.0": "there is no field 'max_grad_norm'. It is called clipping.norm here",
    "optimizer.lr=nan": "optimizer.lr=nan is out of range: it has to be a finite number.",
    "~optimizer.momentum optimizer._target_=tests.failing.NoOptimizer": "NoOptimizer is no torch.optim.Optimizer.",
    "features._target_=tests.failing.Shapeless": "features: 'Shapeless' object has no attribute 'shape'",
    "~optimizer.momentum optimizer._target_=torch.optim.LBFGS": "optimizer: a step fails: ",
    "+schedule._target_=torch.optim.lr_scheduler.OneCycleLR +schedule._partial_=true +schedule.max_lr=1 "
    "+schedule.total_steps=1 epochs=3": "schedule: a step fails: Tried to step 2 times",
}


# One for each way in which they are refused, and what only Hydra's own command line sees.
ON_THE_COMMAND_LINE = ("model=resnet", "noise_multiplier=1,1", "runtime.data_root=/nowhere/at/all")


@pytest.mark.parametrize("overrides", ON_THE_COMMAND_LINE)
def test_bad_input_is_one_sentence_and_exit_code_2(overrides: str, tmp_path) -> None:
    arguments = [f"runtime.results_root={tmp_path}", "tracking=disabled", *overrides.split()]
    code, _, errors = _run_in_fork(arguments, tmp_path)
    assert code == 2
    message = errors.strip().splitlines()
    assert len(message) == 1, message
    assert message[0].startswith("runner: ")
    assert BAD[overrides] in message[0]
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("overrides", [text for text in BAD if text not in ON_THE_COMMAND_LINE])
def test_bad_input_is_refused_with_a_reason(overrides: str, composed, tmp_path, monkeypatch, capsys) -> None:
    """The test calls the command's functions without Hydra's command line, which would take a second."""
    monkeypatch.setattr(ImageDataset, "load", _data_was_read)
    monkeypatch.setattr(urllib.request, "urlopen", _no_network)
    with pytest.raises((ConfigError, HydraException, OmegaConfBaseException)) as raised:
        _carry_out(overrides.split(), composed)
    message, code = command.explained(raised.value)
    assert code == 2
    assert BAD[overrides] in message
    assert capsys.readouterr().err == "", "the sentence is the only one"
    assert not list(tmp_path.rglob("*.json"))


def test_an_environment_that_asks_for_nothing_known_is_refused(tmp_path, monkeypatch) -> None:
    """Other commands: tests/speed/test_rules.py."""
    monkeypatch.setenv("DP_REPRO_KERNELS", "yes")
    arguments = [f"runtime.results_root={tmp_path}", "tracking=disabled", "experiment=losing_less/mnist_ours"]
    code, shown, errors = _run_in_fork(arguments, tmp_path)
    assert (code, shown) == (2, "")
    (message,) = errors.splitlines()
    assert message.startswith("runner: DP_REPRO_KERNELS is 0 ")


def _run_in_fork(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    """Run the command line without data and without a network."""
    without_data = not any(text.startswith("runtime.data_root") for text in arguments)
    return run_in_fork(arguments, folder, partial(_cut_off, without_data))


def _carry_out(typed: list[str], composed) -> None:
    check_options(typed)
    config = composed("tracking=disabled", *typed)
    check_budgets(config, typed)
    execute(config, lambda row, run: None)


def _cut_off(without_data: bool) -> None:
    if without_data:
        ImageDataset.load = _data_was_read  # type: ignore[method-assign]
    urllib.request.urlopen = _no_network  # type: ignore[assignment]


def _data_was_read(*_: object) -> None:
    raise AssertionError("data was read")


def _no_network(*_: object, **__: object) -> None:
    raise OSError("no network in tests")


def test_a_number_whose_default_is_whole_may_be_a_fraction(composed) -> None:
    """torch.optim's `weight_decay=0` says nothing of its type; a word is none all the same."""
    optimizer = prepare(composed("+optimizer.weight_decay=1e-4")).config.optimizer
    assert optimizer.weight_decay == 1e-4
    with pytest.raises(ConfigError, match=r"optimizer\.weight_decay=much is not of type float"):
        prepare(composed("+optimizer.weight_decay=much"))


@pytest.mark.parametrize(
    ("devices", "device", "message"),
    [(2, "cuda:2", r"cuda:2, but PyTorch finds 2 CUDA devices, from cuda:0"), (0, "cuda", "no CUDA device")],
)
def test_a_device_that_is_not_there_is_named(composed, monkeypatch, devices: int, device: str, message: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: devices > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: devices)
    with pytest.raises(ConfigError, match=message):
        prepare(composed(f"runtime.device={device}"))


@pytest.mark.parametrize("step", ["eager", "graph"])
def test_a_loss_that_needs_a_count_is_refused_without_one(composed, step) -> None:
    with pytest.raises(ConfigError, match="private count"):
        prepare(composed("loss=sharp_cross_entropy_quantile", f"runtime.step={step}"))


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
    folders += ["runtime.device=cpu"]
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        expected = resolved(compose("config", [*folders, *overrides]))
    for _ in range(2):
        config = composed(*overrides)
        assert plain(config) == plain(expected)
        assert identify(config) == identify(expected)
        config.delta = 0.5  # a test may change its config, and no other sees it


def test_help_shows_groups_commands_and_defaults() -> None:
    shown = help.text()
    folders = {path.relative_to(REPOSITORY / "conf").parts[0] for path in tracked("conf/*/**/*.yaml")} | {"sweeps"}
    _, _, groups = shown.partition("== Groups")
    assert set(re.findall(r"^(\w+) +\w", groups, re.MULTILINE)) >= folders | set(diagnostics())
    assert set(re.findall(r"^([a-z-]+) +\w", shown, re.MULTILINE)) >= set(COMMANDS)
    for field in ("sound_epsilon: null        # calibrate", "--config-dir FOLDER  options", "\n-m  "):
        assert field in shown


def test_help_of_a_group_describes_every_option() -> None:
    described = dict(re.findall(r"^clipping=(\w+) +(\S.*)$", help.group_text("clipping"), re.MULTILINE))
    assert set(described) == {path.stem for path in tracked("conf/clipping/*.yaml")}
    with pytest.raises(ConfigError, match=r"There is no group 'cliping'\. Did you mean clipping"):
        help.group_text("cliping")


def test_calibration_meets_its_target_from_below(composed) -> None:
    run = prepare(composed("noise_multiplier=null", "target_epsilon=2.7", "epochs=40"))
    cost = run.accountant.epsilon(run.mechanism.charges_of_epochs(40).claimed, 1e-5)
    assert 2.7 - 1e-3 < cost <= 2.7
    assert math.isclose(run.mechanism.noise_multiplier, 1.0394, abs_tol=1e-4)


SOUND = {  # by name: the overrides of a run of 30 epochs at q = 2048/60000, and what else it releases
    "tanh": ("experiment=tempered_sigmoid/mnist_tanh", "noise_multiplier=null"),
    "screened": ("experiment=noise_screening/mnist_screened_momentum_kept",),
    "shuffled": ("sampling=shuffled",),
}


@pytest.mark.parametrize("overrides", SOUND.values(), ids=SOUND)
def test_sound_epsilon_pays_for_every_release(overrides, composed) -> None:
    """By dp_accounting's own composition, the noise costs at most 2, and a multiplier that is 2^-14 less costs more."""
    run = prepare(composed(*overrides, "batch_size=2048", "epochs=30", "sound_epsilon=2"))

    def cost(noise: float) -> float:
        step = dp_accounting.PoissonSampledDpEvent(2048 / 60000, dp_accounting.GaussianDpEvent(noise))
        event, count = (dp_accounting.GaussianDpEvent(noise), 30) if run.config.sampling.value == "shuffled" else (
            step, 30 * (run.mechanism.examples // 2048))  # fmt: skip
        accountant = dp_accounting.pld.PLDAccountant()
        return accountant.compose(event, count).get_epsilon(1e-5)

    noise = run.mechanism.noise_multiplier
    assert cost(noise) <= 2 < cost(noise - 2**-13)
    assert run.epsilon_at_most_steps == pytest.approx(2, abs=1e-3)
    assert run.epsilon_at_most_steps <= 2
    assert (run.config.noise_multiplier, run.config.target_epsilon, run.config.max_epsilon) == (None, None, None)


def test_max_epsilon_stops_at_the_last_whole_epoch(composed) -> None:
    run = prepare(composed("experiment=tempered_sigmoid/mnist_tanh"))
    costs = [run.accountant.epsilon(run.mechanism.charges_of_epochs(e).claimed, 1e-5) for e in (57, 58)]
    assert run.epochs == 57
    assert costs[0] <= 2.93 < costs[1]


def test_a_value_comes_from_the_only_row_matching_the_config(tmp_path: Path) -> None:
    """The row of tanh and no clipping norm; another config has the value for all others."""
    table, header = tmp_path / "chosen.csv", "activation._target_,clipping.norm,optimizer.lr\n"
    table.write_text(f"{header}torch.nn.Tanh,,0.25\ntorch.nn.Tanh,0.1,0.5\n")

    def rate(config: dict[str, object]) -> float:
        root = OmegaConf.create({"optimizer": {"lr": 0.0}, **config})
        return chosen(str(table), 9.0, _node_=root.optimizer._get_node("lr"), _root_=root)

    tanh = {"activation": {"_target_": "torch.nn.Tanh"}}
    assert (rate(tanh), rate(tanh | {"clipping": {"norm": 0.1}}), rate({})) == (0.25, 0.5, 9.0)
    table.write_text(f"{header}torch.nn.Tanh,,0.25\ntorch.nn.Tanh,,0.5\n")
    with pytest.raises(ValueError, match="2 rows for one setting"):
        rate(tanh)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("could not create a primitive")])
def test_a_lack_of_memory_is_said_to_be_one(error: Exception) -> None:
    """The library's words may not say so."""
    message, code = command.explained(error)
    assert message.startswith("there is not enough memory: ")
    assert code == 1
