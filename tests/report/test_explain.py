"""A run in words: its result, its ledger, its cost, and a command that repeats it; runs in a table."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from runner.cli.commands import carry_out
from runner.cli.show import main as show
from runner.config import REPOSITORY, RESULTS
from runner.mechanism.normal import delta_of_end
from runner.records.disk import digest_of, read_record
from runner.records.identity import resolved
from runner.records.jobs import Job, composed
from runner.records.verify import run_of
from runner.report import explain, items
from runner.report.formats import read_csv, write_text
from runner.report.listing import own_records, privacy_text, records_table, result_text
from runner.study.page import runs_of_studies
from tests.forked import run_in_fork
from tests.tracked import tracked_options

RUNS = REPOSITORY / "results" / "runs"


def test_a_record_has_its_command_or_that_of_its_sweep_if_older() -> None:
    record = read_record(RUNS / "180425e2e241.json")
    places = list(explain.places_of(REPOSITORY / "results", record["run_id"], "paper"))
    (line,) = explain.command_text(record, places)
    *command, folder = line.split()
    assert folder == "runtime.results_root=again"
    assert command[:3] == ["python", "-m", "runner"]
    assert command[3].startswith("sweeps=tempered_sigmoid/")
    assert Job.of("", {}, resolved(composed(command[3:]))).run_id == record["run_id"]
    record["provenance"]["command"] = "python -m runner seed=7"
    assert explain.command_text(record, places) == ["python -m runner seed=7 runtime.results_root=again"]


def test_an_activation_absent_from_the_network_is_called_unused() -> None:
    record = read_record(RUNS / "180425e2e241.json")
    assert any(
        re.fullmatch(r"activation: \w+\(.*\)", line) for line in explain.trained_text(record, run_of(record["config"]))
    )
    config = {**record["config"], "architecture": {"_target_": "runner.networks.architectures.linear"}}
    (line,) = [
        line for line in explain.trained_text({**record, "config": config}, run_of(config)) if "activation" in line
    ]
    assert line.endswith(" is not used by linear")


def test_a_screened_run_lists_charged_actual_and_most_releases() -> None:
    """The most are its 921 epochs of 234 steps, below 11 tries for each kept update."""
    record = json.loads((RUNS / "e2a9456397d8.json").read_text())
    lines = explain.released_text(record, run_of(record["config"]))
    charged, released, most = [line for line in lines if " steps, Poisson" in line]
    assert lines[-1].endswith("; δ = 1e-5, δ·N = 0.6 for N = 60,000 training examples")
    assert charged.startswith(f"as the paper counts: {record['final']['accepted']:,} steps")
    assert released.startswith(f"released: {record['final']['tries']:,} steps")
    assert most.startswith(f"could have been: {min(921 * 234, 11 * 19_582):,} steps")


def test_what_the_noise_of_a_record_leaves_out() -> None:
    """Float32 noise of a CPU and of a GPU, and float64 noise (tests/records/test_noise.py has the numbers)."""
    record = read_record(RUNS / "180425e2e241.json")
    run = run_of(record["config"])
    prefix = "noise: drawn in float32, so ε is not that of the noise it had"
    assert explain.noise_text(record, run) == [f"{prefix}: for some example δ is at least 0.8376 at any ε"]
    record["provenance"]["device"] = "NVIDIA H200"
    (line,) = explain.noise_text(record, run)
    assert line == f"{prefix}; a lower bound on δ is not computed for the float32 noise of a GPU"
    record["provenance"]["noise"] = "float64"
    end, digits = explain.noise_text(record, run)
    growth = float(end.removeprefix("noise: drawn in float64; the growth of δ because it ends is at most "))
    assert digits == "no δ covers the last digits of the noisy sums, which are rounded (docs/privacy.md)"
    assert 1 <= growth / delta_of_end(13_005, 1.1, 13_338) < 1.001, "it is not rounded down"
    record["provenance"]["noise"] = "float64, rounded once"
    costs, _ = explain.noise_text(record, run)
    assert costs.startswith("noise: float64, rounded once, after it is added, so ε grows by at most 0.001779, and δ ")


def test_a_run_that_diverged_could_have_released_all_its_steps() -> None:
    record = json.loads((RUNS / "180425e2e241.json").read_text())
    steps = record["final"]["steps"]
    record["status"] = "diverged"
    record["final"] |= {"steps": 2, "epsilon_sound": 2.3142, "epsilon_spent": 0.3, "max_tries": steps}
    run = run_of(record["config"])
    released, most = [line for line in explain.released_text(record, run) if " steps, Poisson" in line][1:]
    assert released.startswith("released: 2 steps")
    assert most.startswith(f"could have been: {steps:,} steps")
    rows = {line.split()[0]: line.split()[1:5] for line in explain.cost_text(record, run).splitlines()[1:]}
    assert rows["as"] == ["recorded", "2.929", "0.3", "2.315"]
    assert rows["pld"][2] == "2.315"


def test_costs_by_every_accountant() -> None:
    """The classic accountant gives the recorded ε, the tight one the sound ε, both rounded up.

    The record is older: it holds 2.3140 for 2.31404, the nearest number, so a sentence says why 2.314 became 2.315.
    """
    record = json.loads((RUNS / "180425e2e241.json").read_text())
    *lines, older = explain.cost_text(record, run := run_of(record["config"])).splitlines()[1:]
    rows = {line.split()[0]: line.split()[1:4] for line in lines}
    assert set(rows) >= {"as", *tracked_options("accountant")}
    assert rows.pop("as") == ["recorded", "2.929", "2.314"]
    rows = {name: cells[:2] for name, cells in rows.items()}
    assert older.startswith("Its record is older")
    record["final"]["epsilon_sound"] = 2.3141
    assert "older" not in explain.cost_text(record, run)
    assert rows["rdp_classic"] == ["2.929", "2.929"]
    assert rows["pld"] == ["2.315", "2.315"]


def test_a_run_is_explained_by_its_exact_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 0.35755157..., and five digits of it, as in the record, have another ε by two of the accountants."""
    record = read_record(RUNS / "434690944b66.json")
    monkeypatch.setattr(explain, "places_of", lambda *_: [])
    text = explain.run_text(RUNS / "434690944b66.json", REPOSITORY / "results")
    rows = {line.split()[0]: line.split()[1:3] for line in text.splitlines() if line.strip()}
    assert (rows["gdp"], rows["zcdp"]) == (["3", "4.124e+11"], ["5035", "19310"])
    assert record["final"]["noise_multiplier"] == 0.35755


def test_a_study_is_explained_by_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert carry_out("explain", ["studies/corners"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# Does the papers' progress add up on CIFAR-10?\n\n**One run of each arm cannot tell.** ")
    assert "\n- **CIFAR-10, ε = 3**: " in text
    assert re.search(r"\nCIFAR-10 +3 +all four +\d\d\.", text)
    assert text.endswith("\nMade by: python -m runner study studies/corners.yaml\n")


@pytest.mark.parametrize("role", ["trial", "final"])
def test_a_run_names_the_arms_of_studies_that_it_belongs_to(role: str) -> None:
    """Those of its page's table, although studies are read at its ε alone."""
    rows = read_csv(RESULTS / "studies" / "simple" / "runs.csv")
    row = next(row for row in rows if (row["epsilon"], row["role"]) == ("0.5", role))
    assert runs_of_studies(RESULTS, RUNS / f"{row['run_id']}.json") == [{"study": "simple", **row}]


def test_a_study_of_shrunk_runs_has_no_result_but_a_page(tmp_path: Path) -> None:
    write_text(page := tmp_path / "smoke" / "studies" / "mine" / "README.md", "# Mine\n")
    with pytest.raises(ValueError, match=f"the scale smoke alone, which is no result: see {re.escape(str(page))}"):
        items.study_text(tmp_path, "mine")


def test_a_result_is_of_the_last_epoch_and_of_both_epsilons(fabricate, jobs) -> None:
    """98.91 belongs to the best epoch, and not to the last; every epsilon is rounded up."""
    record = read_record(fabricate(jobs("fig_3", "mnist_tanh")[0], [98.91, 97.85], epsilon=2.9284, sound=2.31411))
    assert result_text(record) == "finished: accuracy 97.85% after epoch 2 · ε 2.929 as the paper counts, sound 2.315"


@pytest.mark.parametrize(
    ("final", "text"),
    [
        ({"epsilon": 3.0, "epsilon_sound": 9.3151, "max_tries": 9}, "ε 3 as the paper counts, sound 9.316"),
        ({"epsilon": 3.0, "epsilon_sound": None, "max_tries": 9}, "ε 3 as stated by its class, sound none"),
        ({"epsilon": "inf", "epsilon_sound": None}, "ε ∞ as stated by its class, sound none"),
        ({"epsilon": "inf", "epsilon_sound": "inf"}, "not private"),
    ],
)
def test_what_a_run_guarantees_is_that_of_all_it_may_release(final: dict[str, object], text: str) -> None:
    assert privacy_text(final) == text


def test_a_run_ends_with_its_result_and_a_multirun_with_a_table(tmp_path: Path) -> None:
    options = ["scale=smoke", "scale.epochs=1", "scale.batch_size=240", "tracking=disabled"]
    options.append(f"runtime.results_root={tmp_path}")
    (code, _, first), (_, _, again) = (run_in_fork(options, tmp_path) for _ in range(2))
    assert code == 0, first
    (path,) = tmp_path.glob("smoke/runs/*.json")
    text = result_text(read_record(path))
    assert first.splitlines()[-2] == text
    assert f"python -m runner explain {path.stem} --results {path.parent.parent}" in first.splitlines()[-1]
    assert text in again
    assert "already recorded; to run it again" in again
    several = ["-m", *options, f"hydra.sweep.dir={tmp_path}/hydra", "seed=range(1,3)"]
    code, shown, _ = run_in_fork(several, tmp_path)
    assert code == 0
    header, *rows = shown.splitlines()[-3:]
    assert header.split() == ["run", "scale", "epochs", "accuracy", "ε", "sound", "ε", "seed"]
    assert [row.split()[-1] for row in rows] == ["1", "2"], "what is typed is not limited by the scale"


def test_records_that_cannot_be_read_are_named_and_hide_no_other(tmp_path: Path, fabricate, jobs, capsys) -> None:
    """Committed records belong to no user."""
    listed = subprocess.run(["git", "ls-files", "results/runs"], cwd=REPOSITORY, capture_output=True, text=True)
    ids = {record["run_id"] for record in own_records(REPOSITORY / "results")[0]}
    assert not listed.stdout or not ids & {Path(line).stem for line in listed.stdout.splitlines()}
    path = fabricate(jobs("fig_3", "mnist_tanh")[0], [97.0])
    path.with_stem("0" * 12).write_text("{")
    newer = json.loads(path.read_text()) | {"schema": 2}
    path.with_stem("1" * 12).write_text(json.dumps(newer | {"digest": digest_of(newer)}))
    assert show(["--results", str(tmp_path)]) == 1
    text = capsys.readouterr()
    assert f"{'0' * 12}.json is not a whole record" in text.err
    assert f"{'1' * 12}.json was written by a newer version" in text.err
    assert f"{path.stem}  1     paper  1       97.00%" in text.out


def test_accuracies_on_held_out_images_are_marked(fabricate, jobs) -> None:
    both = [jobs(sweep, "mnist_tanh")[0] for sweep in ("fig_3", "table_3_search")]
    tested, trial = (read_record(fabricate(job, [97.0])) for job in both)
    table = records_table([[tested], [trial | {"status": "diverged"}]])
    assert [row[3] for row in table.rows] == ["97.00%", "97.00% † ‡"]
    assert table.notes == ["† diverged", "‡ on held-out training images"]
    assert "accuracy 97.00% on held-out training images after epoch 1" in result_text(trial)


def test_details_are_columns_only_if_no_other_field_differs(fabricate, jobs) -> None:
    records = [read_record(fabricate(jobs("fig_3", f"{name}_relu")[0], [90.0])) for name in ("mnist", "cifar10")]
    alike = json.loads(json.dumps(records[0]))
    alike["config"]["diagnostics"] = ["gradient_norms"]
    assert records_table([[records[0]], [alike]]).header[-1] == "diagnostics"
    header = records_table([[alike], [records[1]]]).header
    assert "dataset.name" in header
    assert not {"diagnostics", "dataset.shape", "features.mean"} & set(header)
