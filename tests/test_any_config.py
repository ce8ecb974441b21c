"""Every config either trains, or is refused before work starts with one sentence that names a field.

Configs are drawn at random: options of every group, fields of the schema, and arguments of the chosen options. Values
have the field's type, lie at its bounds and beyond, or have other types.
"""

import os
import re
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from omegaconf import DictConfig, ListConfig

from runner.cli.errors import explained
from runner.config import FIELDS
from runner.config.options import check_options
from runner.runs.execute import execute
from tests.conftest import Compose
from tests.tracked import tracked_options

EXAMPLES = int(os.environ.get("DP_REPRO_EXAMPLES", "20"))
LONGEST = 180  # seconds until a run has ended, or hangs
MOST = 8 * 2**30  # bytes of addresses that a run may take beyond those that the process holds already
SMALL = ("scale=smoke", "scale.batch_size=512", "epochs=1", "batch_size=512")  # three steps and an evaluation
GROUPS = sorted(name for name, field in FIELDS.items() if field.names_class)
OPTIONS = {group: tracked_options(group) for group in GROUPS}
NOT_DRAWN = {  # where things are, and what makes a run of the digits that come with scikit-learn
    "results_root", "data_root", "directory", "mode", "name", "bundled", "bundled_data", "_target_", "_partial_",
}  # fmt: skip

INTEGERS = [-(2**63), -3, -1, 0, 1, 2, 3, 7, 13, 2**31, 2**40, 10**30]
NUMBERS = ["-inf", -1e300, -1.0, -1e-9, 0.0, 1e-300, 1e-9, 0.01, 0.5, 0.9, 1.0, 1.5, 30.0, 1e9, 1e300, "inf", "nan"]
LISTS = ["[]", "[0]", "[-1]", "[1]", "[2,3]", "[3,4,5]", "[1000000000000]", "[x]", "[null]", "[1.5,2]", "[[1]]"]
OTHERS = ["null", "x", "true", "''", "{a:1}", "3", "[1]"]


def like(value: Any) -> SearchStrategy[str]:
    """Texts for a field that has this value: mostly of its type."""
    of_type: Mapping[type, list[Any]] = {
        bool: ["true", "false"], int: INTEGERS, float: NUMBERS + INTEGERS[3:7], ListConfig: LISTS
    }  # fmt: skip
    values = of_type.get(type(value), [*INTEGERS[2:8], *NUMBERS[4:12], *OTHERS])
    return st.sampled_from(values).map(str) | st.sampled_from(values).map(str) | st.sampled_from(OTHERS)


def fields_of(config: DictConfig) -> dict[str, Any]:
    """The fields that can be set, groups' arguments by their full names, and their values."""

    def within(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in node.items():
            if name in NOT_DRAWN:
                continue
            if isinstance(value, DictConfig):
                yield from within(value, f"{prefix}{name}.")
            else:
                yield prefix + name, value

    return dict(within(config, ""))


@st.composite
def overrides(draw: DrawFn, composed: Callable[..., DictConfig]) -> list[str]:
    """Up to two options of groups, and one to three values, a null for a group among them."""
    groups = draw(st.lists(st.sampled_from(GROUPS), max_size=2, unique=True))
    choices = [f"{group}={draw(st.sampled_from(OPTIONS[group]))}" for group in groups]
    fields = fields_of(composed(*SMALL, *choices))
    names = draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=3, unique=True))
    return choices + [f"{name}={draw(like(fields[name]))}" for name in names]


@contextmanager
def within(seconds: int, memory: int) -> Iterator[None]:
    """End a run that takes longer, or more than `memory` bytes beyond those held already, to protect the machine."""

    def late(number: int, frame: object) -> NoReturn:
        raise TimeoutError(f"nothing said within {seconds} s")

    before, limits = signal.signal(signal.SIGALRM, late), resource.getrlimit(resource.RLIMIT_AS)
    signal.alarm(seconds)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + memory, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refused_or_run(composed: Callable[..., DictConfig], said: list[str], folder: Path) -> str:
    """Execute a run of these overrides, and return its outcome, or the sentence that refuses it."""
    try:
        check_options(said)
        config = composed(*SMALL, "tracking=disabled", *said)
        with within(LONGEST, MOST):
            return execute(config, on_epoch=lambda row, run: None)
    except Exception as error:
        sentence, code = explained(error)
        assert code == 2, sentence
        assert not list(folder.rglob("failed/*")), "it was refused when work had begun"
        return sentence


@settings(
    max_examples=EXAMPLES,
    derandomize=True,  # the same examples each time
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_is_set_trains_or_is_refused(data: st.DataObject, composed: Compose, tmp_path: Path) -> None:
    said = data.draw(overrides(composed), label="overrides")
    sentence = refused_or_run(composed, said, tmp_path)
    if sentence not in ("finished", "diverged", "skipped"):
        assert set(re.findall(r"\w+", sentence)) & set(FIELDS), f"names no field: {sentence}"
        assert "\n" not in sentence.strip()
