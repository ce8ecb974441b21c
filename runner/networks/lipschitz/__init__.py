"""Networks whose gradients have a bound that follows from their layers: layers, losses, and the bound."""

from runner.networks.lipschitz.bounds import gradient_bounds
from runner.networks.lipschitz.spectral import Spectral

__all__ = ["Spectral", "gradient_bounds"]
