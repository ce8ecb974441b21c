"""The items of Backpropagation Clipping: what is computed, against the known numbers; what is drawn, on nothing."""

import copy
import math
from functools import partial

import pytest
import torch
from scipy.stats import norm
from torch import nn

from runner.accounting.ledger import gaussian_epsilon
from runner.build.prepare import prepare
from runner.claims.evidence import Evidence, PlannedRun
from runner.claims.measure import ledger_of, measure, prepared
from runner.claims.verdicts import judge
from runner.config import RESULTS
from runner.papers.backprop_clipping import figures, whole_run
from runner.papers.backprop_clipping.figures import first_update_epsilon
from runner.records.jobs import sweep_jobs
from runner.report.claim_rows import rows_of
from runner.report.papers import claims_of, load
from tests.claims.made_up import NOTHING

NAME = "backprop_clipping"
PAPER = load(NAME)
claims = partial(claims_of, NAME)
CODE, TABLE_1 = f"{NAME}/original_code", f"{NAME}/table_1"


@pytest.mark.parametrize(
    ("dataset", "epsilon", "sound"),
    [("MNIST", 0.068, 0.0414), ("FashionMNIST", 0.874, 0.639), ("CIFAR10", 3.643, 2.941)],
)
def test_the_claimed_epsilon_follows_from_a_round_rho(dataset, epsilon, sound) -> None:
    """As printed it holds for neighbours that zero one example out, by PLD with room to spare."""
    (claim,) = claims(item="table-1", dataset=dataset, quantity="epsilon")
    judged = judge(claim, measure(claim, NOTHING, PAPER.formulas), "paper")
    assert judged.measured == pytest.approx(epsilon, abs=5e-4)
    assert judged.measured == pytest.approx(claim.aim, abs=claim.margin)
    assert (judged.guarantee, judged.epsilon_least) == ("guaranteed", None)
    assert judged.epsilon_sound == pytest.approx(sound, rel=2e-3)
    assert claim.alone.endswith("_printed")


def test_the_story_counts_all_seeds_of_a_setting_once() -> None:
    """Two sweeps share three seeds of DP-Adam at the claimed epsilon, and a claim has the mean of all five."""
    planned = {sweep: [PlannedRun(job, None) for job in sweep_jobs(sweep)] for sweep in PAPER.item("story").sweeps}
    for label in figures.MECHANISMS:
        runs = figures._mechanism_runs(Evidence("paper", planned), label)
        assert len({run.job.run_id for run in runs}) == len(runs) > 0
    large = figures._mechanism_runs(Evidence("paper", planned), figures._PLAIN_LARGE)
    assert sorted(run.seed for run in large.where("target_epsilon", 0.07)) == [0, 1, 2, 3, 4]


def test_the_lower_bound_by_hand() -> None:
    """Inputs are clipped to 1 before each layer, and the noise is 0.01 x 686.54 / 4096. Rows are far below 0.01.

    Of seeds the fifth is the least, where the ninth label of a disc of 3.36 pixels moves the sums the most.
    """
    config = copy.deepcopy(ledger_of(TABLE_1, f"{NAME}/mnist_original_bug")[0].config)
    config.seed = 4
    network = prepare(config).new_objective().network.double()
    rows, columns = torch.meshgrid(torch.arange(28), torch.arange(28), indexing="ij")
    x = (((rows - 14) ** 2 + (columns - 14) ** 2 < 3.36**2)[None, None].double() - 0.1307) / 0.3081
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            x = x / x.norm().clamp(min=1)
        x = layer(x)
    nn.functional.cross_entropy(x, torch.tensor([9])).backward()
    mu = math.sqrt(sum(p.grad.square().sum().item() for p in network.parameters())) / (0.01 * 686.54)
    epsilon = first_update_epsilon(TABLE_1, f"{NAME}/mnist_original_bug")
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-5, rel=1e-3)
    assert epsilon > 0.08
    assert first_update_epsilon(TABLE_1, f"{NAME}/cifar10_original_bug") is None


def test_the_code_as_it_was() -> None:
    """The authors' network, pixels, batches and noise, and nothing else that differs from the run on figure 3's."""
    code, bug = ledger_of(CODE, f"{NAME}/mnist_original_code"), ledger_of(TABLE_1, f"{NAME}/mnist_original_bug")
    run = code[0]
    assert (run.parameters, bug[0].parameters) == (25_920, 18_752)
    shapes = {name: tuple(p.shape) for name, p in run.new_objective().named_parameters()}
    assert list(shapes.values()) == [(16, 1, 8, 8), (32, 16, 4, 4), (32, 512), (10, 32)]
    assert (run.features.mean, run.features.std) == (None, None)
    sizes = [len(batch) for batch in run.mechanism.batches(torch.Generator())]
    assert sizes == [4096] * 14 + [2656]
    assert (run.epochs, run.config.optimizer.lr, run.mechanism.steps_per_epoch) == (25, 0.01, 15)
    assert code[1:] == bug[1:], "charges and costs"
    layer = run.mechanism.noise_groups[0]
    assert run.mechanism.noise_std(layer) == pytest.approx(0.01 / 4096 * 686.54, rel=1e-4)


def test_the_repositorys_epsilons_and_what_its_script_counts() -> None:
    epsilons = claims(item="repo-mnist", quantity="epsilon")
    rows = [judge(claim, measure(claim, NOTHING, PAPER.formulas), "paper") for claim in epsilons]
    assert [row.measured for row in rows] == pytest.approx([3.593, 1.032, 0.2005, 0.0996], rel=1e-3)
    assert {row.guarantee for row in rows} == {"not guaranteed"}


def test_theorem_1_and_the_bug() -> None:
    rows = figures.table_1(NOTHING, ()).rows
    assert [row[5] for row in rows] == pytest.approx([686.5, 71.1, 44.8], rel=2e-3)
    assert [float(row[7]) for row in rows] == pytest.approx([0.14, 1.77, 7.78], rel=0.015)
    assert [row[8] for row in rows] == pytest.approx([0.168, 0.0174, 0.0109], rel=4e-3)
    assert [float(row[10]) for row in rows[:2]] == pytest.approx([0.08881, 1.054], rel=1e-3)
    (claim,) = claims(item="theorem-1")
    assert measure(claim, NOTHING, PAPER.formulas).value == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("item", ["theorem-2", "theorem-3"])
def test_no_gradient_is_above_its_bound_and_some_reach_it(item: str) -> None:
    (claim,) = claims(item=item)
    assert measure(claim, NOTHING, PAPER.formulas).value == pytest.approx(1, abs=1e-9)
    table = PAPER.item(item).table
    assert table is not None
    assert all(row[-1] == pytest.approx(1, abs=1e-9) for row in table(NOTHING, ()).rows)


def test_all_updates_of_ten_runs_bound_epsilon_from_below():
    """By hand: with ten of ten, P(V >= 40) >= 0.05^(1/10) = 0.74113 at 95%, and FPR = Phi(-sqrt(40)) = 1.270e-10."""
    expected = math.log(0.7411344 - 0.5 - 1e-5) - math.log(1.270e-10)
    assert whole_run.least_epsilon([40.0] * 10, 1e-5) == pytest.approx(expected, abs=1e-3)
    assert 0 < whole_run.least_epsilon([40.0] * 9 + [39.9], 1e-5) < expected
    assert whole_run.least_epsilon([40.0] * 7 + [0.0] * 3, 1e-5) == 0.0
    assert whole_run.least_epsilon(whole_run.totals(), 1e-5) == pytest.approx(expected, abs=1e-3), "as measured"
    rows = rows_of(RESULTS, PAPER, ["table-1"])
    (row,) = (row for row in rows if (row.claim.reading, row.claim.dataset) == ("the authors' code", "MNIST"))
    assert (row.guarantee, row.epsilon_least) == ("refuted", pytest.approx(expected, abs=1e-3))


def test_the_least_of_ten_runs_bounds_epsilon_without_a_level():
    """By hand: a further run reaches the least of ten, 72.01, with 0.05^(1/10) = 0.74113, and FPR = Phi(-sqrt(72.01)).

    The chance that less than this share reaches the least is 0.74113^10 = 5%.
    """
    expected = math.log(0.05 ** (1 / 10) - 0.5 - 1e-5) - math.log(norm.cdf(-math.sqrt(72.01)))
    assert whole_run.least_epsilon_by_smallest([72.01, *[90.0] * 9], 1e-5) == pytest.approx(expected, rel=1e-9)
    assert whole_run.least_epsilon_by_smallest([72.01] * 4, 1e-5) == 0.0, "0.05^(1/4) is below a half"
    (claim,) = claims(item="whole-run", direction="none")
    measured = measure(claim, NOTHING, PAPER.formulas)
    assert measured.value == pytest.approx(37.66, abs=0.005)
    row = judge(claim, measured, "paper")
    assert (row.verdict, row.guarantee, row.interval_low) == ("", "", measured.value), "context, and decides nothing"


def test_a_black_image_adds_nothing_and_a_disc_does():
    run = prepared(whole_run.SWEEP, whole_run.EXPERIMENT)
    engine = run.engine(run.new_objective())
    clipping = run.mechanism.applied(run.clipping, run.config.batch_size)
    black = clipping.sum_contributions(engine, torch.zeros(1, 1, 28, 28), torch.tensor([3])).gradients
    assert all(not gradient.any() for gradient in black.values())
    disc = clipping.sum_contributions(engine, figures.white_disc([1, 28, 28]), torch.tensor([3])).gradients
    std = {name: run.mechanism.noise_std(g) for g in run.mechanism.noise_groups for name in g.parameters}
    moved = math.hypot(*(float(disc[name].norm()) / std[name] for name in std))
    assert 0 < gaussian_epsilon(moved, 1e-5) < 0.2
