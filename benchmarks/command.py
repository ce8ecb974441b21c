"""The command line of a benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from runner.config import ConfigError
from runner.speed.kernels import kernels_wanted
from runner.terminal import Parser


class Command(Parser):
    """Refuses, before anything is timed, what it cannot read, and a DP_REPRO_KERNELS that says nothing."""

    def parse_args(  # type: ignore[override]  # of its three forms the one that is used
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """The options; exits with code 2 and one sentence."""
        options = super().parse_args(args, namespace)
        try:
            kernels_wanted()
        except ConfigError as error:
            self.error(str(error))
        return options
