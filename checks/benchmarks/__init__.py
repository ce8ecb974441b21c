"""How fast a private step is: every per-example engine against the non-private step. `python -m checks benchmark`."""
