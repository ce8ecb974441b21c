"""Speed of a private step: every per-example engine against the non-private step (`python -m checks benchmark`)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from runner.config import ConfigError
from runner.speed.kernels import kernels_wanted
from runner.terminal import Parser


def whole_number(text: str) -> int:
    """Read a number from 1 on.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text!r}")
    return int(text)


class Command(Parser):
    """A command line that refuses unreadable options and an unknown DP_REPRO_KERNELS before anything is timed."""

    def options(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Read the arguments; exit with code 2 and one sentence if they are wrong."""
        try:
            kernels_wanted()
        except ConfigError as error:
            self.error(str(error))
        return self.parse_args(arguments)
