"""The privacy page: its numbers are computed again, and the tests and files that it names are there."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant

from checks.audit.cases import CONFIDENCE, ENOUGH, GROUPS, WITHOUT
from runner.accounting import sound_epsilon
from runner.cli import epsilon
from runner.config import REPOSITORY
from runner.report.formats import read_csv

PAGE = (REPOSITORY / "docs" / "privacy.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())
AUDIT = REPOSITORY / "results" / "audit"
DELTA = 1e-5
ONE = (512 / 60_000, 1.23, 4680)  # q, sigma and steps of losing_less/mnist_ours
FINALS = ((1024 / 60_000, 2.3259, 25 * 1160), (1024 / 60_000, 1.0886, 25 * 1160))  # 5 arms and 5 seeds at each epsilon
TRIALS = ((1024 / 55_000, 2.4167, 40 * 1060), (1024 / 55_000, 1.1189, 40 * 1060))  # 5 arms and 8 learning rates


def together(runs: Sequence[tuple[float, float, int]]) -> float:
    return sound_epsilon(
        tuple((PoissonSampledDpEvent(q, GaussianDpEvent(sigma)), steps) for q, sigma, steps in runs), DELTA
    )


def rounded_up(value: float, digits: int) -> str:
    """Round up to a number of digits after the point, or significant ones if the value is below 1."""
    if value < 1:
        digits -= math.floor(math.log10(value)) + 1
    return f"{math.ceil(value * 10**digits) / 10**digits:.{max(digits, 0)}f}"


@pytest.mark.parametrize(
    ("row", "runs"),
    [
        ("one run of `losing_less/mnist_ours`: q = 512/60,000, σ = 1.23, 4,680 steps", [ONE]),
        ("five such runs, with noise and batches of their own", [ONE] * 5),
        ("ten such runs", [ONE] * 10),
        ("the 50 final runs of `studies/clipping.yaml` on MNIST: 5 arms and 5 seeds, at ε = 1 and at ε = 3", FINALS),
        ("its 130 runs on MNIST, with the 80 trials of its search", [*FINALS, *TRIALS]),
    ],
)
def test_what_runs_cost_together(row: str, runs: Sequence[tuple[float, float, int]]) -> None:
    epsilon = together(runs)
    assert f"| {row} | {rounded_up(epsilon, 2 if epsilon < 10 else 1)} |" in PAGE


def test_what_the_best_of_a_random_number_of_runs_costs() -> None:
    """Papernot and Steinke (2022), theorem 2, with a geometric number (shape 1) of mean 10."""
    q, sigma, steps = ONE
    step = PoissonSampledDpEvent(q, GaussianDpEvent(sigma))
    alone = RdpAccountant().compose(step, steps).get_epsilon(DELTA)
    best = RdpAccountant().compose(RepeatAndSelectDpEvent(SelfComposedDpEvent(step, steps), 10, 1)).get_epsilon(DELTA)
    assert f"and nothing else of them | {rounded_up(best, 2)} |" in PAGE
    assert f"which give {rounded_up(alone, 2)} for one\n  run" in PAGE


def test_how_to_read_epsilon_and_delta() -> None:
    one, three = (math.exp(epsilon) / (1 + math.exp(epsilon)) for epsilon in (1, 3))
    at_one, at_three = (rounded_up(100 * share, 1) for share in (one, three))
    assert f"at most {at_one}% afterwards at ε = 1, and with at most {at_three}%" in TEXT
    assert f"at most {rounded_up(100 * (math.exp(3) * 0.01 + DELTA), 1)}% of the images" in TEXT
    assert math.isclose(60_000 * DELTA, 0.6)


def test_what_groups_of_images_have() -> None:
    def delta(images: int, epsilon: float) -> float:
        return DELTA * (math.exp(images * epsilon) - 1) / (math.exp(epsilon) - 1)

    small = [f"{math.ceil(delta(k, 1) * 10**p) / 10**p:.1e}".replace("e-0", "e-") for k, p in ((2, 6), (5, 5))]
    assert f"| 1 | 2, δ = {small[0]} | 5, δ = {small[1]} |" in PAGE
    assert "| 3 | 6, δ = 2.2e-4 | none by this conversion: δ would be above 1 |" in PAGE
    assert 2.1e-4 < delta(2, 3) < 2.2e-4
    assert delta(5, 3) > 1
    assert delta(240, 0.0339) < 1 < delta(240, 0.034)


def test_accountants_are_marked_as_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    """The page has the rows of the command that it names, in other words for what each is."""
    (command,) = re.findall(r"`python -m runner epsilon (.*?)`", PAGE)
    assert epsilon.main(command.split()) == 0
    shown = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()[2:]]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in PAGE.splitlines() if line.startswith("| `")]
    named = {row[0].split("`")[1]: row[1:] for row in rows}
    assert len(shown) == 7
    for name, value, kind, *_ in shown:
        assert (named[name][1], named[name][0].startswith(kind)) == (value, True)


def test_all_groups_that_are_attacked_are_named() -> None:
    sentence = TEXT[TEXT.index("**Every option that git tracks is attacked**") :].partition("(`test_everything")[0]
    assert re.findall(r"`(\w+)`", sentence) == list(GROUPS)
    (without,) = re.findall(r"tracked options have no attack.*?noise\.", TEXT)
    assert set(re.findall(r"`(\w+)=(\w+)`", without)) == {*WITHOUT, ("clipping", "none")}


def test_what_was_attacked_is_what_the_tables_hold() -> None:
    rows, records = (
        [row for row in read_csv(AUDIT / f"{name}.csv") if row["accused"]] for name in ("audit", "records")
    )
    canaries, planted = read_csv(AUDIT / "canaries.csv"), read_csv(AUDIT / "faults.csv")
    runs, faults = [r for r in canaries if not r["fault"]], [r for r in canaries if r["fault"] not in ("", "none")]
    enough = sum(float(row["lower"]) >= ENOUGH * float(row["sound"]) for row in rows)
    shares = [max(float(r["one_run"]), float(r["curve"])) / float(r["sound"]) for r in runs]
    by_record = [float(r["lower"]) / float(r["sound"]) for r in records]
    by_end = [(r["sampling"], float(r["lower"]) / float(r["sound"])) for r in rows if "tanh" in r["what"]]
    ends = [share for sampling, share in by_end if "q =" not in sampling]
    (half,) = (share for sampling, share in by_end if "q = 0.5" in sampling)
    assert {row["accused"] for row in (*rows, *runs, *records)} == {"False"}
    assert {row["accused"] for row in faults} | {r["accused"] for r in planted if r["planted"] == "True"} == {"True"}
    for text in (
        f"**0 of {len(rows)} attacks accuse the code",
        f"{enough} of them show at least {ENOUGH:g} of the sound ε",
        f"**0 of {len(runs)} whole runs of committed settings are accused",
        f"shows {min(shares):.2f} to {max(shares):.2f} of its sound ε",
        f"**0 of {len(records)} random records are accused",
        f"show {min(by_record):.2f} to {max(by_record):.2f} of the sound ε of these steps",
        f"not linear show {min(ends):.2f} to {max(ends):.2f} of the sound ε. If an example joins every other step, "
        f"they show {half:.2f}.",
        f"**All {len(planted) // 2 + len(faults)} planted faults are found",
        f"with {CONFIDENCE:.0%} confidence",
    ):
        assert text in TEXT


def test_the_tests_and_files_that_it_names_are_there() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 15
    assert {name for name in named if f"def {name}(" not in sources} == set()
    paths = re.findall(r"`((?:runner|tests|studies)/[\w/]+\.\w+)`", PAGE)
    table = [f"runner/{path}" for path in re.findall(r"\| `([a-z]+/[\w/]+\.py)` \|", PAGE)]
    assert len(table) > 10
    assert [path for path in (*paths, *table) if not Path(REPOSITORY, path).is_file()] == []
