"""Gradients of single examples and of batches, and the largest eigenvalue of the Hessian of the training loss."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
from torch import Generator, Tensor

from runner.gradients import GradientSum, Objective
from runner.mechanism.normal import generator
from runner.training.diagnostics import SLICE, Batch, Diagnostic, Subject, parameter_norms
from runner.training.evaluate import Evaluation

BIN, _BINS = 0.5, 200  # the width and number of the bins of GradientHistogram
_EQUAL_BINS = 50  # of NormHistograms
_ITERATIONS, _TOLERANCE = 50, 1e-2  # of TopEigenvalue


def gradient_norms(batch: Batch) -> Tensor:
    """Compute the L2 norms of a batch's per-example gradients, [n]; those that clipping computed are used."""
    if batch.clipped.norms is not None:
        return batch.clipped.norms
    names = [name for name, _ in batch.engine.objective.named_parameters()]
    norms = batch.engine.clipped_sum(batch.inputs, batch.targets, [names], torch.zeros_like).norms
    assert norms is not None
    return norms


class GradientNorms(Diagnostic):
    """L2 norms of gradients before clipping, every `diagnostics_every` steps: mean, median and 90th percentile."""

    measures_steps = True

    def step(self, step: int, epoch: int, batch: Batch) -> None:
        if self.due(step):
            norms = gradient_norms(batch)
            mean, median, p90 = norms.mean().item(), norms.median().item(), norms.quantile(0.9).item()
            self.append(step=step, mean=mean, median=median, p90=p90)


class GradientHistogram(Diagnostic):
    """A histogram of the L2 norms of all gradients of an epoch before clipping, by epoch.

    `counts` has bins of width 0.5 from 0 to 100. The last of the 201 counts all norms above. `mean`, `median` and `p90`
    describe the same norms.
    """

    measures_steps = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._norms: list[Tensor] = []

    def step(self, step: int, epoch: int, batch: Batch) -> None:
        self._norms.append(gradient_norms(batch))

    def epoch(self, epoch: int, evaluation: Evaluation) -> None:
        norms = torch.cat(self._norms or [torch.full((1,), torch.nan)]).double()  # NaN: an epoch of empty batches
        bins = (norms / BIN).nan_to_num(nan=_BINS).clamp(0, _BINS).long()
        counts = torch.bincount(bins, minlength=_BINS + 1) if self._norms else torch.zeros(_BINS + 1, dtype=torch.long)
        ordered = norms.sort().values  # NaN last: a gradient that is not finite is large
        median, p90 = (ordered[int(share * (len(ordered) - 1))].item() for share in (0.5, 0.9))
        self.append(epoch=epoch, counts=counts.tolist(), mean=norms.mean().item(), median=median, p90=p90)
        self._norms.clear()


class GradientCosine(Diagnostic):
    """The cosine between a batch's sums of clipped and of raw gradients before noise, by step.

    It is measured at each step of the first epoch, then every `diagnostics_every` steps.
    """

    passes_training_images = True
    measures_steps = True

    def step(self, step: int, epoch: int, batch: Batch) -> None:
        if self.due(step) or epoch == 1:
            pieces = zip(batch.inputs.split(SLICE), batch.targets.split(SLICE), strict=True)
            raw = reduce(GradientSum.__add__, (batch.engine.plain_sum(*piece) for piece in pieces)).gradients
            a, b = (
                torch.cat([sums[name].flatten() for name in raw]).double() for sums in (raw, batch.clipped.gradients)
            )
            self.append(step=step, cosine=torch.nn.functional.cosine_similarity(a, b, dim=0).item())


class NormHistograms(Diagnostic):
    """Histograms of L2 norms of the first 2,048 training examples, in 50 bins of equal width from 0 to the `largest`.

    `inputs` is the histogram of their features. `gradients` has a histogram of their gradients before training
    (epoch 0) and after each epoch.
    """

    passes_training_images = True

    def weights(self, epoch: int) -> None:
        inputs, targets = self.subject.fixed
        with self.subject.evaluating() as objective:
            names = [name for name, _ in objective.named_parameters()]
            norms = parameter_norms(objective, inputs, targets, [names])[:, 0]
        self.append(epoch=epoch)
        self.values.setdefault("gradients", []).append(_counts(norms))
        self.values["inputs"] = _counts(torch.linalg.vector_norm(inputs.flatten(1), dim=1))


def _counts(norms: Tensor) -> dict[str, Any]:
    """Count norms [examples] in bins; those that are not finite are in the last."""
    norms = norms.double()
    finite = norms[torch.isfinite(norms)]
    largest = finite.max().item() if len(finite) else 0.0
    places = (
        (norms / largest * _EQUAL_BINS).nan_to_num(_EQUAL_BINS, _EQUAL_BINS) if largest else torch.zeros_like(norms)
    )
    counts = torch.bincount(places.long().clamp(0, _EQUAL_BINS - 1), minlength=_EQUAL_BINS)
    return {"largest": largest, "counts": counts.tolist()}


class LayerGradients(Diagnostic):
    """Norms of gradients by layer, as they are and as clipping leaves them.

    Before training (epoch 0) and after each epoch, in the mean over the first 256 training examples.

    `total` is the L2 norm of an example's gradient, `ordinary` that of its part by layer. `clipped` is by layer the
    norm of the contribution that the run's clipping makes of this example. `moved` is the part of the squared norm that
    clipping moves between layers: half the sum over layers of |share of the contribution - share of the gradient|.
    It is 0 for a clipping that only scales a gradient, and at most 1.
    """

    passes_training_images = True

    def weights(self, epoch: int) -> None:
        run, objective = self.subject.run, self.subject.objective
        inputs, targets = (tensor[:SLICE] for tensor in self.subject.fixed)
        layers: dict[str, list[str]] = {}
        for name, _ in objective.named_parameters():
            layers.setdefault(name.rpartition(".")[0], []).append(name)
        clipping, engine = run.mechanism.applied(run.clipping, run.config.batch_size), run.engine(objective)

        def contribution(example: Tensor, target: Tensor) -> list[float]:
            summed = clipping.sum_contributions(engine, example[None], target[None], run.mechanism.noise_groups)
            return [
                torch.cat([summed.gradients[n].flatten() for n in names]).norm().item() for names in layers.values()
            ]

        with self.subject.evaluating():
            ordinary = parameter_norms(objective, inputs, targets, list(layers.values())).double()
            clipped = torch.tensor([contribution(*pair) for pair in zip(inputs, targets, strict=True)]).double()
        moved = (_shares(clipped) - _shares(ordinary)).abs().sum(1) / 2
        self.append(epoch=epoch, total=ordinary.norm(dim=1).mean().item(), moved=moved.mean().item())
        means = (dict(zip(layers, norms.mean(0).tolist(), strict=True)) for norms in (ordinary, clipped))
        self.append(**dict(zip(("ordinary", "clipped"), means, strict=True)))


def _shares(norms: Tensor) -> Tensor:
    """Return the shares of layers in an example's squared norm, [examples, layers]; zeros for a gradient of zeros."""
    squares = norms.square()
    return (squares / squares.sum(1, keepdim=True)).nan_to_num()


class BoundRatios(Diagnostic):
    """Norms of gradients over the bounds that follow from a Lipschitz network (`runner.networks.lipschitz`).

    `largest` and `mean` are over the first 2,048 training examples, by parameter, before training (epoch 0) and after
    each epoch.
    """

    passes_training_images = True

    @staticmethod
    def check(objective: Objective) -> Mapping[str, float]:
        """Return the bounds by parameter name."""
        from runner.networks.lipschitz import gradient_bounds  # few runs have such networks

        return gradient_bounds(objective)

    def weights(self, epoch: int) -> None:
        with self.subject.evaluating() as objective:
            bounds = self.check(objective)
            norms = parameter_norms(objective, *self.subject.fixed, [[name] for name in bounds])
        ratios = {name: norms[:, place] / bound for place, (name, bound) in enumerate(bounds.items())}
        largest, mean = ({name: measure(r).item() for name, r in ratios.items()} for measure in (torch.max, torch.mean))
        self.append(epoch=epoch, largest=largest, mean=mean)


class Hessian(Diagnostic):
    """The `eigenvalue` of largest absolute value of the Hessian, before training (epoch 0) and after each epoch.

    The Hessian belongs to the mean training loss, as it was in that epoch, on the first 2,048 training examples.
    `residual` is the norm at which the power iteration ended.
    """

    passes_training_images = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        stream = generator(subject.run.config.seed, "hessian", subject.training.images.device)
        self._top = TopEigenvalue(subject.objective, *subject.fixed, stream)

    def weights(self, epoch: int) -> None:
        with self.subject.evaluating():
            eigenvalue, residual = self._top()
        self.append(epoch=epoch, eigenvalue=eigenvalue, residual=residual)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "top": self._top.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._top.load_state_dict(state["top"])


class TopEigenvalue:
    """Power iteration on the Hessian of the mean loss over fixed examples: inputs [n, ...], targets [n].

    v <- H v / ||H v||_2 converges to the eigenvector of the eigenvalue that is largest in absolute value. That is the
    largest singular value of H up to its sign. Every call starts from the last call's vector, which changes little
    between two epochs, plus a random one of the same length. The random part lets it leave an eigenvector that is no
    longer the largest. It stops if the residual's norm ||H v - lambda v||_2, which bounds the distance of lambda to an
    eigenvalue, is below 0.01 |lambda|. It also stops after 50 products with H.

    Cost: a product with H is about twice a gradient over the examples (R. Pearlmutter, 1994).
    """

    def __init__(self, objective: Objective, inputs: Tensor, targets: Tensor, generator: Generator) -> None:
        self._objective, self._inputs, self._targets = objective, inputs, targets
        self._parameters = list(objective.parameters())
        numbers = sum(p.numel() for p in self._parameters)
        self._generator = generator
        self._vector = torch.zeros(numbers, device=inputs.device, dtype=inputs.dtype)

    def __call__(self) -> tuple[float, float]:
        """Return lambda (with its sign) and the norm of the residual, at the objective's present weights."""
        fresh = torch.empty_like(self._vector).normal_(generator=self._generator)
        start = self._vector + fresh / fresh.norm()
        vector, value, residual = start / start.norm(), 0.0, float("inf")
        for _ in range(_ITERATIONS):
            product = self._times_hessian(vector)
            value = torch.dot(vector, product).item()
            residual = (product - value * vector).norm().item()
            norm = product.norm()
            if not torch.isfinite(norm) or norm == 0 or residual < _TOLERANCE * abs(value):
                break
            vector = product / norm
        self._vector = vector
        return value, residual

    def state_dict(self) -> dict[str, Tensor]:
        return {"vector": self._vector, "draws": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._vector = state["vector"].to(self._vector.device)
        self._generator.set_state(state["draws"].cpu())

    def _times_hessian(self, vector: Tensor) -> Tensor:
        """Return H v, the gradient of (gradient of the mean loss) . v, a slice of the examples at a time."""
        total = torch.zeros_like(vector)
        for inputs, targets in zip(self._inputs.split(SLICE), self._targets.split(SLICE), strict=True):
            loss = self._objective(inputs.clone(), targets).sum() / len(self._targets)
            gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, self._parameters, create_graph=True)])
            second = torch.autograd.grad(gradient @ vector, self._parameters)
            total += torch.cat([g.flatten() for g in second])
        return total
