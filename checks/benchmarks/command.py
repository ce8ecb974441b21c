"""The command line of a benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from runner.config import ConfigError
from runner.speed.kernels import kernels_wanted
from runner.terminal import Parser


class Command(Parser):
    """A command line that refuses unreadable options and an unknown DP_REPRO_KERNELS before anything is timed."""

    def options(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Read the arguments; exit with code 2 and one sentence if they are wrong."""
        try:
            kernels_wanted()
        except ConfigError as error:
            self.error(str(error))
        return self.parse_args(arguments)
