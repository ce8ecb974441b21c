"""Lists of runs among the results: what composing would list, believed as long as nothing of it has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from runner.cli import reproduce
from runner.config import REPOSITORY, ConfigError
from runner.records.jobs import Job, sweep_jobs
from runner.report.papers import known, load
from runner.runs import planned, timings
from runner.runs.estimate import Estimate
from runner.runs.planned import FILE, Listed, made_of, planned_jobs, planned_text

PAPER_SCALE = ("scale=paper",)
SWEEP = "tempered_sigmoid/text_sgd"
HOUR = Estimate(3600.0, 3600.0, 3600.0, "timed")
ATTRIBUTES = ("sweep", "overrides", "run_id", "setting_id", "label", "kind", "likenesses", "epochs")


@pytest.fixture(autouse=True)
def read_anew() -> Iterator[None]:
    planned._believed.cache_clear()
    yield
    planned._believed.cache_clear()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the list of one sweep, whose code and configs are empty."""
    monkeypatch.setattr(planned, "REPOSITORY", tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "results" / "tempered_sigmoid").mkdir(parents=True)
    write_list(tmp_path)
    return tmp_path


def write_list(root: Path) -> None:
    (root / "results" / "tempered_sigmoid" / FILE).write_text(planned_text({SWEEP: sweep_jobs(SWEEP)}))


def listed() -> bool:
    """Whether the runs come from the list."""
    planned._believed.cache_clear()
    return isinstance(planned_jobs("tempered_sigmoid", PAPER_SCALE, SWEEP)[0], Listed)


@pytest.mark.parametrize("paper", known())
def test_the_lists_of_the_papers_are_of_this_version(paper: str) -> None:
    content = json.loads((REPOSITORY / "results" / paper / FILE).read_text())
    assert content["made_of"] == made_of(content["sweeps"]), f"python -m runner aggregate {paper} lists the runs anew"


def test_a_listed_run_is_the_one_that_is_composed(checkout: Path) -> None:
    extra = (*PAPER_SCALE, "runtime.device=cpu")
    of_list, composed = planned_jobs("tempered_sigmoid", extra, SWEEP), sweep_jobs(SWEEP, extra)
    for one, job in zip(of_list, composed, strict=True):
        assert isinstance(one, Listed)
        assert isinstance(job, Job)
        assert all(getattr(one, name) == getattr(job, name) for name in ATTRIBUTES)
    assert of_list[-1].config == composed[-1].config


def test_a_list_is_not_believed_once_something_of_it_has_changed(checkout: Path) -> None:
    assert listed()
    assert not isinstance(planned_jobs("tempered_sigmoid", ("scale=smoke",), SWEEP)[0], Listed), "another scale"
    (checkout / "conf" / "config.yaml").write_text("seed: 1\n")
    assert not listed()
    write_list(checkout)
    assert listed()
    (checkout / "conf" / "config.yaml").write_text("# why\n\nseed: 1\n")
    assert listed(), "a comment changes no run"
    (checkout / "conf" / "config.yaml").write_text("# @package optimizer\nseed: 1\n")
    assert not listed(), "but for one that Hydra obeys"
    write_list(checkout)
    for paper, believed in (("composition", True), ("tempered_sigmoid", False)):
        (checkout / "sweeps" / paper).mkdir(parents=True)
        (checkout / "sweeps" / paper / "chosen.csv").write_text("optimizer.lr\n#1\n")
        assert listed() is believed


@pytest.mark.parametrize("content", ["", "{", "[]", '{"made_of": 3}', None])
def test_where_there_is_no_whole_list_runs_are_composed(checkout: Path, content: str | None) -> None:
    path = checkout / "results" / "tempered_sigmoid" / FILE
    path.unlink() if content is None else path.write_text(content)
    assert not listed()


def test_a_run_that_became_another_is_refused(checkout: Path) -> None:
    path = checkout / "results" / "tempered_sigmoid" / FILE
    path.write_text(path.read_text().replace(sweep_jobs(SWEEP)[0].run_id, "0" * 12))
    with pytest.raises(ConfigError, match=r"python -m runner\.aggregate tempered_sigmoid"):
        _ = planned_jobs("tempered_sigmoid", PAPER_SCALE, SWEEP)[0].config


def test_a_plan_composes_one_run_and_what_is_to_be_timed(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    composed: list[str] = []
    compose = planned.composed_job

    def counted(sweep: str, overrides: dict[str, str], extra: tuple[str, ...]) -> Job:
        composed.append(sweep)
        return compose(sweep, overrides, extra)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(planned, "listed_jobs", lambda *_: pytest.fail("all were composed"))
    monkeypatch.setattr(planned, "composed_job", counted)
    monkeypatch.setattr(reproduce, "estimated", lambda left, *_: dict.fromkeys([run.run_id for run in left], HOUR))
    arguments = ["tempered-sigmoid", "--items", "text", "--plan", f"runtime.results_root={tmp_path / 'mine'}"]
    assert reproduce.main(arguments) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("text "))
    assert row.split()[1:4] == ["10", "0", "10"]
    assert composed == [SWEEP]


def test_timings_are_kept_of_a_whole_papers_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce, "estimated", lambda left, *_: dict.fromkeys([run.run_id for run in left], HOUR))
    mine = f"runtime.results_root={tmp_path}"
    assert reproduce.main(["lipschitz", "--plan", mine]) == 0
    assert not list(tmp_path.iterdir()), "kept where nobody asked for it"
    assert reproduce.main(["lipschitz", "--plan", "--keep-timings", mine]) == 0
    kept = timings.read([tmp_path])
    runs = [run for item in load("lipschitz").items for sweep in item.sweeps for run in sweep_jobs(sweep)]
    assert set(kept) == {run.kind for run in runs}
    capsys.readouterr()
    monkeypatch.setattr(reproduce, "estimated", lambda *_: pytest.fail("estimated"))
    for wrong in (["--plan", "--items", "fig-5a"], [], ["--plan", "--status"], ["--plan", "--threads", "2"]):
        assert reproduce.main(["lipschitz", "--keep-timings", *wrong, mine]) == 2
        assert capsys.readouterr().err.count("without --") == 1
    torch.set_num_threads(1)


def test_timings_that_cannot_be_written_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce, "estimated", lambda left, *_: dict.fromkeys([run.run_id for run in left], HOUR))
    (tmp_path / "lipschitz").write_text("in the way")
    assert reproduce.main(["lipschitz", "--plan", "--keep-timings", f"runtime.results_root={tmp_path}"]) == 2
    assert "cannot be written" in capsys.readouterr().err
