"""The Triton kernel of per-example gradients: its numbers in Triton's interpreter, and its code for an H200."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from checks.parity.cases import prepared
from checks.parity.runs import SMALL
from checks.parity.step import made_up
from checks.rehearsal import made_up_cuda
from runner.config import REPOSITORY
from runner.data.datasets import Split
from runner.networks.geometry import Geometry
from runner.speed import implicit
from runner.speed.implicit import SHAPES, _blocks, worthwhile
from runner.speed.kernels import waves
from runner.training.graph import GraphStep
from runner.training.graph.batches import draw_epoch
from tests.small import NETWORK

triton = pytest.importorskip("triton")
ODD = (  # rests along windows, channels and positions; one of each; strides beyond the window
    Geometry(1, 16, (12, 12), (6, 6), (8, 8), (2, 2), (3, 3)),
    Geometry(7, 33, (5, 11), (2, 4), (4, 5), (1, 2), (0, 0)),
    Geometry(2, 1, (1, 9), (1, 4), (1, 2), (1, 2)),
    Geometry(9, 65, (6, 5), (2, 2), (2, 1), (4, 3), (1, 0)),
    Geometry(2, 3, (7, 8), (5, 8), (3, 3), (1, 1), (1, 2), (2, 2), views=3),
)
CIFAR10 = Geometry(64, 64, (16, 16), (16, 16), (3, 3), padding=(1, 1))
LAYERS = {
    "MNIST, first": Geometry(1, 16, (28, 28), (14, 14), (8, 8), (2, 2), (3, 3)),
    "MNIST, second": Geometry(16, 32, (13, 13), (5, 5), (4, 4), (2, 2)),
    "CIFAR-10, first": Geometry(3, 32, (32, 32), (32, 32), (3, 3), padding=(1, 1)),
    "CIFAR-10, fourth": CIFAR10,
    "CIFAR-10, last": Geometry(128, 128, (8, 8), (8, 8), (3, 3), padding=(1, 1)),
}


# For a process of its own, as Triton is imported to be interpreted or not
INTERPRETED = """
import sys, torch
from runner.speed.implicit_kernel import launch
cases = enumerate(torch.load(sys.argv[1], weights_only=False))
torch.save([launch(*case, lowered=number % 2 == 1) for number, case in cases], sys.argv[2])
"""


def images(shape: Geometry) -> tuple[Tensor, Tensor]:
    """Inputs and output gradients of three examples, of which the second one has a NaN and the third one is small."""
    a = waves(3 * shape.views, shape.channels_in, *shape.input)
    g = waves(3 * shape.views, shape.channels_out, *shape.output)
    a[shape.views] = torch.nan
    a[2 * shape.views :] *= 1e-12
    return a, g


def by_autograd(shape: Geometry, a: Tensor, g: Tensor) -> Tensor:
    """PyTorch's gradient of each example's weights, in float64: [batch, out, in * kh * kw]."""
    window = shape.stride, shape.padding, shape.dilation
    size = shape.channels_out, shape.channels_in, *shape.kernel
    pairs = zip(a.double().split(shape.views), g.double().split(shape.views), strict=True)
    return torch.stack([torch.nn.grad.conv2d_weight(x, size, y, *window) for x, y in pairs]).flatten(2)


def test_interpreted_it_is_pytorchs_gradient_and_norm(tmp_path: Path) -> None:
    """By shapes with rests, strides, padding, dilation and views, for any strides. A NaN stays in its own example."""
    shapes, cases = (*SHAPES, *ODD), []
    for number, shape in enumerate(shapes):
        a, g = images(shape)
        layout = torch.channels_last if number % 2 else torch.contiguous_format
        cases.append((a.contiguous(memory_format=layout), g, shape, _blocks(shape)))
    torch.save(cases, tmp_path / "cases")
    arguments = [sys.executable, "-c", INTERPRETED, str(tmp_path / "cases"), str(tmp_path / "numbers")]
    subprocess.run(arguments, check=True, env=os.environ | {"TRITON_INTERPRET": "1"}, cwd=REPOSITORY)
    for shape, (formed, squares) in zip(shapes, torch.load(tmp_path / "numbers"), strict=True):
        expected = by_autograd(shape, *images(shape))
        for example in (0, 2):
            exact = expected[example]
            assert (formed[example] - exact).norm() <= 1e-6 * exact.norm(), shape
            assert squares[example].item() == pytest.approx(formed[example].double().square().sum().item(), rel=1e-6)
        assert squares[1].isnan()
        torch.testing.assert_close(implicit.definition(*images(shape), shape)[0][[0, 2]], formed[[0, 2]])


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("name", ["MNIST, first", "CIFAR-10, last"])
def test_compiled_for_sm_90_it_spills_nothing(name: str, lowered: bool, tmp_path: Path) -> None:
    """Its products are those of tensor cores: three for float32, one in fewer bits."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from runner.speed.implicit_kernel import OPTIONS, constants, form

    shape, names = LAYERS[name], form.arg_names
    read = "*bf16" if lowered else "*fp32"
    kinds = [read, read, "*fp32", "*fp32", *["i32"] * 8, *["constexpr"] * (len(names) - 12)]
    values = constants(shape, _blocks(shape), lowered=lowered)
    source = ASTSource(
        fn=form,
        signature=dict(zip(names, kinds, strict=True)),
        constexprs={(12 + place,): value for place, value in enumerate(values)},
    )
    binary = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=OPTIONS).asm["cubin"]
    (tmp_path / "binary").write_bytes(binary)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    used, code = (
        subprocess.run([tool, what, tmp_path / "binary"], check=True, capture_output=True, text=True).stdout
        for what in ("-res-usage", "-sass")
    )
    resources = {kind: int(number) for kind, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", used)}
    assert (resources["STACK"], resources["LOCAL"]) == (0, 0)
    assert resources["REG"] <= 200  # two programs of 128 threads on a multiprocessor, at least
    assert code.count("HGMMA") == 4 * (1 if lowered else 3)


def test_the_rule_counts_products_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, 0.34 against 0.43 and 0.27 microseconds; with 4 of 16 positions, 0.69 against 0.21 and 0.02."""
    monkeypatch.delenv("DP_REPRO_KERNELS", raising=False)
    few = Geometry(256, 512, (2, 2), (2, 2), (3, 3), padding=(1, 1))
    assert [worthwhile(shape, lowered=lowered) for shape in (CIFAR10, few) for lowered in (False, True)] == [
        True, True, False, False,
    ]  # fmt: skip
    assert all(worthwhile(shape, lowered=lowered) for shape in LAYERS.values() for lowered in (False, True))


def test_pytorchs_compiler_knows_the_shapes_of_its_results() -> None:
    shape = SHAPES[2]
    a = waves(2 * shape.views, shape.channels_in, *shape.input)
    g = waves(2 * shape.views, shape.channels_out, *shape.output)
    sizes = [*shape.input, 5, *shape.output, 10, *shape.kernel, *shape.stride, *shape.padding, *shape.dilation, 2]
    torch.library.opcheck(implicit._formed, (a, g, sizes, False))


@pytest.mark.parametrize("wanted", ["", "0"])
def test_a_step_on_cuda_forms_gradients_by_it(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_REPRO_KERNELS", wanted)
    implicit.agrees.cache_clear()
    with made_up_cuda() as gpu:
        run = prepared(*SMALL, *NETWORK)
        split = Split(*(tensor.to("cuda") for tensor in made_up(run, 16)))
        step = GraphStep(run, run.new_objective().to("cuda"), split)
        batches = draw_epoch(run.mechanism, torch.Generator("cuda").manual_seed(0))
        step.make_room(batches.indices.shape[1])
        gpu.clear()
        step.advance()
        assert gpu.launches["runner::formed_gradients"] == (0 if wanted else 2)
    implicit.agrees.cache_clear()


def test_a_kernel_that_differs_is_not_used(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    right = implicit.formed_gradients
    cpu = torch.device("cpu")
    implicit.agrees.cache_clear()
    assert implicit.agrees(cpu)
    implicit.agrees.cache_clear()

    def halved(*arguments: Any, lowered: bool) -> tuple[Tensor, Tensor]:
        formed, squares = right(*arguments, lowered=lowered)
        return formed, squares / 2

    monkeypatch.setattr(implicit, "formed_gradients", halved)
    assert not implicit.agrees(cpu)
    implicit.agrees.cache_clear()
    assert "its results differ" in capsys.readouterr().err
