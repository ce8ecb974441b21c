"""The command line of a benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from runner.config import ConfigError
from runner.speed.kernels import kernels_wanted
from runner.terminal import Parser


class Command(Parser):
    """Refuses, before anything is timed, what it cannot read, and a DP_REPRO_KERNELS that says nothing."""

    def options(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """What was asked for; exits with code 2 and one sentence where that cannot be."""
        try:
            kernels_wanted()
        except ConfigError as error:
            self.error(str(error))
        return self.parse_args(arguments)
