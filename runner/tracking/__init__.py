"""Weights & Biases: written, never read. A run and its record never depend on it."""
