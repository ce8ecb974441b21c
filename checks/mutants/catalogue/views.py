"""Faults in the views of examples, and in averaged weights and rates by step."""

from checks.mutants.mutant import Mutant, named

_LOOP = named("clipping/test_views.py", "test_flat_clipping_of_the_mean_matches_a_loop")
_BOUND = named("clipping/test_views.py", "test_one_example_moves_the_sum_by_at_most_the_bound_whatever_its_views_are")
_SAME = named("clipping/test_views.py", "test_a_graph_lockstep_and_single_steps_take_the_same_views")
_REFUSED = named("clipping/test_views.py", "test_parts_that_cannot_take_views_are_refused_in_one_sentence")
_AVERAGES = "training/test_averaging.py"
_RATES = "training/updates/test_schedule.py"

MUTANTS = (
    Mutant(
        "networks/objective.py",
        "return losses.view(-1, self.views).mean(1)",
        "return losses.view(-1, self.views).sum(1)",
        "an example's gradient is the sum over its views, not their mean",
        _LOOP,
    ),
    Mutant(
        "gradients/one_pass/engine.py",
        "broken.repeat_interleave(self.objective.views)",
        "broken.repeat(self.objective.views)",
        "an example whose gradient is not finite takes views of others out",
        _BOUND,
    ),
    Mutant(
        "training/stacked/layers.py",
        "outputs = outputs.unflatten(0, (-1, self.views)).transpose(1, 2).flatten(2)",
        "outputs = outputs.unflatten(0, (self.views, -1)).transpose(0, 2).transpose(0, 1).flatten(2)",
        "a graph adds up views of different examples, so one example can move two contributions",
        _LOOP,
    ),
    Mutant(
        "networks/geometry.py",
        "        return self.views * math.prod(self.output)",
        "        return math.prod(self.output)",
        "every view of an example is clipped and added by itself",
        _LOOP,
    ),
    Mutant(
        "training/prepare.py",
        "    if not (run.clipping.needs_engine or isinstance(run.clipping, NoClipping)):",
        "    if False:",
        "a clipping inside the pass bounds each view, and an example has several",
        _REFUSED,
    ),
    Mutant(
        "training/instantiation.py",
        "    if type(features) is not Pixels:",
        "    if False:",
        "views of features that are no pixels, and may exceed the norm that they state",
        _REFUSED,
    ),
    Mutant(
        "training/stacked/batches.py",
        "            numbers[:size] = augmentation.draw(size, generator)",
        "            numbers[:size] = augmentation.draw(size, generators[0])",
        "runs in lockstep draw the views of the first one",
        _SAME,
    ),
    Mutant(
        "training/call_by_call.py",
        "        if kept and self._average is not None:",
        "        if self._average is not None:",
        "the average counts an update that was rejected",
        named(_AVERAGES, "test_only_accepted_updates_count"),
    ),
    Mutant(
        "training/averaging.py",
        "(1 + updates) / (10 + updates)",
        "updates / (10 + updates)",
        "the average forgets earlier weights faster than it says",
        named(_AVERAGES, "test_it_is_the_weighted_mean_of_the_weights_of_all_steps"),
    ),
    Mutant(
        "training/stacked/step.py",
        "            self._update.take_rates(self._rates[step])",
        "            self._update.take_rates(self._rates[0])",
        "a graph takes all steps of an epoch at the rate of the first",
        named(_RATES, "test_a_captured_step_and_lockstep_take_the_same_rates"),
    ),
)
