"""Feature normalisation: the two private releases, measured against what they are charged."""

import math

import pytest
import torch
import torch.nn.functional as F
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent
from scipy import stats
from sklearn.datasets import load_digits

from runner.accounting import Ledger, Pld, Rdp, RdpClassic, sound_epsilon
from runner.build.prepare import prepare
from runner.config import ConfigError
from runner.mechanism.statistics import PrivateStatistics, Standardize
from runner.training.loop import load, train

CHANNELS = 20_000


def fitted(statistics: PrivateStatistics, features: torch.Tensor, seed: int = 0) -> Standardize:
    layer = statistics.layer(features.shape[1])
    statistics.fit(layer, features, torch.Generator().manual_seed(seed), Ledger())
    assert isinstance(layer, Standardize)
    return layer


def released(statistics: PrivateStatistics, features: torch.Tensor, monkeypatch, seed: int = 0) -> list[tuple]:
    """(sum, sensitivity, noisy sum) of each release, in order."""
    seen, release = [], PrivateStatistics._release

    def watched(self, total, sensitivity, generator, ledger):
        noisy = release(self, total, sensitivity, generator, ledger)
        seen.append((total.clone(), sensitivity, noisy))
        return noisy

    with monkeypatch.context() as patch:
        patch.setattr(PrivateStatistics, "_release", watched)
        fitted(statistics, features, seed)
    return seen


ADVERSARIES = {
    "huge": torch.full((7, 3, 3), 1e18),
    "one channel": torch.eye(7)[2].view(7, 1, 1).expand(7, 3, 3) * -1e3,
    "one position": torch.zeros(7, 3, 3).index_fill_(1, torch.tensor([0]), 5e4),
    "cancelling": torch.tensor([1e4, -1e4, 0]).expand(7, 3, 3),
    "small": torch.full((7, 3, 3), 1e-3),
    "not finite": torch.full((7, 3, 3), math.inf),
    "not a number": torch.full((7, 3, 3), math.nan),
}


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_one_example_moves_each_sum_by_at_most_its_sensitivity(adversary: str, monkeypatch) -> None:
    statistics = PrivateStatistics(0.0, mean_norm=0.7, square_norm=0.3)
    features = torch.randn(1200, 7, 3, 3)
    added = torch.cat([features[:600], ADVERSARIES[adversary][None], features[600:]])
    for (without, sensitivity, _), (with_it, same, _), norm in zip(
        released(statistics, features, monkeypatch), released(statistics, added, monkeypatch), (0.7, 0.3), strict=True
    ):
        moved = (with_it - without).norm().item()
        assert sensitivity == same == norm
        assert moved <= sensitivity * (1 + 1e-9)
        if adversary == "huge":
            assert moved == pytest.approx(sensitivity), "the bound is attained"
        if adversary.startswith("not"):
            assert moved == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("noise_multiplier", [0.5, 8.0])
def test_noise_has_the_charged_scale_and_is_fresh(noise_multiplier: float, monkeypatch) -> None:
    """20,000 draws know a standard deviation to 1.5% at three sigma."""
    statistics = PrivateStatistics(noise_multiplier, mean_norm=0.7, square_norm=0.3)
    ledger = Ledger()
    features = torch.randn(5, CHANNELS, 1, 1)
    seen = released(statistics, features, monkeypatch)
    noises = [noisy - total for total, _, noisy in seen]
    for noise, norm in zip(noises, (0.7, 0.3), strict=True):
        assert noise.std().item() == pytest.approx(noise_multiplier * norm, rel=0.015)
        assert stats.kstest((noise / (noise_multiplier * norm)).numpy(), "norm").pvalue > 1e-4
    noises += [noisy - total for total, _, noisy in released(statistics, features, monkeypatch, seed=1)]
    assert (torch.corrcoef(torch.stack(noises)) - torch.eye(4)).abs().max() < 5 / math.sqrt(CHANNELS)
    statistics.fit(statistics.layer(CHANNELS), features, torch.Generator().manual_seed(0), ledger)
    assert ledger.actual == ledger.claimed == statistics.releases == ((GaussianDpEvent(noise_multiplier), 2),)


def test_noise_reaches_the_end_of_float64_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all random bits zero, the radius is the largest there is: 10.79, where float32 numbers end at 5.77."""
    monkeypatch.setattr(torch.Tensor, "random_", lambda self, *, generator: self.zero_())
    layer = fitted(PrivateStatistics(0.01, 1.0, 1.0), torch.zeros(100, 4, 1, 2))
    assert layer.mean.max().item() * 100 == pytest.approx(math.sqrt(168 * math.log(2)) * 0.01, rel=2e-5)


def test_what_the_layer_holds_is_noisy() -> None:
    """From the layer's constants alone: features of known mean and mean square, no example clipped."""
    examples, noise_multiplier = 100, 0.01
    features = torch.tensor([1.0, -1.0]).expand(examples, CHANNELS, 1, 2)  # mean 0, mean square 1
    norm = math.sqrt(CHANNELS)
    layer = fitted(PrivateStatistics(noise_multiplier, norm, norm), features)
    mean, square = layer.mean.double(), layer.std.double().square() + layer.mean.double().square()
    expected = noise_multiplier * norm / examples
    assert mean.std().item() == pytest.approx(expected, rel=0.015)
    assert (square - 1).std().item() == pytest.approx(expected, rel=0.015)
    assert abs(torch.corrcoef(torch.stack([mean.flatten(), square.flatten()]))[0, 1]) < 5 / norm


def test_without_noise_and_clipping_it_is_standardisation() -> None:
    features = 3 * torch.randn(1000, 4, 5, 5) + torch.tensor([0.0, 1.0, -2.0, 10.0]).view(4, 1, 1)
    layer = fitted(PrivateStatistics(0.0, 1e9, 1e9), features)
    torch.testing.assert_close(layer.mean.flatten(), features.mean(dim=(0, 2, 3)), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(layer.std.flatten(), features.std(dim=(0, 2, 3), correction=0), rtol=1e-5, atol=0)
    normalised = layer(features)
    torch.testing.assert_close(normalised.mean(dim=(0, 2, 3)), torch.zeros(4), rtol=0, atol=1e-5)
    torch.testing.assert_close(normalised.var(dim=(0, 2, 3)), torch.ones(4), rtol=1e-3, atol=0)


def test_variances_stay_positive() -> None:
    """Half of the noisy variances of constant features are negative."""
    statistics = PrivateStatistics(8.0, 1.0, 1.0)
    layer = fitted(statistics, torch.zeros(50, 500, 2, 2))
    assert layer.std.min().item() == pytest.approx(math.sqrt(8 / 50))
    assert fitted(PrivateStatistics(0.0, 1.0, 1.0), torch.zeros(5, 3, 2, 2)).std.min() > 1e-3


PFE = "experiment=losing_less/pfe_{}_ce"
TABLE = [  # data set, then epsilon after all epochs: classic RDP, tight RDP, PLD; the same of the steps alone
    ("mnist", (3.135, 2.701, 2.469), (3.005, 2.579, None)),
    ("fashion_mnist", (3.003, 2.591, 2.376), (3.003, 2.591, 2.376)),
]


@pytest.mark.parametrize(("dataset", "whole", "steps"), TABLE)
def test_epsilons_of_the_paper_contain_the_statistics(composed, dataset: str, whole, steps) -> None:
    """Within 0.0015: the numbers have three decimals, and the grid of the PLD is worth 0.0005."""
    run = prepare(composed(PFE.format(dataset)))
    bare = prepare(composed(PFE.format(dataset), "~normalization"))
    for accountant, with_them, without in zip((RdpClassic(), Rdp(), Pld()), whole, steps, strict=True):
        assert accountant.epsilon(run.mechanism.charges_of_epochs(run.epochs).claimed, 1e-5) == pytest.approx(
            with_them, abs=0.0015
        )
        if without is not None:
            charged = bare.mechanism.charges_of_epochs(bare.epochs).claimed
            assert accountant.epsilon(charged, 1e-5) == pytest.approx(without, abs=0.0015)


def test_calibration_leaves_room_for_them(composed) -> None:
    asked = (PFE.format("mnist"), "noise_multiplier=null", "target_epsilon=3")
    run, bare = prepare(composed(*asked)), prepare(composed(*asked, "~normalization"))
    cost = run.accountant.epsilon(run.mechanism.charges_of_epochs(25).claimed, 1e-5)
    assert 3 - 1e-3 < cost <= 3
    assert run.mechanism.noise_multiplier > bare.mechanism.noise_multiplier + 0.03
    with pytest.raises(ConfigError, match="reachable"):
        prepare(composed(*asked, "normalization.noise_multiplier=0.5"))


def test_without_noise_on_them_nothing_is_private(composed) -> None:
    run = prepare(composed(PFE.format("mnist"), "normalization.noise_multiplier=0"))
    assert run.normalization.releases == ((NonPrivateDpEvent(), 2),)
    assert run.accountant.epsilon(run.mechanism.charges_of_epochs(1).claimed, 1e-5) == math.inf
    with pytest.raises(ConfigError, match="single epoch"):
        prepare(composed(PFE.format("mnist"), "normalization.noise_multiplier=0", "max_epsilon=3"))


def test_mnist_norms_are_those_of_public_digits(composed) -> None:
    """The medians over every sixth of scikit-learn's digits, which are known to a few percent."""
    digits = torch.from_numpy(load_digits().images[::6]).float().unsqueeze(1) / 16
    images = F.pad(F.interpolate(digits, size=(20, 20), mode="bilinear", align_corners=False), (4, 4, 4, 4))
    run = prepare(composed(PFE.format("mnist")))
    unbounded = PrivateStatistics(0.0, 1e9, 1e9)
    means, squares = (vectors.norm(dim=1) for vectors in unbounded.contributions(run.features(images)))
    assert run.normalization.mean_norm == pytest.approx(means.median().item(), rel=0.05)
    assert run.normalization.square_norm == pytest.approx(squares.median().item(), rel=0.1)


def trained(smoke, *overrides: str):
    """A short run on normalised pixels; the run, what it trained, its network, and its training features."""
    small = ("architecture.filters=[3,4]", "architecture.units=5")
    run = prepare(smoke("normalization=private_statistics", "epochs=2", *small, *overrides))
    data = load(run)
    result = train(run, data, lambda row: None)
    return run, result, result.objective.network.get_submodule("normalization"), data


def test_a_run_charges_them_before_the_first_step(smoke) -> None:
    run, result, layer, data = trained(smoke)
    for epoch in (1, 2):
        charged = ((GaussianDpEvent(8.0), 2), *prepare(smoke()).mechanism.charges_of_epochs(epoch).claimed)
        assert run.mechanism.charges_of_epochs(epoch).claimed == charged
        assert result.history["epsilon"][epoch - 1] == pytest.approx(run.accountant.epsilon(charged, 1e-5))
        assert result.history["epsilon_sound"][epoch - 1] == pytest.approx(sound_epsilon(charged, 1e-5))
    noise = layer.mean.item() - data[0].images.mean().item()
    assert 0 < abs(noise) < 5 * 8 / len(data[0])


def test_they_come_from_the_training_examples(smoke) -> None:
    _, _, layer, (training, _) = trained(smoke, "epochs=1", "evaluation=holdout", "normalization.noise_multiplier=0")
    assert layer.mean.item() == pytest.approx(training.images.mean().item())
