"""Ended runs on a terminal: final metrics, and the fields in which they differ."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from runner.cli.show import main
from runner.config import REPOSITORY
from runner.records.files import digest_of, read_record
from runner.report.listing import own_records, privacy_text, records_table, result_text
from tests.forked import run_in_fork


def test_a_result_is_of_the_last_epoch_and_of_both_epsilons(fabricate, jobs) -> None:
    """98.91 belongs to the best epoch, and not to the last; every epsilon is rounded up."""
    record = read_record(fabricate(jobs("fig_3", "mnist_tanh")[0], [98.91, 97.85], epsilon=2.9284, sound=2.31411))
    assert result_text(record) == "finished: accuracy 97.85% after epoch 2 · ε 2.929 as the paper counts, sound 2.315"


def test_a_screened_run_guarantees_its_most_possible_releases() -> None:
    final = {"epsilon": 3.0, "epsilon_sound": 9.3151, "epsilon_spent": 5.0, "max_tries": 9}
    assert privacy_text(final) == "ε 3 as the paper counts, sound 9.316"
    assert privacy_text({"epsilon": "inf", "epsilon_sound": "inf"}) == "not private"


def test_a_run_ends_with_its_result_and_a_multirun_with_a_table(tmp_path: Path) -> None:
    options = ["scale=smoke", "scale.epochs=1", "tracking=disabled", f"runtime.results_root={tmp_path}"]
    (code, _, first), (_, _, again) = (run_in_fork(options, tmp_path) for _ in range(2))
    assert code == 0, first
    (path,) = tmp_path.glob("smoke/runs/*.json")
    text = result_text(read_record(path))
    assert first.splitlines()[-2] == text
    assert f"python -m runner explain {path.stem} --results {path.parent.parent}" in first.splitlines()[-1]
    assert text in again
    assert "already recorded; to run it again" in again
    several = ["-m", *options, f"hydra.sweep.dir={tmp_path}/hydra", "seed=range(0,3)"]
    code, shown, _ = run_in_fork(several, tmp_path)
    assert code == 0
    header, *rows = shown.splitlines()[-4:]
    assert header.split() == ["run", "scale", "epochs", "accuracy", "ε", "sound", "ε", "seed"]
    assert [row.split()[-1] for row in rows] == ["0", "1", "2"], "what is typed is not limited by the scale"


def test_records_that_cannot_be_read_are_named_and_hide_no_other(tmp_path: Path, fabricate, jobs, capsys) -> None:
    """Committed records belong to no user."""
    listed = subprocess.run(["git", "ls-files", "results/runs"], cwd=REPOSITORY, capture_output=True, text=True)
    ids = {record["run_id"] for record in own_records(REPOSITORY / "results")[0]}
    assert not listed.stdout or not ids & {Path(line).stem for line in listed.stdout.splitlines()}
    path = fabricate(jobs("fig_3", "mnist_tanh")[0], [97.0])
    path.with_stem("0" * 12).write_text("{")
    newer = json.loads(path.read_text()) | {"schema": 2}
    path.with_stem("1" * 12).write_text(json.dumps(newer | {"digest": digest_of(newer)}))
    assert main(["--results", str(tmp_path)]) == 1
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
