"""One meaning of ε in records of all times, and no guarantee where training images standardise the pixels."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from runner.accounting import sound_epsilon
from runner.build.prepare import prepare
from runner.claims.evidence import PlannedRun
from runner.claims.measure import charged_epsilon
from runner.config import REPOSITORY, ConfigError
from runner.records.disk import as_today, read_record, write_record
from runner.records.verify import verify
from runner.runs.execute import execute
from runner.training.loop import load
from tests.claims.made_up import claim

RUNS = REPOSITORY / "results" / "runs"
BUDGETED = "306443dcfd4c"  # screened until 1,076 updates are kept
ALL_TRIES = "035dc2296f64"  # screened, with a fixed number of attempts
STANDARDISED = "0bfe91d19198"  # MNIST with its own mean and deviation
REASON = "The features have statistics of MNIST's training images as constants, which no ledger holds."
SMALL = ("architecture.units=4", "architecture.filters=[2,2]", "scale.epochs=1")


def written(run_id: str) -> dict[str, Any]:
    """A record as it is in its file."""
    return dict(json.loads((RUNS / f"{run_id}.json").read_text(encoding="utf-8")))


def test_an_older_guarantee_takes_the_place_of_what_was_spent() -> None:
    config = {"max_epsilon": 3.0, "noise_multiplier": 1.2, "features": {}, "dataset": {"name": "MNIST"}}
    final = {"steps": 50, "max_tries": 90, "epsilon_sound": 2.9, "epsilon_sound_at_max_tries": 9.3}
    columns = {"accepted": [40], "epsilon_sound": [2.9]}
    record = {"status": "finished", "config": config, "history": columns, "final": final, "provenance": {}}
    read = as_today(record)
    assert read["final"] == {"steps": 50, "max_tries": 90, "epsilon_sound": 9.3, "epsilon_spent": 2.9}
    assert read["history"] == {"accepted": [40], "epsilon_spent": [2.9]}


def test_an_older_screened_run_guarantees_the_most_attempts() -> None:
    before, record = written(BUDGETED), read_record(RUNS / f"{BUDGETED}.json")
    assert record["final"]["epsilon_sound"] == before["final"]["epsilon_sound_at_max_tries"]
    assert record["final"]["epsilon_spent"] == before["final"]["epsilon_sound"] < record["final"]["epsilon_sound"]
    assert record["history"]["epsilon_spent"] == before["history"]["epsilon_sound"]
    assert "epsilon_sound" not in record["history"]
    assert as_today(record) == record


def test_a_fixed_number_of_attempts_is_charged_in_full() -> None:
    before, record = written(ALL_TRIES), read_record(RUNS / f"{ALL_TRIES}.json")
    assert record["history"] == before["history"]
    assert record["final"]["epsilon_sound"] == before["final"]["epsilon_sound"]
    assert not record["final"].keys() & {"epsilon_spent", "max_tries", "epsilon_sound_at_max_tries"}


def test_an_older_standardised_run_guarantees_nothing() -> None:
    before, record = written(STANDARDISED), read_record(RUNS / f"{STANDARDISED}.json")
    assert (record["final"]["epsilon_sound"], record["provenance"]["epsilon_unsound"]) == (None, REASON)
    assert record["history"]["epsilon_spent"] == before["history"]["epsilon_sound"]
    assert as_today(record) == record
    assert verify(record) == []
    without_noise = read_record(RUNS / "c59d74917c9c.json")
    assert (without_noise["final"]["epsilon_sound"], without_noise["history"]["epsilon_sound"][0]) == ("inf", "inf")


def test_a_standardised_run_is_recorded_without_a_guarantee(smoke, tmp_path) -> None:
    """Its record in the form of before is read in the same way, and an ε that is too small is noticed."""
    config = smoke("experiment=tempered_sigmoid/mnist_tanh", "features=pixels_mnist", *SMALL)
    run = prepare(config)
    assert (run.unsound, run.epsilon_at_most_steps) == (REASON, None)
    assert execute(config, lambda row, _: row["epsilon_spent"] > 0) == "finished"
    (path,) = tmp_path.rglob("runs/*.json")
    record = read_record(path)
    assert record["final"]["epsilon_sound"] is None
    assert "epsilon_sound" not in record["history"]
    cost = sound_epsilon(run.mechanism.charges(record["final"]["steps"]).actual, 1e-5)
    assert record["final"]["epsilon_spent"] == pytest.approx(cost, rel=1e-4)
    assert verify(record) == []
    before = json.loads(path.read_text(encoding="utf-8"))
    del before["provenance"]["epsilon_unsound"]
    for part in (before["history"], before["final"]):
        part["epsilon_sound"] = part.pop("epsilon_spent")
    write_record(path, before, replace=True)
    assert read_record(path) == record | {"digest": read_record(path)["digest"]}
    before["history"]["epsilon_sound"] = [0.1]
    before["final"]["epsilon_sound"] = 0.1
    write_record(path, before, replace=True)
    assert any(text.startswith("epsilon_spent after epoch 1 is 0.1") for text in verify(read_record(path)))


def test_other_images_tell_that_they_are_standardised(smoke) -> None:
    """The bundled digits have other statistics than MNIST, so no constants tell it."""
    images = load(prepare(smoke(*SMALL)))[0].images
    by = (f"features.mean=[{float(images.mean())}]", f"features.std=[{float(images.std())}]")
    with pytest.raises(ConfigError, match="standardised or centred by their own statistics, which no ledger holds"):
        load(prepare(smoke(*SMALL, *by)))
    load(prepare(smoke(*SMALL, *by, "noise_multiplier=0", "clipping=none")))


def test_no_claim_has_a_bound_of_it() -> None:
    """Neither of runs nor by formula, which has what the steps cost (others are in tests/report/test_unsound.py)."""
    job: Any = SimpleNamespace(run_id=STANDARDISED)
    run = PlannedRun(job, read_record(RUNS / f"{STANDARDISED}.json"))
    assert (run.history("epsilon_sound"), run.final("epsilon_spent")) == ([math.inf] * 25, 0.2)
    subject = claim(("backprop_clipping/mnist_printed",), sweeps=("backprop_clipping/table_1",), quantity="epsilon")
    measured = charged_epsilon(subject, None)
    assert measured.epsilon_sound == math.inf
    assert measured.epsilon_spent is not None
    assert 0 < measured.epsilon_spent < 0.08
