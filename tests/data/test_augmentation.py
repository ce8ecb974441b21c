"""Random views against NumPy's padding and indexing, and the numbers that they are made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from runner.data.augmentation import Views

MODES = {"reflect": "reflect", "zeros": "constant"}


@pytest.mark.parametrize("fill", MODES)
@pytest.mark.parametrize(("channels", "height", "width"), [(1, 6, 7), (3, 8, 5)])
def test_a_view_is_a_crop_of_the_padded_image_reflected_or_not(
    fill: str, channels: int, height: int, width: int
) -> None:
    views = Views(views=5, padding=2, fill=fill)
    images = torch.rand(4, channels, height, width)
    drawn = views.draw(4, torch.Generator().manual_seed(0))
    found = views(images, drawn)
    assert found.shape == (4, 5, channels, height, width)
    for example in range(4):
        padded = np.pad(images[example].numpy(), ((0, 0), (2, 2), (2, 2)), mode=MODES[fill])
        for view in range(5):
            row, column, flipped = drawn[example, view].tolist()
            expected = padded[:, row : row + height, column : column + width]
            np.testing.assert_array_equal(found[example, view], expected[..., ::-1] if flipped else expected)


def test_no_image_has_no_view() -> None:
    views = Views(views=3)
    assert views(torch.rand(0, 1, 8, 8), views.draw(0, torch.Generator())).shape == (0, 3, 1, 8, 8)


def test_all_crops_and_reflections_are_drawn_alike() -> None:
    drawn = Views(views=2, padding=1).draw(20_000, torch.Generator().manual_seed(0)).flatten(0, 1)
    counts = torch.bincount((drawn[:, 0] * 3 + drawn[:, 1]) * 2 + drawn[:, 2], minlength=18)
    assert counts.min() > 0.9 * 40_000 / 18
    assert counts.max() < 1.1 * 40_000 / 18
    assert Views(views=2, flip=False).draw(100, torch.Generator())[..., 2].max() == 0


@pytest.mark.parametrize("wrong", [{"views": 0}, {"views": 1, "padding": -1}, {"views": 1, "fill": "x"}])
def test_what_is_out_of_range_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match=r"augmentation\."):
        Views(**wrong)
