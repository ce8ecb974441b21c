"""Files of claims: inherited fields, and mistakes with their lines."""

from pathlib import Path

import pytest

from runner.claims import reading
from runner.claims.reading import read_claims
from runner.cli.commands import carry_out
from runner.report.papers import load

TABLE = """\
defaults:
  delta: 1e-5
  MNIST: {epsilon: 2.93, margin: 0.5, note: of all}
table-3:
  sweep: fig_3
  of: mean of 10
  settings:
    tanh: {runs: "{dataset}_tanh", open: the rate}
    ReLU: {runs: "{dataset}_relu", note+: of ReLU}
  MNIST:
    claimed:
      tanh: 98.10
      ReLU: {claimed: 96.6, margin: 0.3, epsilon: <3}
  claims:
  - method: tanh above ReLU
    dataset: MNIST
    runs: ["{dataset}_tanh", "{dataset}_relu"]
    compare: order
    direction: above_other
"""


@pytest.fixture
def claims_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that reads a text as the claims of Tempered Sigmoid."""

    def read(text: str):
        path = tmp_path / "claims.yaml"
        path.write_text(text)
        monkeypatch.setattr(reading, "claims_path", lambda _: path)
        return read_claims("tempered_sigmoid", ["table-3"], ["theorem_1"])

    return read


def test_fields_are_inherited_and_the_nearest_counts(claims_in) -> None:
    tanh, relu, order = claims_in(TABLE)
    assert (tanh.item, tanh.dataset, tanh.method, tanh.quantity) == ("table-3", "MNIST", "tanh", "test_accuracy")
    assert (tanh.claimed, tanh.aim, tanh.margin, tanh.unit) == ("98.10", 98.1, 0.5, "%")
    assert (tanh.of, tanh.runs) == ("mean of 10", 10)
    assert (tanh.epsilon, tanh.delta, tanh.open, tanh.note) == ((2.93, False), 1e-5, "the rate", "of all")
    assert (tanh.sweep, tanh.experiments) == ("tempered_sigmoid/fig_3", ["tempered_sigmoid/mnist_tanh"])
    assert (relu.claimed, relu.margin, relu.epsilon, relu.note) == ("96.6", 0.3, (3.0, True), "of all, of ReLU")
    assert order.pairs == (("tempered_sigmoid/mnist_tanh", "tempered_sigmoid/mnist_relu"),)
    assert (order.margin, order.source, order.place[-7:]) == (0.5, "table 3", "line 15")


def test_an_epsilon_has_its_unit_so_it_is_rounded_up(claims_in) -> None:
    for quantity in ("epsilon", "epsilon at 98% accuracy"):
        row = f"table-3: {{dataset: MNIST, method: m, number: theorem_1, quantity: {quantity}, margin: 1, claimed: 3}}"
        (claim,) = claims_in(row)
        assert claim.unit == "epsilon"


def test_one_claim_may_be_of_every_data_set(claims_in) -> None:
    (claim,) = claims_in(
        "table-3:\n  {dataset: all, method: m, sweep: fig_3, every: [MNIST, CIFAR10], runs: '{dataset}_tanh',\n"
        "   against: ['{dataset}_relu', '{dataset}_tanh'], compare: difference, direction: above_other}\n"
    )
    names = [tuple(name.rpartition("/")[2] for name in pair) for pair in claim.pairs]
    assert names == [
        *(("mnist_tanh", "mnist_relu"), ("mnist_tanh", "mnist_tanh")),
        *(("cifar10_tanh", "cifar10_relu"), ("cifar10_tanh", "cifar10_tanh")),
    ]
    assert len(claim.experiments) == 4


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ("  of: mean", "  off: mean", 6, "no field or data set 'off': choose from item, "),
        ("table-3:", "table-4:", 4, "no item 'table-4': choose from table-3"),
        ("      tanh: 98", "      tahn: 98", 12, "no setting 'tahn': choose from tanh, ReLU"),
        ("sweep: fig_3", "sweep: fig_33", 12, "no sweep 'tempered_sigmoid/fig_33'"),
        ('_tanh", open', '_sgd_relu", open', 12, "mnist_sgd_relu is an experiment of none of the claim's sweeps"),
        ("of: mean of 10", "number: test_acuracy", 6, "no number 'test_acuracy': choose from "),
        ("of: mean of 10", "where: lr is 3", 6, "where is search_choice or field = number"),
        ("above_other", "abuv", 19, "no direction 'abuv': choose from higher"),
        ('_tanh", open', '_tanhh", open', 12, "no experiment 'tempered_sigmoid/mnist_tanhh'"),
        ("compare: order", "compare: [order]", 18, "compare is a text or a number"),
        ("MNIST:\n    claimed:\n", "MNIST:\n    settings: 3\n    claimed:\n", 11, "a mapping of names to values"),
        ("margin: 0.5", "margin: half", 3, "margin has to be a number, 0 or greater, and is 'half'"),
        ("epsilon: 2.93", "epsilon: 0", 3, "epsilon has to be a number greater than 0, and is '0'"),
        ("delta: 1e-5", "delta: 1", 2, "delta has to be a number from 0 to below 1, and is '1'"),
        ("tanh: 98.10", "tanh: about 98", 12, "'about 98' is no number, so that the claim needs a level"),
        ("tanh: 98.10", "tanh:", 12, "direction higher needs a number and a margin"),
        ("  - method: tanh above ReLU\n", "  - note: x\n", 15, "a claim needs a method and a data set"),
        ("  of: mean of 10", "  sweep: fig_3", 6, "table-3.sweep is here twice"),
        ("  claims:\n  -", "  claims:\n   -\n  -", 16, "no valid YAML"),
    ],
)
def test_a_mistake_is_named_with_its_line(claims_in, old: str, new: str, line: int, sentence: str) -> None:
    assert old in TABLE
    with pytest.raises(ValueError, match=f"claims.yaml, line {line}: .*{sentence}"):
        claims_in(TABLE.replace(old, new, 1))


def test_a_command_says_it_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text("fig-3: {marign: 3}\n")
    monkeypatch.setattr(reading, "claims_path", lambda _: path)
    paper = load("tempered_sigmoid")
    monkeypatch.setitem(paper.__dict__, "claims", None)
    del paper.__dict__["claims"]  # what was read before
    assert carry_out("aggregate", ["tempered_sigmoid"]) == 2
    error = capsys.readouterr().err
    assert "claims.yaml, line 1: fig-3.marign: no field or data set 'marign'" in error
    assert error.count("\n") == 1


def test_only_the_first_reading_of_a_claim_counts(claims_in) -> None:
    first, second, another, context = claims_in(
        "table-3:\n  dataset: MNIST\n  method: m\n  claimed: 98\n  margin: 1\n  claims:\n"
        "  - {reading: a}\n  - {reading: b}\n  - {epsilon: 3}\n  - {direction: none}\n"
    )
    counted = [claim.counted for claim in (first, second, another, context)]
    assert counted == ["yes", "no, another reading", "yes", "no, for context"]
    assert [claim.counts for claim in (first, second)] == [True, False]
