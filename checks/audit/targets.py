"""Targets of attacks: a clipping and a mechanism from conf/, between two worlds that an attacker distinguishes.

The worst case is constructed. The canary is the one example whose presence is in question. The network's weights let it
saturate every bound of every clipping at once. The first layer reads an input of norm one, backprop clipping's input
bound, and passes on one of norm one. The loss's gradient passes all layers at its full length; an upstream row fixes
its direction. It is far above every bound. So the canary's contribution has the norm that the sensitivity states, in
every noise group, for every clipping.

The mechanism's neighbours define the worlds. The canary is there or not (add-or-remove-one), has a gradient or none
(zero-out), or has a gradient or the opposite one (replace-one). If every batch holds all examples, the gradients of
the others are known and point the other way, at their bound. This reveals a division by the actual number of
examples. (Rows of the mean loss are at their bound exactly, so that one example more moves all of them.)
If batches are sampled, the others have no gradients, because unknown gradients would hide the canary.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from runner.accounting import Ledger, Releases, calibrate_noise_multiplier
from runner.accounting.calibration import Accountant
from runner.accounting.ledger import sampled_gaussians
from runner.clipping import Clipping, gradient_sum
from runner.config import REPOSITORY, Precision, Sampling, options_of
from runner.config.checkout import git
from runner.data.augmentation import viewed
from runner.gradients import ENGINES, Engine, GradientSum, MappedEngine, Objective, OnePassEngine
from runner.gradients.interface import OrdinaryPass
from runner.gradients.terms import Factors
from runner.mechanism.dp_sgd import Mechanism, Scheduled
from runner.mechanism.layerwise import OfMeanLoss
from runner.mechanism.normal import generator
from runner.networks.lipschitz import Spectral
from runner.networks.lipschitz.losses import LipschitzLoss
from runner.networks.objective import InputBound
from runner.training.graph.network import MaskedEngine, RecordedObjective

DELTA = 1e-5
LIPSCHITZ = "lipschitz"  # the clipping that clips nothing
BANDED = "banded"  # the mechanism whose noise is correlated
PLAIN = "dp_sgd"  # the mechanism of a run whose config names none
DEFAULT_ACCOUNTANT = "rdp_classic"  # in conf/config.yaml
_STRONG = 1e6  # a gradient above every bound
_ROW = 1.0e-2  # the bound of upstream gradients in conf/clipping/backprop.yaml


class Upstream(LipschitzLoss):
    """A loss whose gradient with respect to the logits [batch, 2] equals the targets [batch, 2], of any length.

    With views, `Objective` repeats each number of the targets for the views of its example.
    """

    def __init__(self, gradient_bound: float | None = None, views: int = 1) -> None:
        super().__init__(gradient_bound)
        self.views = views

    def constant(self, classes: int) -> float:
        return math.inf

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return (logits * targets.view(-1, 2, self.views).mT.reshape(-1, 2)).sum(1)


class Network(NamedTuple):
    """An objective and the input [...] of all examples."""

    objective: Objective
    input: Tensor


def linear(layers: int = 2) -> Network:
    """Make linear layers that are the identity: rows orthogonal to the inputs pass all of them, and the clips."""
    network = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(layers)))
    for parameter in network.parameters():
        parameter.data.copy_(torch.eye(2))
    return _network(network, torch.tensor([1.0, 0.0]))


def convolution() -> Network:
    """Make a convolution that copies one pixel, and a linear layer that reads it, both with biases."""
    first, last = _zero(nn.Conv2d(1, 1, 2), nn.Linear(49, 2))
    first.weight.data[0, 0, 0, 0] = 1
    last.weight.data[1, 0] = 1
    pixel = torch.zeros(1, 8, 8)
    pixel[0, 0, 0] = 1
    return _network(nn.Sequential(first, nn.Flatten(), last), pixel)


def smooth(*, bias: bool) -> Network:
    """Make a convolution under a constant image with a constant upstream gradient: a small l2 norm, a large sum."""
    first, last = _zero(nn.Conv2d(1, 1, 2, bias=bias), nn.Linear(49, 2, bias=False))
    last.weight.data[1] = 1 / 7
    return _network(nn.Sequential(first, nn.Flatten(), last), torch.full((1, 8, 8), 1 / 8))


def cancelling() -> Network:
    """Make a convolution of two nearly equal numbers, of which bf16 rounds one up and one down.

    The last layer reads their difference, 2^-12, or 16 times as much in bf16. It is all of the gradient, as the weights
    of that layer are zero.
    """
    first, last = _zero(nn.Conv2d(1, 1, (1, 2), bias=False), nn.Linear(1, 2, bias=False))
    first.weight.data.copy_(torch.tensor([[[[1.0, -1.0]]]]))
    pixels = (1 + 2**-8 + torch.tensor([[[2**-12, -(2**-12)]]])) / 2
    return _network(nn.Sequential(first, nn.Flatten(), last), pixels)


def _network(network: nn.Module, example: Tensor) -> Network:
    """Make a network that meets all assumptions of a bound by the network: inputs and weights of norm one."""
    return Network(Objective(network, Upstream(), InputBound(tuple(example.shape), 1.0), Spectral()), example)


def _zero(*layers: Any) -> Any:
    for layer in layers:
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)
    return layers


NETWORKS: Mapping[str, Callable[[], Network]] = {
    "linear": linear,
    "one layer": partial(linear, 1),
    "deep": partial(linear, 8),
    "convolution": convolution,
    "smooth": partial(smooth, bias=False),
    "smooth, bias": partial(smooth, bias=True),
    "cancelling": cancelling,
}


@dataclass(frozen=True)
class Setting:
    """Names of options, the batches, and the number of steps that the attacker sees.

    `more` has further arguments of the mechanism's option, by name; `factors` are those of noise that changes by step.
    `beside` is a group and one of its options that the run has besides: an engine, a precision, views, an average, a
    schedule, an optimizer, or a loss with a private count. For that loss the canary alone is of class 1.
    """

    clipping: str
    mechanism: str = PLAIN
    sampling: Sampling = Sampling.poisson
    examples: int = 16
    batch_size: int = 16
    steps: int = 1
    network: str = "linear"
    more: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[str, str] | None = None

    def option_of(self, group: str) -> str:
        """Return the option besides, if it is of that group, or an empty text."""
        return self.beside[1] if self.beside is not None and self.beside[0] == group else ""

    @property
    def options(self) -> set[tuple[str, str]]:
        """All options, each as a group and a name."""
        options = {("clipping", self.clipping), ("mechanism", self.mechanism)}
        return options | ({self.beside} if self.beside is not None else set())

    @property
    def sees(self) -> str:
        """The numbers that the attacker sees: weights, if gradients do not depend on them."""
        if self.network != "one layer":
            return "releases"
        return "all weights" if self.option_of("averaging") or self.option_of("schedule") else "weights"

    @property
    def everyone(self) -> bool:
        """True if each batch is the whole data set."""
        return self.batch_size == self.examples

    def sampled(self, batch_size: int = 1) -> "Setting":
        """Return the same setting with ten examples and batches of this expected size."""
        return replace(self, examples=10, batch_size=batch_size)


@dataclass(frozen=True)
class World:
    """A data set: inputs [examples, ...], upstream rows [examples, 2], and the absent examples."""

    inputs: Tensor
    rows: Tensor
    absent: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Target:
    """One implementation under attack; faults replace its parts."""

    setting: Setting
    clipping: Clipping
    mechanism: Mechanism
    accountant: Accountant

    @cached_property
    def network(self) -> Network:
        network = network_of(self.setting)
        if self.views is not None:
            network.objective.views = self.views.views
            network.objective.loss = Upstream(views=self.views.views)
        return network

    @cached_property
    def views(self) -> Any:
        """The views of each example, all alike, because the one image is constant."""
        name = self.setting.option_of("augmentation")
        return instantiate(option("augmentation", name)) if name else None

    @cached_property
    def engine(self) -> Engine:
        """The setting's engine, or the default one."""
        if precision := self.setting.option_of("precision"):
            return Lowered(self.network.objective, Precision(precision))
        engine = MappedEngine if self.setting.option_of("engine") == "isolated" else OnePassEngine
        return engine(self.network.objective)

    @property
    def worlds(self) -> tuple[World, World]:
        """The worlds without the canary and with it; it is the last example."""
        n = self.setting.examples
        inputs = self.network.input.expand(n, *self.network.input.shape).clone()
        rows = torch.zeros(n, 2)
        if self.setting.everyone:
            rows[:-1, 1] = (n - 1) * _ROW if isinstance(self.mechanism, OfMeanLoss) else _STRONG
        rows[-1, 1] = -_STRONG
        within = World(inputs, rows)
        relation = self.mechanism.neighbouring_relation
        if relation == "add-or-remove-one":
            return replace(within, absent=frozenset({n - 1})), within
        other = rows.clone()
        other[-1] *= {"zero-out": 0, "replace-one": -1}[relation]
        return replace(within, rows=other), within

    def sums(self, world: World, indices: list[int]) -> dict[str, Tensor]:
        """Sum a batch's contributions by parameter, as the training loop does."""
        present = [i for i in indices if i not in world.absent]
        clipping = self.mechanism.applied(self.clipping, len(present))
        inputs, rows, groups = world.inputs[present], world.rows[present], self.mechanism.noise_groups
        if self.views is not None:
            numbers = self.views.draw(len(inputs), generator(0, "augmentation", torch.device("cpu")))
            inputs = viewed(self.views, inputs, numbers)
        targets = (rows[:, 1] < 0).long() if self.setting.option_of("loss") else rows
        return gradient_sum(clipping, self.engine, inputs, targets, len(world.rows), groups).gradients

    @cached_property
    def ledger(self) -> Ledger:
        """The charges of the steps that the attacker sees."""
        ledger = Ledger()
        for step in range(self.setting.steps):
            self.mechanism.at(step).charge_step(ledger, step % self.mechanism.steps_per_epoch)
        return ledger

    @property
    def moved(self) -> float:
        """The shift of the first step's release by the canary, as a share of what its noise is charged for.

        In units of the noise, the squares of the shifts of all noise groups add up to that of the whole release.
        """
        sums = [self.sums(world, list(range(self.setting.examples))) for world in self.worlds]
        first, square = self.mechanism.at(0), 0.0
        for group in first.noise_groups:
            shift = torch.cat([(sums[0][name] - sums[1][name]).flatten() for name in group.parameters])
            square += float(shift.norm() / first.noise_std(group)) ** 2
        charged = (sampled_gaussians(self.ledger.actual, DELTA) or [])[0]
        return math.sqrt(square) * charged.noise_multiplier

    @property
    def claimed(self) -> float:
        """Epsilon as the paper counts: its accountant, on its charges."""
        return self.accountant.epsilon(self.ledger.claimed, DELTA)


class Lowered(OrdinaryPass):
    """The engine of steps in fewer bits, on batches without padding."""

    def __init__(self, objective: Objective, precision: Precision) -> None:
        self.recorded = RecordedObjective(objective)
        super().__init__(objective)
        self.recorded.compute_in(precision)

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        engine = MaskedEngine(self.recorded, self.recorded.values, torch.ones(len(targets), dtype=torch.bool))
        computed = engine.clipped_sum(inputs, targets, groups, factors)
        shaped = {name: g.view_as(self._parameters[name]) for name, g in computed.gradients.items()}
        return replace(computed, gradients=shaped)


def network_of(setting: Setting) -> Network:
    """Build the network under attack. If its own layers bound gradients, its loss bounds them in the logits."""
    network = NETWORKS[setting.network]()
    if loss := setting.option_of("loss"):
        network.objective.loss = instantiate(option("loss", loss))
    elif setting.clipping == LIPSCHITZ:
        network.objective.loss = Upstream(gradient_bound=1.0)
    return network


def option(group: str, name: str) -> DictConfig:
    """Load one file of conf/, on top of the options of its group that it names as defaults."""
    config = cast(DictConfig, OmegaConf.load(REPOSITORY / "conf" / group / f"{name}.yaml"))
    below = [option(group, default) for default in config.get("defaults", []) if isinstance(default, str)]
    return cast(DictConfig, OmegaConf.merge(*below, config)) if below else config


def own_options(group: str) -> list[str]:
    """List the project's own options of a config group: those that git tracks, or all of them without git.

    >>> own_options("engine")
    ['isolated', 'one_pass']
    """
    if group in ("engine", "precision"):
        return sorted(ENGINES if group == "engine" else (member.value for member in Precision))
    listed = git(REPOSITORY, "ls-files", f"conf/{group}")
    names = options_of(group)
    return names if not listed else [name for name in names if f"conf/{group}/{name}.yaml" in listed.splitlines()]


def target(setting: Setting, noise_multiplier: float) -> Target:
    """Build the parts that the options name, as a run does.

    Raises:
        ValueError: they do not fit together.
    """
    clipping: Clipping = instantiate(option("clipping", setting.clipping))
    kind: Any = partial(Scheduled, **setting.more) if setting.more else Mechanism
    accountant = DEFAULT_ACCOUNTANT
    if setting.mechanism != PLAIN:
        config = option("mechanism", setting.mechanism)
        kind = instantiate(config.mechanism, **setting.more)
        accountant = next(line["override /accountant"] for line in config.defaults)
    groups = clipping.noise_groups(network_of(setting).objective)
    mechanism = kind(
        sampling=setting.sampling,
        examples=setting.examples,
        batch_size=setting.batch_size,
        noise_multiplier=noise_multiplier,
        noise_groups=groups,
    )
    return Target(setting, clipping, mechanism, instantiate(option("accountant", accountant)))


def calibrated(setting: Setting, epsilon: float, *, kind: str = "sound") -> Target:
    """Build the target whose `sound` or `claimed` epsilon is this, or a little less."""

    def releases(noise_multiplier: float) -> Releases:
        ledger = target(setting, noise_multiplier).ledger
        return ledger.actual if kind == "sound" else ledger.claimed

    accountant = instantiate(option("accountant", "pld")) if kind == "sound" else target(setting, 1.0).accountant
    return target(setting, calibrate_noise_multiplier(accountant, releases, epsilon, DELTA, tolerance=1e-3))
