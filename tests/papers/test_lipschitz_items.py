"""The items of the Lipschitz paper: constants and bounds, the ε of its notebooks, and counts from records."""

import math
from typing import Any

import pytest
import torch

from runner.claims.claim import Claim
from runner.claims.evidence import PlannedRun, Runs, collect
from runner.claims.measure import measure, prepared
from runner.claims.verdicts import judge
from runner.cli import epsilon as command
from runner.cli.commands import carry_out
from runner.networks.lipschitz.layers import Center
from runner.papers.lipschitz import figures, measures, theory
from runner.records.jobs import sweep_jobs
from runner.report.papers import claims_of, load
from tests.claims.made_up import NOTHING, run

PAPER = load("lipschitz")


def measured(claim: Claim) -> Any:
    return measure(claim, NOTHING, PAPER.formulas)


@pytest.mark.parametrize(
    ("item", "method", "value"),
    [
        ("table-1", "Softmax cross-entropy, temperature τ", 1.0),
        ("table-1", "Cosine similarity", 1.0),
        ("table-1", "Multiclass hinge loss", math.sqrt(0.9)),
        ("table-1", "KR loss", math.sqrt(10 / 9)),
        # at the smallest of three α: what is stated holds from 1.055 on alone
        ("table-1", "HKR loss", (math.sqrt(10 / 9) + 0.1 * math.sqrt(0.9)) / 1.1),
        ("table-2", "Bias", 1.0),
        ("table-2", "Bias on a map", 28.0),
        ("table-2", "Dense layer", 1.0),
        ("table-2", "Convolution, window s", 0.887369),
        ("table-2", "RKO convolution", 0.874497),
        ("table-2", "RKO convolution, kernel", 0.874497 * 16 / 6),
        ("table-2", "RKO convolution, reparametrised", 0.874497 * 16 / 6),
        ("theorem-1", "1-Lipschitz layers, no bias", 1.0),
        ("theorem-1", "1-Lipschitz layers, with biases", 1.0),
        ("table-3", "Layer centering of the library, vectors and tokens", 0.25),
        # at t = 2 K / sqrt(b) the bound is 1: of four signs all have to be equal, which one in eight is
        ("corollary-2", "Distance of a batch's mean gradient from its expectation", 2 * 0.5**4),
        ("prop-2", "Clipped binary cross-entropy", 0.0),
    ],
)
def test_constants_are_those_derived(item: str, method: str, value: float) -> None:
    (claim,) = claims_of("lipschitz", item=item, method=method)
    rounding = {"table-2": 1e-4, "theorem-1": 1e-3}.get(item, 1e-6)
    assert measured(claim).value == pytest.approx(value, rel=rounding, abs=1e-12)


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (3, 2)])
def test_no_image_has_a_larger_jacobian_in_the_kernel(stride, padding):
    """Images of norm 1: constant, random, and ones that gradients have made worse, through PyTorch's convolution."""
    images = torch.cat([torch.ones(1, 36), torch.randn(7, 36, generator=torch.Generator().manual_seed(0))]).double()
    images.requires_grad_()
    optimizer = torch.optim.Adam([images], lr=0.02)
    largest, _ = theory._worst_reads(stride, padding)
    reached = torch.zeros(())
    for _ in range(150):
        pixels = (images / images.norm(dim=1, keepdim=True)).view(-1, 1, 6, 6)
        kernels = torch.eye(9, dtype=torch.float64).view(9, 1, 3, 3)
        jacobians = torch.nn.functional.conv2d(pixels, kernels, stride=stride, padding=padding).flatten(2)
        reached = torch.linalg.matrix_norm(jacobians, 2).max()
        assert reached <= largest * (1 + 1e-9)
        optimizer.zero_grad()
        (-torch.linalg.matrix_norm(jacobians, 2).sum()).backward()
        optimizer.step()
    assert reached > 0.999 * largest


def test_orthogonalisation_scales_by_inverse_singular_values():
    """Converged, f = 1 on the 2 singular values: the largest is 2 / (s_1 + s_2), or 1 / s_2 in a kernel not square."""

    def largest(kernel: torch.Tensor, factor: float = 1.0) -> float:
        return torch.linalg.matrix_norm(theory.reparametrisation_jacobian(kernel, factor), 2).item()

    kernel = torch.diag(torch.tensor([1.0, 0.25], dtype=torch.float64))
    assert largest(kernel) == pytest.approx(2 / 1.25, rel=1e-5)
    assert largest(torch.cat([kernel, torch.zeros(2, 1)], 1)) == pytest.approx(4, rel=1e-5)
    first = torch.eye(9, 16, dtype=torch.float64)
    assert largest(first, 0.375) == pytest.approx(0.375, rel=1e-5), "the bound of the library"
    assert largest(0.375 * first, 0.375) == pytest.approx(1, rel=1e-5), "after condense, 1 / 0.375 times as much"


def test_bounds_of_linear_layers_fail_where_iterations_stop():
    """A singular value of 0.000608 is left at 0.001367, and the next pass has 15 iterations: 329 times."""
    kernel = theory.reparametrised(torch.diag(torch.tensor([1.0, 0.000608], dtype=torch.float64)), 1.0)
    assert kernel[1, 1].item() == pytest.approx(0.000608 / 1.001 * 1.5**2, rel=1e-5)
    jacobian = theory.reparametrisation_jacobian(kernel, 1.0)
    assert torch.linalg.matrix_norm(jacobian, 2).item() == pytest.approx(329, abs=0.1)


def test_jacobians_in_the_input():
    """3 * 32 / 94: the factor of the library on a map of 32 x 32 over the one that would do."""
    ratios = {name: ratio for name, (ratio, _) in theory.input_jacobians().items()}
    assert ratios.pop("RKO convolution") == pytest.approx(3 * 32 / 94)
    assert ratios == {name: pytest.approx(1.0) for name in ratios}


def test_the_three_regimes_follow_the_closed_form():
    for slope in theory.SLOPES:
        for layers in (1, 2, 9, 32):
            result, expected = theory.bound_of_depth(slope, layers), theory.closed_form(slope, layers)
            assert expected <= result <= expected * (1 + 3e-5 * layers)


def test_the_centring_of_the_library_couples_examples():
    """On inputs that are not 4-D, changing example 0 moves example 1: by a quarter as much, in batches of four."""
    vectors = torch.zeros(4, 3)
    changed = vectors.clone()
    changed[0] = torch.tensor([1.0, 0.0, 0.0])
    moved = theory.centered_by_library(changed) - theory.centered_by_library(vectors)
    assert moved[1].tolist() == [-0.25, 0.0, 0.0]
    assert theory.moved_by_another(theory.centered_by_library, (6, 5)) == pytest.approx(0.25)
    assert theory.moved_by_another(theory.centered_by_library, (3, 3, 4)) == 0.0
    assert theory.moved_by_another(theory.Center(), (6, 5)) == 0.0, "the centring here is of each example by itself"


def test_what_noise_for_each_tensor_costs(coarse):
    """Ten tensors of one bound: their noise is 10^-1/2 of that for all, whose squared sensitivity is tenfold."""
    noise, epsilon = map(measured, claims_of("lipschitz", item="text-local"))
    assert noise.value == pytest.approx(10**-0.5)
    assert epsilon.value > 8


def test_what_batches_and_clips_do_to_sensitivity_and_epsilon(coarse):
    values = [measured(claim).value for claim in claims_of("lipschitz", item="fig-9")]
    assert values[0] == pytest.approx(0.5)
    assert values[1] == pytest.approx(1.80, abs=0.01)  # of one step: dp-accounting has 0.485 and 0.873
    assert values[2:] == [2.0, 1.0, 1.0]


def test_the_notebooks_network_is_not_centred():
    objective = prepared("lipschitz/repo", "lipschitz/cifar10_notebook_uncentered").new_objective()
    assert sum(p.numel() for p in objective.parameters()) == 93_184  # as the notebook prints
    assert not any(isinstance(module, Center) for module in objective.modules())


@pytest.mark.parametrize(
    ("dataset", "setting", "claimed", "sound"),
    [
        ("MNIST", "noise multiplier 2, batch size 1,000", 2.98762, 2.742),
        ("CIFAR10", "noise multiplier 4, batch size 10,000", 9.9763, 9.137),
    ],
)
def test_the_notebooks_cost_what_they_say_by_their_accountant(dataset, setting, claimed, sound):
    method = f"Lipschitz network, global noise, {setting}"
    (claim,) = claims_of("lipschitz", item="repo", dataset=dataset, method=method, quantity="epsilon")
    result = measured(claim)
    assert result.value == pytest.approx(claimed, abs=1e-5)
    assert result.epsilon_sound == pytest.approx(sound, abs=1e-3)


def norms_run(space: str, inputs: list[int], gradients: list[int], seed: int = 0) -> PlannedRun:
    histograms = {
        "inputs": {"largest": 1.0, "counts": inputs},
        "gradients": [{}, {"largest": 2.0, "counts": gradients}],
    }
    features = {"space": space, "largest_norm": 56.0}
    return run("lipschitz/norms", seed, diagnostics={"norm_histograms": histograms}, features=features)


def bounded_run(**ratios: list[float]) -> PlannedRun:
    return run(diagnostics={"bound_ratios": {"largest": ratios}})


def test_the_narrowest_norms_are_over_those_of_plain_images():
    """Counts at 1/4 and 3/4 alike: mean 1/2, deviation 1/4. All in one bin: no deviation."""
    runs = Runs(
        [norms_run("rgb", [50, 50], [50, 50]), norms_run("hsv", [50, 50], [0, 9]),
         norms_run("yiq", [10, 90], [50, 50])]
    )  # fmt: skip
    assert measures.variation({"largest": 8.0, "counts": [50, 50]})[0] == pytest.approx(0.5)
    claim = next(c for c in PAPER.claims if str(c.number) == "narrowest(inputs)")
    result = measures.least_spread(claim, runs)
    assert result.value == pytest.approx(0.15 / 0.7 / 0.5)
    assert result.interval_at(0.95).low < result.value < result.interval_at(0.95).high
    assert result.explanation == "HSV 0.500, YIQ 0.214; RGB 0.500"
    of_gradients = next(c for c in PAPER.claims if str(c.number) == "narrowest(gradients)")
    assert measures.least_spread(of_gradients, runs).value == 0.0
    more = [norms_run("rgb", [1, 1], [50, 50], seed=1), norms_run("hsv", [1, 1], [10, 90], seed=1)]
    result = measures.least_spread(of_gradients, Runs([*runs, *more]))
    assert result.samples[0] == pytest.approx((0.0, 0.15 / 0.7 / 0.5))


def test_a_bias_is_compared_with_the_bound_of_the_library(tmp_path, fabricate):
    """Its bound is for one position, and the bound here for a map of 14 x 14: a ratio of 1/10 here is 1.4 there."""
    (claim,) = (c for c in PAPER.claims if str(c.number) == "over_library_bound")
    for job, ratio in zip(sweep_jobs(claim.sweep), (0.1, 0.08, 0.09, 0.09), strict=False):
        ratios = {"epoch": [0, 1], "largest": {"network.5.bias": [ratio, 0.9]}, "mean": {"network.5.bias": [0.0, 0.0]}}
        fabricate(job, [50.0], diagnostics={"bound_ratios": ratios})
    result = measure(claim, collect([claim.sweep], "paper", tmp_path), PAPER.formulas)
    assert result.sample == pytest.approx((1.4, 1.12, 1.26, 1.26))
    assert judge(claim, result, "paper").verdict == "fails"


def test_runs_with_a_violation_are_a_share_with_an_interval():
    """The claim of it has no verdict, because the bounds are this project's own and not the authors'."""
    claims = claims_of("lipschitz", item="text-cert", quantity="gradient_bound_violations")
    assert all(claim.contextual for claim in claims)
    beyond_twice = bounded_run(a=[0.5, 1.0], b=[1.01, math.nan])
    assert measures.share_beyond(Runs([beyond_twice])).explanation.startswith("2 of 4 pairs")
    within, beyond = (bounded_run(a=[0.5, top]) for top in (1.0, 1.01))
    for runs, expected, largest in (([within] * 27, 0.0, 12.77), ([within] * 2 + [beyond] * 38, 95.0, 99.39)):
        share = measures.share_beyond(Runs(runs))
        assert share.value == expected
        assert share.interval_at(0.95).high == pytest.approx(largest, abs=0.01)


def test_the_command_tables_the_bounds_of_any_config(capsys, coarse):
    assert command.bounds(["experiment=lipschitz/mnist_mlp", "target_epsilon=null", "noise_multiplier=2"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["numbers", "sensitivity", "noise", "parameters"]
    assert [row.split()[3] for row in rows] == ["1.weight", "3.weight"]
    sensitivity, noise = (float(rows[0].split()[i]) for i in (1, 2))
    assert sensitivity == pytest.approx(0.1, rel=1e-3)
    assert noise == pytest.approx(2 * math.sqrt(2) * sensitivity, rel=1e-4)
    calibrated = ["experiment=lipschitz/mnist_mlp", "target_epsilon=3", "noise_multiplier=null"]
    assert command.bounds([*calibrated, "scale=smoke"]) == command.bounds(calibrated) == 0
    small, full = (float(text.split()[2]) for text in capsys.readouterr().out.splitlines()[1::3])
    assert small < full / 2, "the smoke scale has fewer epochs, so each step may cost more"
    assert carry_out("bounds", ["experiment=lipschitz/mnist_mlp", "activation=tempered_sigmoid"]) == 2
    assert "TemperedSigmoid" in capsys.readouterr().err


def test_times_and_memory_are_relative_to_the_named_clipping(monkeypatch):
    """Clipless steps take 3 s and 4 MiB, clipped ones 2 s or 6 s, 1 MiB or 8 MiB. Two batches count as large.

    Of times the two networks are the sample, not their batches. Of memories the four are statements.
    """
    times = {"clipless": (3, 4), "one_pass": (2, 1), "opacus_hooks": (6, 8)}
    rows = [
        {"network": network, "batch": str(batch), "method": name, "s_per_epoch": str(seconds), "peak_mib": str(memory)}
        for batch in (128, 512, 2048, 4096)
        for network in ("small", "large")
        for name, (seconds, memory) in times.items()
    ]
    for row in rows[-6:]:
        row["s_per_epoch"] = row["peak_mib"] = "nan"
    monkeypatch.setattr(figures, "measured_times", lambda: rows)
    claims = {(c.quantity, c.reading): c for c in PAPER.claims if c.item == "fig-4" and c.reading}
    ratios = {key: measured(claim) for key, claim in claims.items()}
    paper, ours = "clipping by Opacus, as in the paper", "clipping by this project"
    assert {key: ratio.value for key, ratio in ratios.items()} == {
        ("time_ratio", paper): 0.5,
        ("time_ratio", ours): 1.5,
        ("memory_ratio", "clipping by Opacus"): 0.5,
        ("memory_ratio", ours): 4.0,
    }
    assert {key[0]: (len(ratio.samples[0]), len(ratio.statements)) for key, ratio in ratios.items()} == {
        "time_ratio": (2, 0),
        "memory_ratio": (1, 4),
    }


def test_every_memory_has_to_be_below_that_of_clipping(monkeypatch):
    """By hand: two readings of a projection 2 apart have s = sqrt(2) with one degree of freedom, so t = 12.706."""

    def rows(batch: int, **peaks: float) -> list[dict[str, str]]:
        named = {"network": "small", "batch": str(batch)}
        return [{**named, "method": name, "peak_mib": str(peak)} for name, peak in peaks.items()]

    def of_peaks(clipless: float, projection: float) -> Any:
        first = rows(512, clipless=900, opacus_hooks=1000, projection=9)
        second = rows(2048, clipless=clipless, opacus_hooks=1000, projection=projection)
        monkeypatch.setattr(figures, "measured_times", lambda: [*first, *second])
        return figures.memory_below_clipping(claim, NOTHING)

    claim = claims_of("lipschitz", item="fig-4", quantity="memory_ratio")[0]
    ratio = of_peaks(300, 11)
    assert ([statement.value for statement in ratio.statements], ratio.value) == ([0.9, 0.3], 0.9)
    factor = math.exp(12.7062 * math.sqrt(2) * math.hypot(1 / 900, 1 / 1000))
    assert ratio.interval_at(0.95).high == pytest.approx(0.9 * factor, rel=1e-5)
    assert judge(claim, ratio, "paper").verdict == "holds"
    assert judge(claim, of_peaks(300, 17), "paper").verdict == "open", "four times the spread"
    assert judge(claim, of_peaks(1200, 11), "paper").verdict == "fails", "one of two is above"
