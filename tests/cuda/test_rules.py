"""The made-up device catches planted faults, and a run's start, end, resumption and memory are as on a real one."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException

from checks.parity.cases import prepared
from checks.parity.runs import SMALL, apart, on, trained
from checks.parity.step import made_up
from checks.rehearsal import Gpu, made_up_cuda
from runner.accounting import sound_epsilon
from runner.accounting.accountants import Pld
from runner.config import ConfigError, StepMode
from runner.data.datasets import Split
from runner.runs.execute import execute
from runner.training.graph import GraphStep
from runner.training.graph.batches import draw_epoch
from runner.training.graph.capture import captured_predictions
from runner.training.loop import Trained, train
from runner.training.run import Run
from runner.training.updates import Sgd
from tests.conftest import quietly, record_of
from tests.references import whole_and_resumed
from tests.small import LIPSCHITZ, NETWORK


@pytest.fixture(scope="module")
def run() -> Run:
    return prepared(*SMALL, *NETWORK)


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    with made_up_cuda() as made:
        yield made


def step_of(run: Run) -> GraphStep:
    inputs, targets = made_up(run, run.mechanism.examples)
    device = torch.device("cuda", 0)
    return GraphStep(run, run.new_objective().to(device), Split(inputs.to(device), targets.to(device)))


def on_device(run: Run) -> Split:
    """Return the made-up examples of a run, in float64."""
    inputs, targets = made_up(run, run.mechanism.examples)
    return Split(inputs.to("cuda", torch.float64), targets.to("cuda"))


def waits(values: Tensor) -> None:
    float(values.sum())


def uploads(values: Tensor) -> None:
    values.add_(torch.as_tensor(0.0, device=values.device))


@pytest.mark.parametrize(("fault", "said"), [(waits, "not permitted"), (uploads, "Cannot copy between CPU and CUDA")])
def test_a_step_that_cannot_be_captured_is_taken_call_by_call(
    fault: Callable[[Tensor], None], said: str, run: Run, gpu: Gpu, monkeypatch: Any, capsys: Any
) -> None:
    update = Sgd.__call__

    def faulty(self: Sgd, values: Tensor, *rest: Any) -> tuple[Tensor, list[Tensor]]:
        if isinstance(rest[-1], Tensor):  # as in a graph
            fault(values)
        return update(self, values, *rest)

    monkeypatch.setattr(Sgd, "__call__", faulty)
    found = trained(on(run, "cuda:0"))
    assert found.step == "eager"
    assert said in capsys.readouterr().err
    with pytest.raises(ConfigError, match=said):
        trained(on(run, "cuda:0", StepMode.graph))


def test_a_longer_batch_replaces_the_graphs(run: Run, gpu: Gpu) -> None:
    """Two graphs at a time hold memory. A step that keeps the first ones during later captures is found."""
    for keeps, together in ((False, 2), (True, 4)):
        gpu.together = 0
        step = step_of(run)
        step.make_room(8, 16)
        kept = [step._replays] if keeps else []
        step.make_room(8, 32)
        assert gpu.together == together
        del step, kept


# Kernels and library calls of a step that is not compiled, without its noise. The numbers may only fall. Three of them
# round the noisy sum in float64, which a compiled step does in one kernel with others.
LAUNCHES = {
    "private": (NETWORK, 122),
    "lipschitz": ((*LIPSCHITZ, "loss=hinge", "clipping=lipschitz", "constraint=spectral"), 136),
}


@pytest.mark.parametrize("kind", LAUNCHES)
def test_a_step_launches_no_more_kernels_and_waits_for_nothing(kind: str, gpu: Gpu) -> None:
    setting, most = LAUNCHES[kind]
    run = prepared(*SMALL, *setting)
    step = step_of(run)
    batches = draw_epoch(run.mechanism, torch.Generator("cuda").manual_seed(0))
    step.make_room(batches.indices.shape[1])
    step.take(batches, 0)
    gpu.clear()
    step.take(batches, 1)
    assert not gpu.waits
    assert not gpu.uploads
    gpu.clear()
    step.advance()
    assert gpu.launches.total() <= most, gpu.launches
    gpu.clear()
    step._draw()
    assert gpu.launches.total() <= 20, "noise is drawn at once, for any number of parameters"


def test_a_graph_draws_new_noise_in_every_step(run: Run, gpu: Gpu) -> None:
    eager, graph = (trained(on(run, "cuda:0", mode)) for mode in (StepMode.eager, StepMode.graph))
    assert (graph.step, apart(graph, eager).wrong) == ("graph", False)


@pytest.mark.parametrize(
    ("setting", "step"),
    [
        (("screening=annealing", "optimizer.momentum=0.9"), "eager"),
        (("optimizer=adam", "schedule=linear", "normalization=private_statistics"), "graph"),
    ],
)
def test_a_resumed_run_is_as_a_whole_one(setting: tuple[str, ...], step: str, gpu: Gpu) -> None:
    run = on(prepared(*SMALL, *NETWORK, *setting), "cuda:0", StepMode(step))
    split = on_device(run)
    whole, resumed, _ = whole_and_resumed(run, (split, *run.rule.split(split)), on_cpu)
    assert whole.step == resumed.step == step
    assert apart(resumed, whole).times == 0
    assert resumed.history == whole.history


def on_cpu(state: Any) -> Any:
    """Return a state as a checkpoint keeps it."""
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {name: on_cpu(each) for name, each in state.items()}
    return [on_cpu(each) for each in state] if isinstance(state, list) else state


def test_a_run_is_recorded_by_the_device_that_auto_finds(smoke: Any, gpu: Gpu) -> None:
    config = smoke("runtime.device=auto", *NETWORK, "epochs=1", "scale.epochs=1", "scale.batch_size=500")
    assert execute(config, quietly) == "finished"
    provenance = record_of(config)["provenance"]
    assert (provenance["device"], provenance["step"]) == ("made-up GPU", "graph")


@pytest.mark.parametrize("mode", [StepMode.eager, StepMode.graph])
def test_a_piece_that_does_not_fit_is_halved(mode: StepMode, run: Run, gpu: Gpu, capsys: Any) -> None:
    run = on(run, "cuda:0", mode)
    split = on_device(run)

    def take() -> Trained:
        return train(run, (split, Split(split.images[:1], split.targets[:1])), lambda row: None)

    whole = take()
    gpu.largest = 700_000
    found = take()
    assert (whole.step, found.step) == (mode.value, mode.value)
    assert found.physical_batch < 8
    assert f"runtime.physical_batch={found.physical_batch}" in capsys.readouterr().err
    assert not apart(found, whole).wrong
    if mode is StepMode.eager:
        gpu.largest = 100_000  # less than the windows of one example
        with pytest.raises(torch.OutOfMemoryError) as error:
            take()
        assert "JOBS" in error.value.__notes__[0]


def test_a_piece_that_does_not_fit_beside_the_graph_is_halved(run: Run, gpu: Gpu, monkeypatch: Any) -> None:
    real = GraphStep._sum

    def fitting(step: GraphStep, values: Tensor, indices: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        if gpu.graphs and gpu.capturing is None and min(step.pieces.size, len(indices)) > 4:
            raise torch.OutOfMemoryError("a graph is held")
        return real(step, values, indices, mask)

    monkeypatch.setattr(GraphStep, "_sum", fitting)
    found = trained(on(run, "cuda:0", StepMode.graph))
    assert (found.step, found.physical_batch <= 4) == ("graph", True)


def test_any_of_several_gpus_can_be_named(run: Run, monkeypatch: Any, capsys: Any) -> None:
    expected = trained(on(run, "cpu", StepMode.eager))
    with made_up_cuda(2):
        for mode in (StepMode.eager, StepMode.graph):
            found = trained(on(run, "cuda:1", mode))
            assert not apart(found, expected).wrong
        stream = torch.cuda.Stream
        monkeypatch.setattr(torch.cuda, "Stream", lambda _: stream("cuda:0"))
        trained(on(run, "cuda:1"))
    assert "on cuda:1 during a capture on cuda:0" in capsys.readouterr().err


@pytest.mark.parametrize("screening", ["none", "annealing"])
def test_data_independent_epsilons_are_computed_beside_the_steps(screening: str, gpu: Gpu, monkeypatch: Any) -> None:
    """A changed ledger would be computed when the epoch ends, by the thread that takes the steps."""
    run = prepared(*SMALL, *NETWORK, f"screening={screening}")
    sound_epsilon.cache_clear()
    threads: list[str] = []
    computed = Pld.epsilon

    def seen(self: Pld, *arguments: Any) -> float:
        threads.append(threading.current_thread().name)
        return computed(self, *arguments)

    monkeypatch.setattr(Pld, "epsilon", seen)
    found = trained(on(run, "cuda:0"))
    assert len(threads) == 2
    assert (threading.main_thread().name in threads) == (screening == "annealing")
    charged = [run.mechanism.charges_of_epochs(epoch).actual for epoch in (1, 2)]
    assert found.history["epsilon_sound"] == [computed(Pld(), each, run.config.delta) for each in charged]


def test_preparing_a_run_leaves_the_generators_of_gpus_alone(gpu: Gpu, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("they are seeded"))
    prepared(*SMALL, *NETWORK)


def test_two_lengths_and_evaluation_train_as_single_calls(run: Run, gpu: Gpu, monkeypatch: Any) -> None:
    """Both lengths are replayed, and the evaluation is that of the weights after each epoch."""
    monkeypatch.setattr("runner.training.graph.batches._ROUND", 2)
    lengths: list[int] = []
    take, captures = GraphStep._step, []

    def noted(self: GraphStep, length: int) -> None:
        lengths.append(length if length in self._replays else 0)
        take(self, length)

    def counted(*arguments: Any) -> Any:
        captures.append(captured_predictions(*arguments))
        return captures[-1]

    monkeypatch.setattr(GraphStep, "_step", noted)
    monkeypatch.setattr("runner.training.graph.capture.captured_predictions", counted)
    averaged = prepared(*SMALL, *NETWORK, "averaging=ema", "epochs=4", "loss=losing_less")
    expected, found = (trained(on(averaged, "cuda:0", mode)) for mode in (StepMode.eager, StepMode.graph))
    assert set(lengths[-8:]) == {10, 16}
    assert not apart(found, expected).wrong
    assert len(captures) == 1
    assert captures[0] is not None
    for name, values in expected.history.items():
        assert found.history[name] == pytest.approx(values, rel=1e-8), name
    assert len(set(found.history["test_loss"])) == 4


def test_a_step_that_cannot_be_compiled_is_captured_as_it_is(run: Run, gpu: Gpu, monkeypatch: Any, capsys: Any) -> None:
    def refuses(*_: Any, **__: Any) -> Any:
        raise TorchDynamoException("no compiler")

    monkeypatch.setattr("runner.training.graph.compiled", refuses)
    found = trained(on(run, "cuda:0", StepMode.compiled))
    assert found.step == "graph"
    assert "it cannot be compiled (no compiler)" in capsys.readouterr().err


def test_a_step_is_compiled_if_that_is_asked_for_or_pays(run: Run, gpu: Gpu, monkeypatch: Any) -> None:
    graph, compiled = (trained(on(run, "cuda:0", mode)) for mode in (StepMode.auto, StepMode.compiled))
    monkeypatch.setattr("runner.training.graph.capture._COMPILATION", 1e-4)
    also = trained(on(run, "cuda:0", StepMode.auto))
    assert [each.step for each in (graph, compiled, also)] == ["graph", "compiled", "compiled"]
    assert graph.history["train_loss"] == compiled.history["train_loss"]


@pytest.mark.parametrize("changed", ["noise", "_mask", "shape"])
def test_a_step_that_is_not_the_captured_one_stops_the_run(run: Run, gpu: Gpu, changed: str, monkeypatch: Any) -> None:
    """A buffer that is replaced after the capture is not the one that the graph reads."""
    body, shown = GraphStep.body, 2 if changed == "shape" else 1000

    def some(self: GraphStep, state: Any, indices: Tensor, mask: Tensor, noise: Tensor) -> list[Tensor]:
        return body(self, state, indices[:shown], mask[:shown], noise)

    monkeypatch.setattr(GraphStep, "body", some)
    step = step_of(run)
    batches = draw_epoch(run.mechanism, torch.Generator("cuda").manual_seed(0))
    step.make_room(batches.indices.shape[1])
    if changed == "noise":
        step.generators["noise"] = torch.Generator("cuda").manual_seed(0)
    elif changed == "shape":
        shown = batches.indices.shape[1]
    else:
        setattr(step, changed, getattr(step, changed).clone())
    with pytest.raises(RuntimeError, match="not the step that was captured"):
        step.take(batches, 0)
