"""Experiments on differentially private deep learning, and what their privacy costs."""

import os

# Before PyTorch is loaded, whose idle threads else spin on the cores that those of our own kernels want. Where it is
# set already, it stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
