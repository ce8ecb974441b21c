"""The learning rate by epoch: a scheduler of torch.optim, stepped once per epoch, or none."""

from __future__ import annotations

import warnings

from torch.optim.lr_scheduler import LRScheduler


class Schedule:
    """Steps a scheduler at the start of every epoch but the first, for which its constructor has set the rate."""

    def __init__(self, scheduler: LRScheduler | None) -> None:
        self._scheduler, self._begun = scheduler, 0

    def start_epoch(self) -> None:
        """Set the learning rate of the epoch that begins."""
        if self._begun > 0 and self._scheduler is not None:
            with warnings.catch_warnings():  # a joint step of several runs does not call the optimizer
                warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
                self._scheduler.step()
        self._begun += 1

    def state_dict(self) -> dict[str, int]:
        """Return the number of epochs that have begun, which determines the rate."""
        return {"begun": self._begun}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Begin as many epochs again, as schedulers hold objects that no plain state stores."""
        for _ in range(state["begun"]):
            self.start_epoch()
