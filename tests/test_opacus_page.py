"""docs/opacus.md: both of its scripts have the noise multipliers that it states."""

import re
from pathlib import Path

import pytest
from opacus.accountants.utils import get_noise_multiplier

from runner import api
from runner.build.prepare import prepare
from runner.config import REPOSITORY

TEXT = (REPOSITORY / "docs" / "opacus.md").read_text(encoding="utf-8")
BEFORE, NETWORK, AFTER = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
STATED = [float(number) for number in re.findall(r"chooses (?:a noise multiplier of )?(\d\.\d+)", TEXT)]


def test_opacus_chooses_the_stated_noise() -> None:
    """The script's loader has 59 batches, so Opacus samples at a rate of 1/59."""
    assert {"target_epsilon=3", "epochs=5", "batch_size=1024"} <= set(re.findall(r"\w+=\w+", BEFORE))
    noise = get_noise_multiplier(
        target_epsilon=3, target_delta=1e-5, sample_rate=1 / 59, epochs=5, accountant="prv", epsilon_tolerance=0.01
    )
    assert noise == pytest.approx(STATED[0], abs=5e-5)


def test_the_bench_chooses_the_stated_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "network.py").write_text(NETWORK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = []
    monkeypatch.setattr(api, "train_run", lambda **fields: asked.append(fields))
    exec(AFTER, {})  # the call, as it stands on the page
    run = prepare(api._config([], asked[0], None))
    assert run.mechanism.noise_multiplier == pytest.approx(STATED[1], abs=5e-5)
    assert run.epsilon_at_most_steps == pytest.approx(3, abs=1e-3)
    assert (run.clipping.norm, run.mechanism.sampling_rate) == (0.1, 1024 / 60_000)
