"""Screening of updates: the rule, what it puts back, and what it is charged."""

from checks.mutants.mutant import Mutant, named

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
    "test_mechanisms_that_charge_in_a_way_of_their_own_are_refused",
)

MUTANTS = (
    Mutant(
        "training/updates/screened.py",
        "forced = self._rejected_in_a_row >= self._rule.rejection_threshold",
        "forced = self._rejected_in_a_row > self._rule.rejection_threshold",
        "one rejection more in a row than the most tries are worked out for",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screened.py",
        "        self._optimizer.state.update(self._state)\n",
        "",
        "a rejected update stays in the momentum",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screened.py",
        "            parameter.copy_(weights)\n",
        "            pass\n",
        "a rejected update stays in the weights",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screened.py",
        "p: {name: v.clone() if isinstance(v, Tensor) else v for name, v in state.items()}",
        "p: dict(state.items())",
        "the momentum that is put back is the one that was changed",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screened.py",
        "self._rule.initial_temperature * self.accepted)",
        "self._rule.initial_temperature * self.tries)",
        "the temperature falls with every try",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screened.py",
        "        self._total = total\n        return True",
        "        return True",
        "candidates are compared with the weights of the epoch's start",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screened.py",
        "        self._rejected_in_a_row = 0\n        self._total",
        "        self._total",
        "rejections count although one was kept between",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screened.py",
        "min(planned, (self.rejection_threshold + 1) * paid_for)\n\n    def split",
        "min(planned, self.rejection_threshold * paid_for)\n\n    def split",
        "the guarantee is for fewer tries than there can be",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screened.py",
        "test.targets[i::2]) for i in (1, 0))",
        "test.targets[i::2]) for i in (1, 1))",
        "the images reported on are those that screen",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screened.py",
        'return self.images == "public_split" or bool(run.config.evaluation == EvaluationSplit.holdout)',
        "return True",
        "an accuracy selected on test images is reported as if it were not",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screened.py",
        "        if type(mechanism) is not Mechanism:",
        "        if False:",
        "screening with a mechanism that charges an epoch at once",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screening_loss.py",
        "                if total > bound:\n                    return False, total\n",
        "                if total > bound:\n                    return True, total\n",
        "a candidate is kept as soon as it is too bad",
        _SCREENED,
    ),
    Mutant(
        "training/updates/screening_loss.py",
        "        return total <= bound, total",
        "        return not total > bound, total",
        "a candidate whose loss is no number is kept",
        _SCREENED,
    ),
)
