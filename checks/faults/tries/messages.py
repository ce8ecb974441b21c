"""Bad input, which is refused in one sentence before work starts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from checks.faults.tries.attempt import Try
from checks.faults.tries.files import RUN
from runner.config import REPOSITORY
from runner.report.files import read_csv


def _written(name: str, content: str | bytes) -> Callable[[Path], None]:
    def before(here: Path) -> None:
        path = here / "options" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return before


def tries() -> list[Try]:
    """List the tries."""
    m = partial(Try, "messages", code=2, records=0)
    own = ("--config-dir", "{here}/options")
    bom = "\ufeff"
    soft = "_target_: torch.nn.Softsign\n"
    activation = (*own, *RUN, "activation=mine")
    return [
        m("a BOM in a config file", activation, code=0, records=1, before=_written("activation/mine.yaml", bom + soft)),
        m("a config file in UTF-16", activation, says=r"mine\.yaml",
          before=_written("activation/mine.yaml", soft.encode("utf-16"))),
        m("a config file in Latin-1", activation, says=r"mine\.yaml",
          before=_written("activation/mine.yaml", f"# für\n{soft}".encode("latin-1"))),
        m("a tab in a config file", activation, says=r"mine\.yaml.*line 2",
          before=_written("activation/mine.yaml", f"{soft}\tx: 1\n")),
        m("a config file that ends early", activation, says=r"mine\.yaml.*line",
          before=_written("activation/mine.yaml", "_target_: [a\n")),
        m("a key twice in a config file", activation, says=r"mine\.yaml.*line",
          before=_written("activation/mine.yaml", soft + soft)),
        m("an empty config file", activation, says=r"activation", before=_written("activation/mine.yaml", "")),
        m("a config file with a list", activation, says=r"mine\.yaml|activation",
          before=_written("activation/mine.yaml", "- a\n")),
        m("a config file with defaults: 5", activation, says=r"mine\.yaml|defaults",
          before=_written("activation/mine.yaml", "defaults: 5\n" + soft)),
        m("a folder called mine.yaml", activation, says=r"mine", before=_written("activation/mine.yaml/x", soft)),
        m("another user's config file", activation, says=r"mine\.yaml|activation",
          before=_written("activation/mine.yaml", "_target_: os.system\n")),
        m("a number as text in a config file", (*own, *RUN, "optimizer=mine"),
          says=r"optimizer\.lr.*0\.5.*mine\.yaml, line 3",
          before=_written("optimizer/mine.yaml", "_target_: torch.optim.SGD\n_partial_: true\nlr: '0.5'\n")),
        m("explain of a setting of the leaderboard", ("explain", _setting()), code=0, says=f"setting {_setting()}"),
        m("an unknown command", ("sho",), says="Did you mean show"),
    ]  # fmt: skip


def _setting() -> str:
    """Return a setting of the leaderboard with one run."""
    rows = read_csv(REPOSITORY / "results" / "leaderboard" / "leaderboard.csv")
    return next(row["setting_id"] for row in rows if row["n"] == "1")
