"""A user's own script with Opacus: table 1 of Tempered Sigmoid with tanh on MNIST, until an accuracy is reached.

    python -m checks.benchmarks.opacus_script DATA ACCURACY

It prints the epochs and the accuracy in percent on the test images. `experiment=tempered_sigmoid/mnist_tanh` has the
same settings.
"""

import sys

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.datasets import MNIST

EPOCHS = 60


def images(folder: str, train: bool) -> TensorDataset:
    data = MNIST(folder, train=train)
    return TensorDataset(data.data[:, None] / 255, data.targets)


def main(folder: str, wanted: float) -> None:
    """Train epoch by epoch until the accuracy on the test images is at least `wanted`."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10)),
    )
    private = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.25),
        data_loader=DataLoader(images(folder, train=True), batch_size=256),
        noise_multiplier=1.1,
        max_grad_norm=1.0,
    )
    network, optimizer, loader = private
    test, labels = images(folder, train=False).tensors
    epoch, accuracy = 0, 0.0
    while accuracy < wanted and epoch < EPOCHS:
        epoch += 1
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(inputs), targets).backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = 100 * (network(test).argmax(1) == labels).double().mean().item()
    print(f"{epoch} {accuracy}")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
