"""Faults of the machine during a command with many runs, and their effect. It is not in the package."""
