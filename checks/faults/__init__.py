"""Faults of the machine dealt to the command that carries out many runs, and what is left. Not in the package."""
