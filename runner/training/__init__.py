"""One run: its parts and their checks, the loop, and the measurements during training."""
