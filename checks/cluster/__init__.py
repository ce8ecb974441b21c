"""Faults on real clusters of two nodes on one machine, and their effect on a paper. It is not in the package."""
