"""What a user's class states is tried, not believed; and what conf/ names passes the same trials."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig

from runner.config import REPOSITORY, ConfigError
from runner.runs.execute import execute
from runner.runs.provenance import provenance
from runner.training.independence import check_independence
from runner.training.loop import Trained
from runner.training.prepare import prepare
from runner.training.removal import check_among_others, check_contributions, extreme
from runner.training.trials import stated_by_own_classes
from tests import stating

Compose = Callable[..., DictConfig]
CLIPPINGS = sorted(path.stem for path in (REPOSITORY / "conf/clipping").glob("*.yaml") if path.stem != "none")

# Of each fault, what the sentence says.
CLIPPING_FAULTS = {
    "StatesATenth": "contributes .* but the sensitivity stated is",
    "DropsOneLayer": r"contributes .* to network\.7\.weight and network\.7\.bias, but the sensitivity stated is",
    "ByTheMeanNorm": "moves the sum by",
    "ClipsInOneWayOnly": "contributes .* but the sensitivity stated is",
}


@pytest.mark.parametrize("norm", [0.1, 10.0])
@pytest.mark.parametrize("name", CLIPPING_FAULTS)
def test_a_clipping_that_bounds_less_than_it_states_is_refused(name: str, norm: float, composed: Compose) -> None:
    """At a bound of ten times most gradients, too, where examples of ordinary size show nothing."""
    config = composed(
        "experiment=tempered_sigmoid/mnist_tanh", f"clipping._target_=tests.stating.{name}", f"clipping.norm={norm}"
    )
    with pytest.raises(ConfigError, match=f"^clipping: one example {CLIPPING_FAULTS[name]}"):
        check_independence(prepare(config))


def test_every_faulty_class_is_among_them() -> None:
    right = {"OwnFlat", "Doubled", "LessTheMean", "OfSeveral"}
    classes = {name for name, kind in vars(stating).items() if getattr(kind, "__module__", "") == stating.__name__}
    assert classes - right == {*CLIPPING_FAULTS}


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


def test_what_epsilon_rests_on_is_said(composed: Compose) -> None:
    run = prepare(composed("experiment=tempered_sigmoid/mnist_tanh", "clipping._target_=tests.stating.OwnFlat"))
    said = ["sensitivity as stated by OwnFlat: tried on made-up examples at the first weights"]
    assert stated_by_own_classes(run) == said
    assert provenance(run, Trained(), 1.0)["epsilon_rests_on"] == said
    ours = prepare(composed("experiment=losing_less/pfe_mnist_ours"))
    assert stated_by_own_classes(ours) == []
    assert "epsilon_rests_on" not in provenance(ours, Trained(), 1.0)


def test_a_refused_class_leaves_no_record(composed: Compose, tmp_path) -> None:
    config = composed("clipping._target_=tests.stating.StatesATenth", f"runtime.data_root={tmp_path / 'no data'}")
    config.tracking.mode = "disabled"
    with pytest.raises(ConfigError, match="the sensitivity stated is"):
        execute(config, lambda row, run: None)
    assert not list(tmp_path.rglob("*.json"))
