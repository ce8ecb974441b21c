"""One meaning of the ε of records, whenever they were written: `epsilon_sound` is a guarantee, or it is null.

Records from before this rule stay as they are. Three things in them have another meaning, so `as_today` translates each
record when it is read, and every page, table and command has the result:

- If the data decide the number of steps, `final.epsilon_sound` was what the steps cost. The guarantee, the cost of the
  most steps that there could have been, was `epsilon_sound_at_max_tries`. They are `epsilon_spent` and `epsilon_sound`.
- With screening to a budget, the history's `epsilon_sound` was what the steps cost. It is `epsilon_spent`.
- If features are standardised by statistics of the training images, there was an `epsilon_sound` for the steps alone.
  It is `epsilon_spent`, and `epsilon_sound` is null, with the reason in `provenance.epsilon_unsound`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.data.originals import private_statistics

_AT_MOST = "epsilon_sound_at_max_tries"


def as_today(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the fields of ε that today's code writes. One of today's stays as it is.

    No number is lost, so `runner.records.verify` compares the result with the config for both forms.
    """
    history, final = dict(record["history"]), dict(record["final"])
    config, provenance = record["config"], dict(record["provenance"])
    if _AT_MOST in final:
        budget = config.get("max_epsilon") is not None and "accepted" in history
        at_most = final.pop(_AT_MOST)
        all_tries = final["steps"] == final.get("max_tries") and final["epsilon_sound"] == at_most
        if record["status"] == "finished" and all_tries and not budget:
            del final["max_tries"]
        elif at_most is not None:
            final |= {"epsilon_spent": final["epsilon_sound"], "epsilon_sound": at_most}
            history = _renamed(history) if budget else history
    unsound = private_statistics(config["features"], config["dataset"])
    if unsound and config.get("noise_multiplier") != 0 and "epsilon_unsound" not in provenance:
        final = {"epsilon_spent": final["epsilon_sound"], **final, "epsilon_sound": None}
        history, provenance = _renamed(history), {"epsilon_unsound": unsound, **provenance}
    return {**record, "history": history, "final": final, "provenance": provenance}


def _renamed(history: Mapping[str, Any]) -> dict[str, Any]:
    return {"epsilon_spent" if name == "epsilon_sound" else name: column for name, column in history.items()}
