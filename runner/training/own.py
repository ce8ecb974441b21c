"""A user's parts of a run: checks before any data is read, and the assumptions that remain.

Network, loss, clipping and features of a user are applied to one example at a time. If possible, their code is recorded
first (`runner.gradients.isolated`). Assumptions that cannot be enforced are listed next to ε: see `rests_on`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from runner.clipping import Backprop, NoClipping, OwnClipping
from runner.config import ConfigError
from runner.config.origin import is_own
from runner.gradients import IsolatedEngine, Mapped, NotMappableError, Objective, is_known
from runner.training.modules import LIBRARIES
from runner.training.targets import bare_name, targets

if TYPE_CHECKING:
    from runner.training.prepare import Run

_AT_ONCE = 256  # images
_LEFT = 1 - 1e-6  # of a norm; the rest is for rounding
_BELIEVED = {
    "dataset": "the data set {}: each of its images is believed to be one example, and none both trained on and tested",
    "accountant": "the accountant {}: its ε is believed",
    "screening": "the update rule {}: it is believed to see no training example",
}
_ASKS = "DataDependent"  # in the names of PyTorch's errors
_OF_ALL = "{}: believed to hold or read no training example by itself, and not to draw the noise again from the seed"
_FORKED = "{}: its Python code runs in a process for each example, and is believed to keep nothing outside of it"


@dataclass(frozen=True)
class OwnFeatures:
    """Features that a user wrote, applied to each image separately, and cut to the norm that they state.

    Attributes:
        own: the user's object.
        largest_norm: the largest L2 norm of one image's features, if the object states it; read once.

    Raises:
        ValueError: the norm is not above 0 and finite.
    """

    own: Any
    largest_norm: float | None = field(init=False)
    _mapped: dict[Any, Mapped] = field(default_factory=dict, repr=False, compare=False)
    _shapes: dict[tuple[int, ...], list[int]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        stated = getattr(self.own, "largest_norm", None)
        norm = None if stated is None else float(stated)
        if norm is not None and not 0 < norm < math.inf:
            raise ValueError(f"Expected a largest_norm > 0 and finite, got {norm}.")
        object.__setattr__(self, "largest_norm", norm)

    def shape(self, image_shape: Sequence[int]) -> list[int]:
        """Return the shape of one image's features, as the user's object first states it.

        Raises:
            ValueError: it has no dimension.
        """
        if (key := tuple(image_shape)) not in self._shapes:
            self._shapes[key] = [int(size) for size in self.own.shape(list(image_shape))]
        if not self._shapes[key]:
            raise ValueError("Expected features of one dimension or more.")
        return list(self._shapes[key])

    def __call__(self, images: Tensor) -> Tensor:
        """Convert images [examples, channels, height, width] to features [examples, *shape].

        Raises:
            ConfigError: the user's object fails on one image, or its features do not have the stated shape.
        """
        try:
            found = torch.cat([self.mapped(images[:1])({}, some) for some in images.split(_AT_ONCE)])
        except NotMappableError as error:
            raise ConfigError(f"features: {type(self.own).__qualname__} of one image: {error}") from error
        if self.largest_norm is None:
            return found
        finite = found.isfinite().flatten(1).all(1).view(-1, *[1] * (found.dim() - 1))
        return torch.where(finite, found, 0.0).renorm(2, 0, self.largest_norm * _LEFT)

    def mapped(self, images: Tensor) -> Mapped:
        """Return the features of one image, ready to be mapped; only the shape of the images [1, ...] is used."""
        key = (images.shape[1:], images.dtype, images.device)
        if key not in self._mapped:
            result = torch.empty(self.shape(images.shape[1:]), device="meta")
            self._mapped[key] = Mapped(_OfOneImage(self.own), {}, (torch.zeros_like(images[0]),), result)
        return self._mapped[key]


@dataclass(frozen=True)
class _OfOneImage:
    """A user's features of one image, as a function that can be recorded and pickled."""

    own: Any

    def __call__(self, shared: dict[str, Tensor], image: Tensor) -> Tensor:
        features: Tensor = self.own(image[None])
        return features[0]


def rests_on(run: Run) -> list[str]:
    """Return the assumptions of the run's ε that this package cannot enforce, a text each.

    A user's class that computes noise or charges is not among them, as such a run has no sound ε.

    Raises:
        ConfigError: as in `mapped_parts`.
    """
    if not run.mechanism.private:
        return []
    dataset = getattr(run.dataset, "own", run.dataset)
    every = targets(OmegaConf.to_container(run.config, resolve=True))
    named = [target for place, target in every if not place.startswith("dataset.")]  # the data set holds the examples
    own = dict.fromkeys(bare_name(target) for target in named if target.partition(".")[0] not in LIBRARIES)
    parts = {"dataset": dataset, "accountant": run.accountant, "screening": run.rule}
    found = [_BELIEVED[name].format(type(part).__qualname__) for name, part in parts.items() if is_own(part)]
    found += [_FORKED.format(name) for name, each in run.mapped_parts.items() if each.forked]
    return found + ([_OF_ALL.format(", ".join(own))] if own else [])


def check_own(run: Run) -> None:
    """Run the user's parts on made-up examples, and print on stderr how they are applied. No data is read.

    Raises:
        ConfigError: a part cannot be applied to one example, or the network fails in evaluation.
    """
    for name, each in run.mapped_parts.items():
        print(
            f"{name}: applied to one example at a time, so an operation over the batch is over that one."
            f"{_slowness(each, run)}",
            file=sys.stderr,
        )
    objective = run.new_objective().eval()
    if run.apart:
        shape = run.features.shape(run.dataset.shape)
        images, targets = torch.zeros(2, *shape, device=run.device), torch.zeros(2, dtype=torch.long, device=run.device)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                logits, losses = objective.predict(images, targets)
        except Exception as error:  # any error of a user's code
            raise ConfigError(f"architecture or loss: evaluation of two made-up examples: {error}") from error
        if logits.shape != (2, run.dataset.classes) or losses.shape != (2,):
            raise ConfigError(
                f"architecture or loss: expected logits of shape (2, {run.dataset.classes}) and losses of shape (2,) "
                f"for two examples, got {tuple(logits.shape)} and {tuple(losses.shape)}."
            )


def mapped_parts(run: Run) -> dict[str, Mapped]:
    """Return the user's parts that are applied to each example separately, by a readable name.

    Raises:
        ConfigError: a part cannot be applied to one example.
    """
    objective = run.new_objective()
    objective.start_epoch(0)
    shape = run.features.shape(run.dataset.shape)
    inputs, targets = torch.zeros(1, *shape, device=run.device), torch.zeros(1, dtype=torch.long, device=run.device)
    parts: dict[str, Mapped] = {}
    try:
        where = "features"
        if isinstance(run.features, OwnFeatures):
            images = torch.zeros(1, *run.dataset.shape, device=run.device)
            parts[type(run.features.own).__qualname__] = run.features.mapped(images)
        where = "clipping"
        if isinstance(run.clipping, OwnClipping):
            parts[type(run.clipping.own).__qualname__] = run.clipping.mapped(objective)
        where = "architecture or loss"
        engine = run.engine(objective)
        if run.apart and isinstance(engine, IsolatedEngine) and not isinstance(run.clipping, NoClipping):
            within = run.clipping if isinstance(run.clipping, Backprop) else None
            parts[_names(objective)] = engine.mapped(inputs, targets, within)
    except NotMappableError as error:
        raise ConfigError(f"{where}: the gradient of one example cannot be taken: {error}") from error
    return parts


def _names(objective: Objective) -> str:
    """Return the classes of an objective that are not known, each once."""
    kinds = {type(module).__qualname__: None for module in objective.modules() if not is_known(module)}
    return ", ".join(kinds) or type(objective.network).__qualname__


def _slowness(part: Mapped, run: Run) -> str:
    """Return the rate of a part whose examples are not computed together, the reason, and a faster way, else ""."""
    if part.slow is None:
        return ""
    why = part.slow
    if not part.forked:
        why = "PyTorch cannot map one of its operators over examples"
    elif _ASKS in why:
        why = "its Python code asks for a number of an example, as `if x.sum() > 0` does"
    recurrent = any(isinstance(module, nn.RNNBase) for module in run.new_objective().modules())
    faster = " The recurrent layers of opacus.layers (DPLSTM, DPGRU, DPRNN) are faster here." if recurrent else ""
    return f" They are computed one after another, some {float(f'{part.rate:.2g}'):g} examples a second: {why}.{faster}"
