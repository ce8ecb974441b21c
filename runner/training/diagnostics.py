"""What a figure needs beyond accuracy, measured only where a config asks for it.

Every number here is computed from private data without noise: it belongs in a reproduction, not in a release.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from runner.data.datasets import Split
from runner.gradients import Engine, GradientSum, Objective, OnePassEngine, private_copy, undisturbed
from runner.mechanism.seeds import generator
from runner.networks.lipschitz import gradient_bounds
from runner.networks.objective import layer_outputs, layers_with_parameters
from runner.training.evaluate import Evaluation, predictions
from runner.training.hessian import TopEigenvalue

DIAGNOSTICS = (
    "gradient_norms", "activation_norms", "per_class_accuracy", "layer_norms", "gradient_histogram", "gradient_cosine",
    "confusion", "hessian", "bound_ratios", "norm_histograms",
)  # fmt: skip
OF_TRAINING_IMAGES = {  # which pass training images through the network, and not by the run's engine
    "activation_norms", "layer_norms", "gradient_cosine", "confusion", "hessian", "bound_ratios", "norm_histograms",
}  # fmt: skip
OF_STEPS = {"gradient_norms", "activation_norms", "gradient_histogram", "gradient_cosine"}  # looked at step by step
FIXED = 2048  # the training examples, the first ones, that layer_norms and hessian are measured on
BIN, _BINS = 0.5, 200  # of gradient_histogram: from 0 to 100
_NORM_BINS = 50  # of norm_histograms
_SLICE = 256


class Diagnostics:
    """Collects the diagnostics that were asked for; with none asked for, every method does nothing.

    Training images pass through a copy of the objective: who holds its weights could put hooks on them.

    gradient_norms: L2 norms of per-example gradients before clipping, every `diagnostics_every` steps: mean, median and
        90th percentile over the batch.
    activation_norms: L2 norm of each hidden activation's output, every `diagnostics_every` steps, mean over the batch;
        one list per activation, named by its place in the network.
    per_class_accuracy: accuracy in percent by class on the evaluation split, every epoch.
    layer_norms: before training (epoch 0) and after every epoch, L2 norms of each layer's `weights` and, mean over the
        first 2,048 training examples, of its output before the activation (`pre_activations`; the last layer's are the
        logits), by layer in the order of the calls.
    gradient_histogram: L2 norms before clipping of every per-example gradient of an epoch: `counts` in bins of width
        0.5 from 0 to 100 (the last of the 201 is everything above), `mean`, `median`, `p90`; one entry an epoch.
    gradient_cosine: cosine between the sum of clipped and the sum of raw gradients of a batch, before noise: every step
        of the first epoch and every `diagnostics_every` steps after it.
    confusion: counts[true class][predicted class] on the training split, after the epochs of `confusion_epochs` and
        after the last.
    hessian: `eigenvalue` of the Hessian of the training loss that is largest in absolute value, and the `residual` of
        its power iteration, on the first 2,048 training examples; before training (epoch 0) and after every epoch,
        with the loss as it was in that epoch.
    bound_ratios: `largest` and `mean`, over the first 2,048 training examples, of the L2 norm of the example's gradient
        of each parameter over the bound that follows from the network (`runner.networks.lipschitz`), by parameter;
        before training (epoch 0) and after every epoch.
    norm_histograms: L2 norms of the first 2,048 training examples, of their features (`inputs`) and, before training
        (epoch 0) and after every epoch, of their gradients (`gradients`, a list): each as `counts` in 50 bins of equal
        width from 0 to the `largest`.
    """

    def __init__(
        self, config: DictConfig, epochs: int, activation_type: type[nn.Module], objective: Objective, training: Split
    ) -> None:
        self._names, self._every, self._activation_type = (
            set(config.diagnostics),
            config.diagnostics_every,
            activation_type,
        )
        self._confusion_epochs = {*config.confusion_epochs, epochs}
        self._live, self._training = objective, training
        self._looks = bool(OF_TRAINING_IMAGES & self._names)
        self._objective = private_copy(objective) if self._looks else objective
        self._fixed = training.images[:FIXED], training.targets[:FIXED]
        self._norms: list[Tensor] = []
        self.values: dict[str, Any] = {}
        self._top_eigenvalue: TopEigenvalue | None = None
        if "hessian" in self._names:
            stream = generator(config.seed, "hessian", training.images.device)
            self._top_eigenvalue = TopEigenvalue(self._objective, *self._fixed, stream)

    @undisturbed()
    def start(self) -> None:
        """Measure what is measured before the first step."""
        self._follow()
        self._measure_weights(0)

    @undisturbed()
    def step(self, step: int, epoch: int, engine: Engine, inputs: Tensor, targets: Tensor, of: GradientSum) -> None:
        """Measure on this step's batch, with the weights that its gradient sum was taken at; `epoch` counts from 1."""
        if len(targets) == 0:
            return
        self._follow()
        due = step % self._every == 0
        if "gradient_histogram" in self._names:
            self._norms.append(_gradient_norms(engine, inputs, targets, of))
        if "gradient_norms" in self._names and due:
            norms = _gradient_norms(engine, inputs, targets, of)
            measured = {"mean": norms.mean(), "median": norms.median(), "p90": norms.quantile(0.9)}
            self._append("gradient_norms", {"step": step, **{name: value.item() for name, value in measured.items()}})
        if "activation_norms" in self._names and due:
            self._append("activation_norms", {"step": step, **self._activation_norms(inputs)})
        if "gradient_cosine" in self._names and (due or epoch == 1):
            self._append("gradient_cosine", {"step": step, "cosine": _cosine(engine, inputs, targets, of)})

    @undisturbed()
    def epoch(self, epoch: int, evaluation: Evaluation) -> None:
        """Measure after an epoch, counted from 1."""
        self._follow()
        if "per_class_accuracy" in self._names:
            self.values.setdefault("per_class_accuracy", []).append(evaluation.class_accuracy)
        if "gradient_histogram" in self._names:
            self._append("gradient_histogram", {"epoch": epoch, **_histogram(self._norms)})
            self._norms.clear()
        if "confusion" in self._names and epoch in self._confusion_epochs:
            classes = len(evaluation.class_accuracy)
            self._append("confusion", {"epoch": epoch, "counts": _confusion(self._objective, self._training, classes)})
        self._measure_weights(epoch)

    def state_dict(self) -> dict[str, Any]:
        """What was measured until the end of an epoch, and what the next measurement starts from."""
        hessian = None if self._top_eigenvalue is None else self._top_eigenvalue.state_dict()
        return {"values": self.values, "hessian": hessian}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state, instead of from the start."""
        self.values = state["values"]
        if self._top_eigenvalue is not None:
            self._top_eigenvalue.load_state_dict(state["hessian"])

    def _follow(self) -> None:
        """Have the copy compute as the objective does now."""
        if self._looks:
            if self._live.epoch is not None and self._live.epoch != self._objective.epoch:
                self._objective.start_epoch(self._live.epoch)
            self._objective.take_values_of(self._live)

    def _append(self, diagnostic: str, measured: dict[str, Any]) -> None:
        columns = self.values.setdefault(diagnostic, {})
        for name, value in measured.items():
            columns.setdefault(name, []).append(value)

    def _measure_weights(self, epoch: int) -> None:
        self._objective.eval()
        if "layer_norms" in self._names:
            columns = self.values.setdefault("layer_norms", {"epoch": [], "weights": {}, "pre_activations": {}})
            columns["epoch"].append(epoch)
            for kind, norms in _layer_norms(self._objective.network, self._fixed[0]).items():
                for layer, norm in norms.items():
                    columns[kind].setdefault(layer, []).append(norm)
        if self._top_eigenvalue is not None:
            eigenvalue, residual = self._top_eigenvalue()
            self._append("hessian", {"epoch": epoch, "eigenvalue": eigenvalue, "residual": residual})
        if "bound_ratios" in self._names:
            columns = self.values.setdefault("bound_ratios", {"epoch": [], "largest": {}, "mean": {}})
            columns["epoch"].append(epoch)
            for name, ratios in _bound_ratios(self._objective, *self._fixed).items():
                columns["largest"].setdefault(name, []).append(ratios.max().item())
                columns["mean"].setdefault(name, []).append(ratios.mean().item())
        if "norm_histograms" in self._names:
            self._measure_norms(epoch)
        self._objective.train()

    def _measure_norms(self, epoch: int) -> None:
        inputs, targets = self._fixed
        columns = self.values.setdefault("norm_histograms", {"epoch": [], "gradients": []})
        columns["inputs"] = _counts(torch.linalg.vector_norm(inputs.flatten(1), dim=1))
        columns["epoch"].append(epoch)
        names = [name for name, _ in self._objective.named_parameters()]
        columns["gradients"].append(_counts(_norms_of(self._objective, inputs, targets, [names])[:, 0]))

    @torch.no_grad()
    def _activation_norms(self, inputs: Tensor) -> dict[str, float]:
        norms: dict[str, float] = {}
        network = self._objective.network
        handles = [
            module.register_forward_hook(
                lambda _, __, output, name=name: norms.update({name: output.flatten(1).norm(dim=1).mean().item()})
            )
            for name, module in network.named_modules()
            if isinstance(module, self._activation_type)
        ]
        network(inputs)
        for handle in handles:
            handle.remove()
        return norms


def _cosine(engine: Engine, inputs: Tensor, targets: Tensor, clipped: GradientSum) -> float:
    pieces = zip(inputs.split(_SLICE), targets.split(_SLICE), strict=True)
    raw = reduce(GradientSum.__add__, (engine.plain_sum(*piece) for piece in pieces)).gradients
    a, b = (torch.cat([part[name].flatten() for name in raw]).double() for part in (raw, clipped.gradients))
    return torch.nn.functional.cosine_similarity(a, b, dim=0).item()


def _gradient_norms(engine: Engine, inputs: Tensor, targets: Tensor, of: GradientSum) -> Tensor:
    """Per-example norms [batch]; computed here where the clipping strategy did not need them."""
    if of.norms is not None:
        return of.norms
    names = [name for name, _ in engine.objective.named_parameters()]
    norms = engine.clipped_sum(inputs, targets, [names], torch.zeros_like).norms
    assert norms is not None
    return norms


def _bound_ratios(objective: Objective, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Every example's gradient of each parameter over its bound: by name, [examples]."""
    bounds = gradient_bounds(objective).gradients
    norms = _norms_of(objective, inputs, targets, [[name] for name in bounds])
    return {name: of / bound for (name, bound), of in zip(bounds.items(), norms.unbind(1), strict=True)}


def _norms_of(objective: Objective, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]]) -> Tensor:
    """L2 norms of every example's gradient of each group of parameters: [examples, groups]."""
    seen: list[Tensor] = []

    def look(norms: Tensor) -> Tensor:
        seen.append(norms)
        return torch.zeros_like(norms)

    engine = OnePassEngine(objective)
    for piece in zip(inputs.split(_SLICE), targets.split(_SLICE), strict=True):
        engine.clipped_sum(*piece, groups, look)
    norms = torch.cat(seen)
    assert norms.shape == (len(targets), len(groups))
    return norms


def _counts(norms: Tensor) -> dict[str, Any]:
    """Norms [examples] in bins of equal width from 0 to the largest; what is not finite is in the last one."""
    norms = norms.double()
    finite = norms[torch.isfinite(norms)]
    largest = finite.max().item() if len(finite) else 0.0
    places = (norms / largest * _NORM_BINS).nan_to_num(_NORM_BINS, _NORM_BINS) if largest else torch.zeros_like(norms)
    counts = torch.bincount(places.long().clamp(0, _NORM_BINS - 1), minlength=_NORM_BINS)
    return {"largest": largest, "counts": counts.tolist()}


def _histogram(batches: list[Tensor]) -> dict[str, Any]:
    if not batches:  # an epoch of empty batches
        return {"counts": [0] * (_BINS + 1), "mean": float("nan"), "median": float("nan"), "p90": float("nan")}
    norms = torch.cat(batches).double()
    bins = (norms / BIN).nan_to_num(nan=_BINS).clamp(0, _BINS).long()
    ordered = norms.sort().values  # NaN last: a gradient that is not finite is large
    at = {name: ordered[int(share * (len(ordered) - 1))].item() for name, share in (("median", 0.5), ("p90", 0.9))}
    return {"counts": torch.bincount(bins, minlength=_BINS + 1).tolist(), "mean": norms.mean().item(), **at}


@torch.no_grad()
def _layer_norms(network: nn.Module, inputs: Tensor) -> dict[str, dict[str, float]]:
    with layer_outputs(network) as outputs:
        network(inputs)
    layers = layers_with_parameters(network)
    weights = {name: torch.as_tensor(layers[name].weight).norm().item() for name in outputs}
    means = {name: output.flatten(1).norm(dim=1).mean().item() for name, output in outputs.items()}
    return {"weights": weights, "pre_activations": means}


def _confusion(objective: Objective, split: Split, classes: int) -> list[list[int]]:
    predicted = predictions(objective, split)
    counts = torch.bincount(split.targets * classes + predicted, minlength=classes**2)
    return counts.view(classes, classes).tolist()
