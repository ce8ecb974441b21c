"""What it all costs, what is charged, and how much noise a budget takes."""

from mutants.groups import DP_SGD, LAYERWISE, LOOP, STATISTICS
from mutants.mutant import Mutant, named

_GOLDENS = named(
    "accounting/test_accountant_goldens.py",
    "test_rdp_classic_of_every_epoch",
    "test_rdp_tight_of_every_epoch",
    "test_normalisation_releases_are_composed_with_training",
    "test_values_of_the_papers_settings",
    "test_gdp_finds_the_budget_it_was_calibrated_for_and_is_below_the_truth",
    "test_zcdp_of_backprop_clipping",
)
_REFERENCES = named(
    "accounting/test_accountant_references.py",
    "test_zcdp_by_hand",
    "test_unsampled_gaussian_is_the_closed_form",
)
_PROPERTIES = named(
    "accounting/test_accountant_properties.py",
    "test_a_release_without_noise_has_no_privacy",
    "test_splitting_or_reordering_the_releases_changes_nothing",
)
_EXTREMES = named(
    "accounting/test_accountant_extremes.py",
    "test_the_tails_and_the_gaussian_of_the_closed_form_share_one_delta",
    "test_prv_falls_back_where_opacus_cannot",
)
_CALIBRATION = named(
    "accounting/test_calibration.py",
    "test_zcdp_inverts_in_closed_form",
    "test_fashion_mnist_in_40_epochs",
    "test_the_last_within_a_budget_is_the_last",
)
_SCREENED = named(
    "training/updates/test_screened.py",
    "test_it_is_algorithm_2",
    "test_a_rejection_leaves_no_trace",
    "test_adam_is_taken_back_too",
    "test_stopping_early_gives_the_answer_of_the_whole_sum",
    "test_a_loss_that_is_not_a_number_is_never_within_a_bound",
    "test_the_halves_of_the_public_split_share_no_image",
    "test_images_that_screen_and_images_reported_on",
    "test_accuracy_on_images_that_did_not_screen",
    "test_kept_updates_are_claimed_and_every_try_is_charged",
    "test_a_run_ends_where_the_papers_epsilon_is_reached",
)

MUTANTS = (
    Mutant(
        "mechanism/dp_sgd.py",
        "        elif step_in_epoch == 0:\n            ledger.release(actual=GaussianDpEvent(self.noise_multiplier),",
        "        elif step_in_epoch == 0:\n            ledger.release(actual=per_step,",
        "an epoch of shuffled batches is charged as one sampled step",
        DP_SGD,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "            ledger.release(actual=per_step, claimed=claimed)\n",
        "            if kept:\n                ledger.release(actual=per_step, claimed=claimed)\n",
        "updates that were taken back are not charged",
        _SCREENED,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "        for event, count in self.before:",
        "        for event, count in ():",
        "what is released before the first step is left out of the budget",
        STATISTICS,
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "for length, times in ((self.steps_per_epoch, epochs), (rest, 1)):",
        "for length, times in ((self.steps_per_epoch, epochs),):",
        "the steps of an unfinished epoch are left out of the budget",
        f"{DP_SGD} {_SCREENED}",
    ),
    Mutant(
        "mechanism/dp_sgd.py",
        "return PoissonSampledDpEvent(self.sampling_rate, GaussianDpEvent(self.noise_multiplier))",
        "return PoissonSampledDpEvent(self.sampling_rate / 2, GaussianDpEvent(self.noise_multiplier))",
        "half the sampling rate is charged",
        DP_SGD,
    ),
    Mutant(
        "mechanism/layerwise.py",
        "        if step_in_epoch == 0:\n            ledger.release(actual=_gaussian(self._true_multiplier())",
        "        if step_in_epoch == 1:\n            ledger.release(actual=_gaussian(self._true_multiplier())",
        "an epoch of one step is charged nothing",
        LAYERWISE,
    ),
    Mutant(
        "accounting/ledger.py",
        "mine[event] = mine.get(event, 0) + times * count",
        "mine[event] = mine.get(event, 0) + count",
        "epochs that are added at once count as one",
        f"accounting/test_ledger.py {DP_SGD}",
    ),
    Mutant(
        "accounting/ledger.py",
        "            self._actual[actual] = self._actual.get(actual, 0) + count",
        "            self._actual[actual] = count",
        "a release made again is forgotten",
        "accounting/test_ledger.py",
    ),
    Mutant(
        "accounting/mechanisms.py",
        "            private = False\n",
        "            continue\n",
        "a release without noise costs nothing",
        _PROPERTIES,
    ),
    Mutant(
        "accounting/mechanisms.py",
        "merged.get((q, noise_multiplier), 0) + count",
        "count",
        "of equal releases the last count stands",
        _PROPERTIES,
    ),
    Mutant(
        "accounting/mechanisms.py",
        "    tail = delta / 2 / sampled\n",
        "    tail = delta / sampled\n",
        "the closed form spends more than its delta",
        _EXTREMES,
    ),
    Mutant(
        "accounting/accountants.py",
        "rdp - math.log(delta) / (np.array(self.orders) - 1)",
        "rdp - math.log(delta) / np.array(self.orders)",
        "Mironov's conversion divides by the order",
        _GOLDENS,
    ),
    Mutant(
        "accounting/accountants.py",
        "rdp = _composed_rdp(mechanisms, tuple(self.orders))\n        with warnings",
        "rdp = _composed_rdp(mechanisms[:1], tuple(self.orders))\n        with warnings",
        "of several kinds of releases the first is charged",
        _GOLDENS,
    ),
    Mutant(
        "accounting/accountants.py",
        "return rho + 2 * math.sqrt(-rho * math.log(delta))",
        "return rho + math.sqrt(-rho * math.log(delta))",
        "zCDP's conversion loses a factor of 2",
        f"{_GOLDENS} {_REFERENCES}",
    ),
    Mutant(
        "accounting/accountants.py",
        "rho = sum(m.times / (2 * m.noise_multiplier**2) for m in mechanisms)",
        "rho = sum(m.q * m.times / (2 * m.noise_multiplier**2) for m in mechanisms)",
        "zCDP is amplified by sampling, which it is not",
        _REFERENCES,
    ),
    Mutant(
        "accounting/accountants.py",
        "return m.q**2 * m.times * math.expm1(1 / m.noise_multiplier**2)",
        "return m.q**2 * m.times / m.noise_multiplier**2",
        "the central limit is that of large noise only",
        _GOLDENS,
    ),
    Mutant(
        "accounting/accountants.py",
        "    return pld_epsilon(mechanisms, delta, 2e-4) + eps_error",
        "    return 0.0",
        "where Opacus fails a run costs nothing",
        _EXTREMES,
    ),
    Mutant(
        "accounting/pld.py",
        "SampledGaussian(1.0, precision**-0.5, 1)",
        "SampledGaussian(1.0, 1 / precision, 1)",
        "unsampled Gaussians beside sampled ones are merged wrongly",
        f"{_GOLDENS} {_PROPERTIES}",
    ),
    Mutant(
        "accounting/pld.py",
        "        part = part.self_compose(m.times) if m.times > 1 else part\n",
        "",
        "steps are not composed",
        _GOLDENS,
    ),
    Mutant(
        "accounting/pld.py",
        "pessimistic_estimate=True",
        "pessimistic_estimate=False",
        "the sound epsilon is no upper bound",
        f"{_REFERENCES} {_GOLDENS}",
    ),
    Mutant(
        "accounting/calibration.py",
        "accountant.epsilon(releases_for(noise_multiplier), delta) <= target_epsilon",
        "accountant.epsilon(releases_for(noise_multiplier), delta) <= 1.01 * target_epsilon",
        "calibrated noise exceeds the budget by 1%",
        _CALIBRATION,
    ),
    Mutant(
        "accounting/calibration.py",
        "        if accountant.epsilon(releases_after(middle), delta) <= budget:",
        "        if accountant.epsilon(releases_after(middle - 1), delta) <= budget:",
        "one step more than the budget pays for",
        _CALIBRATION,
    ),
    Mutant(
        "training/prepare.py",
        "before=() if normalization is None else normalization.releases",
        "before=()",
        "noise is calibrated without the release of statistics",
        STATISTICS,
    ),
    Mutant(
        "training/prepare.py",
        "lambda nm: mechanism(nm).charges_of_epochs(config.epochs).claimed",
        "lambda nm: mechanism(nm).charges_of_epochs(1).claimed",
        "noise is calibrated for one epoch",
        "test_config.py::test_calibration_meets_its_target_from_below",
    ),
    Mutant(
        "training/loop.py",
        "sound_epsilon(self._ledger.actual, run.config.delta)",
        "sound_epsilon(self._ledger.claimed, run.config.delta)",
        "the sound epsilon is that of what the paper charges",
        f"{_SCREENED} {LOOP}",
    ),
    Mutant(
        "training/loop.py",
        "        self._run.mechanism.charge_step(self._ledger, step_in_epoch, kept=kept)",
        "        self._run.mechanism.charge_step(self._ledger, max(1, step_in_epoch), kept=kept)",
        "an epoch of shuffled batches is charged nothing",
        LOOP,
    ),
)
