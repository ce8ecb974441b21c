"""Speed of a private step: every per-example engine against the non-private step (`python -m checks benchmark`)."""
