"""The isolated engine: gradients are autograd's of each example alone, and nothing is remembered."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from runner.clipping.per_example import clip_factors
from runner.gradients import (
    ENGINES,
    IsolatedEngine,
    IsolatedPrediction,
    Mapped,
    NotMappableError,
    Objective,
    private_copy,
)
from runner.gradients.isolated.recording import _rebuilt
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


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(2, 5, batch_first=True), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x.view(-1, 4, 2))[0][:, -1])


class StraightThrough(torch.autograd.Function):
    """Signs, whose gradient is the identity's: an autograd function in the older of its two styles."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def branching(network: Any, h: Tensor) -> Tensor:
    return h * 2 if h.sum() > 0 else h.square()


def tied() -> Network:
    again, more = nn.Linear(6, 6), nn.Linear(6, 6)
    more.weight = again.weight
    return Network(lambda n, h: n.more(n.again(h).tanh()) + 0.1 * n.first.weight.sum(), again=again, more=more)


def scaled() -> Network:
    """Has a learnable number without dimensions."""
    return Network(lambda n, h: n.scale * h, scale=nn.Parameter(torch.tensor(0.25)))


EXACT: dict[str, Callable[[], nn.Module]] = {
    "attention": Attention,
    "recurrent": Recurrent,
    "straight through": lambda: Network(lambda n, h: StraightThrough.apply(h)),
    "tied": tied,
    "a number": scaled,
}


def examples(seed: int = 1, count: int = COUNT) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 8, generator=stream, dtype=torch.float64)
    return inputs, torch.randint(CLASSES, (count,), generator=stream)


def made(build: Callable[[], nn.Module], loss: nn.Module = PLAIN) -> Objective:
    torch.manual_seed(0)
    return Objective(build(), loss).double()


@pytest.mark.parametrize("name", EXACT)
def test_gradients_are_those_of_each_example_alone(name: str) -> None:
    objective = made(EXACT[name])
    inputs, targets = examples()
    expected = per_example(objective, inputs, targets)
    found, losses = IsolatedEngine(objective).gradients(inputs, targets)
    for parameter, gradients in found.items():
        torch.testing.assert_close(gradients, torch.stack([each[parameter] for each in expected]))
    expected_losses = [objective(inputs[i : i + 1], targets[i : i + 1]) for i in range(COUNT)]
    torch.testing.assert_close(losses, torch.cat(expected_losses).detach())


def test_a_number_without_dimensions_is_clipped() -> None:
    objective, (inputs, targets) = made(scaled), examples()
    names = [name for name, _ in objective.named_parameters()]
    found = IsolatedEngine(objective).clipped_sum(inputs, targets, [names], lambda norms: clip_factors(norms, 0.1))
    torch.testing.assert_close(found.gradients, clipped_sum(per_example(objective, inputs, targets), 0.1))


# What a forward pass can keep, and where.
_KEPT: dict[str, Any] = {}


def in_attribute(network: Any, h: Tensor) -> Tensor:
    shifted = h - network.kept
    network.kept = h.detach().mean(0)
    return shifted


def in_closure() -> Between:
    kept: list[Tensor] = []

    def shift(network: Any, h: Tensor) -> Tensor:
        kept.append(h.detach().mean(0))
        return h - kept[0]

    return shift


def in_tensor(network: Any, h: Tensor) -> Tensor:
    shifted = h - network.total
    network.total += h.detach().sum(0)
    return shifted


def in_flag(network: Any, h: Tensor) -> Tensor:
    """Sets a Python flag by an example's numbers."""
    if _KEPT.get("flag"):
        return 5 * h
    _KEPT["flag"] = bool(h[0, 0] > 0)
    return h


def in_generator(network: Any, h: Tensor) -> Tensor:
    """Seeds PyTorch's generator by an example, and draws from it for the next."""
    noise = torch.rand(6, dtype=h.dtype)
    torch.manual_seed(int(h.sum().abs() * 1e6))
    return h + noise


def of_the_gradient(network: Any, h: Tensor) -> Tensor:
    """Keeps the gradient that passes."""
    h = h / network.scale
    if h.requires_grad:
        h.register_hook(lambda g: setattr(network, "scale", 1 + g.abs().sum().item()))
    return h


REMEMBERING: dict[str, Callable[[], nn.Module]] = {
    "in an attribute": lambda: Network(in_attribute, kept=0.0),
    "in a closure": lambda: Network(in_closure()),
    "in a buffer": lambda: Network(in_tensor, total=nn.Buffer(torch.zeros(6))),
    "in a plain tensor": lambda: Network(in_tensor, total=torch.zeros(6, dtype=torch.float64)),
    "of the gradient": lambda: Network(of_the_gradient, scale=1.0),
}


@pytest.mark.parametrize("kind", REMEMBERING)
def test_no_batch_and_no_example_is_remembered(kind: str) -> None:
    """The gradients of a batch are the same after any other batch, and of an example after any other example.

    The batches before have the same size, and a smaller one.
    """
    engine = IsolatedEngine(made(REMEMBERING[kind]))
    inputs, targets = examples()

    def after(seed: int) -> dict[str, Tensor]:
        engine.gradients(*examples(seed, COUNT))
        engine.gradients(*examples(seed, 3))
        torch.manual_seed(3)
        return engine.gradients(inputs, targets)[0]

    one, other = after(10), after(11)
    for name, gradients in one.items():
        assert torch.equal(gradients, other[name])
    changed = inputs.clone()
    changed[0] *= -7
    torch.manual_seed(3)
    found = engine.gradients(changed, targets)[0]
    for name, gradients in one.items():
        assert torch.equal(gradients[1:], found[name][1:])


def by_data(network: Any, h: Tensor) -> Tensor:
    """Draws as many random numbers as an example's numbers ask for: the next example would see where the stream is."""
    return h + 0 * torch.poisson(h.detach().abs()) + 0.1 * torch.rand_like(h)


def by_numpy(network: Any, h: Tensor) -> Tensor:
    return h + float(numpy.random.rand())


NUMBERS, DRAWS = "asks for an example's numbers, .*: use `torch.where` instead", "draws more random numbers for some"
UNRECORDED: dict[str, tuple[Between, str]] = {
    "a branch": (branching, NUMBERS),
    "a flag": (in_flag, NUMBERS),
    "a seed": (in_generator, NUMBERS),
    "a draw by data": (by_data, DRAWS),
    "a draw by NumPy": (by_numpy, "draw by PyTorch instead"),
}


@pytest.mark.parametrize("kind", UNRECORDED)
def test_what_needs_numbers_to_run_is_refused(kind: str) -> None:
    _KEPT.clear()
    between, reason = UNRECORDED[kind]
    objective, (inputs, targets) = made(lambda: Network(between)), examples()
    for engine in (IsolatedEngine(objective), ENGINES["one_pass"](objective)):
        with pytest.raises(NotMappableError, match=reason):
            engine.clipped_sum(inputs, targets, [[name for name, _ in objective.named_parameters()]], torch.ones_like)
    assert not _KEPT


def test_a_constant_is_the_same_in_every_call() -> None:
    """A graph whose constant is changed in place, as another version of PyTorch could record it."""
    graph, holder = torch.fx.Graph(), nn.Module()
    holder.total = torch.zeros(2)
    graph.output([graph.call_function(torch.ops.aten.add_.Scalar, (graph.get_attr("total"), 1.0))])
    rebuilt = _rebuilt(torch.fx.GraphModule(holder, graph))
    for _ in range(2):
        torch.testing.assert_close(rebuilt()[0], torch.ones(2))


@pytest.mark.parametrize("others", ["cumsum(0)", "sort(0).values", "detach().mean(0)"])
def test_another_example_is_out_of_reach(others: str) -> None:
    mixed = made(lambda: Network(lambda network, h: h + 3 * eval(f"h.{others}")))
    engine, (inputs, targets) = IsolatedEngine(mixed), examples()
    whole = engine.gradients(inputs, targets)[0]
    for i in range(COUNT):
        for name, gradients in engine.gradients(inputs[i : i + 1], targets[i : i + 1])[0].items():
            torch.testing.assert_close(whole[name][i], gradients[0])


def test_each_example_draws_its_own_random_numbers() -> None:
    noisy = made(lambda: Network(lambda network, h: F.dropout(h, 0.5, network.training)))
    engine, (inputs, targets) = IsolatedEngine(noisy), examples()
    same = inputs[:1].expand(64, -1).contiguous(), targets[:1].expand(64)
    torch.manual_seed(0)
    found = engine.gradients(*same)[0]["network.last.bias"]
    assert len({tuple(row) for row in found.tolist()}) > 32
    torch.manual_seed(0)
    assert torch.equal(engine.gradients(*same)[0]["network.last.bias"], found)


@torch.library.custom_op("tests_isolated::spy", mutates_args=())
def spy(x: Tensor) -> Tensor:
    _KEPT.setdefault("spied", []).append(x)
    return x.clone()


@spy.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Watching(Tensor):
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _KEPT.setdefault("watched", []).append(args)
        return super().__torch_function__(function, types, args, kwargs or {})


def lying(*arguments: Any) -> Any:
    """A function that claims to belong to Python's `math`."""
    _KEPT.setdefault("spied", []).append(arguments)
    return arguments[0]


lying.__module__ = "math"


def by_tracer(network: Any, h: Tensor) -> Tensor:
    """Puts a function of its own into the graph while it is recorded."""
    if (mode := get_proxy_mode()) is not None:
        graph = mode.tracer.graph  # type: ignore[attr-defined]
        graph.create_node("call_function", lying, (next(iter(graph.nodes)),))
    return h


class Like(type):
    """Its classes are equal to int."""

    def __eq__(cls, other: object) -> bool:
        return other is int

    def __hash__(cls) -> int:
        return hash(int)


class Index(metaclass=Like):
    """Is plain as an argument of `getitem` is to be, and written out as a call of a function."""

    def __repr__(self) -> str:
        return "__import__('sys').modules['tests.gradients.test_isolated'].lying(0)"


def by_argument(network: Any, h: Tensor) -> Tensor:
    if (mode := get_proxy_mode()) is not None:
        graph = mode.tracer.graph  # type: ignore[attr-defined]
        graph.create_node("call_function", operator.getitem, (next(iter(graph.nodes)), Index()))
    return h


def by_the_graph(network: Any, h: Tensor) -> Tensor:
    """Keeps the recorded graph, to put a hook on it later."""
    if (mode := get_proxy_mode()) is not None:
        _KEPT["graph"] = [mode.tracer.graph]  # type: ignore[attr-defined]
    return h


def test_nobody_else_holds_what_was_recorded() -> None:
    _KEPT.clear()
    engine, (inputs, targets) = IsolatedEngine(made(lambda: Network(by_the_graph))), examples()
    engine.mapped(inputs[:1], targets[:1])
    (graph,) = _KEPT["graph"]
    seen: list[Any] = []
    if graph.owning_module is not None:
        graph.owning_module.register_forward_pre_hook(lambda _, given: seen.append(given))
    engine.gradients(inputs, targets)
    assert not seen


OWN: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "an operator": (lambda: Network(lambda n, h: h + 0 * spy(h.detach())), "no operator of PyTorch's own"),
    "a subclass of tensors": (
        lambda: Network(lambda n, h: h * n.one, one=torch.ones(6, dtype=torch.float64).as_subclass(Watching)),
        "cannot be copied",
    ),
    "by the tracer": (lambda: Network(by_tracer), "no operator of PyTorch's own"),
    "by an argument": (lambda: Network(by_argument), "hands a Index to an operator"),
}


@pytest.mark.parametrize("kind", OWN)
def test_what_would_run_python_on_data_is_refused(kind: str) -> None:
    _KEPT.clear()
    build, reason = OWN[kind]
    with pytest.raises(NotMappableError, match=reason):
        IsolatedEngine(made(build)).gradients(*examples(count=1))
    seen = [each for arguments in _KEPT.get("watched", ()) for each in arguments if isinstance(each, Tensor)]
    assert all(type(each) is Watching for each in seen)  # its own constant, while it is copied
    assert "spied" not in _KEPT


class Strided(Network):
    """Reads from the start of the memory that its input is in; has no rule for `vmap`, so examples are looped over."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.as_strided(x, (1, 8), (8, 1), 0))


def kept_in_place(network: Any, h: Tensor) -> Tensor:
    kept = torch.zeros(6, dtype=h.dtype)
    kept.add_(h.detach()[0])
    return h + 0 * kept


def test_memory_beside_an_example_is_out_of_reach() -> None:
    objective, (inputs, targets) = made(lambda: Strided(kept_in_place)), examples()
    engine = IsolatedEngine(objective)
    found, changed = engine.gradients(inputs, targets)[0], inputs.clone()
    changed[0] = 7.0
    again = engine.gradients(changed, targets)[0]
    for name in found:
        assert torch.equal(found[name][1:], again[name][1:])
        assert not torch.equal(found[name][0], again[name][0]) or name.endswith("last.bias")


@pytest.mark.parametrize("make", [torch.empty_like, lambda x: torch.empty_strided((64,), (1,))])
def test_memory_that_nobody_filled_is_zero(make: Callable[[Tensor], Tensor]) -> None:
    mapped = Mapped(lambda shared, x: make(x) + 0 * x, {}, (torch.zeros(64),), torch.empty(64, device="meta"))
    for _ in range(20):
        left = [torch.full((size,), 7.25) for size in (64, 4 * 64)]
        del left
        assert not mapped({}, torch.ones(4, 64)).any()


def beyond(shared: Any, x: Tensor) -> Tensor:
    lengths = torch.tensor([1000])
    return torch.segment_reduce(x, "max", lengths=lengths, unsafe=True)[0] + 0 * x


def written_beyond(shared: Any, x: Tensor) -> Tensor:
    """Adds to an entry that the vector does not have, which `to_dense` does not notice."""
    far = torch.sparse_coo_tensor(torch.tensor([[399_000]]), x[:1], (8,), check_invariants=False)
    return far.to_dense() + x


def of_a_library(shared: Any, x: Tensor) -> Tensor:
    return torch.ops.inductor._reinterpret_tensor(x, (8,), (1,), 8)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (beyond, "memory beyond one example"),
        (written_beyond, "memory beyond one example"),
        (of_a_library, "no operator of PyTorch's own"),
    ],
)
def test_what_could_read_beside_an_example_is_not_recorded(function: Callable[..., Tensor], said: str) -> None:
    with pytest.raises(NotMappableError, match=said):
        Mapped(function, {}, (torch.zeros(8),), torch.empty(8, device="meta"))


def test_memory_that_grows_is_not_recorded() -> None:
    with pytest.raises(NotMappableError, match="leaves memory as it was found"):
        Mapped(lambda shared, x: x.clone().resize_(64), {}, (torch.zeros(8),), torch.empty(64, device="meta"))


def test_a_loss_of_the_whole_batch_is_refused() -> None:
    with pytest.raises(NotMappableError, match=r"drop .mean"):
        IsolatedEngine(made(Network, nn.CrossEntropyLoss())).gradients(*examples())


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


class Scaled(nn.Module):
    """A network with a buffer that is set later, as private statistics are."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(12, 3)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x.flatten(1) * self.scale)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kind", [InPlaceOnAView, Scaled])
@pytest.mark.parametrize("loss", [Halves(), nn.CrossEntropyLoss(reduction="none")])
def test_losses_in_training_are_those_in_evaluation(order, kind, loss) -> None:
    """Also after later changes of buffers, at later epochs, and for images in another order of memory."""
    torch.manual_seed(0)
    objective = Objective(kind(), copy.deepcopy(loss))
    engine = IsolatedEngine(objective)
    if kind is Scaled:
        objective.network.scale.fill_(0.0)
    images = torch.rand(5, 3, 2, 2).contiguous(memory_format=order)
    targets = torch.arange(5) % 3
    for epoch in range(3):
        objective.start_epoch(epoch)
        _, losses = engine.gradients(images, targets)
        _, evaluated = IsolatedPrediction(objective, images, targets)(images, targets)
        torch.testing.assert_close(losses, evaluated)
        share = 0.5 ** (epoch + 1) if isinstance(loss, Halves) else 1.0
        expected = share * nn.functional.cross_entropy(
            objective.network(images.clone(memory_format=torch.contiguous_format)), targets, reduction="none"
        )
        torch.testing.assert_close(losses, expected.detach())


def test_views_are_computed_one_at_a_time_too() -> None:
    """Else a mean over the batch would be over an example's views in training alone."""
    network = nn.Sequential(LessTheMean(), nn.Flatten(), nn.Linear(12, 3))
    objective = Objective(network, nn.CrossEntropyLoss(reduction="none"))
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
    with pytest.raises(NotMappableError, match="cannot be copied"):
        private_copy(Objective(nn.Sequential(nn.Linear(2, 2), Unbuilt()), nn.CrossEntropyLoss(reduction="none")))


def test_an_operator_that_fails_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(NotMappableError):
        Mapped(lambda shared, x: x @ torch.zeros(3, 3), {}, (torch.zeros(64),), torch.empty(64, device="meta"))
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
