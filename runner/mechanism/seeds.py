"""One seed, many independent streams."""

import hashlib

import torch


def derived_seed(seed: int, stream: str) -> int:
    """A 63-bit seed for a stream that is named by what draws from it: init, sampling, noise, and so on.

    Streams do not shift when one is used more.
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}".encode()).digest()[:8], "big") >> 1


def generator(seed: int, stream: str, device: torch.device) -> torch.Generator:
    """A generator of the named stream on a device."""
    return torch.Generator(device=device).manual_seed(derived_seed(seed, stream))
