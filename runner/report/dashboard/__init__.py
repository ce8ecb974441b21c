"""Dashboards of papers, each defined once in the paper's folder, for W&B and for a browser without an account."""
