"""Attacks on networks that are not linear, by what is left of a run: its last weights, or the canary's loss by them.

Gradients depend on the weights here, so each trial is a run of its own: the project's batches, sums, noise and updates.
The others are 15 drawn examples with cross-entropy, and batches hold all examples or are Poisson samples.

- `crafted` (Cebere, Bellet and Papernot, 2024, "Tighter privacy auditing of DP-SGD in the hidden state threat model"):
  the canary's gradient is the same in each step, far above the clipping norm, and along one coordinate: that which the
  others move least in a run without noise. The score is the change of this coordinate between the first weights and
  the last. If all steps have the canary, hiding the weights between gives nothing away.
- `worst case` (Annamalai and De Cristofaro, 2024, "Nearly tight black-box auditing of differentially private machine
  learning"): the attacker chooses the first weights. They fit the others, and take the canary, a blank image, for the
  other class. So the others' gradients vanish, while the canary's is above the clipping norm. The score is the
  canary's loss by the last weights, which is all that is seen.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat

import numpy as np
import torch
from torch import Generator, Tensor, nn

from checks.audit.bounds import Scores
from checks.audit.canaries import Canaries, CanaryEngine
from checks.audit.targets import Setting, Target
from runner.clipping import gradient_sum
from runner.gradients import Objective, OnePassEngine
from runner.mechanism.normal import generator
from runner.training.updates import Updates

FEATURES, UNITS, CLASSES = 8, 6, 2
_RATES = {"crafted": 1.0, "worst case": 0.5}  # of learning
_FITTED = 1000  # steps of Adam to the first weights of the worst case
_Sums = dict[str, Tensor]


@dataclass(frozen=True)
class Hidden:
    """An attack on the end of a run: `crafted` or `worst case`, its batches of 16 examples, and its steps."""

    kind: str
    batch_size: int = 16
    steps: int = 3

    @property
    def setting(self) -> Setting:
        """The same batches of the usual attacks, which have the same charges."""
        return Setting("flat", examples=16, batch_size=self.batch_size, steps=self.steps)

    @property
    def sees(self) -> str:
        return "weights" if self.kind == "crafted" else "loss"


def hidden_scores(hidden: Hidden, attacked: Target, trials: int, stream: str) -> Scores:
    """Return the scores of an attacker who sees the last weights, or the canary's loss by them.

    The mechanism is that of `attacked`, for the parameters of this network.
    """
    runs, sides = _Runs(hidden, attacked), []
    for present in (False, True):
        streams = (f"{stream}/{present}/{purpose}" for purpose in ("sampling", "noise"))
        sampling, noise = (generator(0, name, torch.device("cpu")) for name in streams)
        sides.append(np.array([runs.score(present, sampling, noise) for _ in range(trials)]))
    return {hidden.sees: (sides[0], sides[1])}


class _Runs:
    """The network, the examples and the first weights of all trials. The last example is the canary."""

    def __init__(self, hidden: Hidden, attacked: Target) -> None:
        draws, count = torch.Generator().manual_seed(0), attacked.setting.examples - 1
        network = nn.Sequential(nn.Linear(FEATURES, UNITS), nn.Tanh(), nn.Linear(UNITS, CLASSES))
        for parameter in network.parameters():
            parameter.data = torch.randn(parameter.shape, generator=draws) / FEATURES**0.5
        self.hidden, self.steps, self.canary = hidden, hidden.steps, count
        self.inputs = torch.cat([torch.randn(count, FEATURES, generator=draws), torch.zeros(1, FEATURES)])
        self.targets = torch.cat([torch.randint(CLASSES, (count,), generator=draws), torch.ones(1, dtype=torch.long)])
        self.objective = Objective(network, nn.CrossEntropyLoss(reduction="none"))
        self.engine, self.clipping = OnePassEngine(self.objective), attacked.clipping
        (self.group,) = self.clipping.noise_groups(self.objective)
        self.mechanism = replace(attacked.mechanism, noise_groups=(self.group,))
        if hidden.kind == "worst case":
            self._fit()
        self.first = {name: p.detach().clone() for name, p in self.objective.named_parameters()}
        self.crafted: _Sums | None = None
        if hidden.kind == "crafted":
            self.place = self._least_moved()
            self.crafted = self._along(self.place)

    def score(self, present: bool, sampling: Generator, noise: Generator) -> float:
        """Train once, and return what is seen: larger if the canary is there."""
        epochs = chain.from_iterable(self.mechanism.batches(s) for s in repeat(sampling))
        batches = [batch[batch != self.canary] if not present else batch for batch in islice(epochs, self.steps)]
        self._train(batches, lambda sums: self.mechanism.release(sums, noise))
        with torch.no_grad():
            if self.crafted is not None:
                last = dict(self.objective.named_parameters())
                return float(self._flat(self.first)[self.place] - self._flat(last)[self.place])
            return -float(self.objective(self.inputs[-1:], self.targets[-1:]))

    def _train(self, batches: Iterable[Tensor], release: Callable[[_Sums], _Sums]) -> None:
        self.objective.load_state_dict(self.first)
        updates = Updates(torch.optim.SGD(self.objective.parameters(), lr=_RATES[self.hidden.kind]))
        for batch in batches:
            means = release(self._sums(batch))
            for name, parameter in self.objective.named_parameters():
                parameter.grad = means[name]
            updates.step()

    def _sums(self, batch: Tensor) -> _Sums:
        """Sum the clipped gradients of a batch of indices, with the canary's crafted one if there is one."""
        crafted = self.crafted if bool((batch == self.canary).any()) else None
        ordinary = batch if crafted is None else batch[batch != self.canary]
        examples = self.inputs[ordinary], self.targets[ordinary]
        sums = gradient_sum(self.clipping, self.engine, *examples, len(self.targets)).gradients
        return sums if crafted is None else {name: g + crafted[name] for name, g in sums.items()}

    def _fit(self) -> None:
        optimizer, wrong = torch.optim.Adam(self.objective.parameters(), lr=0.02), self.targets.clone()
        wrong[self.canary] = 0
        for _ in range(_FITTED):
            optimizer.zero_grad()
            self.objective(self.inputs, wrong).sum().backward()
            optimizer.step()

    def _least_moved(self) -> int:
        """Return the coordinate that the others move least in a run without noise, in the absolute sum of its steps."""
        seen: list[Tensor] = []

        def quiet(sums: _Sums) -> _Sums:
            seen.append(self._flat(sums).abs())
            return {name: total / self.mechanism.denominator for name, total in sums.items()}

        self._train([torch.arange(self.canary)] * self.steps, quiet)
        return int(torch.stack(seen).sum(0).argmin())

    def _along(self, place: int) -> _Sums:
        """Clip a gradient along one coordinate."""
        present, zero = torch.tensor([True]), torch.tensor([0])
        engine = CanaryEngine(self.objective, Canaries(present, zero, {self.group: torch.tensor([place])}, 0))
        return gradient_sum(self.clipping, engine, self.inputs[:1], zero, 1, (self.group,)).gradients

    def _flat(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([tensors[name].flatten() for name in self.group.parameters])
