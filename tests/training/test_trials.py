"""What a user's class states is tried, not believed; and what conf/ names passes the same trials."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig

from runner.config import REPOSITORY, ConfigError
from runner.mechanism.seeds import generator
from runner.runs.execute import execute
from runner.runs.provenance import provenance
from runner.training.independence import check_independence
from runner.training.loop import Trained
from runner.training.prepare import Run, prepare
from runner.training.removal import check_among_others, check_contributions, extreme
from runner.training.trials import check_mechanism, stated_by_own_classes, try_mechanism
from tests import stating

Compose = Callable[..., DictConfig]
CLIPPINGS = sorted(path.stem for path in (REPOSITORY / "conf/clipping").glob("*.yaml") if path.stem != "none")
MECHANISMS = sorted(path.stem for path in (REPOSITORY / "conf/mechanism").glob("*.yaml"))

# Of each fault, what the sentence says.
CLIPPING_FAULTS = {
    "StatesATenth": "contributes .* but the sensitivity stated is",
    "DropsOneLayer": r"contributes .* to network\.7\.weight and network\.7\.bias, but the sensitivity stated is",
    "ByTheMeanNorm": "moves the sum by",
    "ClipsInOneWayOnly": "contributes .* but the sensitivity stated is",
}
MECHANISM_FAULTS = {
    "HalfTheNoise": r"noise has 0\.5 of the standard deviation",
    "HalfTheNoiseOfGraphs": r"noise has 0\.5 of the standard deviation",
    "StatesHalfTheNoise": r"the ledger has noise multiplier 1\.\d+, and the noise 0\.\d+",
    "NoNoiseOnABias": r"noise has 0 of the standard deviation that is stated: that of network\.\d+\.bias",
    "OneNumberAParameter": "noise has 0 of the standard deviation .* between coordinates",
    "TheSameEveryStep": "noise has 0 of the standard deviation .* between steps",
    "TheSameOnEachParameter": "noise has 0 of the standard deviation .* between network",
    "TwiceTheSum": "is not released as it is",
    "ChargesHalfTheRate": "the sampling rate charged is",
    "DrawsTwiceTheRate": "the sampling rate charged is",
    "ShufflesAndChargesSampling": "their sizes hardly differ",
    "RotatesAndChargesSampling": "fewer examples in common",
    "ChargesDisjointBatches": "but only 1 are charged",
    "TakesBackForNothing": "a step that is taken back is charged otherwise",
    "StatesItMovesLess": "moves the sum by",
}


@pytest.fixture
def of_mechanism(composed: Compose) -> Callable[..., DictConfig]:
    """`of_mechanism("HalfTheNoise")`: a config with that mechanism of tests/stating.py."""

    def make(name: str, *overrides: str) -> DictConfig:
        target = f"+mechanism._target_=tests.stating.{name}"
        return composed("experiment=tempered_sigmoid/mnist_tanh", target, "+mechanism._partial_=true", *overrides)

    return make


def tried(run: Run, seed: int) -> None:
    zeros = {name: torch.zeros_like(p) for name, p in run.new_objective().named_parameters()}
    try_mechanism(run.mechanism, zeros, generator(seed, "trial", run.device))


@pytest.mark.parametrize("norm", [0.1, 10.0])
@pytest.mark.parametrize("name", CLIPPING_FAULTS)
def test_a_clipping_that_bounds_less_than_it_states_is_refused(name: str, norm: float, composed: Compose) -> None:
    """At a bound of ten times most gradients, too, where examples of ordinary size show nothing."""
    config = composed(
        "experiment=tempered_sigmoid/mnist_tanh", f"clipping._target_=tests.stating.{name}", f"clipping.norm={norm}"
    )
    with pytest.raises(ConfigError, match=f"^clipping: one example {CLIPPING_FAULTS[name]}"):
        check_independence(prepare(config))


@pytest.mark.parametrize("name", MECHANISM_FAULTS)
def test_a_mechanism_that_does_less_than_it_charges_is_refused(
    name: str, of_mechanism: Callable[..., DictConfig]
) -> None:
    with pytest.raises(ConfigError, match=MECHANISM_FAULTS[name]):
        check_independence(prepare(of_mechanism(name)))


def test_every_faulty_class_is_among_them() -> None:
    right = {"OwnFlat", "OwnMechanism", "TwiceTheNoise", "ChargesTwoReleases", "DrawsATenth", "ClipsToAQuarter"}
    right |= {"Doubled", "LessTheMean", "OfSeveral"}  # features
    classes = {name for name, kind in vars(stating).items() if getattr(kind, "__module__", "") == stating.__name__}
    assert classes - right == {*CLIPPING_FAULTS, *MECHANISM_FAULTS}


@pytest.mark.parametrize(
    "name", ["OwnMechanism", "TwiceTheNoise", "ChargesTwoReleases", "DrawsATenth", "ClipsToAQuarter"]
)
def test_one_that_does_what_it_charges_or_more_is_not(name: str, of_mechanism: Callable[..., DictConfig]) -> None:
    state = torch.get_rng_state()
    check_independence(prepare(of_mechanism(name, "clipping._target_=tests.stating.OwnFlat")))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("sampling", ["poisson", "shuffled"])
def test_plain_dp_sgd_passes_the_trial_of_mechanisms(sampling: str, composed: Compose) -> None:
    run = prepare(composed("experiment=tempered_sigmoid/mnist_tanh", f"sampling={sampling}"))
    for seed in range(3):
        tried(run, seed)


@pytest.mark.parametrize(("batch_size", "examples"), [(1, 60), (30, 60), (60, 60), (59, 60), (2000, 4000), (3, 4000)])
@pytest.mark.parametrize("sampling", ["poisson", "shuffled"])
def test_no_rate_is_refused(sampling: str, batch_size: int, examples: int, composed: Compose) -> None:
    config = composed(f"batch_size={batch_size}", f"dataset.train_examples={examples}", f"sampling={sampling}")
    run = prepare(config)
    for seed in range(3):
        small = {name: torch.zeros(5) for name, _ in run.new_objective().named_parameters()}
        try_mechanism(run.mechanism, small, generator(seed, "trial", run.device))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_in_conf_passes_its_trial(mechanism: str, smoke: Compose) -> None:
    experiment = "mnist_corrected_1" if mechanism == "corrected" else f"mnist_{mechanism}"
    run = prepare(smoke(f"experiment=backprop_clipping/{experiment}"))
    assert type(run.mechanism).__module__ == "runner.mechanism.layerwise"
    tried(run, 0)


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_every_clipping_in_conf_passes_its_trial(clipping: str, smoke: Compose) -> None:
    """Whatever the noise: to find that of a budget takes seconds."""
    own = {"backprop": "backprop_clipping/mnist_joint", "lipschitz": "lipschitz/mnist_mlp"}
    experiment = own.get(clipping, "tempered_sigmoid/mnist_tanh")
    chosen = () if clipping in (*own, "flat") else (f"clipping={clipping}",)
    run = prepare(smoke(f"experiment={experiment}", *chosen, "target_epsilon=null", "noise_multiplier=1"))
    torch.manual_seed(0)
    objective = run.new_objective()
    examples = extreme(run, objective)
    worst = check_contributions(run, objective, examples)
    check_among_others(run, objective, examples, worst[:2])


def test_what_epsilon_rests_on_is_said(of_mechanism: Callable[..., DictConfig], composed: Compose) -> None:
    run = prepare(of_mechanism("OwnMechanism", "clipping._target_=tests.stating.OwnFlat"))
    assert stated_by_own_classes(run) == [
        "sensitivity as stated by OwnFlat: tried on made-up examples at the first weights",
        "charges as stated by OwnMechanism: noise, batches and charges are tried",
    ]
    assert provenance(run, Trained(), 1.0)["epsilon_rests_on"] == stated_by_own_classes(run)
    untold = prepare(of_mechanism("ChargesTwoReleases"))
    assert stated_by_own_classes(untold) == [
        "charges as stated by ChargesTwoReleases: its noise is tried, its charges and batches are not"
    ]
    check_mechanism(untold)
    assert stated_by_own_classes(prepare(of_mechanism("OwnMechanism", "noise_multiplier=0", "max_epsilon=null"))) == []
    ours = prepare(composed("experiment=losing_less/pfe_mnist_ours"))
    assert stated_by_own_classes(ours) == []
    assert "epsilon_rests_on" not in provenance(ours, Trained(), 1.0)


def test_a_refused_class_leaves_no_record(composed: Compose, tmp_path) -> None:
    config = composed("clipping._target_=tests.stating.StatesATenth", f"runtime.data_root={tmp_path / 'no data'}")
    config.tracking.mode = "disabled"
    with pytest.raises(ConfigError, match="the sensitivity stated is"):
        execute(config, lambda row, run: None)
    assert not list(tmp_path.rglob("*.json"))
