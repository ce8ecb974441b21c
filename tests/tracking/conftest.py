"""Runs of these tests are tracked."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _tracking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE")
