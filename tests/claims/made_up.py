"""Made-up claims, entries of a leaderboard, and runs with a history, diagnostics and some fields of a config."""

from functools import partial
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf

from runner.claims.claim import Claim
from runner.claims.evidence import Evidence, PlannedRun
from runner.records.jobs import Job

NOTHING = Evidence("paper", {})  # no run of this scale


def run(
    experiment: str = "p/a",
    seed: int = 0,
    accuracy: tuple[float, ...] = (90.0, 92.0, 91.0, 95.0),
    epsilon: tuple[float, ...] = (),
    sound: tuple[float, ...] = (),
    diagnostics: dict[str, Any] | None = None,
    recorded: bool = True,
    **fields: Any,
) -> PlannedRun:
    """Make a run with these test accuracies by epoch. By default epsilon is the epoch's number, twice the sound one."""
    epochs = len(accuracy)
    history = {
        "epoch": list(range(1, epochs + 1)),
        "steps": [10 * epoch for epoch in range(1, epochs + 1)],
        "test_accuracy": list(accuracy),
        "epsilon": list(epsilon or range(1, epochs + 1)),
        "epsilon_sound": list(sound or (epoch / 2 for epoch in epsilon or range(1, epochs + 1))),
    }
    final = {name: values[-1] for name, values in history.items()} | {"best_test_accuracy": max(accuracy)}
    record = {"status": "finished", "history": history, "final": final, "diagnostics": diagnostics or {}}
    config = OmegaConf.create({"seed": seed, "epochs": epochs, "delta": 1e-5, "screening": None, **fields})
    job: Any = SimpleNamespace(
        run_id=f"{experiment} {seed} {fields}",
        experiment=experiment,
        config=config,
        label=f"{experiment} seed={seed}",
        setting_id=f"{experiment} {fields}",
    )
    job.values = OmegaConf.to_container(config)
    job.field = partial(Job.field, job)
    return PlannedRun(job, record if recorded else None)


def evidence(*runs: PlannedRun) -> Evidence:
    return Evidence("paper", {"p/s": runs})


def claim(*pairs: tuple[str, ...], **fields: Any) -> Claim:
    of_all: dict[str, Any] = {"place": "claims.yaml, line 1", "paper": "p", "item": "i", "dataset": "d", "method": "m"}
    return Claim(**{**of_all, "sweeps": ("p/s",), "pairs": pairs or (("p/a",),), "margin": 1.0, **fields})


def entry(method: str, mean: float, held_out: bool, by_test_images: bool, neighbours: str = "add-or-remove-one") -> Any:
    """Make an entry of a leaderboard, of five runs on MNIST at a sound ε of 3."""
    place = {"dataset": "MNIST", "epsilon": 3.0, "neighbours": neighbours, "method": method, "title": method}
    marks = {"held_out": held_out, "made_for_it": True, "by_test_images": by_test_images}
    return SimpleNamespace(mean=mean, accuracies=(mean,) * 5, ideas=(), **place, **marks)
