"""Attacks on the code that clips, adds noise, samples, updates and charges: lower bounds on the true privacy loss.

`python -m checks audit` writes the tables and the figure in results/audit. It reads `runner`; nothing there reads it.
"""
