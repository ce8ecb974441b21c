"""Faults in resuming a stopped run."""

from checks.mutants.mutant import Mutant, named

_SAME = named("runs/test_checkpoints.py", "test_a_run_that_was_stopped_twice_ends_with_every_bit")
_OWN = named(
    "runs/test_checkpoints.py",
    "test_a_checkpoint_is_of_the_code_that_is_there",
    "test_a_checkpoint_under_another_runs_name_is_not_gone_on_from",
    "test_other_threads_are_another_rounding",
)

_DRAWS = named("training/test_loop.py", "test_a_resumed_run_draws_as_a_whole_one")

MUTANTS = (
    Mutant(
        "training/loop.py",
        "put_back(state, parts, steps.generators, device)",
        'put_back(state, parts, {"sampling": steps.generators["sampling"]}, device)',
        "a resumed run draws the noise of its first steps a second time",
        _SAME,
    ),
    Mutant(
        "training/loop.py",
        "            for step_in_epoch, each in enumerate(kept[int(begin) : int(end)]):\n"
        "                self.charge_step(step_in_epoch, each)",
        "            self._kept += kept[int(begin) : int(end)]",
        "a resumed run forgets what its steps have cost so far",
        _SAME,
    ),
    Mutant(
        "training/loop.py",
        "if self._run.sound_epsilon(self._ledger) != trained.history",
        "if False and self._run.sound_epsilon(self._ledger) != trained.history",
        "a state with fewer steps than it says is gone on from",
        named("runs/test_checkpoints.py", "test_steps_that_cost_another_epsilon_are_refused"),
    ),
    Mutant(
        "training/updates/plain.py",
        '        self.optimizer.load_state_dict(state["optimizer"])\n',
        "",
        "a resumed run has lost its momentum",
        _SAME,
    ),
    Mutant(
        "training/updates/screened.py",
        '        self._draws.set_state(state["draws"])\n',
        "",
        "a resumed run decides by the uniform numbers of its first tries",
        _SAME,
    ),
    Mutant(
        "training/state.py",
        '    torch.set_rng_state(state["layers"])\n',
        "",
        "the layers of a resumed run draw the numbers of its first epoch",
        _DRAWS,
    ),
    Mutant(
        "gradients/one_pass/engine.py",
        "with torch.random.fork_rng(devices=devices):",
        "if True:",
        "the trial of a resumed run's engine draws from the generator that was put back",
        _DRAWS,
    ),
    Mutant(
        "runs/checkpoints.py",
        "others = [name for name, value in self._bound.items() if content",
        "others = [name for name, value in () if content",
        "a checkpoint of other code, or of another run, is gone on from",
        _OWN,
    ),
    Mutant(
        "runs/checkpoints.py",
        'map_location="cpu", weights_only=True)',
        'map_location="cpu", weights_only=False)',
        "a checkpoint may say what is run when it is read",
        named("runs/test_checkpoints.py", "test_nothing_that_a_checkpoint_says_is_run"),
    ),
)
