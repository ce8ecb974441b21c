"""A recorded run in words: its training, its releases, their cost by each accountant, and its claims."""

from __future__ import annotations

import difflib
import json
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from runner.accounting import Pld, Releases
from runner.accounting.ledger import sampled_gaussians
from runner.claims.judgement import ClaimRow
from runner.config import REPOSITORY, options_of
from runner.config.checkout import scan
from runner.mechanism.normal import DRAWN, PRECISION
from runner.records.files import read_record, upper_bound
from runner.records.jobs import sweep_jobs
from runner.records.store import Record, record_files, record_of
from runner.records.verify import cost_of_noise, noise_precision, run_of
from runner.report import own
from runner.report.cells import cells_of
from runner.report.claim_rows import rows_of
from runner.report.files import Table, aligned, delta_text, elsewhere, enumerated
from runner.report.papers import Item, Paper, every_paper, known, load
from runner.terminal import bound_text, command, nearest, number
from runner.training.run import Run

_NAMED = (
    "dataset", "features", "augmentation", "normalization", "architecture", "activation", "loss", "optimizer",
    "schedule", "averaging",
)  # fmt: skip
_LISTED = 6  # kinds of releases; of more, kinds with the same sampling become one, with the range of their noise
_OLDER = "Its record is older: it holds the nearest number of five digits, which can be below the ε computed again."
_PRIVATE = ("clipping", "mechanism", "screening", "constraint")


@dataclass(frozen=True)
class Place:
    """The position of a run in a paper."""

    paper: Paper
    item: Item
    sweep: str
    experiment: str


def found(results: Path, beginning: str) -> Path:
    """Find the record whose id, or else whose setting's id, has this beginning.

    Raises:
        ValueError: there is none, or more than one.
    """
    every, setting = record_files(results), f'"setting_id": "{beginning}'.encode()
    paths = [path for path in every if path.stem.startswith(beginning)]
    paths = paths or [path for path in every if setting in path.read_bytes()]
    if not paths:
        raise ValueError(f"No record in {results} begins with {beginning}.")
    if len(paths) > 1:
        some = ", ".join(path.stem for path in paths[:3])
        raise ValueError(f"{len(paths)} records begin with {beginning}, or their setting does: choose from {some} ...")
    return paths[0]


def named(what: str) -> tuple[Paper, Item]:
    """Find a paper and its item by their names, "tempered_sigmoid/fig-3".

    Raises:
        ValueError: there is no such item; the message lists the nearest ones, or all.
    """
    name, _, item = what.partition("/")
    name = name.replace("-", "_")
    if name in known():
        paper = load(name)
        items, item = {each.name: each for each in paper.items}, item.lower().replace("_", "-")
        if item in items:
            return paper, items[item]
        near = [f"{name}/{each}" for each in difflib.get_close_matches(item, items) or items]
        raise ValueError(
            f"{name} has {f'no item {item!r}' if item else 'several items'}. Did you mean {enumerated(near, 'or')}?"
        )
    near = [f"{each.name}/{what}" for each in every_paper() if what in {one.name for one in each.items}]
    if near:
        raise ValueError(f"{what} of which paper? Did you mean {enumerated(near, 'or')}?")
    hint = nearest(name, [f"{paper}/ITEM" for paper in known()])
    raise ValueError(f"{what} is not the beginning of a run's id, PAPER/ITEM or studies/NAME. {hint}")


def run_text(path: Path, results: Path, in_studies: Sequence[Mapping[str, str]] = ()) -> str:
    """Explain a recorded run, for a terminal (see `run_sections`)."""
    sections = run_sections(path, results, in_studies)
    return "\n\n".join("\n".join([name, textwrap.indent("\n".join(lines), "  ")]) for name, lines in sections.items())


def run_sections(path: Path, results: Path, in_studies: Sequence[Mapping[str, str]] = ()) -> dict[str, list[str]]:
    """Explain a recorded run: the lines of each section, by its heading.

    `in_studies`: its rows among the runs of studies, with the name of the `study`.

    Raises:
        ValueError: the record is damaged, or the present code cannot prepare it.
    """
    record = read_record(path)
    places = list(places_of(results, path.stem, record["config"]["scale"]["name"]))
    run = run_of(record["config"])
    return {
        f"run {record['run_id']}, setting {record['setting_id']}": [own.result_text(record), *_best(record)],
        "It trained": trained_text(record, run),
        "It released": released_text(record, run),
        "Which costs": [cost_text(record, run)],
        "Used by": served_text(results, places, in_studies),
        "Command": command_text(record, places, in_studies),
    }


def _best(record: Record) -> list[str]:
    final, provenance = record["final"], record["provenance"]
    best = number(float(final["best_test_accuracy"]), "%")
    lines = [f"best epoch: {best}% after {final['best_epoch']}, chosen on the data that it is measured on"]
    if "wall_seconds" in provenance:
        lines.append(
            f"{provenance['wall_seconds'] / 60:.1f} minutes on {provenance.get('device')}, "
            f"code of {provenance.get('git_revision')}"
        )
    return lines


def trained_text(record: Record, run: Run) -> list[str]:
    """Describe the training: data, network, loss, optimizer and length."""
    config, final = record["config"], record["final"]
    of = "the test images" if config["evaluation"] == "test" else "training images held out"
    named = {name: class_text(config[name]) for name in _NAMED if config.get(name)}
    if not any(isinstance(module, run.activation_type) for module in run.initial.network.modules()):
        network = config["architecture"]["_target_"].rpartition(".")[2]
        named["activation"] = f"{named['activation']} is not used by {network}"
    return [
        *(f"{name}: {text}" for name, text in named.items()),
        f"{final['parameters']:,} parameters, seed {config['seed']}, {config['scale']['name']} scale, measured on {of}",
        f"{final['epoch']} epochs of {run.mechanism.steps_per_epoch} steps, {final['steps']:,} in all; "
        f"{config['sampling']} batches of {config['batch_size']} of {run.mechanism.examples:,} examples",
    ]


def class_text(group: Mapping[str, Any]) -> str:
    """Format a class by its bare name, with its arguments."""
    arguments = ", ".join(f"{name}={value}" for name, value in group.items() if not name.startswith("_"))
    return f"{group['_target_'].rpartition('.')[2]}({arguments})"


def ledgers(record: Record, run: Run) -> dict[str, Releases]:
    """Return ledgers by name: the releases, the paper's charges, and the most that the run could have released.

    The last exists only if the run decided how much it released: it screened to a budget, diverged or was ended early.
    If a class draws the noise or charges itself, the only ledger is the one that it states.
    """
    final = record["final"]
    claimed = run.mechanism.charges(int(final["accepted"] if run.rule.takes_back else final["steps"])).claimed
    if own.stated(final):
        return {own.STATED: claimed}
    found = {"as the paper counts": claimed, "released": run.mechanism.charges(int(final["steps"])).actual}
    most = run.mechanism.charges(run.most_steps).actual
    return found | ({"could have been": most} if "max_tries" in final else {})


def released_text(record: Record, run: Run) -> list[str]:
    """Describe the ledgers: each kind of release once, with its sampling and its number."""
    config = record["config"]
    lines = [f"{name}: {class_text(config[name])}" for name in _PRIVATE if config.get(name)]
    for what, releases in ledgers(record, run).items():
        lines += [f"{what}: {line}" for line in release_texts(releases, run.config.delta)]
    if run.unsound:
        lines.append(f"no sound ε is known: {run.unsound}")
    lines += [f"ε rests on {believed}" for believed in run.rests_on]
    lines += noise_text(record, run)
    return [*lines, f"neighbours: {run.mechanism.neighbouring_relation}; {_delta_text(run)}"]


def _delta_text(run: Run) -> str:
    """State delta, and delta N for the N examples that the run trained on, which is below 1 if it is private."""
    delta, examples = run.config.delta, run.mechanism.examples
    return f"{delta_text(delta)}, δ·N = {bound_text(delta * examples)} for N = {examples:,} training examples"


def noise_text(record: Record, run: Run) -> list[str]:
    """Say how the noise was drawn, and what it costs that it is not exact."""
    precision = noise_precision(record)
    if precision is None:
        return []
    cost = cost_of_noise(record, run)
    if precision == PRECISION:
        if not isinstance(cost, tuple):
            return [f"noise: {precision}, after it is added; what this costs is not computed {cost}"]
        epsilon, delta = map(bound_text, cost)
        return [
            f"noise: {precision}, after it is added, so ε grows by at most {epsilon}, and δ by at most {delta}",
            "no ε covers that sums and norms are rounded (docs/privacy.md)",
        ]
    assert not isinstance(cost, tuple)
    if precision == DRAWN:
        growth = f"is not computed {cost}" if isinstance(cost, str) else f"is at most {bound_text(cost)}"
        return [
            f"noise: drawn in {precision}; the growth of δ because it ends {growth}",
            "no δ covers the last digits of the noisy sums, which are rounded (docs/privacy.md)",
        ]
    drawn = f"noise: drawn in {precision}, so ε is not that of the noise it had"
    if isinstance(cost, str):
        return [f"{drawn}; a lower bound on δ is not computed {cost}"]
    return [f"{drawn}: for some example δ is at least {number(cost, bound='lower')} at any ε"]


def release_texts(releases: Releases, delta: float) -> list[str]:
    """Describe every kind of release by a sentence.

    >>> from dp_accounting import GaussianDpEvent
    >>> release_texts(((GaussianDpEvent(2.0), 3),), 1e-5)
    ['3 sums over all examples, or parts of them that share none, noise multiplier 2']
    """
    try:
        mechanisms = sampled_gaussians(releases, delta)
    except ValueError:  # of a mechanism that charges itself
        return [f"{times:,} times {event}" for event, times in releases]
    if mechanisms is None:
        return ["sums without noise: no privacy"]
    if len(mechanisms) <= _LISTED:
        return [_sums_text(q, times, f"{noise:.4g}") for q, noise, times in mechanisms] or ["nothing"]
    texts = []
    for q in dict.fromkeys(each.q for each in mechanisms):
        noise = [each.noise_multiplier for each in mechanisms if each.q == q]
        times = sum(each.times for each in mechanisms if each.q == q)
        texts.append(_sums_text(q, times, f"{min(noise):.4g} to {max(noise):.4g}"))
    return texts


def _sums_text(q: float, times: int, noise: str) -> str:
    batch = (
        "sums over all examples, or parts of them that share none" if q == 1 else f"steps, Poisson sampling at {q:.4g}"
    )
    return f"{times:,} {batch}, noise multiplier {noise}"


def cost_text(record: Record, run: Run) -> str:
    """Tabulate epsilon of the ledgers by every accountant, and the recorded values, all rounded up.

    Older records hold the nearest number of five digits. A sentence says so where that shows, below the table.
    """
    final = record["final"]
    columns = ledgers(record, run)
    if own.stated(final):
        return own.privacy_text(final)
    spent = upper_bound(final.get("epsilon_spent", final["epsilon_sound"]))
    recorded = [float(final["epsilon"]), spent, upper_bound(final["epsilon_sound"])]
    texts = [*map(bound_text, recorded[:2]), own.known_text(own.sound_of(final))]
    rows = [["as recorded", *texts[: len(columns)]]]
    for path in scan(REPOSITORY / "conf" / "accountant", "*.yaml"):
        accountant = instantiate(OmegaConf.load(path), _convert_="all")
        costs = [_epsilon(accountant.epsilon, releases, run.config.delta) for releases in columns.values()]
        rows.append([path.stem, *costs, path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")])
    table = aligned(Table(("ε", *columns, ""), [row + [""] * (len(columns) + 2 - len(row)) for row in rows]))
    accountants = [run.accountant, *[Pld()] * (len(columns) - 1)]
    again = [by.epsilon(of, run.config.delta) for by, of in zip(accountants, columns.values(), strict=True)]
    older = any(a < b and bound_text(a) != bound_text(b) for a, b in zip(recorded, again, strict=False))
    return f"{table}\n{_OLDER}" if older else table


def _epsilon(epsilon: Any, releases: Releases, delta: float) -> str:
    try:
        return bound_text(epsilon(releases, delta))
    except ValueError:  # not an accountant of such releases
        return "–"


def places_of(results: Path, run_id: str, scale: str) -> Iterable[Place]:
    """Yield the items of papers, among those that are aggregated, that show a run."""
    for paper in every_paper():
        for item in paper.items:
            if (results / paper.name / item.name).exists():
                for job in paper.planned(item, scale):
                    if job.run_id == run_id:
                        yield Place(paper, item, job.sweep, job.experiment)


def served_text(results: Path, places: Sequence[Place], in_studies: Sequence[Mapping[str, str]] = ()) -> list[str]:
    """List the arms of studies that a run belongs to, and the claims that its experiments measure."""
    if not places and not in_studies:
        return ["no item of a paper at the last aggregation: it is your own run"]
    among = {(place.sweep, place.experiment) for place in places}
    lines = ["study {study}: {role} run of {arm} on {dataset}, ε = {epsilon}".format(**row) for row in in_studies]
    lines += [f"{place.paper.name}/{place.item.name}: {place.item.title}" for place in places]
    for paper in {place.paper.name: place.paper for place in places}.values():
        for row in rows_of(results, paper):
            if any((sweep, name) in among for sweep in row.claim.sweeps for name in row.claim.experiments):
                lines.append(f"claim of {paper.name}/{row.claim.item}: {claim_text(row)}")
    return lines


def claim_text(row: ClaimRow) -> str:
    """Format a claim, its measurement, the difference, the verdict and the privacy cost."""
    of = cells_of(row)
    what = f"{of.what}: claimed {of.claimed}" + (f" at ε {of.at}" if of.at != "–" else "")
    if row.measured is None:
        return f"{what}; {of.verdict}"
    said = f"measured {of.measured_of}" + (f", difference {of.difference}" if of.difference != "–" else "")
    costs = f"ε {of.epsilon}, sound {of.sound}: " if of.epsilon != "–" else ""
    epsilon = f"claimed ε {row.guarantee}" if row.guarantee else ""
    return f"{what}, {said}; {of.verdict}" + f"; {costs}{epsilon}".rstrip(": ") * bool(costs or epsilon)


def command_text(record: Record, places: Sequence[Place], in_studies: Sequence[Mapping[str, str]] = ()) -> list[str]:
    """Return the command that repeats a run into another folder, because it is already recorded here.

    It is the record's own. For an older record, the command of its run in a study or a sweep stands in.
    """
    said = record["provenance"].get("command")
    jobs = (job for place in places for job in sweep_jobs(place.sweep, (f"scale={record['config']['scale']['name']}",)))
    if said is None and in_studies:
        said = in_studies[0]["command"]
    if said is None:
        said = next((job.field("tracking.command") for job in jobs if job.run_id == record["run_id"]), None)
    if said is None:
        return ["Its record is older than such commands, and no sweep has it: its config says what it was."]
    config = record["config"]
    where = [f"in the folder of the modules {', '.join(config['sources'])}"] if config.get("sources") else []
    words = [*shlex.split(said)[3:], "runtime.results_root=again"]  # quoted anew: a record may come from anybody
    return [command(*words), *where]


def item_text(results: Path, paper: Paper, item: Item) -> str:
    """Explain an item of a paper: its claims with their verdicts, and the runs behind them."""
    lines = [f"{paper.title}: {item.title}", ""]
    lines += [claim_text(row) for row in rows_of(results, paper, [item.name])] or ["No claim of it is checked."]
    there = (results / paper.name / item.name).exists()
    records = [record_of(results, job.run_id) for job in (paper.planned(item) if there else ())]
    if any(records):
        lines += ["", own.runs_text([record for record in records if record])]
    made = command("aggregate", paper.name, "--items", item.name, *elsewhere(results))
    if paper.needs(item):
        root = [f"runtime.results_root={json.dumps(folder, ensure_ascii=False)}" for folder in elsewhere(results)[1:]]
        made = command("reproduce", paper.name, "--items", item.name, *root)
    return "\n".join([*lines, "", f"Every number: {results / paper.name / item.name}", f"Made by: {made}"])


def study_text(results: Path, name: str) -> str:
    """Explain a study by its page: the answers, the table of its arms, and the command that makes it.

    Raises:
        ValueError: it has no page.
    """
    place = results / "studies" / name
    if not (place / "README.md").exists():
        for scale in options_of("scale"):
            if (shrunk := results / scale / "studies" / name / "README.md").exists():
                raise ValueError(f"Study '{name}' ran at the scale {scale} alone, which is no result: see {shrunk}.")
        pages = sorted(page.parent.name for page in place.parent.glob("*/README.md"))
        raise ValueError(f"No study '{name}' has a page in {place.parent}. Choose from {', '.join(pages) or 'none'}.")
    page = (place / "README.md").read_text(encoding="utf-8")
    lines = [line for line in page.partition("\n## ")[0].splitlines() if not line.startswith("![")]
    table = page.partition("\n## The arms\n\n")[2].partition("\n\n")[0].splitlines()
    header, _, *arms = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in table if line[:1] == "|")
    (made,) = (line.removeprefix("$ ") for line in page.splitlines() if line.startswith("$ "))
    return "\n".join([*lines, "", aligned(Table(header, arms)), "", f"Every number: {place}", f"Made by: {made}"])
