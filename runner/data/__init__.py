"""Inputs of the network. This file needs no PyTorch, which takes seconds to import, so that configs are read fast."""

BUNDLED_TRAIN, BUNDLED_TEST = 1438, 359  # of scikit-learn's digits; every fifth is a test image


class DataError(RuntimeError):
    """A data set cannot be read. The message is one sentence: the missing file and the place to put it."""
