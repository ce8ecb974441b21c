"""The projection: spectral norms of at most 1 whatever comes in, and next to nothing done to what was in already."""

import pytest
import torch

from runner.networks.lipschitz.spectral import Spectral, projected, schatten_bound

SHAPES = [(1, 1), (1, 7), (7, 1), (128, 784), (10, 4)]


def norms(matrices: torch.Tensor) -> torch.Tensor:
    return torch.linalg.matrix_norm(matrices.double(), 2)


@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_matrix_is_left_above_one(shape, orthogonal):
    """Gaussian matrices of any size from 1e-30 to 1e30, of rank one, and twice an orthogonal one, all in one batch."""
    torch.manual_seed(0)
    sizes = torch.tensor([1e-30, 1e-3, 0.03, 0.1, 0.3, 1.0, 3.0, 1e3, 1e30])[:, None, None]
    gaussian = torch.randn(len(sizes), *shape) * sizes
    outer = torch.randn(4, shape[0], 1) @ torch.randn(4, 1, shape[1])
    isometric = torch.nn.init.orthogonal_(torch.empty(shape)) * torch.tensor([1.0, 1.89, 1.95, 2.0, 2.5])[:, None, None]
    matrices = torch.cat([gaussian, outer, isometric, torch.zeros(1, *shape)])
    assert norms(projected(matrices, orthogonal)).max() <= 1 + (1e-6 if orthogonal else 0)


@pytest.mark.parametrize("shape", [(1024, 10), (8192, 10), (16384, 4), (65536, 2), (1, 65536), (300, 300)])
def test_sums_of_numbers_of_one_sign_leave_no_matrix_above_one(shape):
    """All entries but one are equal: every sum in float32 may be rounded the same way."""
    matrix = torch.ones(shape, dtype=torch.float64)
    matrix[0, 0] = 1.3
    sizes = torch.linspace(0.99, 1.01, 41)[:, None, None]
    for orthogonal in (True, False):
        assert norms(projected((matrix / norms(matrix)).float() * sizes, orthogonal)).max() <= 1


@pytest.mark.parametrize("rank", [1, 13, 14, 169, 170])
def test_the_bound_is_one_and_lets_orthogonal_matrices_be(rank):
    torch.manual_seed(0)
    orthogonal = torch.nn.init.orthogonal_(torch.empty(rank, rank))
    assert 1 - 1e-5 <= schatten_bound(orthogonal @ orthogonal.mT).item() <= 1.9
    gaussian = torch.randn(rank, rank)
    assert schatten_bound(gaussian @ gaussian.mT) >= norms(gaussian) * (1 - 1e-5)
    assert torch.allclose(projected(orthogonal), orthogonal, atol=1e-5)


def test_singular_values_follow_the_polynomial_and_vectors_stay():
    torch.manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0] for _ in range(2))
    values = torch.tensor([0.1, 0.5, 0.9, 1.0, 1.2], dtype=torch.float64)
    expected = u @ torch.diag(1.5 * values - 0.5 * values**3) @ v.T
    assert torch.allclose(projected(u @ torch.diag(values) @ v.T), expected, atol=1e-5)


def test_without_orthogonality_ratios_of_singular_values_stay():
    """The largest becomes 0.99 to 1, from any size."""
    torch.manual_seed(0)
    for shape, size in [((256, 784), 1e-3), ((10, 256), 30.0)]:
        matrix = torch.randn(shape, dtype=torch.float64) * size
        before, after = (torch.linalg.svdvals(m) for m in (matrix, projected(matrix, orthogonal=False)))
        assert torch.allclose(after / after[0], before / before[0], rtol=1e-9)
        assert 0.99 <= after[0] <= 1
    weights = {"w": matrix.clone()}
    Spectral(orthogonal=False).project(weights)
    assert torch.equal(weights["w"], projected(matrix[None], orthogonal=False)[0])


def test_weights_hold_through_noisy_steps_some_of_them_huge():
    """200 steps of noise, momentum-like drift and now and then a jump, in float32; biases too."""
    torch.manual_seed(0)
    constraint = Spectral(bias_radius=0.25)
    parameters = {"w": torch.randn(12, 3, 3, 3), "v": torch.randn(40, 12), "b": torch.randn(12)}
    drift = {name: torch.randn_like(p) for name, p in parameters.items()}
    for step in range(200):
        for name, p in parameters.items():
            p += 0.02 * torch.randn_like(p) + 0.01 * drift[name] + (1e6 * drift[name] if step % 97 == 5 else 0)
        constraint.project(parameters)
        assert norms(parameters["w"].flatten(1)).max() <= 1 + 1e-6
        assert norms(parameters["v"]).max() <= 1 + 1e-6
        assert parameters["b"].double().norm() <= 0.25 * (1 + 1e-6)


def test_what_is_no_number_stays_none():
    """A run whose weights are lost is seen to be: it ends as diverged."""
    assert torch.isnan(projected(torch.tensor([[torch.nan, 1.0], [0.0, 1.0]]))).any()
    with pytest.raises(ValueError, match="bias_radius"):
        Spectral(bias_radius=0.0)
