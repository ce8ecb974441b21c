"""Faults in drawing the examples of a batch, and in the random streams for it."""

from checks.mutants.groups import DP_SGD, LAYERWISE
from checks.mutants.mutant import Mutant, named

_STEP = named(
    "training/stacked/test_step.py",
    "test_a_longer_batch_makes_room_and_cuts_nothing",
    "test_an_empty_batch_is_a_step_of_pure_noise",
    "test_padding_and_broken_examples_contribute_nothing",
    "test_trains_as_the_eager_loop_does",
)

MUTANTS = (
    Mutant(
        "mechanism/dp_sgd.py",
        "(members.nonzero().squeeze(1) for members in",
        "(members.nonzero().squeeze(1)[: 3 * self.batch_size // 2] for members in",
        "Poisson batches are cut off at 1.5 times the expected size",
        DP_SGD,
    ),
    Mutant(
        "mechanism/sampling.py",
        "    for _ in range(steps):\n        yield torch.rand(examples, dtype=torch.float64, device=generator.device,"
        " generator=generator) < rate",
        "    uniforms = torch.rand(examples, dtype=torch.float64, device=generator.device, generator=generator)\n"
        "    for _ in range(steps):\n        yield uniforms < rate",
        "all steps of an epoch have the same batch",
        DP_SGD,
    ),
    Mutant(
        "mechanism/sampling.py",
        "generator=generator) < rate",
        "generator=generator) < 1.02 * rate",
        "examples join at 1.02 times the rate that is charged",
        DP_SGD,
    ),
    Mutant(
        "mechanism/sampling.py",
        "generator=generator) < rate",
        "generator=generator).roll(1).sort().values < rate",
        "a Poisson batch has the right size and always the first examples",
        DP_SGD,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "for members in self.memberships(generator))",
        "for members in self.memberships(generator) if members.any())",
        "empty Poisson batches are left out",
        DP_SGD,
    ),
    Mutant(
        "mechanism/sampling.py",
        "torch.randperm(examples, device",
        "torch.randint(examples, (examples,), device",
        "shuffled batches are drawn with replacement",
        DP_SGD,
    ),
    Mutant(
        "mechanism/sampling.py",
        "order[step * batch_size :",
        "order[max(0, step * batch_size - 1) :",
        "shuffled batches share an example with the one before",
        DP_SGD,
    ),
    Mutant(
        "mechanism/sampling.py",
        "torch.randperm(examples, device=generator.device, generator=generator)",
        "torch.randperm(examples, device=generator.device, generator=torch.Generator().manual_seed(0))",
        "every epoch and seed has the same order",
        DP_SGD,
    ),
    Mutant(
        "mechanism/seeds.py",
        'f"{seed}/{stream}"',
        'f"{seed}"',
        "sampling and noise draw the same numbers",
        "training/test_loop.py::test_every_step_and_seed_has_noise_and_a_batch_of_its_own",
    ),
    Mutant(
        "mechanism/seeds.py",
        'f"{seed}/{stream}"',
        'f"{stream}"',
        "all seeds have the same noise, so that two runs' weights differ without any",
        "training/test_loop.py::test_every_step_and_seed_has_noise_and_a_batch_of_its_own",
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "return self.batch_size / self.examples",
        "return self.batch_size / (self.examples + self.batch_size)",
        "the rate is that of a larger training set",
        DP_SGD,
    ),
    Mutant(
        "mechanism/layerwise.py",
        "        return 1 / self.steps_per_epoch",
        "        return self.batch_size / (2 * self.examples)",
        "the repository's sampler has half its rate",
        LAYERWISE,
    ),
    Mutant(
        "training/stacked/batches.py",
        "mask = torch.arange(length, device=sizes.device) < sizes[..., None]",
        "mask = torch.arange(length, device=sizes.device) < sizes[..., None].clamp(max=3 * mechanism.batch_size // 2)",
        "batches of runs trained together are cut off at 1.5 times the expected size",
        f"{_STEP} training/stacked/test_stacked_runs.py::test_together_is_as_alone",
    ),
    Mutant(
        "training/stacked/batches.py",
        "mask = torch.arange(length, device=sizes.device) < sizes[..., None]",
        "mask = torch.arange(length, device=sizes.device) < (sizes + 1)[..., None]",
        "the first padding of a batch counts as the example number 0",
        _STEP,
    ),
)
