"""Tempered Sigmoid Activations for Deep Learning with Differential Privacy (Papernot et al., AAAI 2021)."""
