"""How much privacy is really lost, at least: attacks on the code that clips, adds noise, samples, updates and charges.

`python -m checks audit` writes the tables and the figure in results/audit. It reads `runner`; nothing there reads it.
"""
