"""What ε rests on: a user's parts that are believed, and the names of all of the user's classes.

Code that means to cheat cannot be stopped inside one process. So the record names each class of a user next to ε, and
a person reads its code.
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from runner.config.origin import is_own
from runner.data.datasets import OwnDataset
from runner.trust.targets import LIBRARIES, bare_name, targets

_BELIEVED = {
    "dataset": "the data set {}: each of its images is believed to be one example, and none both trained on and tested",
    "accountant": "the accountant {}: its ε is believed",
    "screening": "the update rule {}: it is believed to see no training example",
}
_OF_ALL = "{}: trusted to hold no training examples and read none, and not to draw the noise again from the seed"


def assumptions(config: DictConfig, dataset: object, accountant: object, rule: object) -> list[str]:
    """Return what the ε of a private run assumes of a user's parts, a text each.

    A user's class that computes noise or charges is not among them, as such a run has no sound ε.
    """
    believed = []
    if isinstance(dataset, OwnDataset):
        believed.append(_BELIEVED["dataset"].format(bare_name(config.dataset._target_)))
    parts = {"accountant": accountant, "screening": rule}
    believed += [_BELIEVED[group].format(type(part).__qualname__) for group, part in parts.items() if is_own(part)]
    names = own_classes(config)
    return believed + ([_OF_ALL.format(", ".join(names))] if names else [])


def own_classes(config: DictConfig) -> list[str]:
    """Return the names of a user's classes in a run, but for the data set, which holds the examples anyway."""
    content: Any = OmegaConf.to_container(config, resolve=True)
    classes = [target for place, target in targets(content) if not place.startswith("dataset.")]
    return list(dict.fromkeys(bare_name(target) for target in classes if target.partition(".")[0] not in LIBRARIES))
