"""Errors of Hydra and OmegaConf as one sentence, with what was probably meant."""

import difflib
import re
import sys
from pathlib import Path
from typing import Any

from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf

from runner.config import REPOSITORY
from runner.config.checkout import scan

_ELSEWHERE = {  # names that Opacus and others have for fields, where no name here is similar
    **dict.fromkeys(("max_grad_norm", "clip_norm", "l2_norm_clip"), "clipping.norm"),
    **{"sigma": "noise_multiplier", "sample_rate": "batch_size"},
}
_ALIKE = 0.75  # similarity of a suggested field


def sentence(error: BaseException) -> str:
    """Reduce an error of Hydra or OmegaConf to one line: the message of the innermost cause, and its place."""
    outermost = str(error)
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).partition("Config search path:")[0].splitlines() if line.strip()]
    where = next((line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")), "")
    if not where and (override := re.search(r"Error merging override \+*([\w.]+)=", outermost)):
        where = override[1]
    message = " ".join(line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type=")))
    unknown = re.search(r"Key '(\S+)' (?:is not in struct|not in '\w+')", message)
    if unknown:
        hint = _field_hint(error, where, unknown[1], message)
        message = message.replace(unknown[0], f"there is no field '{unknown[1]}'") + hint
    if typed := re.match(
        r"Error parsing override '([\w/-]+)' missing EQUAL|\w+Exception: (\S.*?) \^+ See https:", message
    ):
        text = typed[1] or typed[2]
        paths = scan(REPOSITORY / "conf", f"*/{text.replace('-', '_')}.yaml") if typed[1] else []
        near = [f"{path.relative_to(REPOSITORY / 'conf').parts[0]}={text}" for path in paths]
        message = f"{text!r} is neither group=option nor field=value."
        message += f" Did you mean {' or '.join(near)}?" if near else ""
    message = message.partition(" See https://")[0]
    message = re.sub(r"^field '(\S+)' is not Optional", r"\1 cannot be null", message)
    repeated = r"^Multiple values for (\w+)\..*: (\w+)'"
    message = re.sub(repeated, r"\1 has a value already: write \1=\2 without +", message)
    if isinstance(error, MissingConfigException):
        message = _missing(error, message, outermost)
    return f"{where}: {message}" if where and where not in message else message


def _missing(error: MissingConfigException, message: str, outermost: str) -> str:
    """State that a group has no option of a name, with the file that is misnamed, with all options or similar ones."""
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    folders = [Path(place) / group for place in re.findall(r"path=file://(.+)", outermost)]
    for path in (path for folder in folders if folder.is_dir() for path in scan(folder, "*")):
        if path.name.lower().partition(".")[0] == name.removesuffix(".yaml").lower():
            name = name.removesuffix(".yaml")
            return f"{group} has no option {name!r}, but {path} is there: its name has to be {name}.yaml"
    if error.options:
        options = [option for option in error.options if not option.startswith(".")]  # left by other programs
        near = difflib.get_close_matches(name, options, n=1)
        end = f". Did you mean {near[0]}?" if near else ". Options of your own are found with --config-dir FOLDER"
        return f"{group} has no option {name!r}: choose from {', '.join(options)}{end}"
    top, _, name = (error.missing_cfg_file or "").partition("/")
    if top not in ("experiment", "sweeps"):
        return message
    folder = REPOSITORY / ("conf/experiment" if top == "experiment" else top)  # which has too many to list
    paths = [path for path in scan(folder, "*/*.yaml") if not path.stem.startswith("base_")]
    names = [path.relative_to(folder).with_suffix("").as_posix() for path in paths]
    near = difflib.get_close_matches(name, names, cutoff=0.5)
    end = f"Did you mean {' or '.join(near)}?" if near else f"They are the files of {folder.relative_to(REPOSITORY)}/"
    return f"{message}. {end}"


def _field_hint(error: BaseException, place: str, name: str, message: str) -> str:
    """Suggest what was meant by a field that there is not, or list the fields of the part of the config that lacks it.

    `place` is where Hydra says that it is missing: `group.name`.
    """
    file = re.search(r"In '((?:experiment|sweeps)/[^']+)'", message)
    if file is not None and name == file[1].partition("/")[0]:  # the fields are put into the group of the file's folder
        return f". The first line of {file[1]}.yaml has to be `# @package _global_`"
    values = [value for field, _, value in (text.partition("=") for text in sys.argv[1:]) if field == name and value]
    options = [path for path in scan(REPOSITORY / "conf", "*/*.yaml") if values and values[0] in path.stem.split("_")]
    if options:  # `model=resnet` is an architecture
        return f". Did you mean {' or '.join(f'{path.parent.name}={path.stem}' for path in options[:3])}?"
    if name in _ELSEWHERE and place in ("", name):
        return f". It is called {_ELSEWHERE[name]} here"
    parent: Any = getattr(error, "parent_node", None) or {}
    names = [str(field) for field in parent]
    fields = [field for field in names if field != "hydra" and not field.startswith("_")]
    if name in ("epsilon", "eps") and "max_epsilon" in fields:
        return ". sound_epsilon calibrates the noise to a proven ε, and max_epsilon ends training within the paper's"
    inside = [f"{group}.{name}" for group in fields if isinstance(parent[group], DictConfig) and name in parent[group]]
    near = inside or difflib.get_close_matches(name, fields, n=1, cutoff=_ALIKE)
    if near:
        return f". Did you mean {near[0]}?"
    if fields:
        more = ". Write + before any other argument of its class" if "_target_" in names else ""
        return f". Choose from {', '.join(fields)}{more}"
    group, _, field = place.partition(".")
    files = scan(REPOSITORY / "conf" / group, "*.yaml") if field else []
    owners = [f"{group}={path.stem}" for path in files if field in OmegaConf.load(path)]
    return f". It belongs to {' and '.join(owners)}" if owners else ""
