"""Studies: arms compared at the same sound epsilon, with equal trials on held-out images and paired seeds."""
