"""Data sets that a user brings, of every kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from checks.faults.tries.attempt import Try

_MODULE = '''
import torch, torchvision
from dataclasses import dataclass
from runner.data.datasets import Split

def made(count, shape, classes, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(count, *shape, generator=g), torch.arange(count) % classes

@dataclass(frozen=True)
class Tensors:
    name: str = "Tensors"
    shape: tuple = (1, 28, 28)
    classes: int = 10
    train_examples: int = 2000
    test_examples: int = 400
    def load(self, root):
        return Split(*made(2000, self.shape, 10)), Split(*made(400, self.shape, 10, 1))

class Svhn:
    """As torchvision's SVHN: split="train", pixels [n, c, h, w] in `data`, labels in `labels`."""
    def __init__(self, root, split="train", transform=None, target_transform=None, download=False):
        count = 600 if split == "train" else 200
        self.data = (made(count, (3, 32, 32), 10)[0] * 255).byte().numpy()
        self.labels = made(count, (3, 32, 32), 10)[1].numpy()
        self.transform = transform
    def __len__(self): return len(self.labels)
    def __getitem__(self, i):
        image = torchvision.transforms.functional.to_pil_image(torch.from_numpy(self.data[i]))
        return (self.transform(image) if self.transform else image), int(self.labels[i])

class Kmnist:
    """As torchvision's KMNIST: train=True, pixels [n, h, w] in `data`."""
    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        count = 600 if train else 200
        self.data = (made(count, (28, 28), 10)[0] * 255).byte()
        self.targets = made(count, (1,), 10)[1]
        self.transform = transform
    def __len__(self): return len(self.targets)
    def __getitem__(self, i):
        image = torchvision.transforms.functional.to_pil_image(self.data[i])
        return (self.transform(image) if self.transform else image), int(self.targets[i])

def tensors():
    (x, y), (a, b) = made(600, (1, 28, 28), 10), made(200, (1, 28, 28), 10, 1)
    return torch.utils.data.TensorDataset(x, y), torch.utils.data.TensorDataset(a, b)

def pairs():
    return made(600, (1, 28, 28), 10), made(200, (1, 28, 28), 10, 1)

def broken():
    return made(600, (1, 28, 28), 10)
'''
_RUN = (
    "--config-dir", "{here}/options", "experiment=tempered_sigmoid/mnist_tanh", "dataset=mine", "scale=smoke",
    "epochs=1", "tracking=disabled", "runtime.results_root={here}/results", "runtime.data_root={here}/data",
)  # fmt: skip


def _written(option: str) -> Callable[[Path], None]:
    def before(here: Path) -> None:
        (here / "mine.py").write_text(_MODULE)
        (here / "options" / "dataset").mkdir(parents=True)
        (here / "options" / "dataset" / "mine.yaml").write_text(option)

    return before


def tries() -> list[Try]:
    """List the tries."""
    d = partial(Try, "data sets")
    linear = "architecture=lipschitz_mlp"
    good = [
        ("a class with tensors", "_target_: mine.Tensors\n", ()),
        ("a class like torchvision's SVHN", "_target_: mine.Svhn\n", (linear,)),
        ("a class like torchvision's KMNIST", "_target_: mine.Kmnist\n", ()),
        ("a function that gives tensors", "_target_: mine.pairs\n", ()),
        ("a function that gives TensorDatasets", "_target_: mine.tensors\n", ()),
    ]
    found = [d(name, (*_RUN, *more), records=1, before=_written(option)) for name, option, more in good]
    named = (
        "_target_: runner.data.datasets.ImageDataset\nname: {}\nshape: {}\nclasses: {}\n"
        "train_examples: {}\ntest_examples: {}\n"
    )
    builtin = [
        ("KMNIST", "[1, 28, 28]", 10, 60000, 10000, ()),
        ("SVHN", "[3, 32, 32]", 10, 73257, 26032, (linear,)),
        ("EMNIST", "[1, 28, 28]", 47, 112800, 18800, ()),
        ("CIFAR100", "[3, 32, 32]", 100, 50000, 10000, (linear,)),
        ("USPS", "[1, 16, 16]", 10, 7291, 2007, (linear,)),
    ]
    found += [
        d(f"torchvision's {name} at smoke scale", (*_RUN, *more), records=1,
          before=_written(named.format(name, *sizes)))
        for name, *sizes, more in builtin
    ]  # fmt: skip
    found += [
        d("torchvision's SVHN without its files", (*_RUN, "scale=paper", linear), 2, r"SVHN.*data", 0,
          _written(named.format("SVHN", "[3, 32, 32]", 10, 73257, 26032))),
        d("a function that gives one split", _RUN, 2, "dataset", 0, _written("_target_: mine.broken\n")),
        d("the private argument dataset.bundled", (*_RUN, "+dataset.bundled=true"), 2, "dataset.bundled", 0,
          _written("_target_: mine.Tensors\n")),
    ]  # fmt: skip
    return found
