"""The same step by JAX: gradients of one example, mapped over a piece by `jax.vmap` and compiled by XLA.

Weights are PyTorch's before and after each step, and between these everything is JAX's, with the channels innermost.
"""

import os
from importlib import import_module
from itertools import count
from typing import Any

import torch
from torch import nn
from torch.utils.dlpack import from_dlpack

from checks.benchmarks import own
from checks.benchmarks.problems import Problem

Arrays = dict[str, Any]  # by the names of parameters
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def step(case: Problem, size: int | None = None) -> own.Step:
    """Take a private step in pieces of a size. None: take an ordinary step on the whole batch."""
    # oneDNN's variable is one of those that ask for AVX2 alone.
    isa = f"--xla_cpu_max_isa={os.environ['ONEDNN_MAX_CPU_ISA']}" if "ONEDNN_MAX_CPU_ISA" in os.environ else ""
    os.environ["XLA_FLAGS"] = f"{_ONE_THREAD} {isa}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    jax, jnp = import_module("jax"), import_module("jax.numpy")  # here, as they read the flags
    batch, private = len(case.targets), size is not None
    length = size or batch
    inputs = case.inputs.permute(0, 2, 3, 1).contiguous().numpy()
    images, labels = jnp.asarray(inputs), jnp.asarray(case.targets.int().numpy())
    pieces = [(images[start : start + length], labels[start : start + length]) for start in range(0, batch, length)]

    def loss(weights: Arrays, some_images: Any, some_labels: Any) -> Any:
        logits = _forward(case.network, weights, some_images)
        chosen = jnp.take_along_axis(logits, some_labels[:, None], 1)[:, 0]
        return jnp.sum(jax.nn.logsumexp(logits, 1) - chosen)

    def gradient(weights: Arrays, image: Any, label: Any) -> Any:
        return jax.grad(loss)(weights, image[None], label[None])

    def clipped_sum(weights: Arrays, some_images: Any, some_labels: Any) -> Arrays:
        gradients = jax.vmap(gradient, (None, 0, 0))(weights, some_images, some_labels)
        squares = sum(jnp.square(values).reshape(len(values), -1).sum(1) for values in gradients.values())
        factors = jnp.minimum(1.0, own.CLIPPING_NORM / jnp.sqrt(squares))
        return {name: jnp.tensordot(factors, values, 1) for name, values in gradients.items()}

    def updated(weights: Arrays, sums: Arrays, key: Any) -> Arrays:
        keys = dict(zip(sums, jax.random.split(key, len(sums)), strict=True))
        std = own.CLIPPING_NORM * own.NOISE_MULTIPLIER if private else 0.0
        noise = {name: std * jax.random.normal(keys[name], sums[name].shape) if std else 0.0 for name in sums}
        return {name: w - own.LEARNING_RATE * (sums[name] + noise[name]) / batch for name, w in weights.items()}

    sums_of, update = jax.jit(clipped_sum if private else jax.grad(loss)), jax.jit(updated)
    add, numbers = jax.jit(lambda first, second: jax.tree.map(jnp.add, first, second)), count()

    def take() -> None:
        weights = {name: jnp.asarray(p.detach().numpy()) for name, p in case.network.named_parameters()}
        sums: Arrays = {}
        for piece in pieces:
            part = sums_of(weights, *piece)
            sums = add(sums, part) if sums else part
        after = jax.block_until_ready(update(weights, sums, jax.random.key(next(numbers))))
        with torch.no_grad():
            for name, parameter in case.network.named_parameters():
                parameter.copy_(from_dlpack(after[name]))

    return take


def _forward(network: nn.Sequential, weights: Arrays, h: Any) -> Any:
    """Return the logits [batch, classes] of images [batch, height, width, channels]."""
    jnp, lax = import_module("jax.numpy"), import_module("jax.lax")
    for name, layer in network.named_children():
        weight: Any = weights.get(f"{name}.weight")
        bias = weights.get(f"{name}.bias", 0.0)
        if isinstance(layer, nn.Conv2d):
            padding: Any = [(size, size) for size in layer.padding]
            order = ("NHWC", "OIHW", "NHWC")
            h = lax.conv_general_dilated(h, weight, layer.stride, padding, dimension_numbers=order) + bias
        elif isinstance(layer, nn.Linear):
            h = h @ weight.T + bias
        elif isinstance(layer, nn.MaxPool2d):
            window, stride = (1, layer.kernel_size, layer.kernel_size, 1), (1, layer.stride, layer.stride, 1)
            h = lax.reduce_window(h, -jnp.inf, lax.max, window, stride, "VALID")
        elif isinstance(layer, nn.Flatten):
            h = h.transpose(0, 3, 1, 2).reshape(len(h), -1)
        else:
            h = {nn.Tanh: jnp.tanh, nn.ReLU: lambda x: jnp.maximum(x, 0.0)}[type(layer)](h)
    return h
