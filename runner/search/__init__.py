"""A search over the fields that a sweep draws at random: which are tried next, which are stopped, what was best."""

from runner.search.space import RETRAINED, Space, space_of
from runner.search.trials import Trial, best, curve, pareto, trials_of

__all__ = ["RETRAINED", "Space", "Trial", "best", "curve", "pareto", "space_of", "trials_of"]
