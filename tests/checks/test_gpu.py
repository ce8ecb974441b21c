"""A lent GPU: what a call does, in which order, and that it ends in time."""

import json
import os
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from checks import gpu
from checks.gpu import LIST, listed
from checks.rehearsal import made_up_cuda
from runner.records import provenance
from runner.runs.checkpoints import code_digest
from tests.small import run_here

ONE_RUN = (
    "- {sweep: tempered_sigmoid/fig_3, where: {dataset.name: MNIST, seed: 0, activation._target_: torch.nn.Tanh}}\n"
)


def test_every_entry_of_the_list_has_runs(listed_runs) -> None:
    """And backpropagation clipping on CIFAR-10 is worth most."""
    sizes = {name: len(jobs) for name, jobs in listed(LIST, ("scale=paper",))}
    assert next(iter(sizes.items())) == ("backprop_clipping/table_1 dataset.name=CIFAR10", 70)
    assert [name for name, size in sizes.items() if not size] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--device", "cpu"], "--rehearse makes one up"),
        (["--minutes", "0", "--rehearse"], "expected minutes above 0"),
        (["--jobs", "0", "--rehearse"], "--jobs >= 1"),
    ],
)
def test_a_wrong_request_is_one_sentence(arguments: list[str], sentence: str, refusal, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert sentence in refusal(gpu.main, arguments)


def test_archives_are_below_the_limit(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(gpu, "LIMIT", 10_000)
    root = tmp_path / "elsewhere"
    files = [root / "runs" / f"{number}.json" for number in range(5)]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(3_500))
    archives = gpu.pack(files, root, tmp_path / "out", "gpu-x")
    assert [path.name for path in archives] == [f"gpu-x-{number}.tar.gz" for number in (1, 2, 3)]
    assert all(path.stat().st_size < 10_000 for path in archives)
    for path in archives:
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path, filter="data")
    for file in files:
        assert (tmp_path / "results" / "runs" / file.name).read_bytes() == file.read_bytes()


def test_a_part_under_way_is_stopped_in_time() -> None:
    """With its process, wherever it is."""
    began = time.monotonic()
    with pytest.raises(gpu.OutOfTime), gpu._alarm(0.5):
        gpu.printed([sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"])
    assert time.monotonic() - began < 30


def test_a_record_made_without_git_names_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_REPRO_REVISION", "3d201ebe")
    assert provenance.git_revision() != "3d201ebe", "the checkout's own commit comes first"
    monkeypatch.setattr(provenance, "git", lambda *_: None)
    assert provenance.git_revision() == "3d201ebe"


def test_a_call_goes_on_where_the_last_one_ended(tmp_path: Path, monkeypatch, capsys) -> None:
    """Its runs take their steps as a graph, and a GPU that differs from the CPU gets none."""
    folder, commands = tmp_path / "all" / "benchmark" / "made-up-gpu", list[str]()
    monkeypatch.setattr(gpu, "printed", lambda command: (commands.append(command[3]) or 0, ["0 differ"]))
    monkeypatch.setattr(gpu, "launcher_of", lambda name: SimpleNamespace(carry_out=run_here))
    (tmp_path / "runs.yaml").write_text(ONE_RUN)

    def call() -> tuple[int, str]:
        options = ["--rehearse", "--list", f"{tmp_path}/runs.yaml", "--results", f"{tmp_path}/all"]
        with made_up_cuda():
            chosen = gpu._arguments([*options, "--output", f"{tmp_path}/out-{time.time_ns()}"])
            return gpu._Call(chosen, time.time()).carry_out(), capsys.readouterr().out

    code, printed = call()
    assert (code, commands) == (0, ["parity", "benchmark"])
    assert "1 runs recorded, 0 failed, 0 left" in printed
    with tarfile.open(next(tmp_path.glob("out-*/*.tar.gz"))) as packed:
        names = packed.getnames()
    assert names[:2] == [f"results/benchmark/made-up-gpu/{part}.txt" for part in ("parity", "benchmark")]
    record = json.loads((tmp_path / "all" / names[2].removeprefix("results/")).read_text())
    assert (record["provenance"]["device"], record["provenance"]["step"]) == ("made-up GPU", "graph")
    code, printed = call()
    assert (code, printed.count("there already: "), "0 new files" in printed) == (0, 2, True)
    (folder / "parity.txt").write_text(f"code {code_digest()[:16]}\nDIFFERS  loss=sse\n1 differ\n")
    code, printed = call()
    assert code == 1
    assert "none, as the GPU differs from the CPU" in printed
