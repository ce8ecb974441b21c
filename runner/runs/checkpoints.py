"""Checkpoints: the state of a long run after its last whole epoch, from which a stopped run is resumed.

A run has one checkpoint. It is replaced after every epoch and removed when the record is written. It is only used with
the same config, code, libraries, device and number of threads, because every later digit depends on them. The file
holds tensors and plain values only, and its digest. A file that is damaged or belongs to another run is not used.
"""

import hashlib
import io
import pickle
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from runner.config import PACKAGE
from runner.config.checkout import scan
from runner.files import content_of, write_whole
from runner.records.identity import identify, recorded_config
from runner.records.provenance import device_name, versions
from runner.speed.kernels import kernels_wanted
from runner.training.run import Run
from runner.trust.sources import own_targets

_DIGEST = hashlib.sha256().digest_size
_NOT_TRAINING = ("cli", "papers", "study", "report", "claims", "launch")  # no run depends on their code


@cache
def code_digest() -> str:
    """Hash all code that a run may depend on, by SHA-256, as it is on the disk, committed or not."""
    digest = hashlib.sha256()
    for path in scan(PACKAGE, "**/*.py", "**/*.cpp", "**/*.h"):
        name = path.relative_to(PACKAGE)
        if name.parts[0] not in _NOT_TRAINING:
            digest.update(f"{name.as_posix()}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


code_digest()  # now, because files may be edited after they are imported


class Checkpoint:
    """The checkpoint of one run that is prepared on this machine."""

    def __init__(self, config: DictConfig, run: Run) -> None:
        self.path = checkpoint_path(config)
        self.epochs = 0  # trained when the run was last resumed or saved; at 0 a stopped run starts over
        self.seconds = 0.0  # that the run had taken until it was resumed
        self.resumed_after: list[int] = []
        self._failed = False
        self._bound = _bound(config, run)
        # The code and the state of a user's class are not known.
        self.possible = not own_targets(self._bound["config"])

    def load(self) -> dict[str, Any] | None:
        """Return the state to resume from (see `runner.training.loop`), or None if there is none.

        If there is a file that cannot be used, one line states the reason. The file stays until the first epoch
        replaces it.
        """
        if not self.possible or not self.path.exists():
            return None
        try:
            content = _read(self.path)
            differing = [name for name, value in self._bound.items() if content["bound"].get(name) != value]
            if differing:
                raise ValueError(f"is of another {' and '.join(differing)}")
        except (OSError, ValueError) as error:
            reason = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else error
            print(f"{self.path} {reason}, so the run starts over.", file=sys.stderr)
            return None
        self.epochs, self.seconds = content["epochs"], content["seconds"]
        self.resumed_after = [*content["resumed_after"], self.epochs]
        print(f"Run {self.path.stem} goes on after epoch {self.epochs}.", file=sys.stderr)
        state: dict[str, Any] = content["state"]
        return state

    def save(self, state: dict[str, Any], epochs: int, seconds: float) -> None:
        """Replace the checkpoint by the state after `epochs` epochs, which took `seconds` seconds in all.

        If it cannot be written, one line states so, and the run continues.
        """
        progress = {"epochs": epochs, "seconds": seconds, "resumed_after": self.resumed_after}
        buffer = io.BytesIO()
        torch.save({"bound": self._bound, **progress, "state": state}, buffer)
        try:
            write_whole(self.path, hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue(), replace=True)
            self.epochs = epochs
        except OSError as error:
            if not self._failed:
                print(f"{self.path} cannot be written ({error.strerror}): the run goes on without.", file=sys.stderr)
            self._failed = True


def checkpoint_path(config: DictConfig) -> Path:
    return Path(config.runtime.results_root).expanduser() / ".checkpoints" / f"{identify(config)[0]}.pt"


def _bound(config: DictConfig, run: Run) -> dict[str, Any]:
    """Return the values that have to be the same for a resumed run to compute the same digits."""
    runtime = config.runtime
    return {
        "config": recorded_config(config),
        "code": code_digest(),
        "libraries": versions(),
        "device": device_name(run.device),
        "number of threads": torch.get_num_threads(),
        "way of computing": [
            *(runtime.engine.value, run.step.value, run.physical_batch),
            *(torch.backends.cpu.get_cpu_capability(), kernels_wanted()),
        ],
    }


def _read(path: Path) -> dict[str, Any]:
    raw = content_of(path)
    digest, payload = raw[:_DIGEST], raw[_DIGEST:]
    if hashlib.sha256(payload).digest() != digest:
        raise ValueError("is damaged")
    try:
        content: dict[str, Any] = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise ValueError("holds more than numbers") from error
    return content
