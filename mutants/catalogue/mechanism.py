"""What is released, and with how much noise."""

from mutants.groups import DP_SGD, LAYERWISE, LOOP, STATISTICS
from mutants.mutant import Mutant, named

_STEP = named(
    "training/stacked/test_step.py",
    "test_an_empty_batch_is_a_step_of_pure_noise",
    "test_trains_as_the_eager_loop_does",
)

MUTANTS = (
    Mutant(
        "mechanism/dp_sgd.py",
        "return self.noise_multiplier * root * group.sensitivity",
        "return self.noise_multiplier * root * group.sensitivity / 2",
        "half the noise",
        DP_SGD,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "return self.noise_multiplier * root * group.sensitivity",
        "return self.noise_multiplier * group.sensitivity",
        "groups of a step are charged as one Gaussian and get the noise of each",
        DP_SGD,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "return self.noise_multiplier * root * group.sensitivity",
        "return self.noise_multiplier * math.sqrt(len(self.noise_groups))",
        "the noise ignores the sensitivity",
        DP_SGD,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "device=total.device, generator=generator)",
        "device=total.device, generator=torch.Generator().manual_seed(0))",
        "all steps have the same noise",
        DP_SGD,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "                if self.private:\n",
        "                if self.private and group is self.noise_groups[0]:\n",
        "the first group alone gets noise",
        DP_SGD,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "total = total + self.noise_std(group) * noise",
        "total = total + self.noise_std(group) * noise / self.denominator",
        "the noise is divided by the batch size twice",
        DP_SGD,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "noise = torch.randn(total.shape, dtype=total.dtype, device=total.device, generator=generator)",
        "noise = torch.randn(1, dtype=total.dtype, device=total.device, generator=generator)",
        "a parameter's coordinates share one number of noise",
        DP_SGD,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "        if sorted(named) != sorted(names):",
        "        if not set(named) <= set(names):",
        "a parameter in no noise group is released as it is",
        DP_SGD,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "                views[name].normal_(generator=generator)",
        "                views[name].normal_(std=0.5, generator=generator)",
        "steps as a graph have half the noise",
        _STEP,
    ),
    Mutant(
        "training/loop.py",
        "objective.received(mechanism.release(computed.gradients, noise))",
        "mechanism.release(computed.gradients, noise) if len(targets) else computed.gradients",
        "an empty batch is released without noise",
        LOOP,
    ),
    Mutant(
        "training/loop.py",
        "            clipping = mechanism.applied(run.clipping, len(targets))",
        "            if len(targets) == 0:\n                continue\n"
        "            clipping = mechanism.applied(run.clipping, len(targets))",
        "an empty batch is no step",
        LOOP,
    ),
    Mutant(
        "training/stacked/step.py",
        "(self._sums + self._std * self._noise) / self._denominator",
        "(self._sums + self._std * self._noise * self._mask.any(1, keepdim=True)) / self._denominator",
        "steps as a graph release an empty batch without noise",
        _STEP,
    ),
    Mutant(
        "mechanism/layerwise.py",
        '(2 if self.neighbours == "replace_one" else 1)',
        "1",
        "noise for zeroing one out, charged for replacing one",
        LAYERWISE,
    ),
    Mutant(
        "mechanism/layerwise.py",
        "_sampled(self.sampling_rate, self.noise_multiplier / _MOST_MOVED)",
        "_sampled(self.sampling_rate, self.noise_multiplier)",
        "the mean loss moves by twice the bound of a row, and is charged for once",
        LAYERWISE,
    ),
    Mutant(
        "mechanism/layerwise.py",
        "        return self.noise_multiplier / self.batch_size",
        "        return self.noise_multiplier",
        "the original bug is believed",
        LAYERWISE,
    ),
    Mutant(
        "mechanism/layerwise.py",
        "        if not is_chain(objective, inputs, targets):",
        "        if False:",
        "rows of the mean loss in a network with branches, where nothing bounds them",
        LAYERWISE,
    ),
    Mutant(
        "mechanism/statistics.py",
        "total + self.noise_multiplier * sensitivity * noise",
        "total + self.noise_multiplier * noise",
        "noise on statistics ignores their sensitivity",
        STATISTICS,
    ),
    Mutant(
        "mechanism/statistics.py",
        "vectors * (bound / norms).clamp(max=1.0)",
        "vectors",
        "statistics are not clipped",
        STATISTICS,
    ),
    Mutant(
        "mechanism/statistics.py",
        "torch.where(norms.isfinite(), vectors * (bound / norms).clamp(max=1.0), 0.0)",
        "vectors * (bound / norms).clamp(max=1.0)",
        "an image that is not finite shows in the statistics whatever the noise",
        STATISTICS,
    ),
    Mutant(
        "mechanism/statistics.py",
        "return ((self._event(), 2),)",
        "return ((self._event(), 1),)",
        "two releases of statistics are planned as one",
        STATISTICS,
    ),
    Mutant(
        "mechanism/statistics.py",
        "        ledger.release(actual=self._event(), claimed=self._event())\n",
        "        if sensitivity == self.mean_norm:\n"
        "            ledger.release(actual=self._event(), claimed=self._event())\n",
        "the second release of statistics is not charged",
        STATISTICS,
    ),
)
