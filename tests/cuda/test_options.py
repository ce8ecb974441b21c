"""Every option of every group trains on the made-up GPU as on the CPU, call by call and by the default step."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from checks.parity.cases import CONF, case, prepared
from checks.parity.runs import SMALL, apart, on, trained
from checks.rehearsal import made_up_cuda
from runner.build.groups import Group
from runner.config import StepMode
from runner.config.yaml_file import read_yaml
from runner.training.run import Run
from tests import small
from tests.tracked import tracked_options

AGREE = 2e-6
SHORT = (*SMALL, "epochs=1", "architecture.filters=[3,4]", "architecture.units=5")
LIPSCHITZ = (
    *SMALL, *small.LIPSCHITZ, "epochs=1", "clipping=lipschitz", "constraint=spectral",
)  # fmt: skip

# Settings that have, together, every option of the groups that compute on the device, and the step that they take.
SETTINGS = [
    ("graph", SHORT, "loss=cross_entropy clipping=per_layer schedule=linear activation=clipped_relu sampling=shuffled"),
    ("graph", SHORT, "loss=losing_less clipping=automatic activation=tempered_sigmoid optimizer=adam epochs=2 "
     "mechanism=banded mechanism.bands=2"),
    ("graph", SHORT, "loss=huber clipping=none noise_multiplier=0 screening=none optimizer=sgd activation=relu6 "
     "runtime.physical_batch=3"),
    ("graph", LIPSCHITZ, "loss=hinge clipping.noise=global"),
    ("graph", LIPSCHITZ, "loss=sharp_cross_entropy_quantile loss.gradient_bound=1.2"),
    ("eager", SHORT, "screening=annealing optimizer.momentum=0.9 activation=softsign"),
    ("graph", SHORT, "augmentation=views averaging=ema schedule=cosine_by_step schedule.warmup_steps=1 "
     "activation=group_norm_relu activation.groups=1"),
]  # fmt: skip
MORE = [
    ("graph", SHORT, "loss=focal clipping=flat activation=relu schedule=none"),
    ("eager", SHORT, "optimizer=adam_bc optimizer.floor=0.005"),  # with a small floor, rounding errors become large
    ("graph", SHORT, "loss=sse optimizer.momentum=0.9 runtime.physical_batch=3 evaluation=test dataset=cifar10 "
     "normalization=private_statistics_cifar10 activation=elu"),
    ("graph", SHORT, "loss=sae normalization=group_norm normalization.groups=1 activation=gelu "
     "architecture._target_=tests.failing.dilated"),
    ("graph", SHORT, "loss=sse_ce normalization=private_statistics_mnist activation=hard_tanh"),
    ("graph", SHORT, "loss=sse_focal clipping=psac activation=tanh normalization=private_statistics"),
    ("graph", SHORT, "loss=hkr schedule=linear_by_step optimizer=adam averaging=ema averaging.decay=0.5 "
     "activation=selu"),
    ("graph", LIPSCHITZ, "loss=cosine"),
    ("graph", LIPSCHITZ, "loss=kr diagnostics=[confusion,per_class_accuracy,bound_ratios]"),
    ("graph", LIPSCHITZ, "loss=sharp_cross_entropy"),
    ("graph", LIPSCHITZ, "loss=sharp_cross_entropy_falling"),
    ("eager", SMALL, "epochs=1 experiment=backprop_clipping/fashion_mnist_clipping clipping=backprop"),
    ("eager", SHORT, "diagnostics=[activation_norms,gradient_norms,gradient_histogram,gradient_cosine,hessian,"
     "layer_norms,norm_histograms] diagnostics_every=1"),
]  # fmt: skip
ON_THE_DEVICE = (
    "activation", "augmentation", "averaging", "clipping", "constraint", "loss", "normalization", "optimizer",
    "schedule", "screening",
)  # fmt: skip
SMALLER = {  # layers of fewer channels and units than their options have
    "wrn_16_4": ("architecture.depth=10", "architecture.width=1"),
    "tempered_sigmoid_cifar10": ("architecture.filters=[3,4,5,6]",),
    "backprop_clipping_cifar10": ("architecture.filters=[3,4,5,6]", "architecture.units=5"),
    "handcrafted_cifar10": ("architecture.filters=[3,4,5]", "architecture.units=5"),
    "lipschitz_mnist": ("architecture.filters=[4,6]", "architecture.units=8"),
    "lipschitz_resnet": ("architecture.width=4",),
    "lipschitz_vgg": ("architecture.width=4",),
    "lipschitz_mixer": ("architecture.hidden=6", "architecture.tokens=6", "architecture.channels=6"),
    "scatternet_cifar10": ("architecture.blocks=[[4],[5]]",),
}
EAGER = ("corrected", "original_bug", "joint", "printed", "backprop_clipping_mnist", "backprop_clipping_cifar10")
# Networks for images of any size
CONVOLUTIONS = ("backprop_clipping_cifar10", "handcrafted_cifar10", "tempered_sigmoid_cifar10", "wrn_16_4")


def test_every_option_is_in_a_setting() -> None:
    named = {override for _, base, more in (*SETTINGS, *MORE) for override in (*base, *more.split())}
    assert {f"{group}={option}" for group in ON_THE_DEVICE for option in tracked_options(group)} <= named


def agrees(run: Run, step: str, *, modes: Sequence[StepMode] = (StepMode.eager, StepMode.auto)) -> None:
    """Train a run on the CPU, and in both ways on the made-up device."""
    expected = trained(on(run, "cpu", StepMode.eager, torch.float32), torch.float32)
    with made_up_cuda() as gpu:
        for mode in modes:
            found = trained(on(run, "cuda:0", mode, torch.float32), torch.float32)
            taken = "eager" if mode is StepMode.eager else step
            assert found.step == taken
            assert apart(found, expected, AGREE).times < 1, f"{taken}: {apart(found, expected, AGREE)}"
            assert found.history["train_loss"] == pytest.approx(expected.history["train_loss"], rel=1e-5)
            assert gpu.together <= 2, "more graphs are held at a time than lengths"


@pytest.mark.parametrize(("step", "base", "more"), SETTINGS)
def test_trains_as_on_the_cpu(step: str, base: tuple[str, ...], more: str) -> None:
    agrees(prepared(*base, *more.split()), step)


@pytest.mark.parametrize(("step", "base", "more"), MORE)
def test_trains_by_any_option_as_on_the_cpu(step: str, base: tuple[str, ...], more: str) -> None:
    agrees(prepared(*base, *more.split()), step, modes=[StepMode.auto])


def one_of_each_class(group: str) -> list[tuple[str, str]]:
    """Return (group, option) for the first option of each class: another one has other sizes."""
    options: dict[str, str] = {}
    for option in tracked_options(group):
        node = read_yaml(CONF / group / f"{option}.yaml").plain
        options.setdefault(node.get("mechanism", node)["_target_"], option)
    return [(group, option) for option in options.values()]


@pytest.mark.parametrize(("group", "option"), one_of_each_class("architecture") + one_of_each_class("mechanism"))
def test_trains_any_architecture_or_mechanism_as_on_the_cpu(group: str, option: str) -> None:
    more = (*SMALL, "epochs=1", "dataset.train_examples=3", "batch_size=3")
    if option == "banded":
        more += ("dataset.train_examples=6",)
    if option in CONVOLUTIONS:
        more += ("dataset.shape=[3,16,16]",)
    more += SMALLER.get(option, ())
    agrees(case(group, option, *more), "eager" if option in EAGER else "graph", modes=[StepMode.auto])


@pytest.mark.parametrize("option", tracked_options("features"))
def test_features_are_those_of_the_cpu(option: str, composed: Any) -> None:
    colours = ("dataset=cifar10",) if option.endswith("imagenet") else ()
    features = Group(composed(f"features={option}", *colours), "features").build()
    images = torch.rand(2, 3, 32, 32) if colours else torch.rand(2, 1, 28, 28)
    expected: Tensor = features(images)
    with made_up_cuda():
        found = features(images.to("cuda"))
        assert found.is_cuda
        torch.testing.assert_close(found.cpu(), expected, rtol=AGREE, atol=AGREE)
