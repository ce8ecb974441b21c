"""Screening of updates by simulated annealing (SA-DPSGD: Fu, Chen and Ling, 2022, algorithm 2).

Every try is a whole step of DP-SGD: a fresh batch, a clipped sum, fresh noise, the optimizer's update. The loss J on
images that are not private then decides: with dE = J(candidate) - J(current), tau updates kept so far and mu
rejections since the last one, the candidate is kept where

    mu >= mu0,  or  U <= exp(-dE * Q0 * tau),  U uniform on [0, 1),

so always where dE <= 0, and always while tau = 0; a candidate whose loss is NaN is kept by mu >= mu0 only. Otherwise
the weights and the optimizer's state (momentum buffers) go back to what they were. The authors' later code (DPSUR)
reloads the weights alone, so that momentum still has the rejected gradients: `restores="weights"`. J is the mean
cross-entropy, whatever loss the training has.

Privacy. A rejected try has used the private data like any other: its noise is drawn again, so that the next weights
are those of a candidate *conditioned* on acceptance, a function of all the candidates tried. What holds is therefore
the composition of all tries (the rule itself, on public images, is post-processing). The paper charges the kept ones
only, which is refuted in `runner.papers.noise_screening.theorem_1`. The ledger has both: `claimed` and `actual`.

How many tries there will be depends on the private data where the run ends by the number of kept updates. An epsilon
has to be fixed before the data is seen: what is guaranteed for such a run is the epsilon of the *maximum* number of
tries (a privacy filter, trivial because all tries cost the same): `epochs` times the steps of an epoch, or, where that
is less, mu0 + 1 times the kept updates that the budget pays for, as of mu0 + 1 tries in a row one is kept. Both are
fixed by the config. The final metrics have it as `epsilon_sound_at_max_tries`. `epsilon_sound` in the history charges
the tries made until then: it is what a run costs that had fixed this number beforehand, and no guarantee for one that
stopped there because of what it saw. Without `max_epsilon` a run makes all tries, unless it diverges, and the two
agree.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from runner.config import EvaluationSplit
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.seeds import generator
from runner.training.evaluate import Evaluation, evaluate
from runner.training.updates.interface import UpdateRule, Updates
from runner.training.updates.plain import Plain
from runner.training.updates.screening_loss import ScreeningLoss

if TYPE_CHECKING:
    from runner.training.prepare import Run

IMAGES = ("test", "public_split")
WEIGHTS = "weights"


@dataclass(frozen=True)
class Annealing(UpdateRule):
    """The rule's parameters, and which images screen.

    initial_temperature: Q0 >= 0; at 0 every update is kept and nothing is evaluated.
    rejection_threshold: mu0 >= 0 rejections in a row, after which an update is kept whatever its loss.
    images: "test", all test images, which the accuracy is then selected on, or "public_split", every second one.
    restores: what a rejection puts back: "weights", and the optimizer's state stays; None, both.

    Raises:
        ValueError: a number is out of range, or there are no such images or nothing of that name to put back.
    """

    initial_temperature: float
    rejection_threshold: int
    images: str = "public_split"
    restores: str | None = None

    takes_back = True
    unstackable = "screening may take an update back"
    share_name = "screening_share"
    column_names = (
        "tries", "accepted", "forced", "acceptance_rate", "screening_loss", "screening_accuracy", "unscreened_accuracy",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if not 0 <= self.initial_temperature < math.inf:
            raise ValueError(f"Expected screening.initial_temperature >= 0 and finite, got {self.initial_temperature}.")
        if self.rejection_threshold < 0:
            raise ValueError(f"Expected screening.rejection_threshold >= 0, got {self.rejection_threshold}.")
        if self.images not in IMAGES:
            raise ValueError(f"screening.images has no {self.images}: choose from {', '.join(IMAGES)}.")
        if self.restores not in (None, WEIGHTS):
            raise ValueError(f"screening.restores has no {self.restores}: it is {WEIGHTS}, or null for all.")

    def check(self, mechanism: Mechanism) -> None:
        """Accept DP-SGD's own mechanism alone.

        Raises:
            ValueError: for another, which may charge steps together, kept or not.
        """
        if type(mechanism) is not Mechanism:
            raise ValueError("screening charges kept steps one by one, so it takes no mechanism but DP-SGD's own.")

    def most_steps(self, planned: int, paid_for: int | None) -> int:
        """How many tries can be made at most, of those planned, where a run also ends at so many kept ones."""
        return planned if paid_for is None else min(planned, (self.rejection_threshold + 1) * paid_for)

    def split(self, test: Split) -> tuple[Split, ...]:
        """The images of the test split to report on, and those that screen.

        The halves of public_split are every second image: in the order of their files, the first half of MNIST's test
        images is easier than the second.
        """
        if self.images == "test":
            return test, test
        return tuple(Split(test.images[i::2], test.targets[i::2]) for i in (1, 0))

    def due(self, run: Run, history: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Compute the columns that follow from other columns of a history.

        At most mu0 rejections stand before an update that is kept, and after the last one. Exactly mu0 stand before
        each one that was kept only because of them.
        """
        most, always = self.rejection_threshold, self.initial_temperature == 0
        due: dict[str, list[Any]] = {"tries": list(history["steps"])}
        due |= {name: [] for name in ("accepted", "forced", "acceptance_rate")}
        before = 0, 0, 0
        for row in zip(history["steps"], history["accepted"], history["forced"], strict=True):
            (tries, accepted, forced), (tried, kept, by_force) = row, before
            least = tries if always else math.ceil((tries - most) / (most + 1))
            most_forced = by_force + accepted - kept
            if most > 0:
                most_forced = min(most_forced, (tries - accepted) // most)
            due["accepted"].append(max(accepted, least))
            due["forced"].append(0 if always else min(max(forced, by_force), most_forced))
            due["acceptance_rate"].append((accepted - kept) / (tries - tried) if tries > tried else math.nan)
            before = row
        if self._apart(run):
            return due | {"unscreened_accuracy": list(history["test_accuracy"])}
        same = {"screening_loss": list(history["test_loss"]), "screening_accuracy": list(history["test_accuracy"])}
        return due | same | {"unscreened_accuracy": [math.nan] * len(history["epoch"])}

    def _apart(self, run: Run) -> bool:
        """Whether the images reported on are others than those that screen."""
        return self.images == "public_split" or bool(run.config.evaluation == EvaluationSplit.holdout)

    def updates(self, run: Run, objective: Objective, aside: Sequence[Split]) -> Screening:
        draws = generator(run.config.seed, "screening", torch.device("cpu"))
        candidates = Plain().updates(run, objective, ())
        return Screening(self, objective, candidates, aside[0], draws, run.paid_for, apart=self._apart(run))


class Screening:
    """Algorithm 2's part of the training loop: an update tried, evaluated, and kept or taken back.

    Args:
        rule: its parameters.
        objective: whose network's loss on `images` decides.
        candidates: of the network's parameters; their `step` is the candidate update.
        images: those that screen.
        draws: a generator on the CPU for the uniform numbers, one a try.
        paid_for: the number of kept updates at which the run is to end; None: there is none.
        apart: whether the images reported on are others than those that screen.
    """

    def __init__(
        self,
        rule: Annealing,
        objective: Objective,
        candidates: Updates,
        images: Split,
        draws: Generator,
        paid_for: int | None = None,
        *,
        apart: bool = True,
    ) -> None:
        self._rule, self._candidates, self._draws, self._paid_for = rule, candidates, draws, paid_for
        self.optimizer = candidates.optimizer
        self._objective, self._images, self._apart = objective, images, apart
        self.loss = ScreeningLoss(objective.network, images)
        self._total = math.nan  # the sum of the losses at the present weights
        self._rejected_in_a_row = 0
        self.tries = self.accepted = self.forced = 0
        self._before_epoch = (0, 0)
        self.seconds = 0.0

    @property
    def finished(self) -> bool:
        """Whether as many updates are kept as the paper's budget pays for."""
        return self.accepted == self._paid_for

    def start_epoch(self) -> None:
        """Sort the screening images by their loss at the present weights, and evaluate these in that order."""
        self._before_epoch = self.tries, self.accepted
        self._candidates.start_epoch()
        if self._rule.initial_temperature > 0:
            with self._timed():
                self.loss.sort()
                self._total = self.loss.total()

    def step(self) -> bool:
        """Make the candidate's step; keep it, or put back what the rule restores. Returns whether it is kept."""
        if self._rule.initial_temperature == 0:
            self._candidates.step()
            self.tries, self.accepted = self.tries + 1, self.accepted + 1
            return True
        saved = _State(self.optimizer)
        self._candidates.step()
        with self._timed():
            kept = self._keep()
            if not kept:
                saved.restore(state=self._rule.restores != WEIGHTS)
        return kept

    def _keep(self) -> bool:
        """Algorithm 2, lines 10 to 22.

        U <= exp(-dE Q0 tau) holds just where dE <= -ln(U) / (Q0 tau), with dE the difference of two sums over n images:
        drawing U first turns the decision into a bound on the candidate's sum, infinite where Q0 tau or U is 0.
        """
        self.tries += 1
        uniform = torch.rand((), dtype=torch.float64, generator=self._draws).item()
        bound = self._total + len(self.loss) * slack(uniform, self._rule.initial_temperature * self.accepted)
        forced = self._rejected_in_a_row >= self._rule.rejection_threshold
        within, total = self.loss.at_most(math.inf if forced else bound)
        if not (within or forced):
            self._rejected_in_a_row += 1
            return False
        self.forced += forced and not total <= bound
        self.accepted += 1
        self._rejected_in_a_row = 0
        self._total = total
        return True

    def columns(self, reported: Evaluation) -> dict[str, float]:
        """For the history, given what was measured on the images reported on.

        tries, accepted, forced: since the start; forced are those kept only because of the rejections before them.
        acceptance_rate: the share kept of this epoch's tries.
        screening_loss, screening_accuracy: on the images that screen.
        unscreened_accuracy: on images that do not; NaN where all that are reported on do, as in the paper.
        """
        tries, accepted = self.tries - self._before_epoch[0], self.accepted - self._before_epoch[1]
        classes = len(reported.class_accuracy)
        measured = evaluate(self._objective, self._images, classes) if self._apart else reported
        return {
            "tries": self.tries,
            "accepted": self.accepted,
            "forced": self.forced,
            "acceptance_rate": accepted / tries,
            "screening_loss": measured.loss,
            "screening_accuracy": measured.accuracy,
            "unscreened_accuracy": reported.accuracy if self._apart else math.nan,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "candidates": self._candidates.state_dict(),
            "draws": self._draws.get_state(),
            "order": self.loss.order,
            "counts": [self.tries, self.accepted, self.forced, self._rejected_in_a_row],
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._candidates.load_state_dict(state["candidates"])
        self._draws.set_state(state["draws"])
        self.loss.put_in_order(state["order"])
        self.tries, self.accepted, self.forced, self._rejected_in_a_row = state["counts"]
        self.seconds = state["seconds"]

    @contextmanager
    def _timed(self) -> Iterator[None]:
        cuda = self.loss.device.type == "cuda"
        if cuda:
            torch.cuda.synchronize(self.loss.device)  # the step's own work, still under way, is not ours
        started = time.perf_counter()
        yield
        if cuda:
            torch.cuda.synchronize(self.loss.device)
        self.seconds += time.perf_counter() - started


def slack(uniform: float, temperature: float) -> float:
    """-ln(U) / Q: by how much J may rise; infinite where U or Q is 0."""
    return -math.log(uniform) / temperature if uniform > 0 and temperature > 0 else math.inf


class _State:
    """A copy of an optimizer's parameters and of its state, to go back to."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._weights = [p.detach().clone() for p in self._parameters]
        self._state = {
            p: {name: v.clone() if isinstance(v, Tensor) else v for name, v in state.items()}
            for p, state in optimizer.state.items()
        }

    @torch.no_grad()
    def restore(self, *, state: bool) -> None:
        """Put the weights back, and with them the optimizer's state. What it had not yet is taken away again."""
        for parameter, weights in zip(self._parameters, self._weights, strict=True):
            parameter.copy_(weights)
        if state:
            self._optimizer.state.clear()
            self._optimizer.state.update(self._state)
