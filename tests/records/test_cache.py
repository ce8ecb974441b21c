"""The cache of configs: used while nothing that an entry was made of has changed, and never if it may be wrong."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.errors import HydraException

from runner import config
from runner.config import REPOSITORY, loader
from runner.files import SEAL
from runner.records import jobs, verify
from runner.records.identity import resolved
from runner.records.jobs import command_of, composed, sweep_jobs

SWEEP, EXPERIMENT = "tempered_sigmoid/text_sgd", "conf/experiment/tempered_sigmoid"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the configs, and an empty cache."""
    for name in ("conf", "sweeps/tempered_sigmoid", "runner/accounting", "runner/config", "runner/records"):
        shutil.copytree(REPOSITORY / name, tmp_path / "checkout" / name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for module in (loader, jobs, config):
        monkeypatch.setattr(module, "REPOSITORY", tmp_path / "checkout")
    monkeypatch.setattr(loader, "PACKAGE", tmp_path / "checkout" / "runner")
    hash_of = loader.hash_of.__wrapped__
    for module in (loader, verify):
        monkeypatch.setattr(module, "hash_of", hash_of)
    return tmp_path / "checkout"


@pytest.fixture
def composes(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Say whether the sweep is composed, and not taken from the cache, by a process that has not listed it yet."""
    composed: list[str] = []
    list_runs = jobs._list_by_hydra

    def counted(sweep: str, extra: tuple[str, ...]) -> object:
        composed.append(sweep)
        return list_runs(sweep, extra)

    monkeypatch.setattr(jobs, "_list_by_hydra", counted)

    def again() -> bool:
        composed.clear()
        jobs._listed.__wrapped__(SWEEP, ("scale=paper",))
        return bool(composed)

    assert again()
    assert not again()
    return again


def entry() -> Path:
    """The entry of the sweep's jobs, which are a list. The others are configs of options."""
    paths = (loader.cache_folder() / "configs").glob("*.json")
    (path,) = (p for p in paths if isinstance(json.loads(p.read_bytes()[:-SEAL])["content"], list))
    return path


def files_of(path: Path) -> list[str]:
    return json.loads(path.read_bytes()[:-SEAL])["made_of"]["files"]


def test_a_sweep_is_recomposed_after_a_source_file_changes(checkout: Path, composes, monkeypatch) -> None:
    read = {Path(name).relative_to(checkout) for name in files_of(entry())}
    expected = {Path(f"sweeps/{SWEEP}.yaml"), Path("conf/config.yaml"), Path("conf/optimizer/sgd.yaml")}
    assert expected <= read
    assert Path("conf/optimizer/adam.yaml") not in read
    for name in (f"sweeps/{SWEEP}.yaml", "conf/optimizer/sgd.yaml"):
        text = (checkout / name).read_text()
        (checkout / name).write_text(f"{text}\n# changed\n")
        assert composes()
        assert not composes()
    monkeypatch.setenv("DP_DATA_ROOT", "/elsewhere")
    assert composes(), "a variable that a file names"
    (checkout / "runner/records/identity.py").write_text("changed")
    assert composes(), "the code of ids"


@pytest.mark.parametrize("mistake", ["epochs: many", "optimizer: 3"])
def test_a_mistake_in_a_sweep_is_named_with_its_line(checkout: Path, mistake: str) -> None:
    """Its fields are merged without Hydra, which says where one is wrong."""
    path = checkout / "sweeps" / f"{SWEEP}.yaml"
    path.write_text(path.read_text().replace("tracking:", f"{mistake}\ntracking:", 1))
    place = 1 + path.read_text().splitlines().index(mistake)
    with pytest.raises(HydraException, match=rf"{path.name}, line {place}"):
        jobs._listed.__wrapped__(SWEEP, ("scale=paper",))


def test_what_a_sweep_does_not_read_leaves_it_as_it_is(checkout: Path, composes, monkeypatch) -> None:
    (checkout / "conf/optimizer/new.yaml").write_text("_target_: torch.optim.SGD\n")
    (checkout / "conf/optimizer/adam.yaml").write_text("_target_: torch.optim.Adam\n")
    (checkout / EXPERIMENT / "new.yaml").write_text("# @package _global_\n")
    (checkout / "sweeps/tempered_sigmoid/new.yaml").write_text("# @package _global_\n")
    (checkout / "runner/records/verify.py").write_text("")
    monkeypatch.setenv("ANOTHER", "1")
    assert not composes()


def test_damaged_or_world_writable_entries_are_recomposed(composes) -> None:
    intact = entry().read_bytes()
    forged = intact.replace(b'"seed": 0', b'"seed": 9')
    assert forged != intact
    for content in (b"", intact[:-1], forged):
        entry().write_bytes(content)
        assert composes()
        assert entry().read_bytes() == intact
    entry().chmod(0o602)
    assert composes()
    assert not composes(), "it is the user's alone again"


def test_accountant_answers_belong_to_one_version_of_the_code(checkout: Path, monkeypatch) -> None:
    before = verify._answers_path()
    (checkout / "runner/records/verify.py").write_text("changed")
    assert verify._answers_path() == before
    (checkout / "runner/accounting/accountants.py").write_text("changed")
    assert (changed := verify._answers_path()) != before
    monkeypatch.setattr(loader, "version", lambda package: "newer")
    assert verify._answers_path() not in (before, changed)


def test_an_option_is_seen_as_soon_as_it_is_there(checkout: Path) -> None:
    """Also by a process that was refused it before, and again when it has changed."""
    option = checkout / "conf/activation/later.yaml"
    with pytest.raises(HydraException, match="later"):
        composed(["activation=later", "seed=1"])
    for target in ("torch.nn.Mish", "torch.nn.Hardswish"):
        option.write_text(f"_target_: {target}\n")
        assert composed(["activation=later", "seed=1"]).activation._target_ == target


def test_a_table_of_what_was_chosen_is_read_too(checkout: Path) -> None:
    jobs._listed.__wrapped__("tempered_sigmoid/table_4_chosen", ("scale=paper",))
    files = files_of(entry())
    assert str(checkout / "sweeps/tempered_sigmoid/table_4_chosen.csv") in files


def test_runs_come_out_of_the_cache_as_they_went_in() -> None:
    first = jobs._list_by_hydra(SWEEP, ("scale=smoke",))
    assert sweep_jobs(SWEEP, ("scale=smoke",)) == first
    assert [job.run_id for job in first] == [jobs.Job.of("", {}, job.config).run_id for job in first]
    assert first[0].config.evaluation.value == first[0].field("evaluation") == "test"
    assert first[0].field("nothing.here") is None


def test_fields_of_a_machine_are_set_without_composing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = sweep_jobs(SWEEP, ("scale=smoke",))
    monkeypatch.setattr(jobs, "_list_by_hydra", lambda *_: pytest.fail("composed"))
    overrides = ("scale=smoke", "runtime.results_root=${oc.env:HOME}/x", "runtime.threads=2", "save_model=true")
    elsewhere = sweep_jobs(SWEEP, overrides)
    assert [job.run_id for job in elsewhere] == [job.run_id for job in plain]
    assert elsewhere[-1].config.runtime.results_root == str(Path.home() / "x")
    assert (elsewhere[-1].config.runtime.threads, elsewhere[-1].config.save_model) == (2, True)
    assert plain[-1].config.runtime.threads is None


def test_a_command_repeats_a_run() -> None:
    job = sweep_jobs(SWEEP, ("scale=smoke",))[1]
    command = job.field("tracking.command").split()
    assert command[:4] == ["python", "-m", "runner", f"sweeps={SWEEP}"]
    assert jobs.Job.of("", {}, resolved(composed(command[4:]))).run_id == job.run_id
    overrides = ["scale=paper", "tracking=disabled", "runtime.threads=2", "+tracking.tags=[a]", "loss.name='a b'"]
    assert command_of(overrides) == "python -m runner 'loss.name='\"'\"'a b'\"'\"''"
