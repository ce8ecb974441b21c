"""A paper's dashboard: defined once, in its folder, and made for W&B and for a browser without an account."""
