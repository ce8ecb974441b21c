"""The file of a study: what it means, and how a mistake is named."""

from pathlib import Path
from textwrap import dedent

import pytest

from runner.config import ConfigError
from runner.config.options import search_path
from runner.study import definition
from runner.study.definition import ByEpsilon, Dimension, Study, Times, read, space_at
from runner.study.progress import settings_of

FILE = dedent((definition.__doc__ or "").split("\n\n")[1]) + "\n"  # the example of the module's text


def study(folder: Path, text: str) -> Study:
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    return read(folder / "mine.yaml")


def test_what_a_stranger_writes(tmp_path: Path) -> None:
    parsed = study(tmp_path, FILE)
    assert (parsed.name, parsed.base) == ("mine", ("experiment=tempered_sigmoid/fashion_mnist_tanh",))
    overrides = {arm.name: arm.overrides for arm in parsed.arms}
    assert overrides == {"flat clipping": ("clipping=flat",), "DP-PSAC": ("clipping=psac",)}
    assert (parsed.datasets, parsed.epsilons, parsed.seeds) == (("mnist", "fashion_mnist"), (1.0, 3.0), (1, 2, 3, 4, 5))
    assert {tuple(arm.search["optimizer.lr"].values) for arm in parsed.arms} == {(0.25, 0.5, 1.0, 2.0, 4.0)}


def test_a_search_by_arm_by_epsilon_and_of_ranges(tmp_path: Path) -> None:
    text = """
    arms:
      one: {overrides: clipping=flat, search: {clipping.norm: {from: 1e-2, to: 1}}}
      other: {overrides: clipping=automatic, over: one}
    epsilon: [1, 3]
    trials: 3
    search: {optimizer.lr: {1: [0.1, 0.2, 0.4], 3: [1, 2, 4]}}
    """
    flat, other = study(tmp_path, text).arms
    assert (flat.over, other.over) == ("", "one")
    assert isinstance(flat.search["optimizer.lr"].values, ByEpsilon)
    assert space_at(flat.search, 3.0) == {"optimizer.lr": (1.0, 2.0, 4.0), "clipping.norm": Dimension(0.01, 1.0, True)}
    assert space_at(other.search, 1.0) == {"optimizer.lr": (0.1, 0.2, 0.4)}


def test_how_a_study_searches(tmp_path: Path) -> None:
    ranges = "{from: 1, to: 8, integer: true}, optimizer.lr: {from: 0, to: 2, log: false}"
    method = "sampler: gp, prune: hyperband, objective: front"
    text = "base: noise_multiplier=1\narms: {a: activation=tanh, b: activation=relu}\ntrials: 9\n"
    parsed = study(tmp_path, f"{text}search: {{{method}, epochs: {ranges}}}")
    assert (parsed.sampler, parsed.prune, parsed.front, parsed.widen) == ("gp", True, True, False)
    rates = Dimension(0, 2, log=False)
    assert space_at(parsed.arms[0].search, 3.0) == {"epochs": Dimension(1, 8, integer=True), "optimizer.lr": rates}


def test_what_may_be_left_out(tmp_path: Path) -> None:
    parsed = study(tmp_path, "arms: {a: activation=tanh, b: activation=relu}\ntrials: 9\nsearch: {sampler: random}")
    assert (parsed.datasets, parsed.epsilons, parsed.seeds) == (("",), (3.0,), (1, 2, 3, 4, 5))
    assert (parsed.sampler, parsed.prune, parsed.front, parsed.widen) == ("random", False, False, True)
    rates = parsed.arms[0].search["optimizer.lr"].values
    assert isinstance(rates, Times)  # of its own rate
    assert rates == pytest.approx([2 ** (n / 2) for n in range(-4, 5)], rel=3e-3)


def test_two_data_sets_of_one_name_are_refused(tmp_path: Path) -> None:
    """A page could not tell their rows apart."""
    (tmp_path / "options/dataset").mkdir(parents=True)
    (tmp_path / "options/dataset/half.yaml").write_text("defaults: [mnist]\ntrain_examples: 30000\n")
    parsed = study(tmp_path, "arms: {tanh: activation=tanh, ReLU: activation=relu}\ndatasets: [mnist, half]")
    with pytest.raises(ConfigError, match=r"mine\.yaml: datasets: mnist and half are both called MNIST: give one"):
        settings_of(parsed, extra=search_path(str(tmp_path / "options")))


def test_several_values_in_one_arm_are_refused_with_what_to_do(tmp_path: Path) -> None:
    for several in ("activation=relu,elu", "activation=glob(*)", "optimizer.lr=range(1,3)"):
        with pytest.raises(ConfigError, match=r"line 1: arms\.two: .* has several values: make each value an arm"):
            settings_of(study(tmp_path, f"arms: {{tanh: activation=tanh, two: '{several}'}}"))


def test_the_arms_of_a_factorial_are_all_combinations(tmp_path: Path) -> None:
    text = "factorial: true\narms: {tanh: [activation=relu, activation=tanh], AUTO-S: clipping=automatic}"
    parsed = study(tmp_path, text)
    assert parsed.parts == ("tanh", "AUTO-S")
    assert [(arm.name, arm.cell, arm.overrides) for arm in parsed.arms] == [
        ("none of them", (False, False), ("activation=relu",)),
        ("AUTO-S", (False, True), ("activation=relu", "clipping=automatic")),
        ("tanh", (True, False), ("activation=tanh",)),
        ("tanh + AUTO-S", (True, True), ("activation=tanh", "clipping=automatic")),
    ]


def test_the_first_arm_of_a_factorial_may_have_a_name(tmp_path: Path) -> None:
    text = "factorial: true\nbaseline: plain DP-SGD\narms: {tanh: activation=tanh, AUTO-S: clipping=automatic}"
    assert [arm.name for arm in study(tmp_path, text).arms] == ["plain DP-SGD", "AUTO-S", "tanh", "tanh + AUTO-S"]
    for name in ("tanh", "[1]", "", "a|b"):
        with pytest.raises(ConfigError, match="line 2: baseline: expected a name in one line that no part has"):
            study(tmp_path, text.replace("plain DP-SGD", name))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("seeds: 5", "baseline: plain"), "line 7: baseline: it names the first arm of a factorial."),
        (("seeds: 5", "finding: {text: By, decided: two}"), "line 7: finding.decided: expected the number of arms"),
        (("seeds: 5", "seed: 5"), "line 7: seed: there is no key 'seed' here. Did you mean seeds?"),
        (("seeds: 5", "seeds: 1"), "line 7: seeds: expected a number of seeds from 2 to 10,000"),
        (("epsilon: [1, 3]", "epsilon: [1, -3]"), "line 6: epsilon: expected numbers > 0 of at most five digits"),
        (("epsilon: [1, 3]", "epsilon: 0.333333"), "line 6: epsilon: expected numbers > 0 of at most five digits"),
        (
            ("epsilon: [1, 3]", "epsilon: [3, 3]"),
            "line 6: epsilon: expected numbers > 0 of at most five digits, each once, got [3, 3].",
        ),
        (("clipping=psac", "psac"), "line 4: arms.DP-PSAC: 'psac' is no override: write name=value"),
        (
            ("[mnist, fashion_mnist]", "mnist,cifar10"),
            "line 5: datasets: expected names of data sets, each once, got",
        ),
        (("clipping=psac", "launcher=ray"), "line 4: arms.DP-PSAC: launcher=ray is set by the study: use the command"),
        (("clipping=psac", "clipping=psac seed=3"), "line 4: arms.DP-PSAC: seed=3 is set by the study: use seeds."),
        (("mnist_tanh", "mnist_tanh target_epsilon=null"), "line 1: base: target_epsilon=null is set by the study"),
        (("  DP-PSAC: clipping=psac\n", ""), "line 2: arms: expected 2 names or more"),
        (("DP-PSAC:", "flat clipping:"), "line 4: arms.flat clipping is here twice."),
        (("[0.25, 0.5, 1, 2, 4]", "{from: 4, to: 1}"), "line 8: search.optimizer.lr: a range is {from: 0.1, to: 10}"),
        (("[0.25, 0.5, 1, 2, 4]", "{from: 1, to: 4}"), "mine.yaml: a range needs the number of trials of each arm"),
        (("{optimizer", "{sampler: cma, optimizer"), "line 8: search.sampler: expected tpe or gp or random or nsga-ii"),
        (("lr: [0.25, 0.5, 1, 2, 4]", "lr: {1: [2], 3: [1]}, objective: front"), "lr: a front has one search, so"),
        (("[0.25, 0.5, 1, 2, 4]", "{1: [2]}"), "optimizer.lr has nothing to search at ε = 3."),
        (("clipping=psac", "{overrides: clipping=psac, search: {optimizer.lr: [1, 2]}}"), "2 trials, but 5 for flat"),
        (("seeds: 5", "trials: 9"), "line 3: arms.flat clipping: 5 combinations are less than trials: 9."),
        (("epsilon: [1, 3]", "epsilon: [1, 3"), "line 7: no valid YAML: did not find expected ',' or ']'"),
        (("optimizer.lr:", "delta:"), "line 8: search.delta: arms are compared at the same delta"),
        (("optimizer.lr:", "lr:"), "line 8: search.lr: there is no field 'lr'. Name its group too"),
        (("optimizer.lr:", "loss:"), "line 8: search.loss: loss is a group: make each of its options an arm."),
        (("0.25, 0.5, 1, 2, 4", ".nan, 1"), "line 8: search.optimizer.lr: expected values such as"),
        (("[0.25, 0.5, 1, 2, 4]", "&x {1: *x}"), ": it is nested too deeply, or a part contains itself."),
        (("[0.25, 0.5, 1, 2, 4]", "{1: {3: [1, 2]}}"), "line 8: search.optimizer.lr: values by ε are {1: [0.5, 1]"),
        (
            ("clipping=psac", "{overrides: clipping=psac, over: psac}"),
            "over: expected an arm without `over`: flat clipping",
        ),
        (("seeds: 5", "remarks: []"), "line 7: remarks: expected sentences, each once, got []."),
        (("seeds: 5", 'finding: {text: "By {x}"}'), "line 7: finding.text: numbers has no 'x'."),
        (("seeds: 5", 'finding: {text: "By {x}", numbers: {x: {arm: DP-PSC}}}'), "x: there is no arm 'DP-PSC' here."),
        (("seeds: 5", "finding: {text: By, numbers: {x: {amr: DP-PSAC}}}"), "there is no key 'amr' here. Did you mean"),
        (("clipping=psac", "clipping=psac hydra/launcher=x"), "hydra/launcher=x is set by the study: use the command"),
        (("seeds: 5", "title: \x00"), "line 7: no valid YAML: "),
        (("mnist_tanh", "mnist_tanh noise_multiplier=1"), "line 1: base: noise_multiplier=1 is not for all arms"),
        (("DP-PSAC:", "' ':"), "line 2: arms: expected a name in one line for each arm, got ' '"),
        (("DP-PSAC:", "'flat ':"), "line 2: arms: expected a name in one line for each arm, got 'flat '"),
        (("DP-PSAC:", r'"flat\u200b":'), r"a name in one line for each arm, got 'flat\u200b'"),
        (("[0.25, 0.5, 1, 2, 4]", "{from: 1.5, to: 4, integer: true}"), "search.optimizer.lr: a range of whole"),
        (("optimizer.lr:", "seed:"), "line 8: search.seed: seed is set by the study: use seeds."),
        (("[0.25, 0.5, 1, 2, 4]", "{times: {from: 1, to: 2}}"), "line 8: search.optimizer.lr: multiples are"),
        (("seeds: 5", "{seeds: 5}: 5"), "line 1: a name is a text."),
        (("clipping=psac", ""), "line 4: arms.DP-PSAC: expected overrides such as clipping=flat, got nothing."),
        (("seeds: 5", "finding: It is better."), "line 7: finding: expected a text, and numbers by name."),
        (("seeds: 5", 'finding: {text: "By {x:y}", numbers: {x: {}}}'), "finding.text: a part of x is one of size"),
        (("seeds: 5", 'finding: {text: "By {x"}'), "line 7: finding.text: "),
        (("seeds: 5", "finding: {text: By, numbers: [1]}"), "line 7: finding.numbers: expected the fields of a row"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_key(change: tuple[str, str], sentence: str, tmp_path: Path) -> None:
    assert change[0] in FILE
    with pytest.raises(ConfigError) as refused:
        study(tmp_path, FILE.replace(*change))
    assert str(refused.value).startswith(str(tmp_path / "mine.yaml"))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_words_of_yaml_are_names_and_texts_as_written(tmp_path: Path) -> None:
    text = """
    arms: {no: activation=tanh, 010: activation=mine}
    datasets: [on, 0x1F]
    epsilon: [03, 1e0]
    seeds: 010
    search: {activation.shape: [off, 1e-3, TRUE]}
    equal: no
    """
    parsed = study(tmp_path, text)
    assert ([arm.name for arm in parsed.arms], parsed.datasets) == (["no", "010"], ("on", "0x1F"))
    assert (parsed.epsilons, len(parsed.seeds), parsed.equal) == ((3.0, 1.0), 10, False)
    assert space_at(parsed.arms[0].search, 3.0) == {"activation.shape": ("off", 0.001, True)}


def test_a_file_that_is_missing_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="is no study: expected keys"):
        study(tmp_path, "")
    with pytest.raises(ConfigError, match="has no arms"):
        study(tmp_path, "seeds: 3")
