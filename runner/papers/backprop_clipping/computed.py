"""Items that need no run: theorems, the networks of figures 3 and 4, the cost of the authors' script; and measures."""

import copy
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache, partial

import torch
from torch import Tensor, nn

from runner.accounting import Gdp, Pld, Rdp, RdpClassic, Zcdp, sound_epsilon
from runner.accounting.ledger import gaussian_epsilon
from runner.build.prepare import prepare
from runner.claims.claim import Claim
from runner.claims.measure import Formula, charged_epsilon, computed, ledger_of, prepared
from runner.claims.measurement import Measured
from runner.claims.runs import Evidence
from runner.claims.verdicts import ClaimRow
from runner.clipping.backprop import Backprop
from runner.gradients import Objective
from runner.papers.backprop_clipping.figures import PAPER, STATED, TABLE_1
from runner.report import plots
from runner.report.files import Table, bound_text, number

_A, _B = 1.5, 0.3
_SEEDS = 10  # of the runs
_LARGE = 1_000_000  # weights
_RADIUS = 0.12  # of the disc, of the image's height

LINEAR = {"8 to 5": (8, 5, False), "8 to 5, bias": (8, 5, True), "1 to 5, bias": (1, 5, True)}
CONVOLUTIONS = {  # kernel, stride, padding, dilation, bias; from 2 channels to 3 on 12 x 12
    "8x8, stride 2": (8, 2, 0, 1, False),
    "8x8, stride 2, padding 3, bias": (8, 2, 3, 1, True),
    "4x4, stride 2": (4, 2, 0, 1, False),
    "3x3, padding 1, bias": (3, 1, 1, 1, True),
    "3x3, dilation 2, padding 2": (3, 1, 2, 2, False),
    "2x2": (2, 1, 0, 1, False),
}


def table_1(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    """Return the claimed settings: noise by theorem 1, its cost for both kinds of neighbours, and the settings run."""
    rows = []
    for dataset, title in plots.DATASETS.items():
        run, claimed, actual = ledger_of(TABLE_1, f"{PAPER}/{dataset}_printed")
        with_bug = f"{PAPER}/{dataset}_original_bug"
        bug, least = ledger_of(TABLE_1, with_bug)[2], first_update_epsilon(TABLE_1, with_bug)
        mechanism, delta, count = run.mechanism, run.config.delta, len(run.mechanism.noise_groups)
        rho = run.epochs / (2 * mechanism.noise_multiplier**2)
        layer = mechanism.noise_multiplier * math.sqrt(count)
        rows.append(
            {
                "dataset": title,
                "E": run.epochs,
                "L": count,
                "claimed ε": bound_text(Zcdp().epsilon(claimed, delta)),
                "ρ in all": rho,
                "noise multiplier of a layer": layer,
                "zero-out: ε of the steps": bound_text(sound_epsilon(actual, delta)),
                "one replaced (4ρ): ε": bound_text(4 * rho + 2 * math.sqrt(4 * rho * math.log(1 / delta))),
                "code's noise: true multiplier of a layer": layer / run.config.batch_size,
                "code's noise: ε at most": bound_text(sound_epsilon(bug, delta)),
                "code's noise: ε at least": "–" if least is None else number(least, bound="lower"),
            }
        )
    left_out = ("E", "L", "ρ in all", "noise multiplier of a layer")
    return Table.of(rows, shown=[name for name in rows[0] if name not in left_out])


@computed
def theorem_1(claim: Claim) -> Measured:
    """Return the composed zCDP of the run's ledger over the stated one.

    The stated one is E times the sum of rho = (sensitivity / noise)^2 / 2 over the L layers, with the noise drawn in
    each.
    """
    run, claimed, _ = ledger_of(claim.sweep, claim.experiment)
    mechanism = run.mechanism
    rho = sum((group.sensitivity / mechanism.noise_std(group)) ** 2 / 2 for group in mechanism.noise_groups)
    stated = run.epochs * rho
    composed = sum(times / (2 * event.noise_multiplier**2) for event, times in claimed)
    explanation = "holds for zero-out neighbours and fixed disjoint batches; replacing an example costs four times ρ"
    return Measured(value=composed / stated, explanation=explanation)


class _Upstream(nn.Module):
    """A loss whose gradient with respect to the outputs is the targets."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs * targets).flatten(1).sum(1)


@cache
def ratios(kind: str, name: str) -> dict[str, float]:
    """Return the largest norms of one example's contribution over its bound, for four kinds of inputs.

    The kinds are random, constant, one-hot and matched. Matched: one output, and an input that only this output reads,
    which reaches the bound.
    """
    generator = torch.Generator().manual_seed(0)
    if kind == "linear":
        wide, narrow, bias = LINEAR[name]
        layer: nn.Linear | nn.Conv2d = nn.Linear(wide, narrow, bias=bias).double()
        zero = torch.zeros(1, wide, dtype=torch.float64)
    else:
        kernel, stride, padding, dilation, bias = CONVOLUTIONS[name]
        layer = nn.Conv2d(2, 3, kernel, stride, padding, dilation, bias=bias).double()
        zero = torch.zeros(1, 2, 12, 12, dtype=torch.float64)
    for parameter in layer.parameters():
        parameter.data.normal_(generator=generator)
    output = layer(zero.requires_grad_())
    unit = torch.zeros_like(output)
    unit[(0, 0, *(size // 2 for size in output.shape[2:]))] = 1
    (read,) = torch.autograd.grad(output, zero, unit)
    clipping = Backprop(_A, _B)
    bound, objective, parameters = clipping.sensitivity(layer), Objective(layer, _Upstream()), [*layer.parameters()]
    largest = {"random": 0.0, "constant": 0.0, "one-hot": 0.0, "matched": 0.0}
    for _ in range(20):
        x = torch.randn(zero.shape, generator=generator, dtype=torch.float64)
        u = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        hot = (x == x.abs().max()).double() + (x == -x.abs().max()).double()
        pairs = {"random": (x, u), "constant": (torch.ones_like(x), torch.ones_like(u))}
        pairs |= {"one-hot": (hot, (u.abs() == u.abs().max()).double()), "matched": (read, unit)}
        for pair, (inputs, upstream) in pairs.items():
            for scale in (0.01, 1e3):
                with clipping.layers_clip(objective, 1):
                    losses = objective(inputs * scale, upstream * scale)
                gradients = torch.autograd.grad(losses.sum(), parameters)
                norm = torch.cat([gradient.flatten() for gradient in gradients]).norm().item()
                largest[pair] = max(largest[pair], norm / bound)
    return largest


def bounds(kind: str, names: Collection[str], _: Evidence, __: Sequence[ClaimRow]) -> Table:
    """Return a table of the ratios of contributions to their bounds, one row per layer."""
    rows = [{"layer": name, **ratios(kind, name)} for name in names]
    return Table.of(rows)


def largest_ratio(kind: str, names: Collection[str], _: Claim) -> Measured:
    """Return the largest ratio of a contribution to its bound, over the layers of a kind."""
    largest = max(max(ratios(kind, name).values()) for name in names)
    text = f"the largest norm of a contribution over its bound, of {len(names)} kinds of layers; 1 is reached"
    return Measured(value=largest, explanation=text)


table_2, table_3 = partial(bounds, "linear", LINEAR), partial(bounds, "convolution", CONVOLUTIONS)
theorem_2 = computed(partial(largest_ratio, "linear", LINEAR))
theorem_3 = computed(partial(largest_ratio, "convolution", CONVOLUTIONS))


def repository(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    """Return the cost of the authors' script: as it counts, by bounds on that count, as one release, in truth."""
    rows = []
    for name in STATED:
        run, claimed, actual = ledger_of(f"{PAPER}/repo_mnist", f"{PAPER}/mnist_corrected_{name}")
        joint = prepared(f"{PAPER}/repo_mnist", f"{PAPER}/mnist_corrected_joint_{name}")
        delta, noise, layers = run.config.delta, run.mechanism.noise_multiplier, len(run.mechanism.noise_groups)
        ((event, steps),) = actual
        summed = ((type(event)(event.sampling_probability, type(event.event)(noise)), steps),)
        rows.append(
            {
                "stated ε": f"{joint.config.target_epsilon:g}",
                "noise of a layer": noise * math.sqrt(layers),
                "its own count (GDP-CLT)": bound_text(Gdp().epsilon(claimed, delta)),
                "same count: RDP classic": bound_text(RdpClassic().epsilon(claimed, delta)),
                "same count: RDP": bound_text(Rdp().epsilon(claimed, delta)),
                "same count: PLD": bound_text(Pld().epsilon(claimed, delta)),
                "layers as one release, sum of rows: PLD": bound_text(Pld().epsilon(summed, delta)),
                "as it is, mean of rows: ε at most": bound_text(sound_epsilon(actual, delta)),
                "noise of a layer that the ε needs": joint.mechanism.noise_multiplier * math.sqrt(layers),
            }
        )
    return Table.of(rows, shown=[name for name in rows[0] if not name.startswith("same count: RDP")])


@computed
def layer_sensitivity(claim: Claim) -> Measured:
    """Return the largest norm of one example's contribution to a layer, for the claim's experiment."""
    run = ledger_of(claim.sweep, claim.experiment)[0]
    return Measured(max(group.sensitivity for group in run.mechanism.noise_groups))


@Formula
def epsilon_of_rho(claim: Claim, evidence: Evidence) -> Measured:
    """Return E L rho as an epsilon (zCDP), with the experiment's epochs and layers and the rho in brackets.

    The sound epsilon is that of the steps by PLD. Statistics that standardise pixels are no part of the algorithm.
    """
    run = ledger_of(claim.sweep, claim.experiment)[0]
    rho = run.epochs * len(run.mechanism.noise_groups) * float(claim.number.argument)
    epsilon = rho + 2 * math.sqrt(rho * math.log(1 / run.config.delta))
    measured = charged_epsilon(claim, evidence)
    sound = measured.epsilon_sound if measured.epsilon_spent is None else measured.epsilon_spent
    text = f"ρ = {claim.number.argument} a layer and epoch, {rho:.4g} in all"
    return replace(measured, value=epsilon, epsilon=epsilon, epsilon_sound=sound, epsilon_spent=None, explanation=text)


@Formula
def counted_by_pld(claim: Claim, evidence: Evidence) -> Measured:
    """Return the PLD epsilon of the releases that the experiment counts by another accountant; and the sound one."""
    run, claimed, _ = ledger_of(claim.sweep, claim.experiment)
    measured = charged_epsilon(claim, evidence)
    epsilon = Pld().epsilon(claimed, run.config.delta)
    text = f"by the script's own accountant {bound_text(measured.value)}; the ε of all steps is an upper bound"
    return replace(measured, value=epsilon, epsilon=epsilon, explanation=text)


def white_disc(shape: Sequence[int]) -> Tensor:
    """Return an image [1, channels, height, width] with a small white disc in its middle."""
    channels, height, width = shape
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    disc = (rows - height / 2).square() + (columns - width / 2).square() < (_RADIUS * height) ** 2
    return disc.float().expand(1, channels, height, width)


@cache
def first_update_epsilon(sweep: str, experiment: str) -> float | None:
    """Return a lower bound on epsilon with the bug: the exact epsilon of the first update, the least of ten seeds.

    It is for one pair of data sets for each seed. One has a white disc in its first batch, in the other this example
    counts as zero. The first weights and the batches are public, as in theorem 1. So the disc moves the sum of group g
    by a known vector v_g. The two releases are Gaussians whose means are sqrt(sum_g (|v_g| / std_g)^2) standard
    deviations apart. Later updates only add to that. The disc has the label that moves the sums the most, and its size
    was chosen for these seeds. Both are allowed, as epsilon holds for all pairs. None for a large network: it takes a
    minute.
    """
    run = ledger_of(sweep, experiment)[0]
    if run.parameters > _LARGE:
        return None
    images = run.features(white_disc(run.dataset.shape)).double()
    clipping = run.mechanism.applied(run.clipping, run.config.batch_size)
    noise = {name: run.mechanism.noise_std(group) for group in run.mechanism.noise_groups for name in group.parameters}
    least = math.inf
    for seed in range(_SEEDS):
        config = copy.deepcopy(run.config)
        config.seed = seed
        engine, largest = run.engine(prepare(config).new_objective().double()), 0.0
        for label in range(run.dataset.classes):
            moved = clipping.sum_contributions(engine, images, torch.tensor([label])).gradients
            largest = max(largest, math.hypot(*(float(moved[name].norm()) / std for name, std in noise.items())))
        least = min(least, gaussian_epsilon(largest, config.delta))
    return least
