"""Conversion of a composed config to the parts of a run, with every check that needs no data.

`prepare` builds the network once. The checked and the trained networks are copies of it, so that both are the same.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import parent_process
from threading import Timer
from typing import Any, cast

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from runner.accounting import Pld, calibrate_noise_multiplier, check_delta, epsilon_by, last_within, sound_epsilon
from runner.accounting.calibration import LARGEST_NOISE, PATIENCE, Accountant
from runner.build import parts
from runner.build.groups import check_groups, refusing
from runner.clipping import NoClipping
from runner.config import FIELDS, ConfigError, EngineName, EvaluationSplit, StepMode, check_ranges, check_values, is_own
from runner.data.datasets import HOLDOUT_PARTS, Split, holdout_examples
from runner.data.originals import private_statistics
from runner.data.reproducible import seeded
from runner.gradients import Engine, Objective, fresh_copy, unknown
from runner.gradients.interface import OrdinaryPass
from runner.mechanism.dp_sgd import Mechanism, Normalization, Scheduled
from runner.mechanism.normal import derived_seed
from runner.terminal import Line
from runner.training.diagnostics import diagnostics
from runner.training.run import NotCapturableError, Run
from runner.training.updates import UpdateRule
from runner.trust.engine import IsolatedEngine, Mapped, isolated_prediction
from runner.trust.mechanism import mechanism_for, own_noise
from runner.trust.own_parts import OwnClipping, OwnFeatures, OwnViews

_printed = set[str]()  # notes of this process


def prepare(config: DictConfig) -> Run:
    """Check a resolved config (see `runner.records.identity.resolved`) and build the parts that need no data.

    What a user's parts draw from the global generators follows from the run's seed.

    Raises:
        ConfigError: the config cannot be run; the message is one sentence.
    """
    if unknown_names := sorted(set(map(str, config)) - set(FIELDS)):
        raise ConfigError(f"There is no field {unknown_names[0]!r} in a run's configuration.")
    check_ranges(config)
    check_values(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    if unknown_names := sorted(set(config.diagnostics) - set(diagnostics() if config.diagnostics else ())):
        raise ConfigError(f"diagnostics has no {unknown_names[0]}: choose from {', '.join(diagnostics())}.")
    with seeded(derived_seed(config.seed, "parts")):
        return _prepared(config)


def _prepared(config: DictConfig) -> Run:
    groups = check_groups(config)
    device = parts.device_of(config.runtime.device)

    # The examples, and what is done with them before the network.
    dataset, features = parts.build_dataset(groups["dataset"], config), parts.build_features(groups["features"])
    normalization, averaging = groups["normalization"].build(), groups["averaging"].build()
    accountant, rule = groups["accountant"].build(), parts.build_rule(groups["screening"])

    # The network. It is tried on two examples of zeros, unless a module of it may do anything.
    with seeded(derived_seed(config.seed, "init")), parts.within_memory():
        initial = parts.build_objective(groups, dataset, features, normalization)
    shape, isolation = features.shape(dataset.shape), unknown(initial)
    clipping = parts.build_clipping(groups["clipping"], initial)
    objective = fresh_copy(initial)
    examples = Split(torch.zeros(2, *shape), torch.zeros(2, dtype=torch.long))
    if not isolation:
        parts.check_prediction(objective, 2, shape, dataset.classes)
    if objective.constraint is not None:
        parts.check_constraint(objective)

    # What a step releases, the noise that its budget asks for, and the steps that it pays for.
    count = dataset.train_examples
    if config.evaluation == EvaluationSplit.holdout:
        if count < HOLDOUT_PARTS:
            raise ConfigError(f"evaluation=holdout needs at least {HOLDOUT_PARTS} training examples, not {count}.")
        count -= holdout_examples(count)
    try:
        with refusing("normalization"):
            releases = () if normalization is None else tuple(normalization.releases)
        noised = mechanism_for(  # the mechanism, given a noise multiplier
            groups["mechanism"].build() or Mechanism,
            config.sampling,
            count,
            config.batch_size,
            noise_groups=clipping.noise_groups(objective),
            before=releases,
            epochs=config.epochs,
            noise_multiplier=config.noise_multiplier,
        )
        if not (clipping.needs_engine or isolation):  # its bound may depend on the pass itself
            ordinary = cast(Engine, OrdinaryPass(objective))  # all that such a clipping uses of an engine
            with torch.random.fork_rng(devices=[]):
                clipping.sum_contributions(ordinary, examples.images, examples.targets)
        mechanism = noised(noise_multiplier_of(config, accountant, noised, rule, normalization))
        delta: float = config.delta
        if mechanism.private:
            check_delta(delta, mechanism.examples)
        mechanism.check(clipping, objective, examples.images, examples.targets)
        if rule.takes_back and isinstance(mechanism, Scheduled):
            raise ValueError("screening: kept steps are charged alike, so the noise has to be the same at all steps.")
        rule.check(mechanism)
        epochs, paid_for = within_budget(config, accountant, mechanism, rule)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
    optimizer = parts.check_optimizer(groups, objective, epochs, mechanism.steps_per_epoch, device)

    run = Run(
        config=config,
        dataset=dataset,
        features=features,
        augmentation=parts.build_views(groups["augmentation"], features, dataset),
        normalization=normalization,
        initial=initial,
        isolation=isolation,
        activation_type=type(groups["activation"].build()),
        clipping=clipping,
        mechanism=mechanism,
        accountant=accountant,
        rule=rule,
        averaging=averaging,
        epochs=epochs,
        paid_for=paid_for,
        device=device,
        make_optimizer=groups["optimizer"].build,
        make_schedule=partial(parts.build_schedule, groups["schedule"]),
    )
    _check_together(run, objective, optimizer, examples)
    return run


def _check_together(run: Run, objective: Objective, optimizer: torch.optim.Optimizer, examples: Split) -> None:
    """Check what only several parts decide: equal noise, diagnostics, views, averages, epsilon, the step as a graph."""
    mechanism = run.mechanism
    varying = isinstance(mechanism, Scheduled) or len(mechanism.coefficients) > 1
    course = getattr(objective.loss, "course", None)
    if hasattr(optimizer, "take_noise") and (varying or course is not None):
        raise ConfigError(f"optimizer: {type(optimizer).__name__} needs the same noise at all steps.")
    if course is not None:
        from runner.networks.lipschitz.course import COUNT, counting_course  # here, because few runs have a course

        has_count = any(COUNT in group.parameters for group in mechanism.noise_groups)
        if counting_course(objective.loss) is not None and not has_count:
            raise ConfigError("loss: its course needs a private count, which clipping=lipschitz releases: choose that.")
    passing = [name for name in sorted(run.config.diagnostics) if diagnostics()[name].passes_training_images]
    if run.isolation and mechanism.private and passing:
        raise ConfigError(
            f"diagnostics: {passing[0]} passes training images through modules whose gradients are computed example by "
            f"example, as {run.isolation}: leave it out."
        )
    for name in run.config.diagnostics:
        with refusing(f"diagnostics: {name}", ValueError):
            diagnostics()[name].check(objective)
    if run.augmentation is not None:
        if not (run.clipping.needs_engine or isinstance(run.clipping, NoClipping)):
            raise ConfigError(
                f"augmentation: {type(run.clipping).__name__} bounds single images inside a pass, not the mean of an "
                "example's views: use clipping=flat, automatic, psac or per_layer."
            )
        for name in passing:
            if diagnostics()[name].measures_steps:
                raise ConfigError(f"diagnostics: {name} measures batches of images, not of views: leave it out.")
    if run.averaging is not None:
        for updates in (1, run.most_steps):
            with refusing("averaging"):
                share = torch.as_tensor(run.averaging.share(torch.tensor(updates, dtype=torch.float64)))
            if share.numel() != 1 or not 0 <= share <= 1:
                raise ConfigError(f"averaging: expected a share from 0 to 1 at update {updates}, got {share.tolist()}.")
    if run.unsound or is_own(run.accountant):  # else the budget or the sound epsilon has used the charges already
        with refusing("accountant", ValueError):
            for steps in (1, run.most_steps):
                epsilon_by(run.accountant, mechanism.charges(steps).claimed, run.config.delta)
    precision, step = run.config.precision, run.config.runtime.step
    setting = f"runtime.step={step.value}" if precision is None else f"precision={precision.value}"
    if precision is not None:
        if step in (StepMode.eager, StepMode.compiled):
            raise ConfigError(
                f"{setting} needs batches of one shape, and norms of the numbers that are summed, which "
                f"runtime.step={step.value} has not: leave it at auto."
            )
        if not (run.clipping.needs_engine or isinstance(run.clipping, NoClipping)):
            raise ConfigError(
                f"{setting}: {type(run.clipping).__name__} takes no norm of the numbers that are summed, so its bounds "
                "hold for float32 alone: use clipping=flat, automatic, psac or per_layer."
            )
    if precision is not None or step in (StepMode.graph, StepMode.compiled):
        from runner.training.graph import GraphStep  # a CPU does without

        if run.config.runtime.engine is not EngineName.one_pass:
            raise ConfigError(f"{setting} has its own gradient engine: leave runtime.engine at one_pass.")
        with refusing(f"{setting} is not possible here", NotCapturableError), torch.device("meta"):
            GraphStep(run, objective.to("meta"), Split(examples.images.to("meta"), examples.targets.to("meta")))


def noise_multiplier_of(
    config: DictConfig,
    accountant: Accountant,
    mechanism: Callable[[float], Mechanism],
    rule: UpdateRule,
    normalization: Normalization | None,
) -> float:
    """Return the noise multiplier that a config gives, or calibrate it to `target_epsilon` or `sound_epsilon`.

    `target_epsilon` is as the paper counts, for all epochs. `sound_epsilon` pays for everything that the run can
    release: the releases before the first step, and as many updates as the rule can compute in all epochs, kept or not.
    The ledger's `actual` has them, so the sound epsilon in the record is at most `sound_epsilon`.

    Raises:
        ConfigError: the config gives none of the three, or more than one, or no sound epsilon exists.
        ValueError: no noise multiplier meets the budget, or the mechanism cannot be private.
    """
    noise_multiplier, sound = config.noise_multiplier, config.sound_epsilon
    if sound is None and config.target_epsilon is None:
        if noise_multiplier is None:
            raise ConfigError("Set sound_epsilon, noise_multiplier (0 for none) or target_epsilon.")
        return float(noise_multiplier)
    if sound is None and noise_multiplier is not None:
        raise ConfigError(
            "Set noise_multiplier or target_epsilon, not both: one follows from the other, so give null to one of them "
            "(target_epsilon=null, say)."
        )
    trial = mechanism(1.0)  # raises if the other settings do not allow noise
    if sound is None:
        with _announced(accountant):
            return calibrate_noise_multiplier(
                accountant,
                lambda nm: mechanism(nm).charges_of_epochs(config.epochs).claimed,
                config.target_epsilon,
                config.delta,
            )
    reason = own_noise(trial, normalization) or private_statistics(config)
    if reason:
        raise ConfigError(f"sound_epsilon={sound:g}: this setting has no sound ε. {reason}")
    steps = rule.most_steps(config.epochs * trial.steps_per_epoch, None)
    if sound_epsilon(mechanism(LARGEST_NOISE).charges(steps).actual, config.delta) > sound:
        raise ConfigError(
            f"sound_epsilon={sound:g}: no noise reaches it, because part of what this setting releases does not depend "
            "on noise_multiplier or gets no noise at all. Choose a larger one, or another normalization or clipping."
        )
    with _announced(Pld()):
        return calibrate_noise_multiplier(Pld(), lambda nm: mechanism(nm).charges(steps).actual, sound, config.delta)


def within_budget(
    config: DictConfig, accountant: Accountant, mechanism: Mechanism, rule: UpdateRule
) -> tuple[int, int | None]:
    """Return the epochs that max_epsilon pays for, and None; for a rule that rejects steps, all epochs and kept steps.

    Kept steps of None mean that only the epochs end the run.
    """
    if config.max_epsilon is None:
        return config.epochs, None
    if not mechanism.private:
        raise ConfigError("max_epsilon stops a private run, but noise_multiplier is 0.")
    unit, steps = ("step", 1) if rule.takes_back else ("epoch", mechanism.steps_per_epoch)
    most = config.epochs * mechanism.steps_per_epoch // steps
    with _announced(accountant):
        paid_for = last_within(
            accountant, lambda n: mechanism.charges(n * steps).claimed, config.max_epsilon, config.delta, most
        )
    if paid_for == 0:
        raise ConfigError(f"max_epsilon={config.max_epsilon} does not allow a single {unit} of this setting.")
    return (config.epochs, paid_for) if rule.takes_back else (paid_for, None)


@contextmanager
def _announced(accountant: Accountant) -> Iterator[None]:
    """Print a line if what is done inside takes two seconds, with its limit."""
    name = type(accountant).__name__
    text = f"computing the noise or the steps that the budget allows, by {name}, for at most {PATIENCE:g} s ..."
    timer = Timer(2.0, lambda: Line().keep(text))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def check_own(run: Run) -> None:
    """Run the user's parts on made-up examples, and print on stderr how they are applied. No data is read.

    Raises:
        ConfigError: a part cannot be applied to one example, or the network fails in evaluation.
    """
    objective = run.new_objective()
    with refusing("loss: start_epoch(0) fails"):
        objective.start_epoch(0)
    recurrent = any(isinstance(module, nn.RNNBase) for module in objective.modules())
    faster = " The recurrent layers of opacus.layers (DPLSTM, DPGRU, DPRNN) are faster here." if recurrent else ""
    notes = []
    for mapped in _mapped_parts(run, objective):
        note = f"{mapped.name}: applied to one example at a time, so an operation over the batch is over that one."
        if mapped.rate is not None:
            note += (
                f" They are computed one after another, some {float(f'{mapped.rate:.2g}'):g} examples a second, "
                f"because {mapped.reason}.{faster}"
            )
        notes.append(note)
    if isinstance(run.clipping, OwnClipping):
        with refusing("clipping", ValueError):
            notes += run.clipping.longer(objective)
    for note in notes:
        if note not in _printed and parent_process() is None:  # the command itself, and not a process of one run
            _printed.add(note)
            print(note, file=sys.stderr)
    if run.isolation:  # else `prepare` has tried it
        shape = run.features.shape(run.dataset.shape)
        parts.check_prediction(objective.eval(), 1 if run.isolated else 2, shape, run.dataset.classes)


def _mapped_parts(run: Run, objective: Objective) -> Iterator[Mapped]:
    """Yield the user's parts that are applied to each example separately, each tried on a made-up example."""
    features, augmentation, clipping, engine = run.features, run.augmentation, run.clipping, run.engine(objective)
    inputs = torch.zeros(1, *features.shape(run.dataset.shape), device=run.device)
    targets = torch.zeros(1, dtype=torch.long, device=run.device)
    if isinstance(features, OwnFeatures):
        yield features.mapped.ready(torch.zeros(1, *run.dataset.shape, device=run.device))
    if isinstance(augmentation, OwnViews):
        (numbers,) = augmentation.draw(1, torch.Generator()).to(run.device)
        yield augmentation.mapped.ready(inputs, numbers)
    if isinstance(clipping, OwnClipping):
        yield clipping.mapped(objective)
    if run.isolated and isinstance(engine, IsolatedEngine):
        within: Any = clipping if hasattr(clipping, "layers_clip") else None
        yield engine.mapped(within).ready(inputs, targets)
        isolated_prediction(objective).ready(inputs, targets)
