"""Experiments on differentially private deep learning, and what their privacy costs."""

import os

# This has to be set before PyTorch is loaded. Else PyTorch's idle threads spin on the cores that the compiled kernels
# need. A value that the user has set stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
