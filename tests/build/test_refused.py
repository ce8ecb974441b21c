"""Values that no class accepts, parts that do not go together, and weights beyond the memory: refused in a sentence."""

import pytest
import torch
from torch import nn

from runner.build import parts
from runner.build.parts import within_memory
from runner.build.prepare import prepare
from runner.config import ConfigError

BY_STEP = "schedule=linear_by_step epochs=1 batch_size=240 scale.batch_size=240"  # six steps
STATISTICS = "normalization=private_statistics"
LIPSCHITZ = "experiment=lipschitz/mnist_mlp target_epsilon=null noise_multiplier=1"
REFUSED = {
    "activation=tempered_sigmoid activation.scale": ("0", ".nan"),
    "activation=tempered_sigmoid activation.inverse_temperature": ("0",),
    "averaging=ema averaging.decay": ("1.0",),
    "clipping=flat clipping.norm": ("0", "-1", ".inf", ".nan"),
    "clipping=per_layer clipping.norm": ("0",),
    "clipping=automatic clipping.norm": ("0",),
    "clipping=backprop clipping.input_bound": ("0", ".inf", ".nan", "1e-30"),
    "clipping=backprop clipping.upstream_bound": ("0", "1e-30"),
    "loss=huber loss.threshold": ("0",),
    "loss=focal loss.gamma": ("-1",),
    "loss=sse_focal loss.threshold_epoch": (".inf",),
    "loss=losing_less loss.beta": ("0",),
    f"{STATISTICS} normalization.noise_multiplier": ("-1",),
    f"{STATISTICS} normalization.mean_norm": ("0",),
    f"{STATISTICS} normalization.square_norm": ("0",),
    "optimizer=adam_bc optimizer.lr": ("-1",),
    "optimizer=adam_bc +optimizer.betas": ("[1.0,0.9]",),
    "optimizer=adam_bc optimizer.floor": ("0",),
    f"{BY_STEP} schedule.warmup_steps": ("-1", "6"),
    f"{BY_STEP} schedule.last_share": ("1.5",),
    f"{BY_STEP} schedule.decay": ("x",),
    "screening=annealing screening.initial_temperature": (".inf",),
    "screening=annealing screening.rejection_threshold": ("1.5",),
    "screening=annealing screening.images": ("train",),
    "screening=annealing screening.restores": ("momentum",),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in REFUSED.items() for value in values])
def test_a_value_out_of_range_is_refused_by_its_fields_name(smoke, field: str, value: str) -> None:
    *options, name = field.split()
    with pytest.raises(ConfigError, match=name.partition(".")[2]):
        prepare(smoke(*options, f"{name}={value}"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("optimizer=adam_bc +mechanism={_target_:tests.choosing.Alternating,_partial_:true}", "needs the same noise"),
        (f"{LIPSCHITZ} loss=sharp_cross_entropy_falling optimizer=adam_bc ~optimizer.momentum", "needs the same noise"),
        ("screening=annealing +screening.typo=1", "screening"),
        ("architecture.units=0", r"weight has the shape \(0, 512\), so no weight"),
        ("architecture.filters=[16,0]", r"has the shape \(0, 16, 4, 4\), so no weight"),
        ("scale=smoke delta=1e-3", "delta=0.001 is not below 1/N for N = 1,438 training .* less than 0.0006954"),
        (f"evaluation=holdout delta={1 / 55_000}", "N = 55,000 training examples"),  # five thousand are held out
        ("screening=annealing noise_multiplier=1 max_epsilon=1e-3", "single step"),
        ("screening=annealing noise_multiplier=0 max_epsilon=1e-3", "private"),
        (f"{LIPSCHITZ} ~constraint", "choose constraint=spectral"),
        (f"{LIPSCHITZ} features=pixels", "choose features that bound it"),
        (f"{LIPSCHITZ} activation=tempered_sigmoid", "no bound is known for a TemperedSigmoid"),
        (f"{LIPSCHITZ} loss=losing_less ~loss.gradient_bound", "no Lipschitz constant is known for the loss"),
    ],
)
def test_what_does_not_go_together_is_refused(composed, overrides: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(composed(*overrides.split()))


def test_delta_must_be_below_one_over_n_unless_noise_is_zero(composed) -> None:
    assert prepare(composed("evaluation=holdout", f"delta={1 / 55_001}")).mechanism.examples == 55_000
    assert not prepare(composed("delta=0.01", "noise_multiplier=0")).mechanism.private


def test_weights_beyond_memory_are_refused_before_any_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million bytes hold 83,333 weights, each with its gradient and noise."""
    monkeypatch.setattr(parts, "memory", lambda: 10**6)
    state = torch.get_rng_state()
    with pytest.raises(ConfigError, match="more memory than"), within_memory():
        nn.Linear(84, 1000, bias=False)
    assert torch.equal(torch.get_rng_state(), state)
    with within_memory():
        nn.Linear(83, 1000, bias=False)
        with pytest.raises(ConfigError):
            nn.Linear(1, 334, bias=False)
    nn.Linear(84, 1000)
