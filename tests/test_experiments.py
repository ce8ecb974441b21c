"""Every shipped experiment is sound: it can be run, and costs what its paper claims."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from runner.config import REPOSITORY
from runner.training.prepare import prepare
from runner.training.targets import targets

EXPERIMENTS = sorted(
    path.relative_to(REPOSITORY / "conf/experiment").with_suffix("").as_posix()
    for path in (REPOSITORY / "conf/experiment").rglob("*.yaml")
    if not path.name.startswith("base_")
)


def test_the_listing_above_is_not_empty() -> None:
    assert len(EXPERIMENTS) >= 20


CLAIMED_EPSILON = {
    "tempered_sigmoid": {"mnist": 2.93, "fashion_mnist": 2.7, "cifar10": 7.54},
    "losing_less": {"mnist": 3.0, "fashion_mnist": 3.004, "cifar10": 3.006},
    "losing_less/pfe": {"mnist": 3.136, "fashion_mnist": 3.004, "cifar10": 2.998},
    "noise_screening": {"mnist": 3.0, "fashion_mnist": 3.004, "cifar10": 3.006},
    "noise_screening to 6": {"mnist": 6.0, "fashion_mnist": 6.0, "cifar10": 6.0},  # table 3 looks as far as 6
    "backprop_clipping": {"mnist": 3.0, "fashion_mnist": 0.87, "cifar10": 3.64},
    "lipschitz": {"mnist": 3.0, "fashion_mnist": 3.0, "cifar10": 9.977},
    "composition": {"mnist": 3.0, "fashion_mnist": 3.0, "cifar10": 3.0},
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
    small = composed(f"experiment={experiment}", "scale=smoke")
    classes = tuple(target for _, target in targets(OmegaConf.to_container(small, resolve=True)))
    if classes not in PREPARED:  # once for each set of classes
        PREPARED.add(classes)
        assert prepare(small).epochs <= 3


PREPARED: set[tuple[str, ...]] = set()


def run_dataset(run) -> str:
    return {"MNIST": "mnist", "FashionMNIST": "fashion_mnist", "CIFAR10": "cifar10"}[run.dataset.name]


def test_every_experiment_has_a_title_that_no_other_of_its_data_set_has() -> None:
    """A method has one title on all data sets."""
    seen: dict[tuple[str, str], str] = {}
    for experiment in EXPERIMENTS:
        title = loaded(experiment)["title"]
        assert 0 < len(title) <= 60, experiment
        assert not re.search(r"\bours\b|MNIST|CIFAR|_", title), experiment
        other = seen.setdefault((dataset_named_in(experiment), title), experiment)
        assert other == experiment, title


def dataset_named_in(experiment: str) -> str:
    """Return the data set that an experiment's file or its base chooses, or else the default."""
    for default in loaded(experiment)["defaults"]:
        if isinstance(default, dict) and "override /dataset" in default:
            return str(default["override /dataset"])
    bases = [default for default in loaded(experiment)["defaults"] if isinstance(default, str)]
    return dataset_named_in(bases[0].removeprefix("/experiment/")) if bases else "mnist"


@cache
def loaded(experiment: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((REPOSITORY / f"conf/experiment/{experiment}.yaml").read_text())
    return content
