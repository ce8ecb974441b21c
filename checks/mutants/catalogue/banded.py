"""Faults in correlated noise, in the parts that it samples from, and in its charges."""

from checks.mutants.mutant import Mutant, named

BANDED = "mechanism/test_banded.py"
_STEP = named("training/stacked/test_step.py", "test_trains_as_the_eager_loop_does")

MUTANTS = (
    Mutant(
        "mechanism/banded.py",
        "    return tuple(each / norm for each in mixed)",
        "    return tuple(each for each in mixed)",
        "columns of the strategy have a norm above one",
        BANDED,
    ),
    Mutant(
        "mechanism/banded.py",
        "    return tuple(each / norm for each in mixed)",
        "    return (*(each / norm for each in mixed), 0.5)",
        "the strategy has a band more than there are parts, so that turns of a part overlap",
        BANDED,
    ),
    Mutant(
        "mechanism/banded.py",
        "(2 * k - 1) / (2 * k)",
        "(2 * k - 1) / (2 * k + 1)",
        "the coefficients are no square root of the workload",
        BANDED,
    ),
    Mutant(
        "mechanism/banded.py",
        "        parts = self.parts.to(generator.device)\n",
        "        parts = torch.randperm(self.examples, generator=generator) % self.bands\n",
        "parts are drawn again in each epoch",
        BANDED,
    ),
    Mutant(
        "mechanism/banded.py",
        "members & (parts == step % self.bands)",
        "members & ((parts - step) % self.bands <= 1)",
        "parts that follow each other overlap",
        BANDED,
    ),
    Mutant(
        "mechanism/banded.py",
        "        return self.bands * self.batch_size / self.examples",
        "        return self.batch_size / self.examples",
        "a part is sampled at the rate of all examples, and batches are too small",
        BANDED,
    ),
    Mutant(
        "mechanism/banded.py",
        "        return self.examples // (self.bands * self.batch_size) * self.bands",
        "        return self.examples // self.batch_size",
        "an epoch ends within a cycle, so that the next turn of part 0 comes too early",
        BANDED,
    ),
    Mutant(
        "mechanism/banded.py",
        "        if step_in_epoch % self.bands == 0 or",
        "        if step_in_epoch % (2 * self.bands) == 0 or",
        "every second cycle is charged",
        BANDED,
    ),
    Mutant(
        "mechanism/banded.py",
        "        if step_in_epoch % self.bands == 0 or",
        "        if step_in_epoch % self.bands == self.bands - 1 or",
        "a cycle that has begun is not charged",
        BANDED,
    ),
    Mutant(
        "mechanism/banded.py",
        "        if self.sampling is not Sampling.poisson:",
        "        if False:",
        "shuffled batches of all examples, charged as samples from parts",
        BANDED,
    ),
    Mutant(
        "mechanism/correlated.py",
        "        total = total - coefficient * earlier",
        "        total = total + coefficient * earlier",
        "earlier noise is added instead of subtracted",
        BANDED,
    ),
    Mutant(
        "mechanism/correlated.py",
        "    noise = total / first",
        "    noise = total",
        "the noise is too small by the strategy's diagonal",
        BANDED,
    ),
    Mutant(
        "mechanism/correlated.py",
        "torch.cat([noise[None], past])[: len(others)]",
        "torch.cat([past, noise[None]])[1:]",
        "the past is in the wrong order",
        BANDED,
    ),
    Mutant(
        "mechanism/correlated.py",
        "torch.cat([noise[None], past])[: len(others)]",
        "torch.cat([fresh[None], past])[: len(others)]",
        "fresh numbers are kept as if they were the noise that was added",
        BANDED,
    ),
    Mutant(
        "training/stacked/step.py",
        "            noise, past[0] = correlated(",
        "            noise, _ = correlated(",
        "steps as a graph forget the noise before",
        _STEP,
    ),
    Mutant(
        "training/stacked/step.py",
        "        if any(each.coefficients != self._coefficients for each in mechanisms):",
        "        if False:",
        "runs in lockstep have the first one's correlation, and their own charges",
        "training/stacked/test_stacked_runs.py",
    ),
    Mutant(
        "training/call_by_call.py",
        ".release(computed.gradients, noise, *self._past)",
        ".release(computed.gradients, noise)",
        "noise is independent although it should be correlated",
        _STEP,
    ),
    Mutant(
        "training/call_by_call.py",
        '            self.parts["past noise"] = self._past[0]\n',
        "",
        "a resumed run forgets the noise before",
        BANDED,
    ),
    Mutant(
        "training/prepare.py",
        "varying = isinstance(chosen, Scheduled) or len(chosen.coefficients) > 1",
        "varying = isinstance(chosen, Scheduled)",
        "an optimizer subtracts the variance of independent noise",
        BANDED,
    ),
)
