"""Accuracy and loss against values computed by hand, evaluation mode and out of it again."""

import math

import pytest
import torch
from torch import Tensor, nn

from runner.data.datasets import Split
from runner.gradients import Objective
from runner.training.evaluate import evaluate, evaluating, predict

# The logits' exponentials, with 0 for 1: the softmax of (0, ln 2, ln 5) is (1, 2, 5) / 8.
LOGITS = torch.tensor([[0.0, 2.0, 5.0], [0.0, 5.0, 2.0], [5.0, 0.0, 2.0], [2.0, 0.0, 5.0], [0.0, 2.0, 5.0]])
TARGETS = torch.tensor([2, 1, 2, 1, 0])  # right, right, the second guess, the last one, the last one


class FirstPixels(nn.Module):
    """The logits are the first pixels, so another scale or mean of the images shows in the loss."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :3]


@pytest.mark.parametrize("copies", [1, 60, 200])  # of the five examples: one batch of an evaluation, two, several
def test_every_example_counts_once_and_by_its_first_guess(copies: int) -> None:
    objective = Objective(FirstPixels(), nn.CrossEntropyLoss(reduction="none"))
    images = torch.zeros(5, 1, 2, 2).flatten(1)
    images[:, :3] = LOGITS.clamp(min=1).log()
    # In blocks: were one half counted, or one batch, it would be all of the first examples.
    order = torch.arange(5).repeat_interleave(copies)
    split = Split(images.view(5, 1, 2, 2)[order], TARGETS[order])
    computed = evaluate(objective, split, 4)
    assert computed.accuracy == pytest.approx(100 * 2 / 5)
    assert computed.class_accuracy[:3] == pytest.approx([0.0, 50.0, 50.0])
    assert math.isnan(computed.class_accuracy[3])
    losses = [math.log(8 / 5), math.log(8 / 5), math.log(8 / 2), math.log(8 / 1), math.log(8 / 1)]
    assert computed.loss == pytest.approx(sum(losses) / 5, rel=1e-6)
    assert torch.equal(predict(objective, split)[0], torch.tensor([2, 1, 0, 2, 2])[order])


class ChangesItsInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).sub_(0.5).square_()


@pytest.mark.parametrize("network", [ChangesItsInput(), nn.Sequential(nn.ELU(inplace=True), nn.Flatten())])
def test_a_network_with_in_place_changes_leaves_the_data_alone(network: nn.Module) -> None:
    """With one channel, images that are channels last are the same memory."""
    images = torch.rand(300, 1, 2, 2, generator=torch.Generator().manual_seed(0)) - 1
    split = Split(images.clone(), torch.arange(300) % 4)
    objective = Objective(network, nn.CrossEntropyLoss(reduction="none"))
    first = evaluate(objective, split, 4)
    assert torch.equal(split.images, images)
    assert evaluate(objective, split, 4) == first


def test_dropout_is_off_in_evaluation_and_on_after_an_error() -> None:
    dropout, seen = nn.Dropout(), []

    def fails() -> None:
        with evaluating(nn.Sequential(dropout)):
            seen.append(dropout.training)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert seen == [False]
    assert dropout.training


def test_a_part_that_was_in_evaluation_mode_stays_in_it() -> None:
    network = nn.Sequential(nn.Dropout().eval(), nn.Dropout())
    with evaluating(network):
        assert not network.training
    assert [child.training for child in network.modules()] == [True, False, True]
