"""The runs of a paper as its results list them, so that plans need not compose hundreds of configs, which takes Hydra
20 s.

Aggregation, which composes them anyway, leaves `planned.json` among a paper's results: one line a run, with its ids and
what its time is known by. It says what it was made of, and is not believed once any of that has changed; then, and for
a paper that was never aggregated, runs are composed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

from omegaconf import DictConfig

from runner.config import REPOSITORY, ConfigError
from runner.records.jobs import Job, Named, composed_job
from runner.runs.listed import listed_jobs

FILE = "planned.json"
_PAPER_SCALE = "scale=paper"
# What runs, their ids, kinds and likenesses follow from, and so the lines of the file: beside the sweeps themselves.
_SOURCES = (
    "conf/**/*.yaml", "runner/config/*.py",
    *(f"runner/runs/{name}.py" for name in ("alike", "identity", "jobs", "paces", "recorded_times")),
)  # fmt: skip
_COMMENT = re.compile(r"^\s*(#(?!\s*@package).*)?\n", re.MULTILINE)  # Hydra obeys a comment that says a package


class Planned(Protocol):
    """What plans know of a run: `runner.records.jobs.Job` is one, and `Listed`."""

    @property
    def sweep(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def setting_id(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def likenesses(self) -> Mapping[str, str]: ...
    @property
    def epochs(self) -> int | None: ...
    @property
    def config(self) -> DictConfig: ...


@dataclass(frozen=True)
class Listed(Named):
    """A run by its line in the file. Its attributes are those of `runner.records.jobs.Job`; its config is composed when
    it is asked for.
    """

    kind: str
    likenesses: dict[str, str]
    epochs: int | None
    extra: tuple[str, ...]

    @cached_property
    def config(self) -> DictConfig:
        """Raises ConfigError where the run is another one by now."""
        job = composed_job(self.sweep, self.overrides, self.extra)
        if job.run_id != self.run_id:
            raise ConfigError(
                f"{self.sweep} {self.label} is run {job.run_id}, listed as {self.run_id}: "
                f"python -m runner aggregate {self.sweep.partition('/')[0]} lists the runs anew."
            )
        return job.config


def planned_jobs(paper: str, extra: Sequence[str], sweep: str) -> Sequence[Planned]:
    """The runs of one of a paper's sweeps, as `runner.records.jobs.sweep_jobs` lists them.

    Args:
        extra: overrides of the scale and of what is no part of a run's identity.

    Raises:
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException, ConfigError: as `sweep_jobs` does.
    """
    lines = _believed(paper) if _PAPER_SCALE in extra else {}
    if sweep not in lines:
        return listed_jobs(extra, sweep)
    return [Listed(**line, sweep=sweep, extra=tuple(extra)) for line in lines[sweep]]


def planned_text(sweeps: Mapping[str, Sequence[Job]]) -> str:
    """The file of a paper: its jobs at paper scale by sweep, but for sweeps with classes of the user's own, whose ids
    follow from more than `made_of` sees."""
    sweeps = {name: jobs for name, jobs in sweeps.items() if not any(job.config.sources for job in jobs)}
    listed = [f"  {json.dumps(sweep)}: [\n{_lines(jobs)}\n  ]" for sweep, jobs in sweeps.items()]
    return f'{{\n"made_of": "{made_of(sweeps)}",\n"sweeps": {{\n' + ",\n".join(listed) + "\n}\n}\n"


def _lines(jobs: Sequence[Job]) -> str:
    names = ("overrides", "run_id", "setting_id", "kind", "likenesses", "epochs")
    return ",\n".join(f"    {json.dumps({name: getattr(job, name) for name in names})}" for job in jobs)


@cache
def _believed(paper: str) -> dict[str, list[dict[str, Any]]]:
    """The lines of a paper's file by sweep; none where there is no such file, or it is made of something else."""
    try:
        content = json.loads((REPOSITORY / "results" / paper / FILE).read_text(encoding="utf-8"))
        sweeps: dict[str, list[dict[str, Any]]] = content["sweeps"]
        return sweeps if content["made_of"] == made_of(sweeps) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def made_of(sweeps: Iterable[str]) -> str:
    """A digest of all that the runs of some sweeps follow from, but for comments on lines of their own in YAML.

    Of sweeps and the tables that they read (`runner.config.chosen`), all of the same papers are in it.
    """
    folders = sorted({sweep.partition("/")[0] for sweep in sweeps})
    digest = hashlib.sha256()
    for pattern in (*_SOURCES, *(f"sweeps/{name}/*.{kind}" for name in folders for kind in ("yaml", "csv"))):
        for path in sorted(REPOSITORY.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            text = _COMMENT.sub("", text) if path.suffix == ".yaml" else text
            digest.update(f"{path.relative_to(REPOSITORY).as_posix()} {len(text)} {text}".encode())
    return digest.hexdigest()[:16]
