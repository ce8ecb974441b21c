"""The bench from Python: what the commands do, on the same records."""

import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.version import getbase
from packaging.version import Version

from runner.accounting import Pld, Rdp, Zcdp
from runner.api import ConfigError, Step, compute_epsilon, load_records, load_run, run_study, train_run
from runner.config import REPOSITORY
from runner.records.jobs import composed_values
from tests import choosing
from tests.small import FEW_STEPS

TANH = ("experiment=tempered_sigmoid/mnist_tanh", "scale=smoke", "tracking=disabled", "diagnostics=[]", *FEW_STEPS)


@pytest.fixture
def train(tmp_path: Path):
    """`train_run` with results in the test's own folder."""
    return partial(train_run, *TANH, results_root=tmp_path / "results")


def test_a_run_has_both_epsilons_history_and_weights(train) -> None:
    steps: list[Step] = []
    run = train(sound_epsilon=3, on_step=steps.append)
    assert run.epsilon_sound == pytest.approx(3, abs=1e-3)
    assert run.epsilon_sound <= 3 < run.epsilon
    assert list(run.history["epoch"]) == [1, 2]
    assert run.history["test_accuracy"].iloc[-1] == run.accuracy
    assert run.model(torch.zeros(5, 1, 28, 28)).shape == (5, 10)
    assert [step.step for step in steps] == list(range(1, steps[-1].steps + 1))
    assert steps[-1].epsilon_sound == pytest.approx(run.epsilon_sound, abs=1e-3)
    assert {name for name in dir(steps[0]) if not name.startswith("_")} == {
        "epoch", "step", "steps", "epsilon", "epsilon_sound"
    }  # fmt: skip


def test_a_recorded_run_is_not_trained_again(train) -> None:
    first = train(seed=1)
    second = train(seed=1, on_epoch=lambda row: pytest.fail("it was trained"))
    assert (first.run_id, first.record) == (second.run_id, second.record)
    assert load_run(first.run_id[:8], first.path.parents[2]).record == first.record


def test_a_class_takes_the_place_of_an_option(train) -> None:
    """Its record has its arguments, its source and the command that names it, without the arguments it replaced."""
    run = train(loss=partial(torch.nn.CrossEntropyLoss, label_smoothing=0.25, reduction="none"))
    assert run.record["config"]["loss"] == {
        "_target_": "torch.nn.modules.loss.CrossEntropyLoss", "label_smoothing": 0.25, "reduction": "none"
    }  # fmt: skip
    assert "loss._target_=torch.nn.modules.loss.CrossEntropyLoss" in run.record["provenance"]["command"]


class Holding(torch.nn.CrossEntropyLoss):
    """Cross-entropy that keeps its arguments."""

    def __init__(self, **kept: Any) -> None:
        super().__init__(reduction="none")
        self.kept = kept


def test_values_of_python_arrive_as_they_are(train) -> None:
    """Texts that read as numbers stay texts, and NumPy's numbers are numbers, also in a folder with a quote."""
    kept = {"text": "1", "none": "null", "quoted": "it's a \\, {", "listed": ["x y", 2.5], "named": {"a": True}}
    folder = train.keywords["results_root"].with_name("it's")
    run = train(seed=np.int64(1), loss=partial(Holding, **kept, share=np.float32(0.5)), results_root=folder)
    config = run.record["config"]
    assert (config["seed"], run.path.is_relative_to(folder)) == (1, True)
    assert config["loss"] == {"_target_": f"{__name__}.Holding", **kept, "share": 0.5}


class Inverted:
    """Features: one less the pixels."""

    def shape(self, image_shape: list[int]) -> list[int]:
        return image_shape

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return 1 - images


def pictures() -> Any:
    images = torch.rand(160, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    return (images[:120], torch.arange(120) % 10), (images[120:], torch.arange(40) % 10)


def test_features_and_a_function_take_the_place_of_options(train) -> None:
    """Their own arguments alone are left, though Hydra cannot take a null away; the command repeats the run."""
    run = train(features=Inverted, dataset=pictures, batch_size=8)
    config = run.record["config"]
    assert config["features"] == {"_target_": f"{__name__}.Inverted"}
    assert config["dataset"] == {"_target_": f"{__name__}.pictures"}
    words = shlex.split(run.record["provenance"]["command"])[3:]
    assert train_run(*words, "tracking=disabled", results_root=run.path.parents[2]).record == run.record


def test_a_run_ends_where_on_epoch_says_so(train) -> None:
    run = train(on_epoch=lambda row: row["epoch"] < 1)
    assert (run.record["status"], list(run.history["epoch"])) == ("stopped", [1])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"epochz": 3}, "there is no field 'epochz'. Did you mean epochs?"),
        ({"activation": "rleu"}, "activation has no option 'rleu'"),
        ({"seed": torch.nn.ReLU}, "seed takes no class. Groups that do: dataset, "),
        ({"activation": type("Mine", (torch.nn.Tanh,), {})}, "Mine is not in a file that a record could identify"),
        ({"loss": partial(torch.nn.CrossEntropyLoss, None)}, "name the arguments of CrossEntropyLoss"),
        ({"loss": torch.optim.Muon}, "loss._target_=torch.optim.Muon is no torch.nn.Module"),  # it has no source there
        ({"loss": torch.nn.CrossEntropyLoss()}, "loss takes a name, a number or a class, not CrossEntropyLoss()"),
        ({"sound_epsilon": 3, "noise_multiplier": 1}, "leave noise_multiplier out"),
        ({"mechanism": choosing.Bare}, "Bare has no applied, which a mechanism needs"),
    ],
)
def test_a_wrong_request_is_one_sentence(fields, sentence: str, train) -> None:
    with pytest.raises(ConfigError) as refusal:
        train(**fields)
    assert sentence in str(refusal.value)


def test_a_scale_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Unknown scale 'smoek': choose from paper, smoke"):
        run_study(tmp_path / "mine.yaml", scale="smoek")


def test_epsilon_of_a_script_is_that_of_the_library() -> None:
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

    assert compute_epsilon(1.1, 256 / 60_000, 14_040) == pytest.approx(2.3797, abs=1e-3)
    shuffled = get_epsilon_gaussian(2 / math.sqrt(3), 1e-5)  # of three passes at a noise of 2
    loop = {"batch_size": 10, "examples": 1_000, "epochs": 3}
    assert compute_epsilon(2.0, **loop, shuffled=True) == pytest.approx(shuffled, 1e-3)
    assert compute_epsilon(2.0, **loop) == compute_epsilon(2.0, 0.01, 300)
    for kind in (Pld, Rdp, Zcdp):  # far beyond the noise whose square a float can hold
        least = compute_epsilon(1e100, 0.01, 300, accountant=kind())
        assert compute_epsilon(1e300, 0.01, 300, accountant=kind) == least


@pytest.mark.parametrize("number", [np.uint8, np.int16, np.array, torch.tensor])
def test_epsilon_does_not_depend_on_a_number_s_type(number: Callable[[int], Any]) -> None:
    numbers = {"batch_size": 10, "examples": 100, "epochs": 30}  # 300 steps, which eight bits cannot hold
    typed = {name: number(value) for name, value in numbers.items()}
    assert compute_epsilon(number(2), **typed) == compute_epsilon(2, **numbers)


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({"sampling_rate": 2, "steps": 3}, "A sampling rate of 2 is not from 1e-15 to 1."),
        ({"sampling_rate": 0.01, "steps": 3, "epochs": 3}, "Give the number of epochs or of steps."),
        ({"batch_size": 256, "steps": 3}, "Give both the batch size and the number of examples"),
        ({"steps": 3}, "or the sampling rate in place of both"),
        ({"batch_size": 256, "examples": 100, "steps": 3}, "A batch size of 256 is more than 100 examples."),
        ({"sampling_rate": 0.01, "steps": 2.5}, "A number of steps of 2.5 is no whole number from 1 to 1e+15."),
        ({"sampling_rate": 1e-300, "epochs": 3}, "A sampling rate of 1e-300 is not from 1e-15 to 1."),
        ({"sampling_rate": 1e-14, "epochs": 300}, "These are more than 1e+15 steps"),
        ({"batch_size": 10, "examples": 1_000, "epochs": 1, "delta": 0.001}, "so large a δ allows publishing one of"),
        ({"sampling_rate": "0.01", "steps": 3}, "sampling_rate='0.01' is no number."),
        ({"sampling_rate": 0.01, "steps": 3, "delta": None}, "delta=None is no number."),
        ({"sampling_rate": 0.01, "steps": 3, "accountant": "pld"}, "accountant='pld' is no accountant"),
    ],
)
def test_a_script_of_impossible_numbers_is_refused(numbers: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        compute_epsilon(1.0, **numbers)
    assert sentence in str(refusal.value)


def test_records_are_a_table_with_a_row_for_each_run(train) -> None:
    runs = [train(seed=seed) for seed in (0, 1)]
    folder = runs[0].path.parents[2]
    table = load_records(folder, scale="smoke")
    assert len(load_records(folder)) == len(load_records(folder, scale=None, evaluation="holdout")) == 0
    for unknown in ({"scale": "smok"}, {"evaluation": "tests"}):
        with pytest.raises(ConfigError, match=r"there is no \w+ '\w+'. Did you mean \w+\?"):
            load_records(folder, **unknown)
    with pytest.raises(ConfigError, match="nowhere is no folder"):
        load_records(folder / "nowhere")
    assert set(table.index) == {run.run_id for run in runs}
    row = table.loc[runs[0].run_id]
    assert (row["activation"], row["clipping.norm"], row["test_accuracy"]) == ("Tanh", 1.0, runs[0].accuracy)
    assert row["history.epoch"] == [1, 2]


def test_the_hydra_of_a_program_stays_as_it_is(tmp_path: Path) -> None:
    """What the program composes, between and after configs of this package, follows its own store and its version."""
    (tmp_path / "program.yaml").write_text("defaults: [changing, _self_]\n")
    with initialize_config_dir(str(tmp_path), version_base="1.2"):
        for value in (1, 2):
            ConfigStore.instance().store(name="changing", node={"value": value})
            assert composed_values(["seed=3", f"epochs={value}"])["epochs"] == value
            assert compose("program").value == value
        assert getbase() == Version("1.2")


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """At the smoke scale, in another folder, where it writes its files, with results of its own, in one process."""
    notebook = json.loads((REPOSITORY / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    script = tmp_path / "notebook.py"
    here = (
        "from pathlib import Path\nfrom runner import config\nconfig.PLACE, config.RESULTS = Path(), Path('results')\n"
        "from runner.launch import processes\nfrom tests.small import coarse_grid, run_here\n"
        "processes.run_processes = run_here\n(coarse := coarse_grid()).__enter__()\n"
    )
    text = "\n".join([here, *cells]).replace("base: experiment=", "base: epochs=1 diagnostics=[] experiment=")
    script.write_text(text.replace('/mnist_tanh",', f'/mnist_tanh", *{FEW_STEPS},'), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{tmp_path}"}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "epoch 2: " in done.stdout
