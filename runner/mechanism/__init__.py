"""The private release: one object sets its noise, sensitivity, sampling and charges."""
