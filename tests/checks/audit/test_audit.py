"""The audit: the worst case saturates every bound, all of conf/ is attacked, and only faults are accused."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copy

import pytest
import torch
from dp_accounting import GaussianDpEvent
from scipy.stats import norm

from checks.audit import bounds, cases
from checks.audit import run as command
from checks.audit.attacks import Screened, attack_scores, joined, statistics_scores
from checks.audit.bounds import Limited, exact_scores, lower_bounds
from checks.audit.cases import settings
from checks.audit.faults import FAULTS, Fault, NoiseHalved, remade
from checks.audit.hidden import Hidden, hidden_scores
from checks.audit.records import target_of
from checks.audit.report import write_page
from checks.audit.targets import BANDED, DELTA, PLAIN, Setting, own_options, target
from checks.audit.trained import RateDoubled
from runner.accounting import sound_epsilon
from runner.config import REPOSITORY, register
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import generator
from runner.mechanism.statistics import PrivateStatistics
from runner.records.disk import read_record
from runner.records.verify import run_of
from runner.report.formats import read_csv
from tests.tracked import tracked_options

ERROR = 1e-3
OF_A_FAULT = (1 - cases.CONFIDENCE) / (2 * len(FAULTS) + 2)  # the chance of error that the command gives each row
OWN = {None, PLAIN, *tracked_options("clipping"), *tracked_options("mechanism")}
SETTINGS = [s for s, _ in settings() if {s.clipping, s.mechanism} <= OWN]
EVERYONE = [s for s in SETTINGS if s.everyone and s.steps == 1]


HALVED = (  # half of the trials accuse these, by other seeds too
    "layers amplified first, then composed",
    "the same noise at two steps",
    "shuffled batches charged as Poisson samples",
    "samples from parts charged as from all examples",
    "columns of the strategy with norm two",
)


def name_of(setting: Setting) -> str:
    parts = (setting.clipping, setting.mechanism, setting.network, *setting.more.values(), *(setting.beside or ()))
    return " ".join(map(str, parts))


@pytest.mark.parametrize("setting", EVERYONE, ids=name_of)
def test_the_canary_moves_all_that_the_ledger_allows(setting: Setting) -> None:
    """An attack that shows less than the sound epsilon then lacks trials, and not strength.

    The mean over the sampled examples moves by 1 + 15/16 bounds, of which the ledger has 2. It moves by 1 if batches
    are sampled, as the others have no gradients then.
    """
    attacked = target(setting, 1.3)
    assert [count for _, count in attacked.ledger.actual] == [1]
    assert attacked.moved == pytest.approx((1 + 15 / 16) / 2 if setting.mechanism == "corrected" else 1.0, rel=2e-3)
    if setting.mechanism == "corrected":
        assert target(setting.sampled(), 1.0).moved == pytest.approx(0.5, rel=1e-6)


def test_everything_in_conf_is_audited() -> None:
    attacked = {chosen for case in cases.cases(quick=False) for chosen in case.options}
    assert cases.counting_losses() == ["sharp_cross_entropy_quantile"]
    there = {(group, name) for group in cases.GROUPS for name in own_options(group) if group != "loss"}
    there |= {("loss", name) for name in cases.counting_losses()}
    assert there - attacked == set(cases.WITHOUT)
    assert attacked - there == {("mechanism", PLAIN)}
    assert all(
        own_options(group) == tracked_options(group) for group in cases.GROUPS if group not in ("engine", "precision")
    )
    assert {s.steps > 1 for s in SETTINGS} == {s.everyone for s in SETTINGS} == {True, False}
    assert next(iter(cases._refused("none", ERROR))).verdict == "not private"


def test_a_new_option_is_attacked_and_a_users_own_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = own_options("schedule")
    monkeypatch.setattr("checks.audit.targets.options_of", lambda group: [*listed, "theirs"])
    assert own_options("schedule") == listed
    monkeypatch.setattr(cases, "own_options", lambda group: [*own_options(group), *["newer"] * (group == "schedule")])
    schedules = {s.option_of("schedule") for s, _ in settings()} - {""}
    assert schedules == {*listed, "newer"} - {"none"}


@pytest.mark.parametrize(
    "setting",
    [Setting("flat", steps=4).sampled(3), Setting("flat", BANDED, steps=4, more={"bands": 2}).sampled(2)],
    ids=name_of,
)
def test_trials_at_once_are_drawn_as_single_trials(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates by step and example are those of the loop, and no coins are correlated, within a trial or with the next."""
    attacked, trials = target(setting, 1.0), 8000

    def coins() -> torch.Tensor:
        return torch.stack(joined(attacked, trials, generator(0, "test", torch.device("cpu"))), 1).double()

    at_once = coins()
    monkeypatch.setattr("checks.audit.attacks._flips_coins", lambda kind: False)
    single = coins()
    q = attacked.mechanism.sampling_rate
    error = 5 * math.sqrt(q * (1 - q) / trials)
    part = attacked.mechanism.equal_parts if setting.mechanism == BANDED else torch.zeros(10)
    bands = setting.more.get("bands", 1)
    expected = torch.stack([q * (part == step % bands).double() for step in range(4)])
    for drawn in (at_once, single):
        assert (drawn.mean(0) - expected).abs().max() < error
        moving = drawn.flatten(1)[:, expected.flatten() > 0]
        correlation = torch.corrcoef(moving.T) - torch.eye(moving.shape[1])
        assert correlation.abs().max() < 5 / math.sqrt(trials)
        after = torch.corrcoef(torch.stack([moving[:-1].flatten(), moving[1:].flatten()]))  # of one trial and the next
        assert abs(after[0, 1]) < 5 / math.sqrt(moving.numel())


def test_a_wrong_rate_in_the_class_shows_in_all_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mechanism, "memberships", RateDoubled.memberships)
    row = cases.attack_target(target(Setting("flat", examples=5, batch_size=1), 0.5), 5000, ERROR)
    assert row.accused is True


@pytest.mark.parametrize("setting", EVERYONE, ids=name_of)
def test_what_is_right_is_not_accused(setting: Setting) -> None:
    row = cases.attack_target(target(setting, 1.0), 3000, ERROR)
    assert row.accused is False
    if row.mechanism != "original_bug":
        assert 0.4 * row.sound < row.lower <= row.sound
    expected = {"corrected": "refuted", "original_bug": "refuted"}
    assert row.verdict == expected.get(row.mechanism, "guaranteed")


def test_noise_that_is_less_in_one_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting("flat", steps=3, more={"factors": (1.0, 0.5, 1.25)})
    right = target(setting, 2.0)
    assert not cases.attack_target(right, 5000, ERROR).accused
    wrong = replace(right, setting=replace(setting, more={"factors": (1.0, 1.0, 1.25)}))  # as another ledger charges
    wrong.__dict__["ledger"] = target(wrong.setting, 2.0).ledger
    assert cases.attack_target(wrong, 5000, ERROR).accused


@pytest.mark.parametrize("hidden", cases.HIDDEN, ids=lambda h: f"{h.kind} {h.batch_size}")
def test_the_end_of_a_run_shows_the_canary(hidden: Hidden) -> None:
    """With little noise only trials whose batches never had the canary are missed: one in eight at q = 1/2, 3 steps."""
    scores = hidden_scores(hidden, target(hidden.setting, 0.2), 60, "test")
    out, within = scores[hidden.sees]
    assert (within > out.max()).mean() > (0.7 if hidden.batch_size == 8 else 0.98)


def test_half_of_the_noise_is_found_by_the_end_of_a_run() -> None:
    """By 99 in 100 draws of as many exact scores."""
    hidden = Hidden("worst case", steps=2)
    right = target(hidden.setting, 0.8)
    wrong = replace(right, mechanism=remade(right.mechanism, NoiseHalved))
    accused = [
        lower_bounds(hidden_scores(hidden, attacked, 180, "test"), right.ledger.actual, DELTA, ERROR).accused
        for attacked in (right, wrong)
    ]
    assert accused == [False, True]


def test_exact_scores_of_a_limited_attacker() -> None:
    """Four steps at sigma = 2: sums differ by 4 with a deviation of 4; half the shift is twice the noise."""
    charged = ((GaussianDpEvent(2.0), 4),)
    out, within = exact_scores(charged, DELTA, 40_000, 0, Limited(summed=True))["likelihood"]
    assert (within.mean() - out.mean(), out.std()) == pytest.approx((4, 4), rel=0.03)
    out, within = exact_scores(charged, DELTA, 40_000, 0, Limited(moved=0.5))["likelihood"]
    assert (within.mean() - out.mean()) / out.std() == pytest.approx(0.5, rel=0.05)
    hidden = exact_scores(charged, DELTA, 40_000, 0, Limited(order=2))["likelihood"]
    assert (hidden[1].mean() - hidden[0].mean()) / hidden[0].std() < 0.8


def test_a_record_is_attacked_by_what_its_config_makes() -> None:
    """Coins have the recorded rate, and the noise is the recorded one: half of it is found."""
    register()
    run = run_of(read_record(REPOSITORY / "results" / "runs" / "61e6e8d67291.json")["config"])
    attacked = target_of(run)
    assert attacked.mechanism.sampling_rate == run.mechanism.sampling_rate
    assert attacked.mechanism.noise_multiplier == run.mechanism.noise_multiplier == 2.54
    assert attacked.moved == pytest.approx(1, rel=1e-6)
    attacked = replace(attacked, setting=replace(attacked.setting, steps=100))
    coins = torch.stack(joined(attacked, 2000, generator(0, "test", torch.device("cpu")))).double()
    assert coins.shape == (100, 2000, 1)
    assert coins.mean().item() == pytest.approx(run.mechanism.sampling_rate, rel=0.03)
    wrong = replace(attacked, mechanism=remade(attacked.mechanism, NoiseHalved))
    rows = [cases.attack_target(each, 4000, ERROR) for each in (attacked, wrong)]
    assert [row.accused for row in rows] == [False, True]


def test_sampled_batches_hide_the_canary_and_no_more() -> None:
    row = cases.attack_target(target(Setting("per_layer").sampled(), 0.3), 8_000, ERROR)
    assert row.accused is False
    assert 0.6 * row.sound < row.lower <= row.sound
    alone = sound_epsilon(target(Setting("per_layer"), 0.3).ledger.actual, DELTA)
    assert row.sound < alone


def test_seen_by_the_weights_gradients_do_not_depend_on_them() -> None:
    attacked = target(Setting("flat", steps=4, network="one layer"), 2.0)
    before = attacked.sums(attacked.worlds[1], [0, 15])
    with torch.no_grad():
        for parameter in attacked.network.objective.parameters():
            parameter.normal_()
    after = attacked.sums(attacked.worlds[1], [0, 15])
    assert all(torch.allclose(before[name], after[name]) for name in before)
    out, within = attack_scores(target(attacked.setting, 2.0), 5000, "test")["change"]
    assert within.mean() - out.mean() == pytest.approx(4, abs=0.32)  # four steps
    assert out.std() == pytest.approx(2 * 2.0, rel=0.05)  # of noise 2 each


def test_statistics_are_charged_as_two_releases() -> None:
    scores, ledger = statistics_scores(PrivateStatistics(2.0, 1.0, 0.5), 1500, "test")
    out, within = scores["sum"]
    apart = (within.mean() - out.mean()) / out.std()
    assert apart == pytest.approx(math.sqrt(2) / 2.0, rel=0.12)
    right = lower_bounds(scores, ledger.actual, DELTA, ERROR)
    assert not right.accused
    assert 0.3 < right.of_shape <= sound_epsilon(ledger.actual, DELTA)
    once = ((ledger.actual[0][0], 1),)
    assert lower_bounds({"sum": (out, within + 0.8 * out.std())}, once, DELTA, ERROR).accused


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_planted_faults_are_accused_and_correct_code_is_not(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without their bound by shape, which rows of other shapes leave out, and with fewer examples at the same rate.

    Where batches are sampled the others have no gradients, so their number changes nothing that is seen.
    """
    if not fault.gaussian:
        monkeypatch.setattr(bounds, "_shape_bound", lambda *_: math.nan)
    if 2 * fault.setting.batch_size == fault.setting.examples:
        fault = replace(fault, setting=replace(fault.setting, examples=4, batch_size=2))
    right, wrong = cases._faulty(fault, 2500 if fault.name in HALVED else 5000, OF_A_FAULT)
    assert right.accused is False
    assert wrong.accused is True
    if fault.gaussian:
        assert wrong.lower > wrong.sound
        assert wrong.lower > right.lower or wrong.sound < right.sound  # less noise, or the same at a lower charge


def test_an_attack_is_made_once_for_the_same_arguments_and_code(tmp_path: Path) -> None:
    attack, journal = partial(cases._refused, "none", ERROR), tmp_path / "rows.jsonl"
    made = command._once(journal, "code", attack)
    for code, again in (("code", attack), ("other code", attack), ("code", partial(cases._refused, "none", 0.5))):
        assert command._once(journal, code, again)[0].verdict == made[0].verdict
    assert len(journal.read_text().splitlines()) == 3


def test_screening_publishes_what_the_theory_says() -> None:
    """Compare the weights kept by the project's own rule with the density of one screened step."""
    setting = Screened(kept=1, noise_multiplier=1.5, threshold=1.0)
    scores = setting.scores(500, "test")["sum"]
    for x, wrong in enumerate(scores):
        assert (abs(wrong - 0.5) > 1.5).all()
        outside = norm.cdf(-1.0, x, 1.5) + norm.sf(2.0, x, 1.5)  # of 1/2 -+ t
        for y in (0.5, 3.0):
            expected = norm.sf(max(y, 2.0), x, 1.5) / outside
            assert (wrong > y).mean() == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 500))
    ledger = Screened(kept=2, noise_multiplier=1.5, threshold=1.5, rejections=3).ledger
    assert [count for _, count in ledger.actual] == [8]
    assert [count for _, count in ledger.claimed] == [2]


def test_charging_kept_updates_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """By 99 in 100 draws of as many exact kept weights."""
    monkeypatch.setattr(cases, "SCREENED_QUICK", Screened(kept=2, noise_multiplier=1.0, threshold=1.5))
    right, wrong = cases._accepted_only(250, OF_A_FAULT)
    assert right.accused is False
    assert wrong.accused is True


def test_the_command_writes_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One attack of each kind is made; the tests above have the list of all."""
    monkeypatch.setattr(cases, "FAULTS", FAULTS[:1])
    monkeypatch.setattr(cases, "_accepted_only", lambda *_: cases._faulty(FAULTS[2], 5000, OF_A_FAULT))
    attacked = Setting("flat"), "none", cases.HIDDEN[0]
    some = [case for case in cases.cases(quick=True) if case.attack.args[0] in attacked]
    assert len(some) == 3
    monkeypatch.setattr(cases, "cases", lambda quick: some)
    assert command.main(["--quick", "--output", str(tmp_path)]) == 0
    rows = read_csv(tmp_path / "audit.csv")
    assert len(rows) >= len(some)
    assert not [row for row in rows if row["accused"] == "True"]
    assert all(float(row["lower"]) <= float(row["sound"]) for row in rows if row["accused"] == "False")
    planted = {(row["fault"], row["planted"]): row["accused"] for row in read_csv(tmp_path / "faults.csv")}
    assert {accused == "True" for (_, wrong), accused in planted.items() if wrong == "True"} == {True}
    assert "# What attacks on the code show" in (tmp_path / "README.md").read_text()
    written = [(tmp_path / name).read_text() for name in ("README.md", "figure.svg")]
    assert command.main(["--quick", "--page", "--output", str(tmp_path)]) == 0
    assert [(tmp_path / name).read_text() for name in ("README.md", "figure.svg")] == written


def test_every_bound_is_on_the_page_once(tmp_path: Path) -> None:
    """The page of the committed tables; the ε charged with a fault is above or below the bound at this δ."""
    for name in ("audit.csv", "faults.csv", "canaries.csv"):
        copy(REPOSITORY / "results" / "audit" / name, tmp_path)
    write_page(tmp_path, quick=False)
    page = (tmp_path / "README.md").read_text()
    runs = [row for row in read_csv(tmp_path / "canaries.csv") if not row["fault"]]
    assert f"0 of {len(runs)} runs are accused" in page
    above, faults = page.split("## Planted faults")
    sound, claims = ([line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
                     for part in above.split("## Claims below the sound ε"))  # fmt: skip
    by_level = [cell for row in sound[2:] for cell in row[2:] if cell.strip()]
    assert len({tuple(row[:4]) for row in claims}) == len(claims)
    assert len(by_level) + len(claims[2:]) == sum(row["accused"] != "" for row in read_csv(tmp_path / "audit.csv"))
    (planted,) = (line for line in faults.splitlines() if line.startswith("| layers amplified first"))
    assert planted.split(" | ")[2:] == ["11.77", "8.58", "2.729", "2.403", "yes |"]
