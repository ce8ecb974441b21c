"""Parts that a user wrote, each applied to one example at a time, and what ε rests on.

A clipping is a function of one example, whose results are cut to the bound that it states. The class states a bound by
`noise_groups` and has one of two methods, which receive one example:

    factors(norms)             norms [groups] of one example's gradient -> a factor for each group
    contribution(gradients)    one example's gradient, by parameter name -> its contribution, by the same names

Let S_g be the sensitivity that the class states for group g, and c_g the method's result for one example in that group.
The example adds c_g min(1, S_g / ||c_g||_2) to the sum, and zero if a norm is not finite. Its contribution has a norm
of at most S_g for any method. So the sensitivity of the sum is S_g, and the noise is drawn for it.
"""

import hashlib
import inspect
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Generator, Tensor, nn

from runner.clipping import LEAST_NORM, MOST_NORM, NoiseGroup, cut_to
from runner.config import is_own
from runner.data.datasets import OwnDataset
from runner.data.features import kept
from runner.gradients import Engine, GradientSum, MappedEngine
from runner.gradients.interface import weigh_and_sum
from runner.terminal import Line
from runner.trust.engine import Mapped, mapped_object
from runner.trust.sources import LIBRARIES, bare_name, targets

_PIECE = 256  # images that are converted at a time
_TRIED = 4  # images whose features are computed twice, to see whether they are random
_LEFT = 1 - 1e-6  # of a norm; the rest is for rounding
_METHODS = ("factors", "contribution")
_MADE_UP = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3)  # norms
_ROUNDING = 1e-4  # relative, of such norms
_INSTEAD = (
    "write `factors(norms)`, of the norms [groups] of one example, or `contribution(gradients)`, of one "
    "example's gradient by parameter name: it is applied to each example by itself"
)


class OwnClipping:
    """A clipping that a user wrote, with its contributions cut.

    Attributes:
        part: the user's object.
        groups: the groups that it states for the parameters of `model`, as plain numbers, read once.
        needs_gradients: True if its method receives gradients, False if it receives only their norms.

    Raises:
        ValueError: it would receive a whole batch, has neither method, or does not bound all parameters.
    """

    needs_engine = True
    sums_by_engine = False

    def __init__(self, part: Any, model: nn.Module) -> None:
        name = type(part).__qualname__
        sums = getattr(type(part), "sum_contributions", None)
        if sums is not None and sums.__module__ != cut_to.__module__:
            raise ValueError(f"{name}.sum_contributions would see a whole batch: {_INSTEAD}.")
        method = next((method for method in reversed(_METHODS) if hasattr(part, method)), None)
        if method is None:
            raise ValueError(f"{name} has no method that clips one example: {_INSTEAD}.")
        try:
            inspect.signature(getattr(part, method)).bind(None)
        except TypeError as error:  # `factors(norms, numbers)` of older files, too
            own = "Its own numbers are attributes, such as self.norm"
            raise ValueError(f"{name}.{method} has to take one argument: {_INSTEAD}. {own}.") from error
        if not hasattr(part, "noise_groups"):
            raise ValueError(f"{name} states no bound: it needs `noise_groups(model)`.")
        groups = []
        for group in part.noise_groups(model):  # any object may state it
            sensitivity, share = float(group.sensitivity), None if group.share is None else float(group.share)
            if not LEAST_NORM <= sensitivity <= MOST_NORM:
                raise ValueError(
                    f"{name}.noise_groups states a sensitivity of {sensitivity}: it has to be from {LEAST_NORM:g} to "
                    f"{MOST_NORM:g}."
                )
            groups.append(NoiseGroup(tuple(group.parameters), sensitivity, share))
        self.part, self.groups, self.needs_gradients = part, tuple(groups), hasattr(part, "contribution")
        names = [parameter for group in groups for parameter in group.parameters]
        if sorted(names) != sorted(parameter for parameter, _ in model.named_parameters()):
            raise ValueError(f"{name}.noise_groups does not name every parameter once.")
        self._names = names

        def contribution(part: Any, *gradients: Tensor) -> list[Tensor]:
            added = part.contribution(dict(zip(names, gradients, strict=True)))
            return [added[name] for name in names]

        # The method, of norms [batch, groups], or of gradients in the order of the groups' parameters.
        if self.needs_gradients:
            self._method = mapped_object("clipping", part, contribution, lambda *gradients: list(gradients))
        else:
            self._method = mapped_object("clipping", part, lambda part, norms: part.factors(norms), lambda norms: norms)

    def _contributions(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(zip(self._names, self._method(*map(gradients.__getitem__, self._names)), strict=True))

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        """Return the groups that the class states."""
        return self.groups

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        """Return the sum over one physical batch of every example's contribution, cut to the stated sensitivity."""
        names = [group.parameters for group in self.groups]
        if not self.needs_gradients:
            return engine.clipped_sum(inputs, targets, names, self._bounded_factors)

        def cut_sum(gradients: dict[str, Tensor], losses: Tensor) -> GradientSum:
            return weigh_and_sum(self._contributions(gradients), losses, names, cut_to(self.groups))

        assert isinstance(engine, MappedEngine)
        return engine.summed(inputs, targets, cut_sum)

    def mapped(self, model: nn.Module) -> Mapped:
        """Return the method, ready to be mapped over examples of gradients of this model's parameters."""
        if self.needs_gradients:
            parameters = dict(model.named_parameters())
            return self._method.ready(*(parameters[name].detach()[None] for name in self._names))
        return self._method.ready(next(model.parameters()).new_zeros(1, len(self.groups)))

    def longer(self, model: nn.Module) -> list[str]:
        """Return a sentence if a contribution is longer than the stated bound, as it is cut then.

        The method is applied to made-up gradients, whose norms are from 0.001 to 1000 in every group.

        Raises:
            ValueError: a result is not finite, so that such an example would add nothing.
        """
        if self.needs_gradients:
            generator = torch.Generator().manual_seed(0)
            drawn = {n: torch.randn(1, *p.shape, generator=generator).to(p) for n, p in model.named_parameters()}
            unit = {n: drawn[n] / _norms(drawn, group) for group in self.groups for n in group.parameters}
            added = self._contributions({n: torch.cat([unit[n] * length for length in _MADE_UP]) for n in unit})
            lengths = torch.stack([_norms(added, group) for group in self.groups], dim=1)
        else:
            norms = torch.tensor(_MADE_UP)[:, None].expand(-1, len(self.groups)).to(next(model.parameters()))
            lengths = (self._method(norms) * norms).abs()
        name = f"{type(self.part).__qualname__}.{_METHODS[self.needs_gradients]}"
        for length, row in zip(_MADE_UP, lengths.tolist(), strict=True):
            for norm, group in zip(row, self.groups, strict=True):
                if not math.isfinite(norm):
                    raise ValueError(f"{name} is not finite for a gradient of norm {length:g}.")
                if norm > group.sensitivity * (1 + _ROUNDING):
                    return [
                        f"{name} turns a gradient of norm {length:g} into one of {norm:.3g}. It is cut to the stated "
                        f"bound of {group.sensitivity:g}."
                    ]
        return []

    def _bounded_factors(self, norms: Tensor) -> Tensor:
        """Return factors [batch, groups] of norms [batch, groups] that keep gradients within their sensitivity."""
        factors = self._method(norms)
        largest = torch.tensor([group.sensitivity for group in self.groups], dtype=norms.dtype, device=norms.device)
        largest = largest / norms.clamp_min(LEAST_NORM)
        return torch.where(factors.isfinite(), factors, 0.0).clamp(-largest, largest)


def _norms(tensors: Mapping[str, Tensor], group: NoiseGroup) -> Tensor:
    """Return the norms [batch] of the parameters of a group, given tensors [batch, *shape] by name."""
    return torch.cat([tensors[name].flatten(1) for name in group.parameters], dim=1).square().sum(dim=1).sqrt()


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
        self.mapped = mapped_object(
            "features",
            part,
            lambda part, image: part(image[None])[0],
            lambda image: torch.empty(self.shape(image.shape), device="meta"),
        )
        norm = getattr(part, "largest_norm", None)
        self.largest_norm = None if norm is None else float(norm)
        if self.largest_norm is not None and not 0 < self.largest_norm < math.inf:
            raise ValueError(f"Expected a largest_norm > 0 and finite, got {self.largest_norm}.")

    def shape(self, image_shape: Sequence[int]) -> list[int]:
        """Return the shape of one image's features, of one dimension or more, as the user's object states it."""
        if shape := [int(size) for size in self.part.shape(list(image_shape))]:
            return shape
        raise ValueError("Expected features of one dimension or more.")

    def __call__(self, images: Tensor) -> Tensor:
        """Convert images [examples, channels, height, width] to features [examples, *shape].

        Raises:
            ConfigError: the user's object fails on one image, or its features do not have the stated shape.
        """
        features = self._computed_once(images) if self.key and len(images) > _PIECE else self._mapped(images)
        if self.largest_norm is None:
            return features
        finite = features.isfinite().flatten(1).all(1).view(-1, *[1] * (features.dim() - 1))
        return torch.where(finite, features, 0.0).renorm(2, 0, self.largest_norm * _LEFT)

    def _mapped(self, images: Tensor) -> Tensor:
        return torch.cat([self.mapped(piece) for piece in images.split(_PIECE)])

    def _computed_once(self, images: Tensor) -> Tensor:
        """Return the features of a data set from the user's cache folder, unless two computations of a few differ."""
        sample = images[:_TRIED]
        if not torch.equal(self._mapped(sample), self._mapped(sample)):
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
        self.mapped = mapped_object("augmentation", part, lambda part, *view: part.view(*view), lambda image, _: image)
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


def assumptions(config: DictConfig, dataset: object, accountant: object, rule: object) -> list[str]:
    """Return what the ε of a private run assumes of a user's parts, a text each.

    A user's class that computes noise or charges is not among them, as such a run has no sound ε.
    """
    believed = []
    if isinstance(dataset, OwnDataset):
        about = "each of its images is believed to be one example, and none both trained on and tested"
        believed.append(f"the data set {bare_name(config.dataset._target_)}: {about}")
    if is_own(accountant):
        believed.append(f"the accountant {type(accountant).__qualname__}: its ε is believed")
    if is_own(rule):
        believed.append(f"the update rule {type(rule).__qualname__}: it is believed to see no training example")
    # All of the user's classes, but for the data set, which holds the examples anyway.
    content: Any = OmegaConf.to_container(config, resolve=True)
    classes = [target for place, target in targets(content) if not place.startswith("dataset.")]
    if names := dict.fromkeys(bare_name(target) for target in classes if target.partition(".")[0] not in LIBRARIES):
        trusted = "trusted to hold no training examples and read none, and not to draw the noise again from the seed"
        believed.append(f"{', '.join(names)}: {trusted}")
    return believed
