"""Every method of the benchmark takes the same step, and its table is written."""

from pathlib import Path

import pytest
import torch

from checks.benchmarks import clipless, own, peers, report
from checks.benchmarks import run as command
from checks.benchmarks.problems import problem
from runner.networks.lipschitz.spectral import projected
from runner.report.formats import read_csv

OTHER = ("backprop", "vmap_compiled")  # another step; what compiles in half a minute
SAME = [name for name in peers.methods() if not name.startswith("non_private") and name not in OTHER]


@pytest.mark.parametrize("method", SAME)
def test_every_private_method_takes_the_same_step(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise and with a large learning rate, so that the same step is timed."""
    monkeypatch.setattr(own, "NOISE_MULTIPLIER", 0.0)
    monkeypatch.setattr(own, "LEARNING_RATE", 1.0)
    monkeypatch.setattr(own, "CLIPPING_NORM", 0.5)
    monkeypatch.setattr(peers, "_SIZES", (4,))
    reference, tried = (problem("M", 8) for _ in range(2))
    own.METHODS["isolated"](reference)()
    before = problem("M", 8).network.state_dict()
    peers.methods()[method](tried)()
    for name, weight in tried.network.state_dict().items():
        torch.testing.assert_close(weight, reference.network.state_dict()[name], rtol=1e-4, atol=1e-6)
        assert not torch.equal(weight, before[name])


def test_a_clipless_step_is_an_ordinary_one_projected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise, in pieces of any size: the plain mean gradient of the bounded loss, then the projection."""
    monkeypatch.setattr(own, "NOISE_MULTIPLIER", 0.0)
    monkeypatch.setattr(own, "LEARNING_RATE", 1.0)
    monkeypatch.setattr(own, "examples_in_cache", lambda *_: 3)
    case, reference = problem("VGG5", 8), problem("VGG5", 8)
    step = peers.methods("VGG5")["clipless"](case)
    step()
    losses = torch.nn.functional.cross_entropy(50 * reference.network(reference.inputs), reference.targets) / 50
    losses.backward()
    for weight, now in zip(reference.network.parameters(), case.network.parameters(), strict=True):
        assert weight.grad is not None
        moved = (weight - weight.grad).detach()
        if weight.dim() > 1:
            moved = projected(moved.flatten(1)).view_as(moved)
            assert torch.linalg.matrix_norm(now.detach().flatten(1), 2) <= 1 + 1e-5
        torch.testing.assert_close(now.detach(), moved, rtol=1e-4, atol=1e-5)


def test_the_plain_network_has_the_shapes_but_no_lipschitz_layer() -> None:
    plain, bounded = (problem(name, 2).network for name in ("VGG5 plain", "VGG5"))
    kinds = {"Conv2d", "Linear", "ReLU", "MaxPool2d", "AdaptiveAvgPool2d", "Flatten"}
    assert {type(layer).__name__ for layer in plain} == kinds
    assert [p.shape for p in plain.parameters()] == [p.shape for p in bounded.parameters()]
    assert problem("VGG5 plain", 2).inputs.flatten(1).norm(dim=1).min() > 1


def test_times_of_an_epoch_are_of_all_methods(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The table of figure 4, with made-up times: a step takes 2 s."""
    timed, case = dict[str, str](), dict[str, str]()
    monkeypatch.setattr(
        clipless, "interleaved", lambda networks, *_: timed.update(networks) or dict.fromkeys(networks, [2.0] * 3)
    )
    monkeypatch.setattr(clipless, "peak_memory", lambda name, network, *_: case.update({name: network}) or 7.0)
    assert clipless.main(["--networks", "VGG5", "--batches", "20", "--output", f"{tmp_path}/clipless.csv"]) == 0
    rows = read_csv(tmp_path / "clipless.csv")
    assert [row["method"] for row in rows] == list(clipless.METHODS)
    assert {name: network == "VGG5" for name, network in case.items()} == {
        name: name in ("clipless", "projection") for name in clipless.METHODS
    }
    assert timed == case
    assert {row["s_per_epoch"] for row in rows} == {"5000"}  # 2,500 steps
    assert {row["parameters"] for row in rows} == {str(122 * 32**2 + 155 * 32 + 490)}  # weights by the width, biases


def test_table_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--networks M --batches 4 8 --rounds 3 --seconds 1 --methods one_pass --output"
    assert command.main([*arguments.split(), str(tmp_path)]) == 0
    rows = read_csv(tmp_path / "engines.csv")
    assert [(row["batch"], row["method"]) for row in rows] == [
        (batch, method) for batch in ("4", "8") for method in ("non_private", "one_pass")
    ]
    assert float(rows[0]["ratio"]) == 1
    assert (tmp_path / "engines.svg").stat().st_size > 1000
    printed = capsys.readouterr().out
    assert printed.count("one_pass") == 2


def test_the_page_and_the_sentence_have_the_worst_and_the_best() -> None:
    """A median of the table each, by network, and the best of the other libraries there."""
    ratios = {"C": {"one_pass": 1.9, "vmap": 0.5, "opacus_hooks": 0.4}, "L": {"one_pass": 0.7, "vmap_compiled": 0.1}}
    machine = {"device": "a CPU", "pytorch": "2", "date": "2026-01-01", "rounds": "3"}
    rows = [
        {"network": network, "batch": "512", "method": method, "ratio": str(ratio), **machine}
        for network, methods_of in ratios.items()
        for method, ratio in methods_of.items()
    ]
    run = {"program": "this bench", "seconds": "30.9", "epochs": "6", "accuracy": "95.48", "wanted": "95.0", **machine}
    page = report.page({"avx512": rows}, [run])
    assert "| two linear layers, 512 | 0.70 |" in page
    assert "| two linear layers, 512 | – | 0.10 |\n" in page
    assert page.endswith("| this bench | 31 s | 6 | 95.48% |\n")
    readme = report.replace_sentence(f"a {report.BEGIN}old{report.END} b", {"avx512": rows})
    assert "has 0.70 (two linear layers) to 1.90 times (CIFAR-10, six convolutions)" in readme
    assert "The best other library has 0.10 to 0.50" in readme
    assert "old" not in readme
    unlocked = {"avx512": rows, "avx512-unlocked": rows[:1]}
    assert "step (1.90 to 1.90 with MKL unlocked). The best" in report.sentence(unlocked)
    with pytest.raises(ValueError, match="markers"):
        report.replace_sentence("a b", {"avx512": rows})
