"""Tables of a paper's networks, made from the networks themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from runner.claims.formulas import prepared
from runner.claims.judgement import ClaimRow
from runner.claims.runs import Evidence
from runner.report.files import Table


def network_table(sweep: str, experiment: str, note: str, _: Evidence, __: Sequence[ClaimRow]) -> Table:
    """Make an item's table: the layers of an experiment's network with output shapes and numbers of parameters."""
    run = prepared(sweep, experiment)
    rows: list[tuple[str, str, int]] = []
    x = torch.zeros(1, *run.features.shape(run.dataset.shape), device="meta")
    for layer in _flat(run.new_objective().network.to("meta")):
        x = layer(x)
        shape = " x ".join(map(str, x.shape[1:]))
        rows.append((_described(layer), shape, sum(p.numel() for p in layer.parameters())))
    return Table(("layer", "output", "parameters"), [*rows, ("total", "", run.parameters)], (note,))


def _flat(network: nn.Module) -> Iterator[nn.Module]:
    for layer in network.children():
        if isinstance(layer, nn.Sequential):
            yield from _flat(layer)
        else:
            yield layer


def _described(layer: nn.Module) -> str:
    match layer:
        case nn.Conv2d():
            (height, width), stride, padding = layer.kernel_size, layer.stride[0], layer.padding[0]
            filters = f"{layer.out_channels} filters of {height}x{width}"
            return f"convolution, {filters}, stride {stride}, padding {padding}"
        case nn.MaxPool2d() | nn.AvgPool2d():
            kind = "max" if isinstance(layer, nn.MaxPool2d) else "average"
            return f"{kind}-pooling {layer.kernel_size}x{layer.kernel_size}, stride {layer.stride}"
        case nn.AdaptiveAvgPool2d():
            return "mean over space"
        case nn.Linear():
            return f"fully connected, {layer.out_features} units"
        case nn.Flatten():
            return "flatten"
        case nn.GroupNorm():
            return f"group normalisation, {layer.num_groups} groups"
    return type(layer).__name__.lower()
