"""Comparison of a GPU's results with the CPU's: `python -m checks parity`. Nothing in `runner` reads it."""
