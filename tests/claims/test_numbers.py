"""Readers, compared with numbers derived by hand, on small made-up records."""

from __future__ import annotations

import math
from typing import Any

import pytest

from runner.claims.claim import Call
from runner.claims.numbers import READERS, check_number, reader_of
from runner.report.papers import load
from tests.claims.made_up import run
from tests.tracked import tracked_papers

NORMS = {"epoch": [0, 1], "weights": {"0": [1.0, 2.0], "1": [1.0, 3.0]}, "pre_activations": {"0": [1, 5], "1": [1, 7]}}
HISTOGRAM = {"mean": [2.0, 4.0], "median": [1.0, 3.0], "p90": [4.0, 9.0], "counts": []}
STEPS = [0, 10, 20, 30, 40]  # the last quarter begins at 30
AT_STEPS = [9.0, 9.0, 2.0, 6.0, 10.0]
LEVEL = ((2 + 2 * 6 + 10) / 4 + (6 + 2 * 10) / 3) / 2  # of moving averages with the weights 1, 2, 1
COSINES = {"step": [0, 5, 9, 20], "cosine": [0.8, 0.1, 0.3, 0.4]}  # every 20 steps; an epoch has 10
HESSIAN = {"epoch": list(range(9)), "eigenvalue": [-1.0] * 3 + [8.0] * 6}
CONFUSION = {"epoch": [2, 4], "counts": [[[30, 10], [0, 20]], [[40, 0], [10, 10]]]}


@pytest.mark.parametrize(
    ("text", "epoch", "diagnostics", "value"),
    [
        ("test_accuracy", 1, {}, 92.0),
        ("mean_accuracy", 1, {}, 91.0),
        ("mean_less_end", 1, {}, 91.0 - 95.0),
        ("class_accuracy_std", 3, {"per_class_accuracy": [[0.0, 0.0], [94.0, 98.0]]}, 2.0),
        ("class_train_accuracy(0)", 1, {"confusion": CONFUSION}, 75.0),
        ("class_train_accuracy(1)", 3, {"confusion": CONFUSION}, 50.0),
        ("logit_norm", 3, {"layer_norms": NORMS}, 7.0),
        ("last_weight_norm", 3, {"layer_norms": NORMS}, 3.0),
        ("pre_activation_norms", 3, {"layer_norms": NORMS}, [5.0, 7.0]),
        ("mean_weight_norm", 3, {"layer_norms": NORMS}, 2.5),
        ("hidden_weight_norms", 3, {"layer_norms": NORMS}, [2.0]),
        ("gradient_norm", 0, {"gradient_histogram": HISTOGRAM}, 2.0),
        ("gradient_norm_of_all", 1, {"gradient_histogram": HISTOGRAM}, 3.0),
        ("gradient_norm_spread", 0, {"gradient_histogram": HISTOGRAM}, 3.0),
        ("mean_gradient_norm", 3, {"gradient_norms": {"step": STEPS, "mean": AT_STEPS}}, 36 / 5),
        ("gradient_norm_level", 3, {"gradient_norms": {"step": STEPS, "mean": AT_STEPS}}, LEVEL),
        ("first_activation_level", 3, {"activation_norms": {"step": STEPS, "1": AT_STEPS, "4": [0.0] * 5}}, LEVEL),
        ("gradient_growth", 3, {"layer_gradients": {"total": [2.0, 9.0, 5.0]}}, 2.5),
        ("moved_gradient", 3, {"layer_gradients": {"moved": [0.0, 0.5, 0.25]}}, 0.25),
        ("cosine", 3, {"gradient_cosine": COSINES}, 0.6),
        ("first_epoch_cosine", 0, {"gradient_cosine": COSINES}, 0.4),
        ("eigenvalue", 3, {"hessian": HESSIAN}, (8.0**6) ** (1 / 9)),
        ("early_eigenvalue", 3, {"hessian": HESSIAN}, 1 / 8),
        ("largest_image_norm", 3, {"norm_histograms": {"inputs": {"largest": 41.5}}}, 41.5),
    ],
)
def test_a_number_by_hand(text: str, epoch: int, diagnostics: dict[str, Any], value: float | list[float]) -> None:
    recorded = run(diagnostics=diagnostics, diagnostics_every=20)
    assert reader_of(Call.parse(text))(recorded, epoch) == pytest.approx(value, rel=1e-12)


def test_every_reader_is_tried_above_and_named_by_a_claim() -> None:
    (marked,) = test_a_number_by_hand.pytestmark  # type: ignore[attr-defined]
    tried = {Call.parse(case[0]).name for case in marked.args[1]}
    assert tried == set(READERS)
    assert tried <= {claim.number.name for name in tracked_papers() for claim in load(name).claims}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("test_acuracy", "no number 'test_acuracy': choose from .*test_accuracy"),
        ("test_accuracy(3)", "test_accuracy takes no argument in brackets"),
        ("class_train_accuracy", "class_train_accuracy takes an argument in brackets"),
        ("config(a, (b))", "is not a name"),
    ],
)
def test_a_misspelt_reader_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_number(Call.parse(text), ["theorem_1"])
    check_number(Call("theorem_1"), ["theorem_1"])


def test_a_norm_that_is_no_number_stays_one() -> None:
    recorded = run(diagnostics={"layer_norms": {**NORMS, "pre_activations": {"0": [1.0, "NaN"]}}})
    assert math.isnan(float(reader_of(Call("logit_norm"))(recorded, 0)))  # type: ignore[arg-type]
