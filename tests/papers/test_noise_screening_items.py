"""The items of Noise Screening: what is computed, and what its measurements make of made-up runs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from runner.accounting import RdpClassic, sound_epsilon
from runner.claims.claim import Call
from runner.claims.evidence import Evidence, PlannedRun
from runner.claims.measure import guaranteed_for, measure
from runner.claims.verdicts import judge
from runner.config import REPOSITORY
from runner.papers.noise_screening import measures, theorem_1
from runner.records.disk import read_record
from runner.records.jobs import Job, sweep_jobs
from runner.report.formats import read_csv
from runner.report.papers import load
from tests.claims.made_up import NOTHING
from tests.tracked import tracked

PAPER = load("noise_screening")
CLAIMS = PAPER.claims


def made_up(experiment: str, seed: int, final_accuracy: float, tries_per_kept: float = 1.5) -> dict[str, Any]:
    """A record whose accuracy climbs to `final_accuracy` while epsilon climbs to 3 in ten epochs."""
    epochs = range(1, 11)
    history: dict[str, list[float]] = {
        "epoch": list(epochs),
        "epsilon": [0.3 * e for e in epochs],
        "epsilon_sound": [0.31 * e for e in epochs],
        "train_loss": [1.0 / e for e in epochs],
        "test_loss": [1.0 / e + 0.01 * seed for e in epochs],
        "test_accuracy": [final_accuracy - (10 - e) + 0.1 * seed for e in epochs],
    }
    final: dict[str, Any] = {"noise_multiplier": 1.23}
    if "screened" in experiment or "free" in experiment or "sound" in experiment:
        history["accepted"] = [100 * e for e in epochs]
        history["tries"] = [100 * e * tries_per_kept for e in epochs]
        history["forced"] = [2 * e for e in epochs]
        history["acceptance_rate"] = [1 / tries_per_kept - 0.01 * e + 0.02 * seed for e in epochs]
        apart = "public" in experiment or "sound" in experiment
        history["unscreened_accuracy"] = [a if apart else math.nan for a in history["test_accuracy"]]
        history["epsilon_spent"] = history.pop("epsilon_sound")
        final |= {"epsilon_sound": 9.0, "max_tries": 1500}
    final |= {name: values[-1] for name, values in history.items()}
    final |= {"best_test_accuracy": max(history["test_accuracy"]), "best_epoch": 10, "epoch": 10}
    return {"status": "finished", "history": history, "final": final, "diagnostics": {}, "provenance": {}}


def evidence(accuracies: dict[str, float], sweeps: tuple[str, ...], seeds: int = 2) -> Evidence:
    def planned(job: Job) -> PlannedRun:
        accuracy, seed = accuracies.get(job.experiment), job.config.seed
        return PlannedRun(job, made_up(job.experiment, seed, accuracy) if accuracy and seed < seeds else None)

    return Evidence("paper", {sweep: [planned(job) for job in sweep_jobs(sweep)] for sweep in sweeps})


TABLE_1 = {
    "noise_screening/mnist_screened": 98.0,
    "noise_screening/mnist_screened_public": 97.8,
    "losing_less/mnist_ce": 97.0,
    "noise_screening/mnist_auto": 96.5,
    "noise_screening/mnist_relu": 95.0,
}


@pytest.fixture(scope="module")
def runs() -> Evidence:
    return evidence(TABLE_1, (measures.SWEEP,))


def claim_of(item: str, experiment: str, quantity: str = "test_accuracy"):
    return next(c for c in CLAIMS if c.item == item and c.experiments[:1] == [experiment] and c.quantity == quantity)


def test_the_limit_on_tries_cannot_come_first(coarse) -> None:
    """(mu0 + 1) tau tries, for the experiments that end at the paper's epsilon; and tau is the paper's."""
    for dataset, kept_steps in (("MNIST", 4698), ("FashionMNIST", 1157), ("CIFAR10", 1435)):
        run = measures.screened_run(dataset)
        tries = run.epochs * run.mechanism.steps_per_epoch
        least = (run.rule.rejection_threshold + 1) * kept_steps
        assert least <= tries < least + run.mechanism.steps_per_epoch
        assert run.paid_for == kept_steps


def test_screened_runs_are_held_to_the_most_tries(runs: Evidence) -> None:
    claim = claim_of("table-1", "noise_screening/mnist_screened")
    measured = measure(claim, runs, PAPER.formulas)
    assert measured.value == pytest.approx(98.05)
    assert (measured.epsilon, measured.epsilon_spent, measured.epsilon_sound) == (pytest.approx(3), 3.1, 9.0)
    assert judge(claim, measured, "paper").guarantee == "not guaranteed"
    plain = measure(claim_of("table-1", "losing_less/mnist_ce"), runs, PAPER.formulas)
    assert (plain.epsilon_spent, plain.epsilon_sound) == (None, pytest.approx(3.1))


def test_smallest_epsilon_of_an_accuracy(runs: Evidence) -> None:
    claim = claim_of("table-3", "noise_screening/mnist_screened", "epsilon at 94% accuracy")
    assert measures.epsilon_at_accuracy(claim, runs).value == pytest.approx(0.3 * 6)  # 94.0 and 94.1 after epoch 6
    claim = claim_of("table-3", "noise_screening/mnist_relu", "epsilon at 98% accuracy")
    never = measures.epsilon_at_accuracy(claim, runs)
    assert never.value == math.inf
    assert judge(claim, never, "paper").verdict == "open"  # neither run reaches it, as claimed, but two are few
    numbered = claim_of("table-3", "noise_screening/mnist_relu", "epsilon at 96% accuracy")
    judged = judge(numbered, measures.epsilon_at_accuracy(numbered, runs), "paper")
    assert judged.verdict == "open"


def test_a_run_shorter_than_the_papers_leaves_accuracies_open() -> None:
    """Accuracies of 97.9 and 98 at the end, an epsilon of 3: one of two runs needs more than 3 for 98, if ever."""
    runs = evidence({"losing_less/mnist_ce": 97.9, "noise_screening/mnist_auto": 95.0}, (measures.SWEEP,))
    claim = claim_of("table-3", "losing_less/mnist_ce", "epsilon at 98% accuracy")  # 2.92, to 0.3
    measured = measures.epsilon_at_accuracy(claim, runs)
    assert (measured.at_least, measured.value) == (True, pytest.approx(3.0))
    judged = judge(claim, measured, "paper")
    assert (judged.verdict, judged.guarantee) == ("open", "")
    claim = claim_of("table-3", "noise_screening/mnist_auto", "epsilon at 96% accuracy")  # 1.47
    assert judge(claim, measures.epsilon_at_accuracy(claim, runs), "paper").verdict == "open"


def carried_on(seed: int) -> PlannedRun:
    """mnist_tanh_to_6, which begins as `made_up` has it, with one more epoch."""
    record = made_up("noise_screening/mnist_tanh_to_6", seed, 97.9)
    for name, value in {"epsilon": 3.3, "epsilon_sound": 3.41, "train_loss": 0.1, "test_accuracy": 98.0}.items():
        record["history"][name].append(value)
        record["final"][name] = value
    jobs = sweep_jobs(measures.CARRIED_ON)
    job = next(j for j in jobs if (j.experiment, j.config.seed) == ("noise_screening/mnist_tanh_to_6", seed))
    return PlannedRun(job, record)


def carried_on_evidence(*longer: PlannedRun) -> Evidence:
    """Two runs of DP-SGD with tanh end at 97.9 and 98; the first ends short of 98."""
    short = evidence({"losing_less/mnist_ce": 97.9}, (measures.SWEEP,))
    return Evidence("paper", short.sweeps | {measures.CARRIED_ON: list(longer)})


REACHES_98 = claim_of("table-3", "losing_less/mnist_ce", "epsilon at 98% accuracy")


def test_a_run_carried_on_takes_the_place_of_the_shorter_one() -> None:
    evidence_ = carried_on_evidence(carried_on(0), carried_on(1))
    measured = measures.epsilon_at_accuracy(REACHES_98, evidence_)
    assert (measured.at_least, measured.value) == (False, pytest.approx((3.3 + 3.0) / 2))
    assert (measured.n, measured.planned, measured.epsilon_sound) == (2, 5, 3.41)


def test_no_other_draw_takes_the_place_of_a_run_that_fell_short() -> None:
    another, less_noise, stopped = (carried_on(0) for _ in range(3))
    another.record["history"]["train_loss"][3] *= 1.01
    less_noise.record["history"]["epsilon"][3] *= 1.01
    stopped.record["status"] = "diverged"
    for run in (another, less_noise, stopped):
        measured = measures.epsilon_at_accuracy(REACHES_98, carried_on_evidence(run))
        assert (measured.at_least, measured.value) == (True, pytest.approx(3.0))


def test_the_epsilon_at_an_accuracy_is_judged_by_its_true_cost(runs: Evidence) -> None:
    claim = claim_of("table-3", "noise_screening/mnist_screened", "epsilon at 94% accuracy")
    measured = measures.epsilon_at_accuracy(claim, runs)
    run = runs.recorded(measures.SWEEP, "noise_screening/mnist_screened")[0]
    assert measured.epsilon_sound == guaranteed_for(run, 600)
    assert judge(claim, measured, "paper").guarantee == "not guaranteed"
    claim = claim_of("table-3", "losing_less/mnist_ce", "epsilon at 94% accuracy")
    assert claim.epsilon == (1.23, False)
    assert measures.epsilon_at_accuracy(claim, runs).epsilon_sound == pytest.approx(0.31 * 7)
    assert claim_of("table-3", "noise_screening/mnist_relu", "epsilon at 98% accuracy").epsilon is None  # ">6"


def test_a_budget_for_kept_updates_guarantees_their_most_tries(runs: Evidence) -> None:
    """488 kept updates cost 1.21 as the paper counts; 11 tries each, and never more than the config allows."""
    run = runs.recorded(measures.SWEEP, "noise_screening/mnist_screened")[0]
    event = PoissonSampledDpEvent(512 / 60_000, GaussianDpEvent(1.23))
    assert RdpClassic().epsilon(((event, 488),), 1e-5) <= 1.21 < RdpClassic().epsilon(((event, 489),), 1e-5)
    assert guaranteed_for(run, 488) == sound_epsilon(((event, 11 * 488),), 1e-5) == pytest.approx(2.545, abs=1e-3)
    assert guaranteed_for(run, 5000) == pytest.approx(9.3155, abs=5e-5)


def test_every_record_of_a_setting_guarantees_the_same() -> None:
    """Seeds of one setting may take the same tries at most, whenever they were computed."""
    measured: dict[str, set[tuple[int, float]]] = {}
    for path in tracked("results/runs/*.json"):
        if '"screening": {},' in path.read_text(encoding="utf-8"):
            continue  # to check a record takes time, and most have no screening
        record = read_record(path)
        if record["config"].get("screening"):
            final = record["final"]
            accuracies = measured.setdefault(record["setting_id"], set())
            accuracies.add((final.get("max_tries", final["steps"]), final["epsilon_sound"]))
    assert len(measured) >= 10
    assert all(len(guarantees) == 1 for guarantees in measured.values())
    assert (51678, 9.3155) in set.union(*measured.values())


def test_who_leads(runs: Evidence) -> None:
    claim = claim_of("fig-3", "noise_screening/mnist_screened", "share of epochs in the lead")
    assert measures.lead(claim, runs).value == 1.0
    tie = evidence({**TABLE_1, "noise_screening/mnist_screened": 97.0}, (measures.SWEEP,), seeds=5)
    measured = measures.lead(claim, tie)
    assert measured.value == 0.0  # a tie is no lead, but with other draws of the same runs it might be one
    interval = measured.interval_at(0.95)
    assert (interval.low, interval.high) == (0.0, 1.0)
    assert measures.lead(replace(claim, number=Call("lead(test_loss)")), tie).value == 0.0
    behind = evidence({**TABLE_1, "noise_screening/mnist_screened": 96.0}, (measures.SWEEP,))
    assert measures.lead(claim, behind).value == 0.0


def test_the_printed_equations_are_one_misprint() -> None:
    """A_2 = 1 + q^2 (exp(1 / sigma^2) - 1), by hand; and the values that the steps of table 2 would have."""
    assert measures.log_moment(0.5, 1.0, 2) == pytest.approx(math.log(1 + 0.25 * (math.e - 1)))
    (claim,) = (claim for claim in CLAIMS if claim.number.name == "printed_epsilon")
    measured = measures.printed_epsilon(claim, NOTHING)
    assert round(measured.value) == 48
    assert measured.explanation == (
        "365.6 on MNIST (3 with the logarithm), 47.89 on FashionMNIST (2.999 with the logarithm), "
        "89.67 on CIFAR-10 (2.999 with the logarithm)"
    )
    names = measures.DATASETS.values()
    assert all(measures.epsilon_by_orders(name, np.exp) > measures.kept_steps(name) / 63 > 18 for name in names)
    assert claim.contextual, "a misprint has no verdict"


def test_theorem_1_is_refuted() -> None:
    dataset = "FashionMNIST"  # the fewest steps
    (claim,) = (c for c in CLAIMS if str(c.number) == "theorem_1" and c.dataset == dataset)
    measured = theorem_1.theorem_1(claim, NOTHING)
    assert measured.value > measured.epsilon + 1
    judged = judge(claim, measured, "paper")
    assert (judged.verdict, judged.guarantee) == ("fails", "refuted")
    worst, steps = theorem_1.worst(dataset), measures.kept_steps(dataset)
    all_screened = theorem_1._screened(dataset, worst)
    assert measured.value < all_screened.epsilon_at_least(steps, 1e-5), "the first is kept whatever it is"
    most = theorem_1.upper_bound(dataset, worst)
    assert all_screened.epsilon_by_rdp(steps - 1, 1e-5) < most < all_screened.epsilon_by_rdp(steps, 1e-5)


def test_the_theorem_1_table_is_above_independent_lower_bounds() -> None:
    rows = read_csv(REPOSITORY / "results" / "noise_screening" / "theorem-1" / "table.csv")
    true = "true ε, at least"
    composed = {(row["data set"], row["mu0"]): float(row[true]) for row in rows if row["t / sigma"] in ("1.3", "1.6")}
    least = {("MNIST", "10"): 5.81, ("FashionMNIST", "5"): 4.21, ("CIFAR-10", "10"): 5.58}
    assert all(composed[case] > bound for case, bound in least.items())


def test_always_cheaper_has_a_statement_per_accuracy_and_method() -> None:
    """Accuracy climbs by one from epoch to epoch, epsilon by 0.3: what ends a point higher needs 0.3 less."""
    accuracies = {"screened_momentum": 98.5, "auto": 98.0, "relu": 95.0}
    accuracies = {f"noise_screening/mnist_{name}": value for name, value in accuracies.items()}
    evidence_ = evidence(accuracies | {"losing_less/mnist_ce": 97.5}, (measures.SWEEP,))
    always, grows = (c for c in CLAIMS if (c.dataset, c.reading, c.number.name) == ("MNIST", "momentum 0.9", "cheaper"))
    measured = measure(always, evidence_, PAPER.formulas)
    assert len(measured.statements) == 9
    gaps = [statement.value - statement.reference for statement in measured.statements]
    assert gaps == pytest.approx([-0.9, -0.3, 0.0, -0.6, -0.3, 0.0, 0.0, 0.0, 0.0], abs=0.16)
    assert measured.value - measured.reference == max(gaps)
    assert not measured.at_least
    rise = measure(grows, evidence_, PAPER.formulas)
    assert (rise.value, rise.reference) == pytest.approx((1.2, 1.2))


def test_the_best_batch_size_is_that_of_all_sizes_together() -> None:
    (claim,) = (c for c in CLAIMS if c.number.name == "pooled")
    accuracies = {"noise_screening/mnist_screened_batch": 97.0, "noise_screening/mnist_free": 98.0}
    evidence_ = evidence(accuracies, ("noise_screening/fig_4b", measures.SWEEP))
    measured = measure(claim, evidence_, PAPER.formulas)
    assert (measured.value, measured.n, measured.planned) == (256, 2 * 3 + 2, 3 * 3 + 5)


def test_a_gain_grows_by_what_lies_between_two_epsilons() -> None:
    """By hand: from 1.05 to 1.95, halfway between epochs of 0.3, all rise by 3 points, and one of AUTO-S by 3 more."""
    (claim,) = (c for c in CLAIMS if c.number.name == "later_gain" and c.dataset == "MNIST" and c.counts)
    claim = replace(claim, number=Call("later_gain(1.05 1.95)"))
    accuracies = {name: 98.0 for name in claim.experiments if not name.endswith("_relu")}
    found = evidence(accuracies, claim.sweeps)
    auto = found.planned(claim.sweeps, "noise_screening/mnist_auto").recorded
    assert auto[0].record is not None
    history = auto[0].record["history"]
    history["test_accuracy"] = [
        a + 3 * (e > 1.5) for a, e in zip(history["test_accuracy"], history["epsilon"], strict=True)
    ]
    measured = measures.later_gain(claim, found)
    assert [statement.value for statement in measured.statements] == [pytest.approx(0.0), pytest.approx(-1.5)]
    assert (measured.value, measured.lacking) == (pytest.approx(-1.5), ("mnist_relu",))
    assert measured.epsilon == pytest.approx(1.8), "the last epoch within the later one"


def test_a_record_without_processor_time_counts_by_the_clock() -> None:
    claim = next(c for c in CLAIMS if c.number.name == "time_ratio")
    found = evidence(dict.fromkeys(claim.experiments, 98.0), claim.sweeps, seeds=3)
    costs = ((10.0, 12.0, 40.0), (2.0, 3.0, 8.0))
    for name, seconds, key in zip(claim.experiments, costs, ("processor_seconds", "wall_seconds"), strict=True):
        for run, time in zip(found.planned(claim.sweeps, name).recorded, seconds, strict=True):
            assert run.record is not None
            run.record["provenance"] = {"wall_seconds": 100.0} | {key: time}
    measured = measures.time_ratio(claim, found)
    assert (measured.value, measured.kind) == (4.0, "by medians of 3 and 3 runs")
    assert "mnist_ce 3 s (3 of 3 by wall time)" in measured.explanation
