"""A user's features and views, applied to one image at a time, and the parts of a user that ε rests on.

Code that means to cheat cannot be stopped inside one process. So the record names each class of a user next to ε, and
a person reads its code.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Generator, Tensor

from runner.config import ConfigError, is_own
from runner.data.datasets import OwnDataset
from runner.data.features import kept
from runner.terminal import Line
from runner.trust.mapped import MappedObject, NotMappableError
from runner.trust.targets import LIBRARIES, bare_name, targets

_PIECE = 256  # images that are converted at a time
_TRIED = 4  # images whose features are computed twice, to see whether they are random
_LEFT = 1 - 1e-6  # of a norm; the rest is for rounding


class OwnFeatures:
    """Features that a user wrote, cut to the norm that they state.

    Attributes:
        part: the user's object.
        mapped: its features, mapped over images.
        largest_norm: the largest L2 norm of one image's features, if the object states it; read once.
        key: all that the object is made of, if it reads a file of weights, else "". With a key, features of a data set
            are computed once per machine, unless they are random.

    Raises:
        ValueError: the norm is not above 0 and finite.
    """

    def __init__(self, part: Any, key: str = "") -> None:
        self.part, self.key = part, key
        self.mapped = MappedObject(
            part,
            lambda part, image: part(image[None])[0],
            lambda image: torch.empty(self.shape(image.shape), device="meta"),
        )
        stated = getattr(part, "largest_norm", None)
        self.largest_norm = None if stated is None else float(stated)
        if self.largest_norm is not None and not 0 < self.largest_norm < math.inf:
            raise ValueError(f"Expected a largest_norm > 0 and finite, got {self.largest_norm}.")

    def shape(self, image_shape: Sequence[int]) -> list[int]:
        """Return the shape of one image's features, as the user's object states it.

        Raises:
            ValueError: it has no dimension.
        """
        shape = [int(size) for size in self.part.shape(list(image_shape))]
        if not shape:
            raise ValueError("Expected features of one dimension or more.")
        return shape

    def __call__(self, images: Tensor) -> Tensor:
        """Convert images [examples, channels, height, width] to features [examples, *shape].

        Raises:
            ConfigError: the user's object fails on one image, or its features do not have the stated shape.
        """
        try:
            features = self._computed_once(images) if self.key and len(images) > _PIECE else self._mapped(images)
        except NotMappableError as error:
            raise ConfigError(f"features: {type(self.part).__qualname__} of one image: {error}") from error
        if self.largest_norm is None:
            return features
        finite = features.isfinite().flatten(1).all(1).view(-1, *[1] * (features.dim() - 1))
        return torch.where(finite, features, 0.0).renorm(2, 0, self.largest_norm * _LEFT)

    def _mapped(self, images: Tensor) -> Tensor:
        return torch.cat([self.mapped(piece) for piece in images.split(_PIECE)])

    def _computed_once(self, images: Tensor) -> Tensor:
        """Return the features of a data set from the user's cache folder, unless two computations of a few differ."""
        few = images[:_TRIED]
        if not torch.equal(self._mapped(few), self._mapped(few)):
            return self._mapped(images)
        pixels = hashlib.sha256(images.cpu().contiguous().numpy().data).hexdigest()
        name = hashlib.sha256(f"{self.key} {pixels} {images.device.type}".encode()).hexdigest()[:32]
        shape = [len(images), *self.shape(images.shape[1:])]
        return kept(f"{name}.own", shape, lambda: map(self.mapped, images.split(_PIECE)), Line()).to(images.device)


class OwnViews:
    """Views that a user wrote.

    The user's object has the numbers `views` and `numbers`, and `view(image, drawn)`: from an image
    [channels, height, width] and uniform numbers [numbers] in [0, 1) to an image of the same shape.

    Raises:
        ValueError: it has no view, or a negative number of numbers.
    """

    def __init__(self, part: Any) -> None:
        self.part = part
        self.mapped = MappedObject(part, lambda part, *view: part.view(*view), lambda image, _: image)
        self.views, self._numbers = operator.index(part.views), operator.index(part.numbers)
        if self.views < 1 or self._numbers < 0:
            raise ValueError(f"Expected views > 0 and numbers >= 0, got {self.views} and {self._numbers}.")

    def draw(self, examples: int, generator: Generator) -> Tensor:
        """Return uniform numbers [examples, views, numbers]."""
        return torch.rand(examples, self.views, self._numbers, generator=generator)

    def __call__(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Return views [examples, views, *shape], each a function of one image and of its numbers."""
        if len(images) == 0:
            return images.unsqueeze(1).expand(0, self.views, *images.shape[1:])
        repeated = images.repeat_interleave(self.views, 0)
        views: Tensor = self.mapped(repeated, drawn.flatten(0, 1))
        return views.view(-1, self.views, *images.shape[1:])


_BELIEVED = {
    "dataset": "the data set {}: each of its images is believed to be one example, and none both trained on and tested",
    "accountant": "the accountant {}: its ε is believed",
    "screening": "the update rule {}: it is believed to see no training example",
}
_ALL_TRUSTED = "{}: trusted to hold no training examples and read none, and not to draw the noise again from the seed"


def assumptions(config: DictConfig, dataset: object, accountant: object, rule: object) -> list[str]:
    """Return what the ε of a private run assumes of a user's parts, a text each.

    A user's class that computes noise or charges is not among them, as such a run has no sound ε.
    """
    believed = []
    if isinstance(dataset, OwnDataset):
        believed.append(_BELIEVED["dataset"].format(bare_name(config.dataset._target_)))
    parts = {"accountant": accountant, "screening": rule}
    believed += [_BELIEVED[group].format(type(part).__qualname__) for group, part in parts.items() if is_own(part)]
    # All of the user's classes, but for the data set, which holds the examples anyway.
    content: Any = OmegaConf.to_container(config, resolve=True)
    classes = [target for place, target in targets(content) if not place.startswith("dataset.")]
    names = dict.fromkeys(bare_name(target) for target in classes if target.partition(".")[0] not in LIBRARIES)
    return believed + ([_ALL_TRUSTED.format(", ".join(names))] if names else [])
