"""Every method of the benchmark that can run here, by the name it has in the table."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from checks.benchmarks import own, peers
from checks.benchmarks.problems import LIPSCHITZ, PLAIN, Problem


def methods(network: str = "M") -> dict[str, Callable[[Problem], own.Step]]:
    """Return the methods that can run here on this network, by name. The first is an ordinary step."""
    if network.removesuffix(PLAIN) in LIPSCHITZ:
        return {
            "non_private": own.non_private,
            "non_private_faster": own.non_private_faster,
            "clipless": own.clipless,
            "projection": own.projection,
            "one_pass": own.one_pass,
            "opacus_hooks": peers.opacus_hooks,
        }
    found: dict[str, Callable[[Problem], own.Step]] = {
        "non_private": own.non_private,
        "non_private_compiled": peers.non_private_compiled,
        "non_private_faster": own.non_private_faster,
        "one_pass": own.one_pass,
        "one_pass_graph": own.one_pass_graph,
        "one_pass_compiled": own.one_pass_compiled,
    }
    if network in ("M", "R", "C"):
        found["backprop"] = own.backprop
    if network == "L":
        found["clipless"] = own.clipless_bounded
    found |= {"isolated": own.isolated, "vmap": peers.vmap, "vmap_compiled": peers.vmap_compiled}
    if network != "W":  # their gradients of a standardised convolution are off (Opacus: by 2%)
        found |= {"opacus_hooks": peers.opacus_hooks, "opacus_ghost": peers.opacus_ghost}
        found |= {"fastdp": peers.fastdp} if importlib.util.find_spec("fastDP") else {}
    return found
