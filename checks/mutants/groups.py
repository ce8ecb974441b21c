"""Groups of tests that have to notice faults in more than one part of the package."""

from checks.mutants.mutant import named

DP_SGD = "mechanism/test_dp_sgd.py"
CHOICES = named(
    "mechanism/test_choices.py",
    "test_what_is_trained_has_the_noise_that_is_charged",
    "test_two_levels_cost_what_dp_accounting_says",
    "test_an_epoch_of_shuffled_batches_costs_its_least_noise",
    "test_only_choices_are_accepted",
    "test_one_that_does_more_than_choose_has_no_sound_epsilon",
)
LAYERWISE = named(
    "mechanism/test_layerwise.py",
    "test_the_charged_noise_multiplier_is_what_the_strongest_adversary_sees",
    "test_what_each_charges",
    "test_what_does_not_go_together_is_refused",
    "test_rows_of_the_mean_loss_need_a_chain_however_a_branch_is_written",
)
STATISTICS = named(
    "mechanism/test_statistics.py",
    "test_one_example_moves_each_sum_by_at_most_its_sensitivity",
    "test_noise_has_the_charged_scale_and_is_fresh",
    "test_what_the_layer_holds_is_noisy",
    "test_epsilons_of_the_paper_contain_the_statistics",
    "test_calibration_leaves_room_for_them",
    "test_a_run_charges_them_before_the_first_step",
)
LOOP = named(
    "training/test_loop.py",
    "test_one_step_moves_the_weights_by_the_clipped_sum_plus_charged_noise",
    "test_an_empty_batch_is_a_step_with_all_its_noise",
    "test_what_trains_are_the_training_images_and_no_others",
    "test_holdout_trains_and_reports_on_training_images_only",
    "test_shuffled_private_training_charges_each_epoch_without_amplification",
    "test_evaluates_on_the_evaluation_split_only",
)
AGREES = "speed/test_kernels.py::test_a_right_kernel_agrees_at_once"
