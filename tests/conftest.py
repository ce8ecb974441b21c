"""What tests share: composing a small config without Hydra's command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from runner.config import REPOSITORY, register
from runner.identity import resolved

Compose = Callable[..., DictConfig]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Compose]:
    """Compose and resolve a config; its results and tracking go to the test's own folder."""
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):

        def make(*overrides: str) -> DictConfig:
            folders = [f"runtime.results_root={tmp_path}/results", f"tracking.directory={tmp_path}/tracking"]
            return resolved(compose("config", [*folders, *overrides]))

        yield make


@pytest.fixture
def smoke(composed: Compose) -> Compose:
    """The same at smoke scale, without tracking."""

    def make(*overrides: str) -> DictConfig:
        return composed("scale=smoke", "tracking=disabled", *overrides)

    return make
