"""Groups take names of options, and only Hydra's options begin with dashes."""

import pytest
from hydra._internal.utils import get_args_parser

from runner.config import ConfigError
from runner.records.options import OF_HYDRA, check_options


@pytest.mark.parametrize(
    "typed", ["--experiment", "--experiment=tempered_sigmoid/mnist_tanh", "--seed=1", "--config-d=a"]
)
def test_a_name_with_dashes_is_refused_and_hydra_is_not_left_to_take_it_for_one_of_its_own(typed):
    with pytest.raises(ConfigError, match=f"There is no {typed.partition('=')[0]}: .* has no dashes"):
        check_options([typed, "tempered_sigmoid/mnist_tanh"])


def test_hydras_own_options_and_overrides_pass():
    check_options(["--multirun", "--cfg=job", "--config-dir", "mine", "-m", "seed=1", "+loss.beta=2", "~normalization"])


def test_hydras_own_are_all_there():
    parser = get_args_parser()
    there = {name for action in parser._actions for name in action.option_strings if name.startswith("--")}
    assert set(OF_HYDRA) == there - {"--experimental-rerun"}, "which runs what a pickle says"
