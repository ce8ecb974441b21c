"""The life of one run: execution, checkpoints, weights, and how long it takes."""
