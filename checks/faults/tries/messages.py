"""Bad input, which is refused in one sentence before work starts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from checks.faults.tries.attempt import Try
from checks.faults.tries.files import RUN
from runner.config import REPOSITORY
from runner.report.files import read_csv

_OWN = """import torch
from torch import nn
class Normed(nn.Module):
    def __init__(self): super().__init__()
    def forward(self, x): return torch.nn.functional.batch_norm(x, None, None, training=True)
def normed(input_shape, classes, activation):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), Normed(), nn.Linear(8, classes))
def spectral(input_shape, classes, activation):
    return nn.Sequential(nn.Flatten(), nn.utils.parametrizations.spectral_norm(nn.Linear(784, classes)))
class Attends(nn.Module):
    def __init__(self, classes):
        super().__init__(); self.a = nn.MultiheadAttention(28, 4, batch_first=True); self.l = nn.Linear(28, classes)
    def forward(self, x): x = x.squeeze(1); return self.l(self.a(x, x, x)[0].mean(1))
def attends(input_shape, classes, activation): return Attends(classes)
class Recurrent(nn.Module):
    def __init__(self, kind, classes):
        super().__init__(); self.r = kind(28, 8, batch_first=True); self.l = nn.Linear(8, classes)
    def forward(self, x): return self.l(self.r(x.squeeze(1))[0][:, -1])
def gru(input_shape, classes, activation): return Recurrent(nn.GRU, classes)
"""


def _written(name: str, content: str | bytes) -> Callable[[Path], None]:
    def before(here: Path) -> None:
        path = here / "options" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        (here / "own.py").write_text(_OWN)

    return before


def tries() -> list[Try]:
    """List the tries."""
    m = partial(Try, "messages", code=2, records=0)
    own = ("--config-dir", "{here}/options")
    typed = [
        ('optimizer.lr="0.5"', r"optimizer\.lr.*0\.5"),
        ('+optimizer.momentum="0.9"', r"optimizer\.momentum.*0\.9"),
        ('+optimizer.weight_decay="1e-4"', r"optimizer\.weight_decay.*1e-4"),
        ('activation=tempered_sigmoid activation.scale="2"', r"activation\.scale.*2"),
        ('architecture.filters="[16,32]"', r"architecture\.filters"),
        ('loss=cross_entropy +loss.label_smoothing="0.1"', r"loss\.label_smoothing.*0\.1"),
        ('optimizer.lr=fast', r"optimizer\.lr.*fast"),
        ('optimizer.lr=null', r"optimizer\.lr.*(null|None)"),
        ('optimizer.lr=[0.5]', r"optimizer\.lr"),
        ('optimizer.lr=true', r"optimizer\.lr.*([Tt]rue)"),
        ('clipping.norm=true', r"clipping\.norm.*([Tt]rue)"),
        ('epochs=1.5', r"epochs.*1\.5"),
        ('seed=', r"seed"),
        ('noise_multiplier=1,1', r"noise_multiplier|multirun"),
        ('dataset.classes="10"', r"dataset\.classes.*10"),
        ('batch_size="256"x', r"batch_size"),
        ('schedule=cosine schedule.T_max=0', r"schedule"),
        ('epochs=3 +schedule._target_=torch.optim.lr_scheduler.OneCycleLR +schedule._partial_=true '
         '+schedule.max_lr=1 +schedule.total_steps=1', "schedule"),
        ('optimizer._target_=torch.optim.LBFGS ~optimizer.momentum', "optimizer.*(step|closure)"),
        ('+optimizer.capturable=true optimizer=adam', r"optimizer"),
        ('optimizer._target_=torch.optim.SparseAdam', "optimizer.*SparseAdam"),
        ('noise_multiplier=1e-30', "noise_multiplier"),
        ('noise_multiplier=nan', "noise_multiplier"),
        ('architecture.filters=[]', "filters"),
        ('architecture.filters=[90000000,90000000]', "filters|memory|weights"),
        ('scale.name=elsewhere', "scale"),
        ('runtime.results_root=', "results_root"),
        ('runtime.data_root= dataset=mnist scale=paper', "data_root"),
        ('runtime.results_root={here}/out=1', "out=1.*quot|quot.*out=1"),
        ('optimiser.lr=1', "optimizer"),
    ]  # fmt: skip
    found = []
    for text, says in typed:
        found.append(m(text.replace("{here}/", ""), (*RUN, *text.split(" ")), says=says))
    spaced = [
        ("a flag between overrides: -m", (RUN[0], "--multirun", *RUN[1:], "seed=1,2")),
        ("a flag between overrides: --config-dir", (RUN[0], *own, *RUN[1:])),
        ("a flag between overrides: -m at the end, too", ("-m", RUN[0], "-m", *RUN[1:], "seed=1,2")),
    ]
    counts = (2, 1, 2)
    found += [
        m(name, arguments, code=0, records=count, before=_written("clipping/mine.yaml", "norm: 1\n"))
        for (name, arguments), count in zip(spaced, counts, strict=True)
    ]
    absent = [
        ("an absent --config-dir", ("--config-dir", "{here}/absent")),
        ("--config-dir without a value", ("--config-dir",)),
    ]
    found += [
        m(name, (*RUN, *arguments), says=r"config-dir", before=_written("clipping/mine.yaml", "norm: 1\n"))
        for name, arguments in absent
    ]
    bom = "\ufeff"
    soft = "_target_: torch.nn.Softsign\n"
    activation = (*own, *RUN, "activation=mine")
    found += [
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
        m("batch_norm in a user's class", (*RUN, "architecture._target_=own.normed", "~architecture.filters"),
          says="architecture", before=_written("x", "")),
    ]  # fmt: skip
    for name in ("normed", "spectral", "attends", "gru"):
        option = f"_target_: own.{name}\n"
        code = 2 if name == "normed" else 0
        found.append(m(f"your own architecture: {name}", (*own, *RUN, "architecture=mine", "scale.batch_size=4"),
                       code=code, records=None, says="" if code == 0 else "architecture.*more than 1 value",
                       before=_written("architecture/mine.yaml", option), seconds=120.0))  # fmt: skip
    found += [
        m("no memory left", (*RUN, "architecture.units=900000000000"), says="there is not enough memory: "),
        m("explain of a setting of the leaderboard", ("explain", _setting()), code=0, says=f"setting {_setting()}"),
        m("an unknown command", ("sho",), says="Did you mean show"),
        m("show of an absent folder", ("show", "--results", "{here}/absent"), says="absent"),
        m("a results folder with half a record: show", ("show", "--results", "{here}/results"), says=".",
          code=1, records=None, before=_half),
        m("a sweep that is not there", ("-m", "sweeps=tempered_sigmoid/fig_99", *RUN[1:]), says="fig_9|sweeps"),
        m("reproduce with a budget of words", ("reproduce", "tempered-sigmoid", "--budget", "soon"), says="BUDGET"),
    ]  # fmt: skip
    return found


def _setting() -> str:
    """Return a setting of the leaderboard with one run."""
    rows = read_csv(REPOSITORY / "results" / "leaderboard" / "leaderboard.csv")
    return next(row["setting_id"] for row in rows if row["n"] == "1")


def _half(here: Path) -> None:
    runs = here / "results" / "runs"
    runs.mkdir(parents=True)
    (runs / "0123456789ab.json").write_text('{"run_id": ')
