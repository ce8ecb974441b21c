"""The weights that a run ends with, kept where `save_model` asks for them: a file next to the records, in models/."""

import io
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from runner.build.groups import check_groups
from runner.build.parts import build_dataset, build_features, build_objective
from runner.clipping import NoClipping
from runner.config import ConfigError
from runner.data.reproducible import seeded
from runner.files import write_or_rescue
from runner.gradients import Objective, unknown
from runner.mechanism.normal import derived_seed
from runner.records.identity import recorded_config
from runner.trust.sources import bare_name, check_sources

_NAMED = 5  # keys of another program's file that a message names


def model_path(folder: Path, run_id: str) -> Path:
    return folder / "models" / f"{run_id}.pt"


def save(path: Path, config: DictConfig, objective: Objective) -> None:
    """Keep the weights and buffers of a network, and the config that it is built from.

    Raises:
        OSError: they cannot be written there. The message says where they are instead.
    """
    weights = {name: value.detach().cpu().clone() for name, value in objective.state_dict().items()}
    buffer = io.BytesIO()
    torch.save({"config": recorded_config(config), "weights": weights}, buffer)
    write_or_rescue(path, buffer.getvalue(), replace=True)


def load(path: Path) -> Objective:
    """Load the network and its loss at the end of a run, on the CPU, ready to evaluate.

    The network takes the run's features of images: `build_features(Group(config, "features"))`.

    Raises:
        ConfigError: it is no such file, or a class of its config has changed or is missing.
        pickle.UnpicklingError: the file holds more than numbers and texts.
    """
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, dict) or not content.keys() >= {"config", "weights"}:
        held = ", ".join(map(str, [*content][:_NAMED])) if isinstance(content, dict) else type(content).__name__
        raise ConfigError(
            f"{path} holds {held or 'nothing'}, and not the config and weights that save_model=true writes: load the "
            f"checkpoint of another program with torch.load."
        )
    recorded: dict[str, Any] = content["config"]
    config = OmegaConf.create(recorded)
    check_sources(config)
    groups = check_groups(config)
    dataset, features = build_dataset(groups["dataset"], config), build_features(groups["features"])
    with seeded(derived_seed(config.seed, "init")):
        objective = build_objective(groups, dataset, features, groups["normalization"].build())
    objective.load_state_dict(content["weights"])
    bounded = bare_name(config.clipping._target_) != NoClipping.__name__
    objective.isolated = bounded and unknown(objective) is not None  # as `Run.isolated`
    return objective.eval()
