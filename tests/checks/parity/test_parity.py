"""Differences as on a GPU, planted on the CPU and found by the same comparison."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from checks.parity import cases as cases_module
from checks.parity import run as command
from checks.parity import runs
from checks.parity.cases import STEPS, case, prepared
from checks.parity.runs import SMALL, compiled_against_eager, graph_against_eager
from checks.parity.step import CPU, Difference, Side, compared, lowered, worst
from checks.rehearsal import made_up_cuda
from runner.clipping import Flat
from runner.config import Precision
from runner.gradients import ENGINES, GradientSum, OnePassEngine, terms
from runner.mechanism.dp_sgd import Mechanism
from runner.training.graph import GraphStep
from tests.tracked import tracked_options

MNIST = ("architecture", "tempered_sigmoid_mnist")
OTHERWISE = Side("cpu", "isolated", channels_last=False, pieces=4)  # the same step, in another way


def rounded(numbers: Tensor, bits: int) -> Tensor:
    """Round numbers to `bits` bits after the first."""
    mantissa, exponent = torch.frexp(numbers)
    return torch.ldexp((mantissa * 2 ** (bits + 1)).round() / 2 ** (bits + 1), exponent)


class Tf32(OnePassEngine):
    """An engine with inputs rounded as in TF32."""

    def clipped_sum(self, inputs: Tensor, targets: Tensor, *remaining: object) -> GradientSum:
        return super().clipped_sum(rounded(inputs, 10), targets, *remaining)  # type: ignore[arg-type]


def test_every_option_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the defaults, or else in the first experiment that can have it; an architecture in one that names it."""
    monkeypatch.setattr(cases_module, "prepared", lambda *overrides: overrides)
    monkeypatch.setattr(command, "compared", lambda build, *_: Difference(0, str(build)))
    monkeypatch.setattr(command, "options_of", tracked_options)
    differences = {name: what for name, _, what, _ in command.checked("cpu", STEPS)}
    assert list(differences) == [f"{group}={option}" for group in STEPS for option in tracked_options(group)]
    assert "('clipping=per_layer',)" in differences["clipping=per_layer"]
    assert "experiment=lipschitz/cifar10_mixer" in differences["architecture=lipschitz_mixer"]


def test_the_cpu_agrees_with_itself_and_too_few_bits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By two engines, in two layouts, in one piece and in two."""
    differences = compared(case(*MNIST), OTHERWISE, CPU)
    assert not differences.wrong
    assert differences.times > 1e-6, "the computation differs"
    monkeypatch.setitem(ENGINES, "one_pass", Tf32)
    assert worst(case(*MNIST), OTHERWISE, CPU, torch.float32).wrong
    assert compared(case(*MNIST), OTHERWISE, CPU).wrong


def test_sums_of_other_numbers_than_the_norms_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes in bf16 are let pass, and sums of formed gradients in TF32 are not, nor those of a linear layer."""
    assert not lowered(prepared(), "cpu", Precision.bf16).wrong
    formed = SimpleNamespace(**vars(terms) | {"weighted_sum": rounding_first(terms.weighted_sum)})
    for place, rounding, layers in (
        ("runner.training.graph.network.terms", formed, "03"),
        ("runner.gradients.terms.silenced", rounding_first(terms.silenced), "79"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, rounding)
            difference = lowered(prepared(), "cpu", Precision.tf32)
        assert difference.wrong, place
        assert difference.what in [f"what one example moves in network.{layer}.weight" for layer in layers]


def rounding_first(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda numbers, *more: function(rounded(numbers, 10), *more)


def test_a_clip_that_is_off_by_a_thousandth_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = case("clipping", "flat")
    expected = Flat.sum_contributions

    def off(self: Flat, engine: object, inputs: Tensor, targets: Tensor, groups: object = ()) -> GradientSum:
        weights = Flat(self.norm * 1.001) if isinstance(engine, OnePassEngine) else self
        return expected(weights, engine, inputs, targets)  # type: ignore[arg-type]

    assert not compared(theirs, OTHERWISE, CPU).wrong
    monkeypatch.setattr(Flat, "sum_contributions", off)
    differences = compared(theirs, OTHERWISE, CPU)
    assert differences.wrong
    assert differences.what.startswith(("sum of", "weights"))


def test_noise_of_another_size_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Mechanism.draw_noise

    def less(self: Mechanism, like: Mapping[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
        return {name: 0.9 * z for name, z in draw(self, like, generator).items()}

    monkeypatch.setattr(Mechanism, "draw_noise", less)
    monkeypatch.setattr(
        "checks.parity.step.made_up", lambda run, examples, seed=0: (torch.ones(6, 1, 28, 28), torch.arange(6))
    )
    differences = compared(case(*MNIST), OTHERWISE, CPU)
    assert (differences.wrong, differences.what) == (True, "noise")


def test_graphs_agree_and_less_noise_in_them_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "SMALL", (*SMALL, "epochs=1", "architecture.filters=[3,4]", "architecture.units=5"))

    def wrong() -> list[bool]:
        with made_up_cuda():
            cases = graph_against_eager, compiled_against_eager
            checks = dict(pair for compared_by in cases for pair in compared_by("cuda:0"))
            names = "run: sampling=shuffled", "compiled: clipping=per_layer"
            return [checks[name]().wrong for name in names]

    assert not any(wrong())
    body = GraphStep.body

    def quieter(self: GraphStep, state: list[Tensor], indices: Tensor, mask: Tensor, noise: Tensor) -> list[Tensor]:
        return body(self, state, indices, mask, 0.999 * noise)

    monkeypatch.setattr(GraphStep, "body", quieter)
    assert all(wrong())


def test_the_command_says_what_differs_and_what_fails(monkeypatch, capsys) -> None:
    monkeypatch.setattr(command, "options_of", lambda group: [MNIST[1]])
    arguments = ["--rehearse", "--device", "cuda:1", "--only", "architecture"]
    assert command.main(arguments) == 0
    assert "agrees  architecture=tempered_sigmoid_mnist" in capsys.readouterr().out
    monkeypatch.setattr(Mechanism, "release", lambda *_: 1 / 0)
    assert command.main(arguments) == 1
    assert "DIFFERS  architecture=tempered_sigmoid_mnist" in (text := capsys.readouterr().out)
    assert "ZeroDivisionError" in text
