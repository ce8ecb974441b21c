"""One run: its parts and their checks, the loop, and what is measured on the way."""
