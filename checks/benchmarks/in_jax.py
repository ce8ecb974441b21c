"""JAX implementation of a network of convolutions, poolings, tanh or ReLU and linear layers, with its private step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from torch import Tensor, nn

Weights = list[tuple[Any, ...]]  # weight, and bias if there is one, of every convolution and linear layer, in order


def forward(network: nn.Sequential, weights: Weights, image: Any) -> Any:
    """Compute the logits [classes] of one image [channels, height, width] by the layers of `network`."""
    x, remaining = image[None], iter(weights)
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            weight, *bias = next(remaining)
            padding = [(int(p), int(p)) for p in layer.padding]
            x = sum((b[:, None, None] for b in bias), lax.conv_general_dilated(x, weight, layer.stride, padding))
        elif isinstance(layer, nn.Linear):
            weight, *bias = next(remaining)
            x = sum(bias, x @ weight.T)
        elif isinstance(layer, nn.MaxPool2d):
            size, stride = int(layer.kernel_size), int(layer.stride)  # type: ignore[arg-type]
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, size, size), (1, 1, stride, stride), "VALID")
        elif isinstance(layer, nn.Flatten):
            x = x.reshape(1, -1)
        elif isinstance(layer, nn.Tanh):
            x = jnp.tanh(x)
        elif isinstance(layer, nn.ReLU):
            x = jax.nn.relu(x)
        else:
            raise NotImplementedError(type(layer).__name__)
    return x[0]


def clipped_sum(network: nn.Sequential, weights: Weights, images: Any, targets: Any, bound: float) -> Weights:
    """Sum over a batch the gradients of the cross entropy, each clipped to `bound`."""

    def loss(weights: Weights, image: Any, target: Any) -> Any:
        return -jax.nn.log_softmax(forward(network, weights, image))[target]

    gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, images, targets)
    leaves = jax.tree.leaves(gradients)
    norms = jnp.sqrt(sum(jnp.square(leaf.reshape(len(leaf), -1)).sum(1) for leaf in leaves))
    factors = jnp.minimum(1.0, bound / norms)
    sums: Weights = jax.tree.map(lambda leaf: jnp.tensordot(factors, leaf, 1), gradients)
    return sums


def weights_of(network: nn.Sequential) -> Weights:
    """Convert the weights of a PyTorch network to JAX arrays."""
    layers = [layer for layer in network if isinstance(layer, nn.Conv2d | nn.Linear)]
    return [tuple(jnp.array(p.detach().contiguous().numpy()) for p in layer.parameters()) for layer in layers]


def step(
    network: nn.Sequential,
    inputs: Tensor,
    targets: Tensor,
    bound: float,
    noise_multiplier: float,
    learning_rate: float,
    physical_batch: int,
) -> Callable[[], None]:
    """Make a function that takes one private step on one batch, and waits for it."""
    parts = [
        (jnp.array(some_inputs.contiguous().numpy()), jnp.array(some_targets.numpy()))
        for some_inputs, some_targets in zip(inputs.split(physical_batch), targets.split(physical_batch), strict=True)
    ]
    summed = jax.jit(partial(clipped_sum, network, bound=bound))
    added = jax.jit(partial(jax.tree.map, jnp.add))

    def updated(weights: Weights, sums: Weights, key: Any) -> Weights:
        leaves, structure = jax.tree.flatten(sums)
        keys = jax.tree.unflatten(structure, list(jax.random.split(key, len(leaves))))

        def update(weight: Any, total: Any, key: Any) -> Any:
            noise = noise_multiplier * bound * jax.random.normal(key, total.shape)
            return weight - learning_rate * (total + noise) / len(targets)

        moved: Weights = jax.tree.map(update, weights, sums, keys)
        return moved

    take_step = jax.jit(updated)
    state = {"weights": weights_of(network), "key": jax.random.key(0)}

    def take() -> None:
        state["key"], key = jax.random.split(state["key"])
        sums = reduce(added, [summed(state["weights"], images=images, targets=labels) for images, labels in parts])
        state["weights"] = jax.block_until_ready(take_step(state["weights"], sums, key))

    return take
