"""Lemma 1: differences of gradients of the proposed loss, compared with the largest singular value of its Hessian."""

from __future__ import annotations

import torch
from torch import Tensor

from runner.claims.claim import Claim
from runner.claims.formulas import computed
from runner.claims.measurement import Measured
from runner.networks.losses import LosingLess

_INPUTS, _HIDDEN, _CLASSES, _EXAMPLES = 4, 5, 3, 20
_PAIRS, _POINTS, _APART = 20, 17, 0.3  # pairs of weights, points between them for the Hessian, distance


@computed
def smoothness_ratio(_: Claim) -> Measured:
    """Return the largest of ||grad L(w) - grad L(w')|| over sigma_max ||w - w'||, over pairs of weights w and w'.

    L is the proposed loss on a network with one tanh layer. It has the parameters of CIFAR-10, at its threshold epoch,
    so that each part has weight. w is random, and w' lies in the direction in which the gradient changes fastest.
    sigma_max is the largest singular value of the Hessian at points between the two.
    """
    torch.manual_seed(0)
    x = torch.randn(_EXAMPLES, _INPUTS, dtype=torch.float64)
    targets = torch.arange(_EXAMPLES) % _CLASSES
    loss = LosingLess(threshold_epoch=7.0, beta=11.0, gamma=5.0)
    loss.start_epoch(7)

    def value(weights: Tensor) -> Tensor:
        first, last = weights.split((_INPUTS * _HIDDEN, _HIDDEN * _CLASSES))
        hidden = x @ first.reshape(_INPUTS, _HIDDEN)
        losses: Tensor = loss(hidden.tanh() @ last.reshape(_HIDDEN, _CLASSES), targets, [hidden])
        return losses.mean()

    hessians, gradient = torch.vmap(torch.func.hessian(value)), torch.func.grad(value)
    ratios = []
    for one in torch.randn(_PAIRS, _HIDDEN * (_INPUTS + _CLASSES), dtype=torch.float64):
        way = _APART * torch.linalg.svd(hessians(one[None])[0]).Vh[0]
        between = one + torch.linspace(0, 1, _POINTS, dtype=torch.float64)[:, None] * way
        largest = torch.linalg.matrix_norm(hessians(between), ord=2).max()
        ratios.append(float((gradient(one + way) - gradient(one)).norm() / (largest * _APART)))
    return Measured(max(ratios), explanation=f"the largest of {_PAIRS} pairs of weights")
