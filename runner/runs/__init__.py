"""The life of one run: execution, checkpoints, tracking, weights, and how long it takes."""
