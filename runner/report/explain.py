"""A recorded run in words: its training, its releases, their cost by each accountant, and its claims."""

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from hydra.utils import instantiate
from omegaconf import OmegaConf

from runner.accounting import Pld, Releases
from runner.accounting.ledger import sampled_gaussians
from runner.claims.evidence import grouped
from runner.config import REPOSITORY
from runner.config.checkout import scan
from runner.gradients.precision import LONGER
from runner.mechanism.normal import DRAWN, PRECISION
from runner.records.disk import read_record, upper_bound
from runner.records.jobs import Job
from runner.records.store import Record
from runner.records.verify import cost_of_noise, noise_precision, run_of
from runner.report import listing
from runner.report.claim_rows import rows_of
from runner.report.formats import Table, aligned, delta_text
from runner.report.items import claim_text
from runner.report.papers import Item, Paper, every_paper
from runner.terminal import bound_text, command, number
from runner.training.run import Run

_TRAINED = (
    *("dataset", "features", "augmentation", "normalization", "architecture", "activation", "init", "loss"),
    *("optimizer", "schedule", "averaging"),
)
_LISTED = 6  # kinds of releases; of more, kinds with the same sampling become one, with the range of their noise
_OLDER = "Its record is older: it holds the nearest number of five digits, which can be below the ε computed again."
_PRIVATE = ("clipping", "mechanism", "screening", "constraint")
Place: TypeAlias = tuple[Paper, Item, Job]  # of a run in a paper


def run_text(path: Path, results: Path, in_studies: Sequence[Mapping[str, str]] = ()) -> str:
    """Explain a recorded run, for a terminal: the lines of each section, below its heading.

    `in_studies`: its rows among the runs of studies, with the name of the `study`.

    Raises:
        ValueError: the record is damaged, or the present code cannot prepare it.
    """
    record = read_record(path)
    places = places_of(results, path.stem, record["config"]["scale"]["name"])
    run = run_of(record["config"])  # calibrated again, as the record's noise is rounded to five digits
    final, provenance = record["final"], record["provenance"]
    best = f"{number(float(final['best_test_accuracy']), '%')}% after {final['best_epoch']}"
    outcome = [listing.result_text(record), f"best epoch: {best}, chosen on the data that it is measured on"]
    if "wall_seconds" in provenance:
        minutes, device = provenance["wall_seconds"] / 60, provenance.get("device")
        outcome.append(f"{minutes:.1f} minutes on {device}, code of {provenance.get('git_revision')}")
    sections = {
        f"run {record['run_id']}, setting {record['setting_id']}": outcome,
        "It trained": trained_text(record, run),
        "It released": released_text(record, run),
        "Which costs": [cost_text(record, run)],
        "Used by": served_text(results, places, in_studies),
        "Command": command_text(record, places, in_studies),
    }
    return "\n\n".join("\n".join([name, textwrap.indent("\n".join(lines), "  ")]) for name, lines in sections.items())


def trained_text(record: Record, run: Run) -> list[str]:
    """Describe the training: data, network, loss, optimizer and length."""
    config, final = record["config"], record["final"]
    images = "the test images" if config["evaluation"] == "test" else "training images held out"
    parts = {name: class_text(config[name]) for name in _TRAINED if config.get(name)}
    if not any(isinstance(module, run.activation_type) for module in run.initial.network.modules()):
        network = config["architecture"]["_target_"].rpartition(".")[2]
        parts["activation"] = f"{parts['activation']} is not used by {network}"
    return [
        *(f"{name}: {text}" for name, text in parts.items()),
        f"{final['parameters']:,} parameters, seed {config['seed']}, {config['scale']['name']} scale, "
        f"measured on {images}",
        f"{final['epoch']} epochs of {run.mechanism.steps_per_epoch} steps, {final['steps']:,} in all; "
        f"{config['sampling']} batches of {config['batch_size']} of {run.mechanism.examples:,} examples",
    ]


def class_text(group: Mapping[str, Any]) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in group.items() if not name.startswith("_"))
    return f"{group['_target_'].rpartition('.')[2]}({arguments})"


def ledgers(record: Record, run: Run) -> dict[str, Releases]:
    """Return ledgers by name: the releases, the paper's charges, and the most that the run could have released.

    The last exists only if the run decided how much it released: it screened to a budget, diverged or was ended early.
    If a class draws the noise or charges itself, the only ledger is the one that it states.
    """
    final = record["final"]
    claimed = run.mechanism.charges(int(final["accepted"] if run.rule.takes_back else final["steps"])).claimed
    if listing.stated(final):
        return {listing.STATED: claimed}
    charged = {"as the paper counts": claimed, "released": run.mechanism.charges(int(final["steps"])).actual}
    most = {"could have been": run.mechanism.charges(run.most_steps).actual}
    return charged | (most if "max_tries" in final else {})


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
    if run.config.precision is not None and run.mechanism.private:
        passes = f"passes in {run.config.precision.value}, norms and sums in float32"
        lines.append(f"{passes}, so δ grows by at most {LONGER:g} (a batch without a place)")
    examples = run.mechanism.examples
    shares = f"{delta_text(run.config.delta)}, δ·N = {bound_text(run.config.delta * examples)} for N = {examples:,}"
    return [*lines, f"neighbours: {run.mechanism.neighbouring_relation}; {shares} training examples"]


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
        costs = f"noise: {precision}, after it is added, so ε grows by at most {epsilon}, and δ by at most {delta}"
        return [costs, "no ε covers that sums and norms are rounded (docs/privacy.md)"]
    assert not isinstance(cost, tuple)
    if precision == DRAWN:
        growth = f"is not computed {cost}" if isinstance(cost, str) else f"is at most {bound_text(cost)}"
        end = f"noise: drawn in {precision}; the growth of δ because it ends {growth}"
        return [end, "no δ covers the last digits of the noisy sums, which are rounded (docs/privacy.md)"]
    coarse = f"noise: drawn in {precision}, so ε is not that of the noise it had"
    if isinstance(cost, str):
        return [f"{coarse}; a lower bound on δ is not computed {cost}"]
    return [f"{coarse}: for some example δ is at least {number(cost, bound='lower')} at any ε"]


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
    sums = [(q, f"{noise:.4g}", times) for q, noise, times in mechanisms]
    if len(sums) > _LISTED:
        by_rate = grouped(mechanisms, lambda mechanism: mechanism.q)
        sums = []
        for q, group in by_rate.items():
            noise = [mechanism.noise_multiplier for mechanism in group]
            sums.append((q, f"{min(noise):.4g} to {max(noise):.4g}", sum(mechanism.times for mechanism in group)))
    everything = "sums over all examples, or parts of them that share none"
    return [
        f"{times:,} {everything if q == 1 else f'steps, Poisson sampling at {q:.4g}'}, noise multiplier {noise}"
        for q, noise, times in sums
    ] or ["nothing"]


def cost_text(record: Record, run: Run) -> str:
    """Tabulate epsilon of the ledgers by every accountant, and the recorded values, all rounded up."""
    final, columns = record["final"], ledgers(record, run)
    if listing.stated(final):
        return listing.privacy_text(final)
    spent = upper_bound(final.get("epsilon_spent", final["epsilon_sound"]))
    recorded = [float(final["epsilon"]), spent, upper_bound(final["epsilon_sound"])]
    texts = [*map(bound_text, recorded[:2]), listing.sound_text(final)]
    rows = [["as recorded", *texts[: len(columns)]]]
    for path in scan(REPOSITORY / "conf" / "accountant", "*.yaml"):
        accountant = instantiate(OmegaConf.load(path), _convert_="all")
        costs = []
        for releases in columns.values():
            try:
                costs.append(bound_text(accountant.epsilon(releases, run.config.delta)))
            except ValueError:  # not an accountant of such releases
                costs.append("–")
        rows.append([path.stem, *costs, path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")])
    table = aligned(Table(("ε", *columns, ""), [row + [""] * (len(columns) + 2 - len(row)) for row in rows]))
    accountants = [run.accountant, *[Pld()] * (len(columns) - 1)]
    again = [a.epsilon(releases, run.config.delta) for a, releases in zip(accountants, columns.values(), strict=True)]
    older = any(a < b and bound_text(a) != bound_text(b) for a, b in zip(recorded, again, strict=False))
    return f"{table}\n{_OLDER}" if older else table


def places_of(results: Path, run_id: str, scale: str) -> list[Place]:
    """List the items of papers, among those that are aggregated, that show a run, each with its job."""
    return [
        (paper, item, job)
        for paper in every_paper()
        for item in paper.items
        if (results / paper.name / item.name).exists()
        for job in paper.planned(item, scale)
        if job.run_id == run_id
    ]


def served_text(results: Path, places: Sequence[Place], in_studies: Sequence[Mapping[str, str]] = ()) -> list[str]:
    """List the arms of studies that a run belongs to, and the claims that its experiments measure."""
    if not places and not in_studies:
        return ["no item of a paper at the last aggregation: it is your own run"]
    among = {(job.sweep, job.experiment) for _, _, job in places}
    lines = ["study {study}: {role} run of {arm} on {dataset}, ε = {epsilon}".format(**row) for row in in_studies]
    lines += [f"{paper.name}/{item.name}: {item.title}" for paper, item, _ in places]
    for paper in {paper.name: paper for paper, _, _ in places}.values():
        for row in rows_of(results, paper):
            if any((sweep, name) in among for sweep in row.claim.sweeps for name in row.claim.experiments):
                lines.append(f"claim of {paper.name}/{row.claim.item}: {claim_text(row)}")
    return lines


def command_text(record: Record, places: Sequence[Place], in_studies: Sequence[Mapping[str, str]] = ()) -> list[str]:
    """Return the command that repeats a run into another folder, because it is already recorded here.

    It is the record's own. For an older record, the command of its run in a study or a sweep stands in.
    """
    config, repeated = record["config"], record["provenance"].get("command")
    older = [row["command"] for row in in_studies] + [job.field("tracking.command") for _, _, job in places]
    if repeated is None:
        repeated = next(iter(older), None)
    if repeated is None:
        return ["Its record is older than such commands, and no sweep has it: its config says what it was."]
    modules = [f"in the folder of the modules {', '.join(config['sources'])}"] if config.get("sources") else []
    words = [*shlex.split(repeated)[3:], "runtime.results_root=again"]  # quoted anew: a record may come from anybody
    return [command(*words), *modules]
