"""Backpropagation Clipping for Deep Learning with Differential Privacy (Stevens et al., 2022).

By its authors, a bug invalidates the paper's numbers (README of their repository, since its commit 270964a of 17
February 2022): see `runner.mechanism.layerwise`.
"""
