"""What the network sees. Here what those need who read configs only, without PyTorch, which takes seconds to import."""

BUNDLED_TRAIN, BUNDLED_TEST = 1438, 359  # of scikit-learn's digits: every fifth is a test image


class DataError(RuntimeError):
    """A data set cannot be read. The message is one sentence that says what is missing and where to put it."""
