"""Published and separately computed epsilons: every epoch of ten configurations, and the papers' tables."""

from pathlib import Path

import pytest

from runner.accounting import Pld, Prv, Rdp, RdpClassic
from runner.report.files import read_csv
from tests.accounting.releases import DELTA, sampled, unsampled

EPOCHS = read_csv(Path(__file__).with_name("epsilon_by_epoch.csv"))


def releases_of(row):
    q = int(row["batch_size"]) / int(row["dataset_size"])
    normalisation = unsampled(8, 2) if "two full-batch Gaussian releases" in row["note"] else ()
    return sampled(q, float(row["noise_multiplier"]), int(row["steps"])) + normalisation


def check(column, accountant, tolerance, every):
    rows = [row for row in EPOCHS[::every] if row[column]]
    errors = {
        (row["config"], row["epoch"]): accountant.epsilon(releases_of(row), float(row["delta"])) - float(row[column])
        for row in rows
    }
    assert len({row["config"] for row in rows}) >= 8
    assert max(map(abs, errors.values())) <= tolerance, max(errors.items(), key=lambda item: abs(item[1]))


def test_rdp_classic_of_every_epoch():
    assert len(EPOCHS) == 493
    check("eps_rdp_classic_int2_64", RdpClassic(), 1e-4, every=1)


def test_rdp_tight_of_every_epoch():
    check("eps_rdp_tight_opacus_orders", Rdp(), 1e-4, every=1)


def test_pld_of_every_17th_epoch():
    check("eps_pld", Pld(), 2e-4, every=17)


def test_prv_of_every_31st_epoch():
    """The column is Opacus' upper end, its error of 0.01 included: the agreement is to the digits given."""
    check("eps_prv_opacus", Prv(), 2e-4, every=31)


@pytest.mark.parametrize(
    ("q", "noise_multiplier", "steps", "classic_tight_prv_pld"),
    [
        # tempered-sigmoid: the standard MNIST setting
        (256 / 60000, 1.1, 14040, "3.007 2.594 2.390 2.380"),
        # losing-less: CIFAR-10 on pixels and on ScatterNet features
        (1024 / 50000, 1.54, 1440, "3.005 2.585 2.375 2.365"),
        (8192 / 50000, 5.67, 360, "2.856 2.460 2.270 -"),
        # lipschitz: the CIFAR-10 mixer, and one epoch of eight tensors
        (2500 / 50000, 3 / 6**0.5, 20 * 46, "- 7.93 7.29 -"),
        (2000 / 60000, 1.5 / 8**0.5, 30, "- 9.7 - -"),
    ],
)
def test_values_of_the_papers_settings(q, noise_multiplier, steps, classic_tight_prv_pld):
    accountants = (RdpClassic(), Rdp(), Prv(), Pld())
    for accountant, expected in zip(accountants, classic_tight_prv_pld.split(), strict=True):
        if expected != "-":
            last_digit = 10.0 ** -len(expected.partition(".")[2])
            actual = accountant.epsilon(sampled(q, noise_multiplier, steps), DELTA)
            assert actual == pytest.approx(float(expected), abs=0.6 * last_digit), accountant


def test_normalisation_releases_are_composed_with_training():
    releases = unsampled(8, 2) + sampled(1024 / 60000, 1.35, 1450)
    for accountant, expected in ((RdpClassic(), 3.135), (Rdp(), 2.701), (Pld(), 2.469)):
        assert accountant.epsilon(releases, DELTA) == pytest.approx(expected, abs=6e-4)
