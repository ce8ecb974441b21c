"""Real clusters of two nodes on one machine, faults dealt to them, and what is left of a paper. Not in the package."""
