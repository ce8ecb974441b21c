"""Dashboards of the papers' charted items, for W&B and for a browser without an account."""
