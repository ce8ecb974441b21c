"""Features of bounded norm, and colours against the standard library."""

import colorsys
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.data.bounded import SPACES, BoundedPixels


def images(channels: int = 3) -> torch.Tensor:
    torch.manual_seed(0)
    images = torch.rand(6, channels, 5, 4)
    images[0] = 0
    images[1] *= 1e-3
    return images


@pytest.mark.parametrize("make", ["clip", "normalize"])
@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("space", SPACES)
def test_images_are_cut_to_the_bound_or_brought_to_it(make, centered, space):
    features = BoundedPixels(0.7, make, space, centered=centered)
    bounded = features(images())
    norms = bounded.double().flatten(1).norm(dim=1)
    assert list(bounded.shape[1:]) == features.shape([3, 5, 4])
    if make == "normalize":
        assert norms[1:] == pytest.approx(torch.full((5,), 0.7), abs=1e-5)
    elif space == "rgb":
        assert norms[1] == pytest.approx(features(images()[1:2]).norm().item())
        assert norms[1] < 0.1
    if centered:
        assert bounded.mean((1, 2, 3)).abs().max() < 1e-6


def test_order_standardise_then_centre_then_bound():
    features = BoundedPixels(1e6, "clip", mean=[0.5], std=[0.25], centered=True)
    image = torch.tensor([[[[0.0, 1.0, 0.5, 0.75]]]])
    assert features(image).flatten().tolist() == pytest.approx([-2.25, 1.75, -0.25, 0.75])


def test_a_non_finite_image_becomes_zero_and_changes_no_other():
    features, broken = BoundedPixels(1.0, centered=True), images()
    broken[3, 0, 0, 0] = torch.nan
    broken[4, 0, 0, 0] = torch.inf
    bounded = features(broken)
    assert (bounded[3:5] == 0).all()
    assert torch.equal(bounded[[0, 1, 2, 5]], features(images())[[0, 1, 2, 5]])


PIXEL = st.one_of(st.floats(width=32), st.sampled_from([0.0, 1.0, 1e-45, 1e-38, 3e38, -3e38, 3.4028234663852886e38]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of matplotlib's hsv, which divides by what overflows
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # for a loaded machine
@given(
    pixels=st.lists(PIXEL, min_size=12, max_size=12),
    space=st.sampled_from(sorted(SPACES)),
    make=st.sampled_from(["clip", "normalize"]),
    centered=st.booleans(),
    standardised=st.booleans(),
    largest_norm=st.sampled_from([1e-6, 0.7, 1e6]),
)
def test_features_of_any_pixels_are_finite_and_within_the_bound(
    pixels, space, make, centered, standardised, largest_norm
):
    channels = SPACES[space][0]
    by = {"mean": [0.5] * channels, "std": [1e-3] * channels} if standardised else {}
    bounded = BoundedPixels(largest_norm, make, space, centered=centered, **by)(torch.tensor(pixels).view(1, 3, 2, 2))
    norm = bounded.double().norm().item()
    assert torch.isfinite(bounded).all()
    assert norm <= largest_norm
    if not all(map(math.isfinite, pixels)):
        assert norm == 0


def test_colours_are_those_of_the_standard_library():
    pixels = images().movedim(1, -1).reshape(-1, 3)
    for name, function in (("hsv", colorsys.rgb_to_hsv), ("yiq", colorsys.rgb_to_yiq)):
        expected = torch.tensor([function(*pixel) for pixel in pixels.tolist()])
        bounded = SPACES[name][1](images()).movedim(1, -1).reshape(-1, 3)
        assert torch.allclose(bounded, expected, atol=2e-2 if name == "yiq" else 1e-5)  # colorsys rounds its matrix
    grey = SPACES["grey"][1](torch.ones(1, 3, 1, 1))
    assert grey.item() == pytest.approx(1.0)
    assert SPACES["yuv"][1](torch.ones(1, 3, 1, 1)).flatten().tolist() == pytest.approx([1, 0, 0], abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"largest_norm": 0.0}, "largest_norm from 1e-06 to 1e"),
     ({"largest_norm": 1.0, "make": "cut"}, "clip or normalize"),
     ({"largest_norm": 1.0, "space": "lab"}, "features.space has no lab"),
     ({"largest_norm": 1.0, "std": [1.0]}, "both")],
)  # fmt: skip
def test_bad_settings_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        BoundedPixels(**arguments)


def test_a_colour_space_needs_colours():
    with pytest.raises(ValueError, match="3 channels"):
        BoundedPixels(1.0, space="hsv").shape([1, 28, 28])
