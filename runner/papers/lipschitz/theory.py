"""The paper's constants and bounds, compared with the largest value found: a ratio above 1 refutes one."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
from scipy.stats import binom
from torch import Tensor, nn
from torch.func import functional_call, jacfwd, jacrev
from torch.nn import functional as F

from runner.claims.claim import Claim
from runner.claims.evidence import Evidence
from runner.claims.measure import computed
from runner.claims.measurement import Measured
from runner.claims.verdicts import ClaimRow
from runner.networks.lipschitz import Spectral, gradient_bounds, losses
from runner.networks.lipschitz.layers import Center, GroupSort2, Residual, Scale
from runner.networks.objective import InputBound, Objective
from runner.report import plots
from runner.report.formats import Table

_CLASSES, _SIDE, _KERNEL = 10, 6, 3
_BIAS_SIDE, _KERNEL_SIDE = 28, 32  # sides of the maps of the authors' first convolutions, on MNIST and on CIFAR-10
_TURNS = 40  # iterations for six digits of a largest norm
_BATCH = 4
_FILTERS = 16  # of the first convolution of the authors' MNIST ConvNet
_BJORCK, _STOP = 15, 1e-3  # deel-lip's most iterations, and the least change for another
Ratios = Callable[[], dict[str, tuple[float, str]]]  # by layer: the value found over the bound, and the bound in words

# By the claim's method: losses, each with the paper's constant, and the constant in words.
LOSSES: dict[str, tuple[tuple[tuple[losses.LipschitzLoss, float], ...], str]] = {
    "Softmax cross-entropy, temperature τ": (((losses.SharpCrossEntropy(1.0), math.sqrt(2)),), "√2 / τ, here τ = 1"),
    "Cosine similarity": (((losses.Cosine(0.5), 2.0),), "1 / X_min, here X_min = 1/2"),
    "Multiclass hinge loss": (((losses.Hinge(0.5), 1.0),), "1"),
    "KR loss": (((losses.KantorovichRubinstein(), 1.0),), "1"),
    "HKR loss": (
        tuple((losses.HingeKantorovichRubinstein(alpha, 0.5), 1 + alpha) for alpha in (0.1, 1.0, 10.0)),
        "1 + α, here α = 0.1, 1 and 10",
    ),
}


@cache
def over_stated(method: str) -> tuple[float, float, float]:
    """Return the worst ratio to the stated constant of a method's losses, the value found, and the exact constant.

    The value is the largest norm of the gradient in ten logits: small, large and adversarial, for every target.
    """
    generator = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-4, 3, 2000, dtype=torch.float64)[:, None]
    logits = torch.randn(2000, _CLASSES, generator=generator, dtype=torch.float64) * sizes
    hot = F.one_hot(torch.arange(_CLASSES), _CLASSES).double()
    logits = torch.cat([logits, 40 * hot, -40 * hot, torch.zeros_like(hot)]).requires_grad_()
    ratios = []
    for loss, stated in LOSSES[method][0]:
        slope = 0.0
        for target in range(_CLASSES):
            values = loss(logits, torch.full((len(logits),), target))
            slope = max(slope, torch.autograd.grad(values.sum(), logits)[0].norm(dim=1).max().item())
        ratios.append((slope / stated, slope, loss.lipschitz(_CLASSES)))
    return max(ratios)


def _kernel_factor(side: int) -> float:
    """Return the factor of the authors' library for a convolution of stride 1 on a map of side x side."""
    half = (_KERNEL - 1) // 2
    return side / (_KERNEL * side - half * (half + 1))


@cache
def parameter_jacobians() -> dict[str, tuple[float, str]]:
    """Return the largest norm of the parameter Jacobian at inputs of norm 1, over table 2's bound, and the bound."""
    flat, image = torch.ones(1, 36).double() / 6, torch.ones(1, 1, _BIAS_SIDE, _BIAS_SIDE).double() / _BIAS_SIDE
    any_window = max(_worst_reads(stride, padding)[0] for stride in (1, 2, 3) for padding in (0, 1, 2))
    same_size, reads = _worst_reads(1, _KERNEL // 2)
    biased = nn.Conv2d(1, 1, 1).double()
    dense = nn.Linear(36, 4).double()
    factor, above = _kernel_factor(_SIDE), "as above, in the kernel that the authors'"
    generator = torch.Generator().manual_seed(0)
    kernel = nn.init.orthogonal_(torch.empty(_KERNEL**2, _FILTERS, dtype=torch.float64), generator=generator)
    kernel += 0.1 * torch.randn(kernel.shape, generator=generator, dtype=torch.float64)  # an update, then `condense`
    condensed = reparametrisation_jacobian(reparametrised(kernel, factor), factor)
    through = torch.kron(torch.eye(_FILTERS).double(), reads) @ condensed
    return {
        "Bias": (_parameter_jacobian(dense, "bias", flat), "a vector: 1"),
        "Bias on a map": (_parameter_jacobian(biased, "bias", image), f"a map of {_BIAS_SIDE} x {_BIAS_SIDE}: 1"),
        "Dense layer": (_parameter_jacobian(dense, "weight", flat), "X"),
        "Convolution, window s": (any_window / _KERNEL, "√s X"),
        "RKO convolution": (same_size * factor / (_KERNEL * factor), "√(k_h k_w) a X, in the orthogonal factor"),
        "RKO convolution, kernel": (same_size / (_KERNEL * factor), f"{above} library trains"),
        "RKO convolution, reparametrised": (
            _norm(through, through.shape[1]) / (_KERNEL * factor),
            f"{above} MNIST script orthogonalises in each pass",
        ),
    }


@cache
def input_jacobians() -> dict[str, tuple[float, str]]:
    """Return the largest norm of the input Jacobian, with constrained weights, over table 3's bound, and the bound."""
    torch.manual_seed(0)
    conv = nn.Conv2d(1, _KERNEL**2, _KERNEL, padding=1, bias=False).double()
    nn.init.orthogonal_(conv.weight)
    dense = nn.Linear(36, 36).double()
    nn.init.orthogonal_(dense.weight)
    image = torch.randn(1, 1, _KERNEL_SIDE, _KERNEL_SIDE, dtype=torch.float64)
    flat = torch.randn(1, 36, dtype=torch.float64)
    jacobian = _input_jacobian(conv, image)
    activations = max(_input_jacobian(layer, flat) for layer in (GroupSort2(), nn.ReLU(), nn.Tanh()))
    return {
        "Bias": (_input_jacobian(Scale(1.0), flat), "1"),
        "Dense layer": (_input_jacobian(dense, flat), "1"),
        "RKO convolution": (
            jacobian * _kernel_factor(_KERNEL_SIDE),
            f"1, with the factor of the library for a map of {_KERNEL_SIDE} x {_KERNEL_SIDE}",
        ),
        "RKO convolution, 1/√(k_h k_w)": (jacobian / _KERNEL, "1, with the factor used here"),
        "Layer centering": (_input_jacobian(Center(), flat), "1"),
        "Residual block": (_input_jacobian(Residual(nn.Identity(), 1.0), flat) / 2, "2"),
        "Activations": (activations, "1"),
    }


def reparametrised(kernel: Tensor, factor: float) -> Tensor:
    """Return the weights [k, out] that deel-lip's SpectralDense and SpectralConv2D make of a kernel in each pass.

    Power iteration is taken as converged. Each of at most 15 iterations of Bjorck's changes the weights by 0.001 or
    more, but for the last. They apply f to the singular values s of the kernel, and weights are factor * f(s). So their
    Jacobian in the kernel has the singular values factor * (f_i + f_j) / (s_i + s_j), and with f_j = s_j = 0 where the
    kernel is not square. With f = 1, those in symmetric directions vanish.

    - A first kernel, s = 1: the largest is `factor`, as the bound of the authors' library has it.
    - A kernel that `condense` has stored, s = factor: it is 1. The bound is too small by 1 / factor.
    - Iterations that stop early leave small s, with f(s) / s up to 1.5^15.
    """
    largest = torch.linalg.svd(kernel.detach())[2][0]
    weights, before, turns = kernel / ((kernel @ largest).norm() + _STOP), kernel + math.inf, 0
    while turns < _BJORCK and (weights - before).norm() >= _STOP:
        before, turns = weights, turns + 1
        weights = 1.5 * before - 0.5 * before @ before.mT @ before
    orthogonal: Tensor = factor * weights
    return orthogonal


def reparametrisation_jacobian(kernel: Tensor, factor: float) -> Tensor:
    """Return the Jacobian [out k, out k] of `reparametrised` in a kernel [k, out], both in the order [out, k]."""
    turned = torch.autograd.functional.jacobian(lambda rows: reparametrised(rows.mT, factor).mT, kernel.mT.contiguous())
    jacobian: Tensor = turned.reshape(kernel.numel(), kernel.numel())
    return jacobian


def _worst_reads(stride: int, padding: int) -> tuple[float, Tensor]:
    """Return the largest norm found of a convolution's Jacobian in its kernel, over images of norm 1, and the Jacobian.

    It is for one filter: [outputs, numbers of the kernel].

    The output is linear in the image and in the kernel. For a fixed one, the other that maximises it is a singular
    vector. Each is found in turn, so the norm can only grow.
    """
    pixels = torch.eye(_SIDE**2, dtype=torch.float64).view(-1, 1, _SIDE, _SIDE)
    reads = F.unfold(pixels, _KERNEL, padding=padding, stride=stride)  # [pixel, number of the kernel, output]
    image, norm = torch.ones(_SIDE**2, dtype=torch.float64) / _SIDE, 0.0
    for _ in range(_TURNS):
        kernel = torch.linalg.svd(torch.einsum("pko,p->ok", reads, image)).Vh[0]
        _, sizes, ways = torch.linalg.svd(torch.einsum("pko,k->op", reads, kernel))
        norm, image = float(sizes[0]), ways[0]
    return norm, torch.einsum("pko,p->ok", reads, image)


def _parameter_jacobian(layer: nn.Module, name: str, x: Tensor) -> float:
    weights = {key: value.detach() for key, value in layer.named_parameters()}

    def outputs(value: Tensor) -> Tensor:
        output: Tensor = functional_call(layer, {**weights, name: value}, (x,))
        return output.flatten()

    return _norm(jacrev(outputs)(weights[name]), weights[name].numel())


def _input_jacobian(layer: nn.Module, x: Tensor) -> float:
    return _norm(jacfwd(lambda value: layer(value).flatten())(x).detach(), x.numel())


def _norm(jacobian: Tensor, columns: int) -> float:
    rows = jacobian.reshape(-1, columns)
    return math.sqrt(torch.linalg.eigvalsh(rows.T @ rows)[-1])


def centered_by_library(x: Tensor) -> Tensor:
    """Center [batch, ..., channels] as the authors' library does: over all axes but the last unless x is 4-D."""
    return x - x.mean(-1 if x.dim() == 4 else tuple(range(x.dim() - 1)), keepdim=True)


def moved_by_another(layer: Callable[[Tensor], Tensor], shape: Sequence[int]) -> float:
    """Return the largest norm by which one example's output moves if another example of the batch moves by 1."""
    x = torch.randn(_BATCH, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def output(first: Tensor) -> Tensor:
        return layer(torch.cat([first[None], x[1:]]))[1].flatten()

    return _norm(jacrev(output)(x[0]), math.prod(shape))


@computed
def coupling(_: Claim) -> Measured:
    """Return how far one example's output of the library's centring moves with another: for tokens and vectors."""
    tokens, vectors = (moved_by_another(centered_by_library, shape) for shape in ((6, 5), (5,)))
    image = moved_by_another(centered_by_library, (3, 3, 4))
    words = f"tokens {tokens:.3g}, vectors {vectors:.3g}, images {image:.3g}"
    return Measured(max(tokens, vectors), explanation=f"where another of {_BATCH} examples moves by 1: {words}")


@computed
def loss_constant(claim: Claim) -> Measured:
    """Return the largest gradient found of a loss in its logits, over the paper's constant."""
    ratio, slope, exact = over_stated(claim.method)
    words = LOSSES[claim.method][1]
    remark = "where it is passed most, " if len(LOSSES[claim.method][0]) > 1 else ""
    return Measured(ratio, explanation=f"stated {words}; {remark}largest found {slope:.6g}; exact {exact:.6g}")


def _jacobian(ratios: Ratios, claim: Claim) -> Measured:
    """Return the largest Jacobian found of the claim's layer, over the paper's bound."""
    ratio, words = ratios()[claim.method]
    return Measured(ratio, explanation=f"stated {'for ' if words.startswith('a map') else ''}{words}")


parameter_jacobian = computed(partial(_jacobian, parameter_jacobians))
input_jacobian = computed(partial(_jacobian, input_jacobians))


DEPTHS = range(1, 33)
SLOPES = {0.9: "contracting", 1.0: "norms are kept", 1.1: "expanding"}


@cache
def bound_of_depth(slope: float, layers: int, bias: bool = False) -> float:
    """Return (sum_d K_d^2)^(1/2) of `layers` linear layers, `slope` between them, for L = X_0 = 1 and biases to 1."""
    _, *parts = (part for _ in range(layers) for part in (Scale(slope), nn.Linear(2, 2, bias=bias)))
    loss = losses.SharpCrossEntropy(1.0, gradient_bound=1.0)
    objective = Objective(nn.Sequential(*parts), loss, InputBound((2,), 1.0), Spectral())
    return math.hypot(*gradient_bounds(objective).values())


def closed_form(slope: float, layers: int) -> float:
    """Return theorem 1 without biases, L X_0 a^T sqrt(T + 1) for T + 1 layers: every term is a^(2 T) X_0^2."""
    return float(slope ** (layers - 1) * math.sqrt(layers))


@computed
def theorem_1(claim: Claim) -> Measured:
    """Return the computed layer-by-layer bound over the closed form at a = 1, the largest of all depths up to 32.

    For a = L = X_0 = B = 1 with biases, each layer adds 1 (its bias) and X_t^2, X_t = 1 + t.
    """
    bias = claim.method.endswith("with biases")
    ratio = 0.0
    for layers in DEPTHS:
        form = math.sqrt(sum(1 + (1 + t) ** 2 for t in range(layers))) if bias else closed_form(1.0, layers)
        ratio = max(ratio, bound_of_depth(1.0, layers, bias) / form)
    return Measured(ratio, explanation="up to 32 layers; a hundred-thousandth a layer is left for rounding")


@computed
def concentration(_: Claim) -> Measured:
    """Return the probability that a batch's mean is further than t from its expectation, over corollary 2's bound.

    The bound is exp(-(sqrt(b) t / (2 K) - 1)^2 / 2) for t >= 2 K / sqrt(b). The ratio is the largest one, for gradients
    K and -K with equal probability.
    """
    ratios = [
        2 * float(binom.sf(heads - 1, batch, 0.5)) / math.exp(-((gap / (2 * math.sqrt(batch)) - 1) ** 2) / 2)
        for batch in (1, 4, 16, 64, 256, 1024)
        for heads in range(batch // 2, batch + 1)
        for gap in [2 * heads - batch]  # sqrt(b) t / K is gap / sqrt(b)
        if gap >= 2 * math.sqrt(batch)
    ]
    return Measured(max(ratios), explanation="of gradients of one dimension, K or -K, in batches of up to 1,024")


def theorem(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    rows = [
        {
            "layers": layers,
            **{f"a = {slope:g}, {words}": f"{bound_of_depth(slope, layers):.4f}" for slope, words in SLOPES.items()},
            "L X₀ √D": f"{closed_form(1.0, layers):.4f}",
        }
        for layers in (1, 2, 4, 8, 16, 32)
    ]
    return Table.of(rows)


def figure(_: Evidence) -> "plots.Figure":
    figure = plots.figure(6, 4)
    axes = figure.subplots()
    for place, (slope, words) in enumerate(SLOPES.items()):
        bounds = [bound_of_depth(slope, d) for d in DEPTHS]
        axes.plot(DEPTHS, bounds, **plots.spaced(bounds, place), label=f"a = {slope:g}: {words}")
    claimed = [closed_form(1.0, depth) for depth in DEPTHS]
    axes.plot(DEPTHS, claimed, color="k", linestyle="--", linewidth=1, label="claimed for a = 1: √D")
    plots.log_axis(axes, "y")
    axes.set(xlabel="layers D", ylabel="bound on the norm of the gradient, L = X₀ = 1")
    axes.legend()
    return figure


@computed
def clipped_cross_entropy(_: Claim) -> Measured:
    """Return the distance of clipped rows of binary cross-entropy, of least modulus, from rows of -C (2 y - 1) z."""
    generator = torch.Generator().manual_seed(0)
    z = 5 * torch.randn(4000, generator=generator, dtype=torch.float64)
    y = (torch.rand(4000, generator=generator) < 0.5).double()
    rows = torch.sigmoid(z) - y
    bound = 0.99 * rows.abs().min()
    clipped = rows * (bound / rows.abs()).clamp(max=1.0)
    worst = ((clipped + bound * (2 * y - 1)).abs() / bound).max().item()
    return Measured(worst, explanation="largest difference of 4,000 rows, as a share of the clipping bound")


def _ratio_table(ratios: Ratios, _: Evidence, __: Sequence[ClaimRow]) -> Table:
    rows = [
        {"layer": name, "stated": words, "largest found over stated": f"{ratio:.4f}",
         "holds": "yes" if ratio <= 1 + 1e-9 else "no"}
        for name, (ratio, words) in ratios().items()
    ]  # fmt: skip
    return Table.of(rows)


table_1 = partial(_ratio_table, lambda: {name: (over_stated(name)[0], words) for name, (_, words) in LOSSES.items()})
table_2, table_3 = partial(_ratio_table, parameter_jacobians), partial(_ratio_table, input_jacobians)
