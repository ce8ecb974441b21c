"""Run ids and records: what names a run, and that nothing written is lost."""

import json
import math

import pytest
from omegaconf import OmegaConf

from runner.config import FIELDS, ConfigError
from runner.config.fields import Part
from runner.files import write_whole
from runner.records.disk import (
    dumps,
    read_record,
    record_path,
    recorded,
    results_folder,
    rounded,
    set_aside,
    write_record,
)
from runner.records.identity import identify, identify_recorded, recorded_config
from runner.records.jobs import Job, sweep_jobs
from runner.runs.execute import execute


def test_golden_id(composed) -> None:
    """Committed records are found by this hash: when it changes, they are orphans."""
    assert identify(composed("experiment=tempered_sigmoid/mnist_tanh"))[0] == "180425e2e241"


def test_numbers_are_compared_by_value(composed) -> None:
    """And whole numbers that no float tells apart are two runs."""
    assert identify(composed("optimizer.lr=1")) == identify(composed("optimizer.lr=1.0"))
    assert identify(composed()) == identify_recorded(recorded_config(composed()) | {"batch_size": 256.0})
    large = [composed(f"seed={2**53 + more}", "scale.seeds=null") for more in range(2)]
    assert identify(large[0])[0] != identify(large[1])[0]


def test_a_class_is_its_bare_name_wherever_it_is_nested(composed) -> None:
    """A file that moves makes no record stale, and how a class is called (at once or later) is no part of a run."""
    config = composed("+clipping.inner=[{of:{_target_:runner.clipping.Flat,_partial_:true}}]")
    moved = recorded_config(config)
    moved["clipping"]["_target_"] = "runner.somewhere.else_.Flat"
    moved["clipping"]["inner"] = [{"of": {"_target_": "runner.elsewhere.Flat"}}]
    del moved["optimizer"]["_partial_"]
    assert identify_recorded(moved) == identify(config)


def test_every_field_is_a_part_of_what_its_schema_says(composed) -> None:
    """Fields are changed one at a time. Fields of the machine and of the record alone change no id."""
    plain = recorded_config(composed())
    for name, field in FIELDS.items():
        run, setting = identify_recorded(plain | {name: "another value"})
        assert (run != identify_recorded(plain)[0]) is field.part.identifies, name
        assert (setting != identify_recorded(plain)[1]) is field.part.defines_setting, name
        assert (name in plain) is (field.part is not Part.machine and name not in ("sources", "examples")), name
    assert {name for name, field in FIELDS.items() if not field.part.identifies} == {
        "runtime", "tracking", "draw", "save_model", "title",
    }  # fmt: skip
    assert [name for name, field in FIELDS.items() if field.part is Part.run] == ["seed"]
    observed = [name for name, field in FIELDS.items() if field.part is Part.observed]
    assert observed == ["diagnostics", "diagnostics_every", "confusion_epochs"]


def test_a_field_newer_than_a_run_is_unhashed_at_its_old_value(composed) -> None:
    config = composed()
    older = recorded_config(config)
    assert older.pop("diagnostics_every") == FIELDS["diagnostics_every"].unhashed_at == 10
    assert identify_recorded(older) == identify(config)
    assert identify(composed("diagnostics_every=20")) != identify(config)


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ("theirs.Flat", "runner.clipping.Flat"),
        ("theirs.Own", "yours.Own"),
        ("runnerish.Flat", "runner.clipping.Flat"),
        ("library.losses.Dice", "library.dice.Dice"),
    ],
)
def test_a_foreign_class_is_identified_by_its_full_path(composed, mine: str, other: str) -> None:
    """No run of one can pass for a run of another, at the top of a group or below it."""
    for place in ("clipping._target_", "+clipping.inner._target_"):
        first, second = (composed(f"{place}={target}") for target in (mine, other))
        assert not set(identify(first)) & set(identify(second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{layers:{wide:64,narrow:4}}", "{layers:{narrow:4,wide:64}}"),
        ("{hidden:[]}", "{}"),
        ("{more:{slope:null}}", "{more:{}}"),
    ],
)
def test_arguments_of_a_users_class_count_as_they_stand(composed, first: str, second: str) -> None:
    """Its layers may be built in their order, and its defaults may be others than null and empty."""
    runs = [composed("architecture._target_=theirs.Net", f"+architecture.of={text}") for text in (first, second)]
    assert not set(identify(runs[0])) & set(identify(runs[1]))


def test_a_sweep_over_two_classes_of_one_name_lists_both() -> None:
    both = "+hydra.sweeper.params={clipping._target_:'theirs.Own,yours.Own'}"
    listed, usual = (sweep_jobs("tempered_sigmoid/text_sgd", extra) for extra in ((both,), ("scale=paper",)))
    assert len({job.run_id for job in listed}) == 2 * len(usual)


def test_at_smoke_scale_interpolations_see_what_is_trained(composed) -> None:
    """`scale` has changed batch, epochs, seed, sizes and budget before anything that is made of them is resolved."""
    made_of = {
        "batch_size": "optimizer.lr",
        "epochs": "diagnostics_every",
        "seed": "optimizer.momentum",
        "dataset.test_examples": "runtime.physical_batch",
        "max_epsilon": "target_epsilon",
    }
    config = composed(
        "experiment=tempered_sigmoid/mnist_tanh", "scale=smoke", "schedule=linear", "seed=3",
        *(f"{field}=${{{name}}}" for name, field in made_of.items()),
    )  # fmt: skip
    values = {name: OmegaConf.select(config, field) for name, field in made_of.items()}
    assert values == {"batch_size": 32, "epochs": 3, "seed": 1, "dataset.test_examples": 359, "max_epsilon": None}
    assert config.schedule.total_iters == 3
    assert composed("schedule=linear").schedule.total_iters == 57


@pytest.mark.parametrize("name", ["../../elsewhere", ""])
def test_the_name_of_a_scale_is_that_of_an_option(composed, name: str) -> None:
    """It becomes a folder."""
    with pytest.raises(ConfigError, match="is no scale: choose scale=paper or scale=smoke"):
        composed("scale=smoke", f"scale.name='{name}'")


@pytest.mark.parametrize("bundled", [("scale=smoke", "scale.name=paper"), ("+dataset.bundled=true",)])
def test_bundled_data_is_not_recorded_beside_the_papers_runs(composed, bundled: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="Bundled data is not for results at the paper's scale"):
        composed(*bundled)


def test_a_damaged_record_is_none_and_makes_room(composed, capsys) -> None:
    """It is named, set aside, and its run is done again."""
    config = composed("scale=smoke", "scale.epochs=1", "scale.batch_size=400", "tracking=disabled")
    path = record_path(results_folder(config), identify(config)[0])
    assert write_whole(path, "{", replace=False)
    assert not recorded(config)
    assert execute(config, lambda row, run: None) == "finished"
    assert recorded(config)
    assert set_aside(path) is None, "a record stays"
    assert path.with_suffix(".broken-1").read_text() == "{"
    assert f"{path} was no whole record: it is {path.stem}.broken-1 now" in capsys.readouterr().err


def test_epsilons_and_the_noise_that_they_take_are_rounded_up() -> None:
    """An upper bound must stay one: 2.9300397 is no more 2.93, nor is noise of 1.34812 noise of 1.3481."""
    values = rounded({"epsilon_sound": 2.9300397, "epsilon": [1.000001, math.inf], "loss": 1.000001})
    assert values == {"epsilon_sound": 2.9301, "epsilon": [1.0001, "inf"], "loss": 1.0}
    assert rounded({"noise_multiplier": 1.34812}) == {"noise_multiplier": 1.3482}
    assert rounded({"noise_multiplier": 1.23}) == {"noise_multiplier": 1.23}


def test_records_round_to_five_digits_but_configs_stay_exact(fabricate, jobs) -> None:
    """The id is the hash of the config."""
    (job, *_) = jobs("fig_3", "mnist_tanh")
    config = job.config.copy()
    config.optimizer.lr = 0.123456789
    job = Job.of(job.sweep, job.overrides, config)
    read = read_record(fabricate(job, [90.0, 98.123456], diagnostics={"loss": math.nan, "bound": math.inf}))
    assert read["final"]["test_accuracy"] == 98.123
    assert read["config"]["optimizer"]["lr"] == 0.123456789
    assert math.isnan(float(read["diagnostics"]["loss"]))
    assert float(read["diagnostics"]["bound"]) == math.inf
    assert json.loads(dumps(read)) == read


def test_a_record_is_never_overwritten(fabricate, jobs) -> None:
    path = fabricate(jobs("fig_3", "mnist_tanh")[0], [98.0])
    other = read_record(path) | {"status": "diverged"}
    assert not write_record(path, other)
    assert read_record(path)["status"] == "finished"
    assert write_record(path, other, replace=True)
    assert read_record(path)["status"] == "diverged"
    assert [p.name for p in path.parent.iterdir()] == [path.name]
