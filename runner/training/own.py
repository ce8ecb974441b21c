"""A user's parts of a run: network, loss, clipping and features are applied to one example at a time.

If possible, their code is recorded first (`runner.gradients.isolated`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor

from runner.clipping import Backprop, Clipping, NoClipping, OwnClipping
from runner.config import ConfigError
from runner.data.augmentation import Augmentation
from runner.data.datasets import ImageDataset
from runner.data.features import Features
from runner.gradients import Engine, IsolatedEngine, Mapped, NotMappableError, Objective, is_known

_AT_ONCE = 256  # images
_LEFT = 1 - 1e-6  # of a norm; the rest is for rounding


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


class OwnViews:
    """Views that a user wrote, of one image at a time.

    The user's object has the numbers `views` and `numbers`, and `view(image, drawn)`: from an image
    [channels, height, width] and uniform numbers [numbers] in [0, 1) to an image of the same shape.

    Raises:
        ValueError: it has no view, or a negative number of numbers.
    """

    def __init__(self, own: Any) -> None:
        self.own, self.views, self._numbers = own, int(own.views), int(own.numbers)
        if self.views < 1 or self._numbers < 0:
            raise ValueError(f"Expected views > 0 and numbers >= 0, got {self.views} and {self._numbers}.")
        self._mapped: dict[Any, Mapped] = {}

    def draw(self, examples: int, generator: Generator) -> Tensor:
        """Return uniform numbers [examples, views, numbers]."""
        return torch.rand(examples, self.views, self._numbers, generator=generator)

    def __call__(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Return views [examples, views, *shape], each a function of one image and of its numbers."""
        if len(images) == 0:
            return images.unsqueeze(1).expand(0, self.views, *images.shape[1:])
        repeated = images.repeat_interleave(self.views, 0)
        made: Tensor = self.mapped(repeated)({}, repeated, drawn.flatten(0, 1))
        return made.view(-1, self.views, *images.shape[1:])

    def mapped(self, images: Tensor) -> Mapped:
        """Return the view of one image, ready to be mapped; only the shape of the images [1, ...] is used."""
        key = (images.shape[1:], images.dtype, images.device)
        if key not in self._mapped:
            image, numbers = torch.zeros_like(images[0]), torch.zeros(self._numbers, device=images.device)
            self._mapped[key] = Mapped(_View(self.own), {}, (image, numbers), torch.empty_like(image, device="meta"))
        return self._mapped[key]


@dataclass(frozen=True)
class _View:
    """A user's view of one image, as a function that can be recorded and pickled."""

    own: Any

    def __call__(self, shared: dict[str, Tensor], image: Tensor, drawn: Tensor) -> Tensor:
        view: Tensor = self.own.view(image, drawn)
        return view


def mapped_parts(
    objective: Objective,
    engine: Engine,
    clipping: Clipping,
    features: Features,
    dataset: ImageDataset,
    device: torch.device,
    apart: str | None,
    augmentation: Augmentation | None = None,
) -> dict[str, Mapped]:
    """Return the user's parts that are applied to each example separately, by a readable name.

    Args:
        objective: a copy of the network and its loss, on the device.
        apart: the reason if the network's examples are taken one by one, else None.

    Raises:
        ConfigError: a part cannot be applied to one example.
    """
    objective.start_epoch(0)
    shape = features.shape(dataset.shape)
    inputs, targets = torch.zeros(1, *shape, device=device), torch.zeros(1, dtype=torch.long, device=device)
    parts: dict[str, Mapped] = {}
    try:
        where = "features"
        if isinstance(features, OwnFeatures):
            images = torch.zeros(1, *dataset.shape, device=device)
            parts[type(features.own).__qualname__] = features.mapped(images)
        where = "augmentation"
        if isinstance(augmentation, OwnViews):
            parts[type(augmentation.own).__qualname__] = augmentation.mapped(inputs)
        where = "clipping"
        if isinstance(clipping, OwnClipping):
            parts[type(clipping.own).__qualname__] = clipping.mapped(objective)
        where = "architecture or loss"
        if apart and isinstance(engine, IsolatedEngine) and not isinstance(clipping, NoClipping):
            within = clipping if isinstance(clipping, Backprop) else None
            parts[_names(objective)] = engine.mapped(inputs, targets, within)
    except NotMappableError as error:
        raise ConfigError(f"{where}: the gradient of one example cannot be taken: {error}") from error
    return parts


def _names(objective: Objective) -> str:
    """Return the classes of an objective that are not known, each once."""
    kinds = {type(module).__qualname__: None for module in objective.modules() if not is_known(module)}
    return ", ".join(kinds) or type(objective.network).__qualname__
