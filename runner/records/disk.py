"""Records: one small JSON file per run, written once and never changed.

Each carries a digest of itself, so that one that was cut off, damaged or edited is found wherever it is read. Measured
numbers keep five significant digits; those that JSON cannot hold are the strings "inf", "-inf" and "nan".

`epsilon_sound` is a guarantee, or it is null. Four things in older records have another meaning, so `as_today`
translates each record when it is read, and every page, table and command has the result:

- If the data decide the number of steps, `final.epsilon_sound` was what the steps cost. The guarantee, the cost of the
  most steps that there could have been, was `epsilon_sound_at_max_tries`. They are `epsilon_spent` and `epsilon_sound`.
- With screening to a budget, the history's `epsilon_sound` was what the steps cost. It is `epsilon_spent`.
- If features are standardised by statistics of the training images, there was an `epsilon_sound` for the steps alone.
  It is `epsilon_spent`, and `epsilon_sound` is null, with the reason in `provenance.epsilon_unsound`.
- Banded noise with equal parts was said to hold for an example that is added or removed. It is proven for one whose
  contribution is set to zero (`runner.mechanism.banded`).
"""

import fcntl
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from decimal import ROUND_HALF_EVEN, ROUND_UP, Context
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from omegaconf import DictConfig

from runner.config import PAPER, RESULTS, YOURS, ConfigError
from runner.data.originals import private_statistics
from runner.files import locked, write_or_rescue
from runner.records import schema
from runner.records.identity import identify, identify_recorded
from runner.terminal import printable

_BANDED = "runner.mechanism.banded.Banded"
_MOMENT = 0.2  # seconds to wait for the lock of a claim
STOPPED = "stopped"  # what a search did to a run before its last epoch: its status, and the folder of its kind


def results_folder(config: DictConfig | Mapping[str, Any]) -> Path:
    """Return the folder of a run's results: results/ at paper scale, results/<scale>/ at any other.

    Results of different scales therefore never mix.
    """
    root, scale = Path(config["runtime"]["results_root"]).expanduser(), config["scale"]["name"]
    return root if scale == "paper" else root / scale


def use_own_folder(config: DictConfig, overrides: Sequence[str]) -> None:
    """Send the records of a user's run to results/yours, which git ignores, unless an override names a folder."""
    chosen = any(text.startswith("runtime.results_root=") for text in overrides)
    if not chosen and config.scale.name == PAPER and Path(config.runtime.results_root) == RESULTS:
        config.runtime.results_root = str(YOURS)


def record_path(folder: Path, run_id: str) -> Path:
    """Return the file of a finished run."""
    return folder / "runs" / f"{run_id}.json"


def find_record(folder: Path, run_id: str) -> Path:
    """Return the file that has a run's record, or would have it.

    Behind the folder of a user's own results stand the records of this repository: a run that these have is not
    trained again. To train it all the same, use another folder.
    """
    path = record_path(folder, run_id)
    if path.exists() or path.is_symlink() or not folder.is_relative_to(YOURS):
        return path
    committed = record_path(RESULTS / folder.relative_to(YOURS), run_id)
    return committed if committed.exists() else path


def failure_path(folder: Path, run_id: str) -> Path:
    """Return the file of a run that raised an error. It is no record: the run is repeated, and the file overwritten."""
    return folder / "failed" / f"{run_id}.json"


def stopped_path(folder: Path, run_id: str) -> Path:
    """Return the file of a run that a search stopped. It has the measurements until then. The run can still be made."""
    return folder / STOPPED / f"{run_id}.json"


def recorded(config: DictConfig) -> bool:
    """Return True if the run of a resolved config has a record. A damaged record does not count: see `set_aside`.

    Raises:
        UnreadableRecordError: the file may be a record, but cannot be read here.
    """
    return bool(_is_whole(find_record(results_folder(config), identify(config)[0])))


def is_recorded(folder: Path, run_id: str) -> bool:
    """Return True if a folder of results has a readable record of a run."""
    with suppress(UnreadableRecordError):
        return bool(_is_whole(find_record(folder, run_id)))
    return False


def _is_whole(path: Path) -> bool | None:
    """Return True for a record, False for a damaged one or a link to nothing, and None if there is no file."""
    try:
        read_record(path)
    except UnreadableRecordError:
        raise
    except FileNotFoundError:
        return False if path.is_symlink() else None
    except ValueError:
        return False
    return True


def set_aside(path: Path) -> Path | None:
    """Move what is at a record's place and is no record next to it, for somebody to look at, and make room for one.

    Returns where it is now; None where there was nothing, or a record.

    Raises:
        UnreadableRecordError: it may be a record, and cannot be read here. It stays.
    """
    if _is_whole(path) is not False:
        return None
    places = (path.with_suffix(f".broken-{number}") for number in count(1))
    return path.rename(next(place for place in places if not place.exists()))


def write_record(path: Path, record: dict[str, Any], *, replace: bool = False) -> bool:
    """Write a record with rounded numbers, or return False if `path` exists and `replace` is not set.

    Raises:
        OSError: it cannot be written there. The message says where it is instead, and how to put it in its place.
    """
    return write_or_rescue(path, dumps(record), replace=replace)


def write_stopped(path: Path, record: dict[str, Any]) -> None:
    """Write the measurements of a run that a search stopped, unless another search stopped it later."""
    set_aside(path)
    before = read_record(path)["history"]["epoch"] if path.exists() else []
    if len(record["history"]["epoch"]) > len(before):
        write_record(path, record, replace=True)


class UnreadableRecordError(ConfigError):
    """A file at a record's place that cannot be read here and is no damaged record: it stays, and no run replaces it.

    Either the operating system does not give it, or it carries the digest of what it says but is not what this version
    writes. A newer version may have written it.
    """


def read_record(path: Path) -> dict[str, Any]:
    """Read a record, as today's code writes it (`as_today`), and check that it is the run it is filed under.

    Raises:
        FileNotFoundError: there is no file.
        UnreadableRecordError: the file cannot be opened, or a newer version wrote it. This is a ValueError, too.
        ValueError: naming the file, where it is anything else but a record: see `check_record`.
    """
    try:
        if path.exists() and not path.is_file():  # a folder, or a pipe, which would be waited for
            raise ValueError("it is not a file")
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableRecordError(printable(f"{path} cannot be read: {error.strerror}.")) from error
    except (RecursionError, ValueError) as error:
        _refuse(path, str(error) if type(error) is ValueError else f"{type(error).__name__} {error}")
    check_record(path, record)
    return as_today(record)


def as_today(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the fields of ε that today's code writes. One of today's stays as it is.

    No number is lost, so `runner.records.verify` compares the result with the config for both forms.
    """
    history, final = dict(record["history"]), dict(record["final"])
    config, provenance = record["config"], dict(record["provenance"])
    spent = {"epsilon_spent" if name == "epsilon_sound" else name: column for name, column in history.items()}
    if schema.AT_MOST in final:
        budget = config.get("max_epsilon") is not None and "accepted" in history
        at_most = final.pop(schema.AT_MOST)
        all_tries = final["steps"] == final.get("max_tries") and final["epsilon_sound"] == at_most
        if record["status"] == "finished" and all_tries and not budget:
            del final["max_tries"]
        elif at_most is not None:
            final |= {"epsilon_spent": final["epsilon_sound"], "epsilon_sound": at_most}
            history = spent if budget else history
    mechanism = config.get("mechanism") or {}
    if mechanism.get("_target_") == _BANDED and not mechanism.get("parts") and "neighbouring_relation" in final:
        final["neighbouring_relation"] = "zero-out"
    unsound = private_statistics(config)
    if unsound and config.get("noise_multiplier") != 0 and "epsilon_unsound" not in provenance:
        final = {"epsilon_spent": final["epsilon_sound"], **final, "epsilon_sound": None}
        history, provenance = spent, {"epsilon_unsound": unsound, **provenance}
    return {**record, "history": history, "final": final, "provenance": provenance}


def check_record(path: Path, record: Any) -> None:
    """Check that a record is valid, and that `path` is its file.

    Raises:
        UnreadableRecordError: the digest matches the content, but `runner.records.schema` does not allow the content.
        ValueError: the digest does not match the content. Or the ids do not follow from the config, or the file has
            another name or folder.
    """
    try:
        if not isinstance(record, dict) or record.get("digest") != digest_of(record):
            _refuse(path, "its digest is not that of what it says")
        schema.validate(record)
        ids = identify_recorded(record["config"])
    except RecursionError:
        _refuse(path, "it is nested too deeply")
    except schema.SchemaError as error:
        text = f"{path} was written by a newer version, or changed by hand: {error}. Update, or move it away."
        raise UnreadableRecordError(printable(text)) from error
    if record["run_id"] != path.stem:
        _refuse(path, "its run_id is not its file's name")
    if ids != (record["run_id"], record["setting_id"]):
        _refuse(path, "its ids are not those of its config")
    if (record["status"] == STOPPED) != (path.parent.name == STOPPED):
        _refuse(path, "it is stopped and lies where runs do, or the other way round")


def upper_bound(epsilon: float | str | None) -> float:
    """Return a recorded epsilon as a number. An unknown epsilon is infinite, as it guarantees nothing."""
    return math.inf if epsilon is None else float(epsilon)


def digest_of(record: dict[str, Any]) -> str:
    """Hash a record without its digest: the SHA-256 of its JSON with sorted keys, no spaces and ASCII only."""
    content = {name: value for name, value in record.items() if name != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _refuse(path: Path, reason: str) -> NoReturn:
    raise ValueError(printable(f"{path} is not a whole record: {reason}."))


def dumps(record: dict[str, Any]) -> str:
    """Write a record as JSON text, with its measured numbers rounded, and the digest of the result."""
    content = rounded({**record, "config": None}) | {"config": record["config"]}  # the ids are the hash of the latter
    return text_of(content | {"digest": digest_of(json.loads(json.dumps(content)))})


def text_of(record: dict[str, Any]) -> str:
    """Write a record as JSON text without rounding. A list is one line, so that a diff of two records is readable."""

    def block(values: Mapping[str, Any], indent: str, text: Callable[[Any], str]) -> str:
        return "{\n" + ",\n".join(f"{indent}{json.dumps(name)}: {text(v)}" for name, v in values.items()) + "\n}"

    return block(record, "", lambda v: block(v, "  ", json.dumps) if isinstance(v, dict) else json.dumps(v)) + "\n"


def rounded(value: Any, name: str = "") -> Any:
    """Floats to five significant digits, non-finite ones to strings, through nested lists and dicts.

    What is called epsilon is rounded up, so that an upper bound stays one, and so is the noise that it takes.
    """
    if isinstance(value, dict):
        return {key: rounded(v, key) for key, v in value.items()}
    if isinstance(value, list):
        return [rounded(v, name) for v in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return str(value)
    rounding = ROUND_UP if name.startswith(("epsilon", "noise_multiplier")) else ROUND_HALF_EVEN
    return float(Context(prec=5, rounding=rounding).create_decimal(repr(value)))


def claims_folder(results_root: str | Path) -> Path:
    """Return the folder of the locks that `claim` holds."""
    return Path(results_root).expanduser() / ".locks"


def claim(results_root: str | Path, run_id: str) -> AbstractContextManager[bool]:
    """Claim a run on this machine: a context that yields False where another process is computing it."""
    return locked(claims_folder(results_root) / run_id, wait=_MOMENT)  # `progress` holds the lock for an instant


def write_progress(results_root: str | Path, run_id: str, text: str) -> None:
    """Write how far a claimed run is into the file of its claim. A file that cannot be written stops no run."""
    with suppress(OSError):
        (claims_folder(results_root) / run_id).write_text(text, encoding="utf-8")


def progress(results_root: str | Path, run_id: str) -> str | None:
    """Return how far a run is, by its last epoch in words, or None if no process computes it.

    The operating system drops a claim when its process ends, however it ends.
    """
    try:
        with (claims_folder(results_root) / run_id).open(encoding="utf-8") as file:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            return file.read()
    except (OSError, ValueError):
        return None
