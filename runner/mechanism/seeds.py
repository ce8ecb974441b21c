"""Independent random streams from one seed."""

import hashlib

import torch


def derived_seed(seed: int, stream: str) -> int:
    """Return a 63-bit seed for a stream, which is named by its use: init, sampling, noise, and so on.

    More draws from one stream do not change the others.
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}".encode()).digest()[:8], "big") >> 1


def generator(seed: int, stream: str, device: torch.device) -> torch.Generator:
    """Return a generator of the named stream on a device. A CPU's takes the lower 32 bits of the derived seed."""
    return torch.Generator(device=device).manual_seed(derived_seed(seed, stream))
