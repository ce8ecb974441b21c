"""What a run's ε rest on beside this package: what the user's own classes state.

Where noise, charges or releases before training are a user's own, no sound ε is known at all: see `Run.unsound`.
"""

from __future__ import annotations

import torch

from runner.clipping import Lipschitz
from runner.gradients import Objective
from runner.training.prepare import Run


def own(part: object) -> bool:
    """Whether a part of a run is the user's: of a class that is neither PyTorch's nor this package's."""
    return type(part).__module__.partition(".")[0] not in (__name__.partition(".")[0], torch.__name__)


def rests_on_own_classes(run: Run, objective: Objective) -> bool:
    """Whether what one example contributes is bounded by something that the user's classes state."""
    by_network = isinstance(run.clipping, Lipschitz) and any(map(own, objective.modules()))
    return own(run.clipping) or own(run.mechanism) or by_network


def stated_by_own_classes(run: Run) -> list[str]:
    """What the run's ε rest on that this package cannot know: what the user's classes state. Empty where there is none.

    To be said beside them. Trials are of some examples and steps, and say nothing of later ones.
    """
    if not run.mechanism.private:
        return []
    stated = {
        "features": (run.features, "features of an image by {}: that others' do not matter is tried on made-up ones"),
        "clipping": (run.clipping, "sensitivity as stated by {}: tried on made-up examples at the first weights"),
        "accountant": (run.accountant, "ε as {} computes it: not tried"),
        "screening": (run.rule, "updates by {}: not tried"),
    }
    words = "Lipschitz constant as stated by {}" if isinstance(run.clipping, Lipschitz) else "examples kept apart by {}"
    words += ": tried on made-up examples at the first weights"
    stated |= {type(part).__qualname__: (part, words) for part in run.new_objective().modules()}
    return [text.format(type(part).__qualname__) for part, text in stated.values() if part is not None and own(part)]
