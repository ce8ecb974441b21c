"""All that a GPU is wanted for, in the minutes for which it is lent: `python -m checks gpu --minutes 9`.

Parity comes first, then a benchmark with batches as long as in training, and then the runs of a list. What is there
already for this code and GPU is skipped, so one call goes on where the last one ended. Each call ends in time, with a
table. It packs the new files into the folder `--output`, as archives to unpack in the checkout (`tar -xzf`).
`--rehearse` does all of this in small on a made-up GPU.
"""

import argparse
import multiprocessing
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import forkserver
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch

from checks.benchmarks.report import gpu_folder
from checks.rehearsal import made_up_cuda, parsed
from runner.cli.reproduce import check_data, ordered
from runner.config import PAPER, REPOSITORY, RESULTS, ConfigError
from runner.config.yaml_file import read_yaml
from runner.launch import Work, launcher_of, run_jobs
from runner.records.disk import is_recorded, record_path, results_folder
from runner.records.jobs import Job, sweep_jobs
from runner.records.provenance import device_name
from runner.runs import durations
from runner.runs.checkpoints import code_digest
from runner.terminal import Line, Parser, duration

LIST = Path(__file__).with_suffix(".yaml")
PARTS = ("parity", "benchmark", "runs")
_RESERVE = 10.0  # seconds at the end, to end processes and to pack
LIMIT = 15 << 20  # bytes of an archive's files before compression
_HEADER = 1024  # bytes of a file's header and padding
_METHODS = ("non_private", "one_pass", "one_pass_graph", "one_pass_compiled")


class OutOfTime(Exception):  # noqa: N818
    """The minutes are over."""


def main(arguments: Sequence[str]) -> int:
    """Use the GPU for some minutes, and return the exit code."""
    began, chosen = time.time(), _arguments(arguments)
    with ExitStack() as stack:
        if chosen.rehearse:
            chosen.results = chosen.results or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            # The processes of runs have a made-up device, too: the server they are forked from enters it.
            multiprocessing.set_forkserver_preload(["checks.rehearsal.process", "runner.runs.execute"])
            forkserver.ensure_running()
            stack.enter_context(made_up_cuda())
        else:
            chosen.results = chosen.results or RESULTS
        return _Call(chosen, began).carry_out()


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    output = os.environ.get("OUT")
    parser = Parser(prog="python -m checks gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=9.0, help="the call ends before they are over (default: 9)")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these parts, done again if they are there")
    parser.add_argument("--list", type=Path, default=LIST, help="the runs (default: checks/gpu.yaml)")
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time (default: 4)")
    parser.add_argument("--results", type=Path, help="the folder of all results (default: results)")
    parser.add_argument("--output", type=Path, default=Path(output) if output else None, help="default: $OUT, or none")
    chosen = parsed(parser, arguments)
    if not 0 < chosen.minutes < 24 * 60:
        parser.error(f"--minutes {chosen.minutes:g}: expected minutes above 0, and less than a day.")
    if chosen.jobs < 1:
        parser.error(f"Expected --jobs >= 1, got {chosen.jobs}.")
    return chosen


def listed(path: Path, overrides: Sequence[str]) -> Iterator[tuple[str, list[Job]]]:
    """Yield the entries of a list, each in words, with its runs under further overrides.

    Raises:
        ConfigError: it is no list of entries.
    """
    for entry in read_yaml(path).plain or ():
        if not isinstance(entry, dict) or not {"sweep"} <= entry.keys() <= {"sweep", "where"}:
            raise ConfigError(f"{path} has to be a list of entries {{sweep: NAME, where: {{field: value}}}}.")
        where = entry.get("where", {})
        jobs = sweep_jobs(entry["sweep"], overrides)
        words = " ".join([entry["sweep"], *(f"{name}={value}" for name, value in where.items())])
        yield words, [job for job in jobs if all(str(job.field(name)) == value for name, value in where.items())]


class _Call:
    """One call: its options, the rows of its table, and the files that it made."""

    def __init__(self, chosen: argparse.Namespace, began: float) -> None:
        self._chosen, self._end = chosen, began + 60 * chosen.minutes
        self._device = device_name(torch.device(chosen.device))
        self._code = code_digest()[:16]
        self._folder = chosen.results / "benchmark" / gpu_folder(chosen.device)
        self._name = time.strftime("gpu-%Y%m%d-%H%M%S", time.gmtime(began))
        self._rows: list[tuple[str, str, float]] = []
        self._files: dict[Path, None] = {}
        self._wrong = self._differs = False

    def carry_out(self) -> int:
        """Carry out all parts that are asked for, as far as the time goes, and return the exit code.

        Raises:
            ConfigError: the list cannot be read.
            DataError: the images of its runs are not there.
        """
        try:
            with _alarm(self._end - _RESERVE - time.time()):
                for part in PARTS:
                    if self._chosen.only is None or part in self._chosen.only:
                        self._carry_out_runs() if part == "runs" else self._measure(part)
        except OutOfTime:
            self._rows.append(("out of time", "what was under way is stopped, and goes on in the next call", 0.0))
        finally:
            if self._chosen.output is not None:
                pack(self._files, self._chosen.results, self._chosen.output, self._name)
            print(self._table(), flush=True)
        return int(self._wrong)

    def _measure(self, part: str) -> None:
        """Carry out another check in a process of its own, and keep what it prints, unless it is there already."""
        path, began = self._folder / f"{part}.txt", time.time()
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if self._chosen.only is None and lines and lines[0].endswith(self._code):
            self._differs |= any(line.startswith("DIFFERS") for line in lines)
            self._rows.append((part, f"there already: {_result(path, lines)}", 0.0))
            return
        small, options = self._chosen.rehearse, ["--device", self._chosen.device]
        if part == "benchmark":
            options += ["--networks", "M", *([] if small else ["C"]), "--seconds", "10", "--output", str(self._folder)]
            options += ["--methods", *(_METHODS[::2] if small else _METHODS), *(["--quick"] if small else [])]
        elif small:
            options += ["--only", "constraint"]
        code, lines = printed([sys.executable, "-m", "checks", part, *options, *(["--rehearse"] if small else [])])
        self._wrong |= code != 0
        self._differs |= part == "parity" and code != 0
        if code not in (0, 1) or not lines:
            self._rows.append((part, f"ended with exit code {code}", time.time() - began))
            return
        self._rows.append((part, _result(path, lines), time.time() - began))
        first = f"{self._device}, PyTorch {torch.__version__}, {time.strftime('%Y-%m-%d')}, code {self._code}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([first, *lines]) + "\n", encoding="utf-8")
        tables = (self._folder / "engines.csv", self._folder / "engines.svg", self._folder.parent / "README.md")
        self._add(path, *(tables if part == "benchmark" else ()))

    def _carry_out_runs(self) -> None:
        """Carry out the runs that are left, entry by entry. None is started that is known to end too late."""
        if self._differs:
            self._wrong = True
            why = "none, as the GPU differs from the CPU (--only runs does them all the same)"
            self._rows.append(("runs", why, 0.0))
            return
        scale = "smoke" if self._chosen.rehearse else PAPER
        overrides = [f"scale={scale}", f"runtime.device={self._chosen.device}", "tracking=disabled"]
        overrides.append(f"runtime.results_root={self._chosen.results}")
        deadline, jobs = self._end - _RESERVE, self._chosen.jobs
        for name, planned in listed(self._chosen.list, overrides):
            left = [job for job in planned if not is_recorded(results_folder(job.values), job.run_id)]
            if not left:
                continue
            check_data(left)
            began, failed = time.time(), 0
            estimates = durations.estimated(left, durations.recorded(left[0].config))
            try:
                work = Work(ordered({name: left}, left, estimates), jobs, 1, estimates, deadline)
                failed = len(run_jobs(launcher_of("local"), work, Line()).failed)
            finally:
                paths = [record_path(results_folder(job.values), job.run_id) for job in left]
                done = [path for path in paths if path.exists()]
                self._add(*done)
                self._wrong |= failed > 0
                text = f"{len(done)} runs recorded, {failed} failed, {len(left) - len(done) - failed} left"
                self._rows.append((name, text, time.time() - began))

    def _add(self, *paths: Path) -> None:
        self._files |= dict.fromkeys(path for path in paths if path.exists())

    def _table(self) -> str:
        width = max([len(what) for what, _, _ in self._rows], default=0)
        rows = [f"{what:<{width}}  {duration(seconds):>7}  {result}" for what, result, seconds in self._rows]
        packed = "nothing is packed" if self._chosen.output is None else f"packed in {self._chosen.output}"
        last = f"{len(self._files)} new files, {packed}. {duration(max(0.0, self._end - time.time()))} are left."
        return "\n".join(["", *rows, last])


def pack(files: Iterable[Path], root: Path, output: Path, name: str) -> list[Path]:
    """Write files below `root`, the folder of all results, to `output`/NAME-1.tar.gz and so on, under results/."""
    output.mkdir(parents=True, exist_ok=True)
    archives: dict[Path, list[Path]] = {}
    filled = LIMIT
    for file in files:
        size = file.stat().st_size + _HEADER
        if filled + size > LIMIT:
            filled, group = 0, archives.setdefault(output / f"{name}-{len(archives) + 1}.tar.gz", [])
        group.append(file)
        filled += size
    for path, group in archives.items():
        with tarfile.open(path, "w:gz") as archive:
            for file in group:
                archive.add(file, Path("results") / file.relative_to(root))
    return list(archives)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise OutOfTime when these seconds are over, wherever this process is then."""

    def ring(number: int, frame: FrameType | None) -> NoReturn:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def printed(command: list[str]) -> tuple[int, list[str]]:
    """Return the exit code of a command and the lines that it prints, which are passed on."""
    lines = list[str]()
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip("\n"))
        except BaseException:  # the minutes are over, or an interrupt
            process.kill()
            raise
    return process.returncode, lines


def _result(path: Path, lines: list[str]) -> str:
    return lines[-1] if path.stem == "parity" else f"{sum('[' in line for line in lines[1:])} times in {path}"
