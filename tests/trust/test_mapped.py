"""A user's function of one example: its results are those of each example alone, or it is refused in a sentence."""

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.clipping import clip_factors
from runner.config import ConfigError
from runner.gradients import Objective
from runner.networks.objective import fresh_copy
from runner.trust.engine import IsolatedEngine, Mapped, isolated_prediction
from tests.references import clipped_sum, per_example

PLAIN = nn.CrossEntropyLoss(reduction="none")
COUNT, CLASSES = 5, 4
Between = Callable[[Any, Tensor], Tensor]


class Network(nn.Module):
    """Two layers on inputs of eight numbers, and a function of the network and of what is between them."""

    def __init__(self, between: Between = lambda network, h: h, **attributes: Any) -> None:
        super().__init__()
        self.first, self.last, self.between = nn.Linear(8, 6), nn.Linear(6, CLASSES), between
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self, self.first(x).tanh()))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Linear(2, 8), nn.Parameter(torch.zeros(4, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(x.view(-1, 4, 2)) + self.position).mean(1))


class StraightThrough(torch.autograd.Function):
    """Signs, whose gradient is the identity's: an autograd function in the older of its two styles."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def tied() -> Network:
    again, more = nn.Linear(6, 6), nn.Linear(6, 6)
    more.weight = again.weight
    return Network(lambda n, h: n.more(n.again(h).tanh()) + 0.1 * n.first.weight.sum(), again=again, more=more)


def scaled() -> Network:
    return Network(lambda n, h: n.scale * h, scale=nn.Parameter(torch.tensor(0.25)))


def keeps_attribute(network: Any, h: Tensor) -> Tensor:
    shifted = h - network.kept
    network.kept = h.detach().mean(0)
    return shifted


def keeps_tensor(network: Any, h: Tensor) -> Tensor:
    shifted = h - network.total
    network.total += h.detach().sum(0)
    return shifted


def clamped(network: Any, h: Tensor) -> Tensor:
    """Keeps its weights small, in its forward pass."""
    network.last.weight.data.clamp_(-0.1, 0.1)
    return h


NUMBERS, SLOW = "asks for an example's numbers", "in place into a tensor without them, as into a buffer"
# What honest code does, with the reason why its examples are computed one after another; "" if they are mapped.
HONEST: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "attention": (Attention, ""),
    "tied weights": (tied, ""),
    "a weight that is a number": (scaled, ""),
    "a frozen spectral norm": (lambda: Network(lambda n, h: h / torch.linalg.matrix_norm(n.first.weight, 2)), ""),
    "the batch's mean": (lambda: Network(lambda n, h: h - 0.5 * h.mean(0)), ""),
    "a mix of the batch": (lambda: Network(lambda n, h: h + h[torch.randperm(len(h))]), ""),
    "an attribute": (lambda: Network(keeps_attribute, kept=0.0), ""),
    "a buffer in place": (lambda: Network(keeps_tensor, total=nn.Buffer(torch.zeros(6))), SLOW),
    "a tensor in place": (lambda: Network(keeps_tensor, total=torch.zeros(6, dtype=torch.float64)), SLOW),
    "a counter": (lambda: Network(lambda n, h: (n.steps.add_(1), h)[1], steps=nn.Buffer(torch.tensor(0))), ""),
    "its own weights clamped": (lambda: Network(clamped), ""),
    "a branch": (lambda: Network(lambda n, h: h * 2 if h.sum() > 0 else h.square()), NUMBERS),
    "NumPy": (lambda: Network(lambda n, h: h + torch.from_numpy(h.detach().numpy())), NUMBERS),
    "a mask as an index": (lambda: Network(lambda n, h: h + h[h > 0].sum()), NUMBERS),
    "an older autograd function": (lambda: Network(lambda n, h: StraightThrough.apply(h)), "has no `setup_context`"),
    "a weight that is parametrised": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, CLASSES)), ""),
}


def examples(seed: int = 1, count: int = COUNT) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 8, generator=stream, dtype=torch.float64)
    return inputs, torch.randint(CLASSES, (count,), generator=stream)


def made(build: Callable[[], nn.Module], loss: nn.Module = PLAIN) -> Objective:
    torch.manual_seed(0)
    return Objective(build(), loss).double()


@pytest.mark.parametrize("name", HONEST)
def test_gradients_are_those_of_each_example_alone(name: str) -> None:
    """By autograd, on a fresh copy each. So no example reaches another, and no batch is remembered."""
    build, reason = HONEST[name]
    objective, (inputs, targets) = made(build), examples()
    before = copy.deepcopy(objective.state_dict())
    singles = zip(inputs.split(1), targets.split(1), strict=True)
    expected = [per_example(copy.deepcopy(objective), *single)[0] for single in singles]
    engine = IsolatedEngine(objective)
    mapped = engine.mapped().ready(inputs, targets)
    assert reason in (mapped.reason or "")
    assert (mapped.rate is None) == (reason == "")
    for seed, count in ((10, COUNT), (11, 3)):
        engine.gradients(*examples(seed, count))
    gradients, losses = engine.gradients(inputs, targets)
    for parameter, computed in gradients.items():
        torch.testing.assert_close(computed, torch.stack([sample[parameter] for sample in expected]))
    alone = [copy.deepcopy(objective)(inputs[i : i + 1], targets[i : i + 1]) for i in range(COUNT)]
    torch.testing.assert_close(losses, torch.cat(alone).detach())
    assert all(torch.equal(objective.state_dict()[key], value) for key, value in before.items())


def test_a_number_without_dimensions_is_clipped() -> None:
    objective, (inputs, targets) = made(scaled), examples()
    names = [name for name, _ in objective.named_parameters()]
    computed = IsolatedEngine(objective).clipped_sum(inputs, targets, [names], lambda norms: clip_factors(norms, 0.1))
    torch.testing.assert_close(computed.gradients, clipped_sum(per_example(objective, inputs, targets), 0.1))


class Mixing(torch.autograd.Function):
    """The identity, whose rule for `vmap` takes the batch's mean away: a mistake that no operator prevents."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor) -> tuple[Tensor, int | None]:
        return x - x.mean(0), in_dims[0]


KEPT: list[Tensor] = []


def keeps_global(network: Any, h: Tensor) -> Tensor:
    """Takes away what passed before, kept as numbers."""
    shifted = h - (KEPT[-1] if KEPT else 0)
    KEPT.append(torch.tensor(h.detach().tolist(), dtype=h.dtype))
    return shifted


def keeps_in_class(network: Any, h: Tensor) -> Tensor:
    shifted = h - vars(Network).get("kept", 0)
    Network.kept = h.detach()  # type: ignore[attr-defined]
    return shifted


def keeps_slowly(network: Any, h: Tensor) -> Tensor:
    """Divides by a running mean of which an example is a ten-thousandth."""
    KEPT[:] = [0.9999 * (KEPT[0] if KEPT else torch.tensor(1.0)) + 1e-4 * h.detach().norm().item()]
    return h / KEPT[0].item()


REFUSED: dict[str, tuple[Between, str]] = {
    "a slow mean in a global": (keeps_slowly, "depends on the examples before"),
    "a rule for vmap that mixes": (lambda n, h: Mixing.apply(h), "is not the result of that example alone"),
    "a global": (keeps_global, "depends on the examples before"),
    "a class": (keeps_in_class, "keeps something outside of its own attributes"),
    "NumPy's generator": (lambda n, h: h + float(numpy.random.rand()), "draw by PyTorch instead"),
    "Python's generator": (lambda n, h: h * random.random(), "draw by PyTorch instead"),
    "batch statistics": (lambda n, h: F.batch_norm(h, None, None, training=True), "Expected more than 1 value per"),
    "other weights": (lambda n, h: h @ torch.zeros(3, 3, dtype=h.dtype), "shapes cannot be multiplied"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_a_function_of_one_example_is_refused(kind: str) -> None:
    """Before a gradient of real examples is used."""
    KEPT.clear()
    between, reason = REFUSED[kind]
    try:
        with pytest.raises(ConfigError, match=reason):
            IsolatedEngine(made(lambda: Network(between))).gradients(*examples())
    finally:
        if "kept" in vars(Network):
            del Network.kept  # type: ignore[attr-defined]


def asks_for_numbers(h: Tensor) -> Tensor:
    return h * torch.bernoulli(torch.sigmoid(h.detach()))


@pytest.mark.parametrize("draw", [F.dropout, F.gumbel_softmax, asks_for_numbers])
def test_each_example_draws_its_own_random_numbers(draw: Callable[[Tensor], Tensor]) -> None:
    engine, (inputs, targets) = IsolatedEngine(made(lambda: Network(lambda network, h: draw(h)))), examples()
    same = inputs[:1].expand(64, -1).contiguous(), targets[:1].expand(64)
    torch.manual_seed(0)
    computed = engine.gradients(*same)[0]["network.last.bias"]
    assert len({tuple(row) for row in computed.tolist()}) > 32
    torch.manual_seed(0)
    assert torch.equal(engine.gradients(*same)[0]["network.last.bias"], computed)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.CrossEntropyLoss(), r"drop .mean"),
        (nn.Identity(), "takes 2 positional"),
    ],
)
def test_a_loss_that_is_not_of_each_example_is_refused(loss: nn.Module, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        IsolatedEngine(made(Network, loss)).gradients(*examples())


@pytest.mark.parametrize("wrong", [lambda x: x.sum(), lambda x: x.double(), lambda x: (x, x)])
def test_another_result_than_stated_is_refused(wrong: Callable[[Tensor], Any]) -> None:
    with pytest.raises(ConfigError, match="in place of"):
        Mapped("f", "features", lambda: lambda _, __, x: wrong(x), lambda x: x).ready(torch.zeros(1, 3))


def test_a_slope_that_rounding_chooses_is_no_difference() -> None:
    """Of two equal numbers, max-pooling may take another one in a batch, but not of the numbers nearby."""

    def function(alone: Callable[..., Tensor]) -> Mapped:
        return Mapped(
            "f", "features", lambda: lambda _, __, x: x * (2 - 1.0 * (x[0] >= x[1])), lambda x: x, alone=lambda: alone
        )

    x = torch.ones(3, 4)
    assert torch.equal(function(lambda _, __, x: x * (2 - 1.0 * (x[0] > x[1])))(x), x)
    with pytest.raises(ConfigError, match="in a batch"):
        function(lambda _, __, x: 3 * x)(x)


class InPlaceOnAView(nn.Module):
    """Changes its inputs by a view of them, which is none in another order of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.view(len(x), -1)
        flat -= flat.mean(1, keepdim=True)
        return self.last(x.flatten(1))


class Halves(nn.CrossEntropyLoss):
    """A loss with half the weight after every start of an epoch."""

    def __init__(self) -> None:
        super().__init__(reduction="none")
        self.share = 1.0

    def start_epoch(self, epoch: int) -> None:
        self.share *= 0.5

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self.share * super().forward(logits, targets)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_losses_in_training_are_those_in_evaluation(order: torch.memory_format) -> None:
    """At later epochs too, and for images in another order of memory, which stay as they are."""
    torch.manual_seed(0)
    objective = Objective(InPlaceOnAView(), Halves())
    engine = IsolatedEngine(objective)
    images, targets = torch.rand(5, 3, 2, 2).contiguous(memory_format=order), torch.arange(5) % 3
    before = images.clone()
    for epoch in range(3):
        objective.start_epoch(epoch)
        _, losses = engine.gradients(images, targets)
        _, evaluated = isolated_prediction(objective)(images, targets)
        torch.testing.assert_close(losses, evaluated)
        logits = objective.network(images.clone(memory_format=torch.contiguous_format))
        torch.testing.assert_close(losses, (0.5 ** (epoch + 1) * PLAIN(logits, targets)).detach())
    assert torch.equal(images, before)


def test_views_are_computed_one_at_a_time_too() -> None:
    """Else a mean over the batch would be over an example's views in training alone."""
    network = nn.Sequential(nn.Flatten(), LessTheMean(), nn.Linear(12, 3))
    objective = Objective(network, PLAIN)
    objective.views, objective.isolated = 2, True
    gradients, _ = IsolatedEngine(objective).gradients(torch.rand(4, 2, 3, 2, 2), torch.arange(4) % 3)
    assert not gradients["network.2.weight"].any()
    assert gradients["network.2.bias"].any()


class LessTheMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Unbuilt(nn.Module):
    def __init__(self) -> None:
        self.k = 1


def test_a_module_that_was_not_built_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="cannot be copied"):
        fresh_copy(Objective(nn.Sequential(nn.Linear(2, 2), Unbuilt()), PLAIN))
