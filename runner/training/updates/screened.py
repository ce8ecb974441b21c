"""Screening of updates by simulated annealing (SA-DPSGD: Fu, Chen and Ling, 2022, algorithm 2).

Every attempt is a whole step of DP-SGD: a new batch, a clipped sum, new noise, the optimizer's update. Then the loss J
on images that are not private decides. Let dE = J(candidate) - J(current), tau the number of updates kept so far and mu
the number of rejections since the last one. The candidate is kept if

    mu >= mu0,  or  U <= exp(-dE * Q0 * tau),  U uniform on [0, 1),

so always if dE <= 0, and always while tau = 0. A candidate whose loss is NaN is kept by mu >= mu0 only. Otherwise the
weights and the optimizer's state (momentum buffers) are restored. The authors' later code (DPSUR) restores only the
weights, so momentum still has the rejected gradients: `restores="weights"`. J is the mean cross-entropy, for any
training loss.

Privacy. A rejected attempt has used the private data like any other. After it the noise is drawn again. So the next
weights are a candidate *conditioned* on acceptance, which is a function of all attempted candidates. The guarantee is
therefore the composition of all attempts. (The rule itself, on public images, is post-processing.) The paper charges
only the kept ones, refuted in `runner.papers.noise_screening.theorem_1`. The ledger has both: `claimed` and `actual`.

The number of attempts depends on the private data if the number of kept updates ends the run. An epsilon has to be
fixed before the data is read. So the guarantee of such a run is the epsilon of the *maximum* number of attempts. (This
is a privacy filter, trivial because all attempts cost the same.) This maximum is `epochs` times the steps of an epoch.
Of mu0 + 1 attempts in a row one is kept, so mu0 + 1 times the kept updates that the budget pays for is another maximum.
The smaller one counts. Both are fixed by the config, so its cost is the `epsilon_sound` of the final metrics. The
history's `epsilon_spent` charges the attempts so far. That is the cost of a run that had fixed this number beforehand,
and no guarantee for a run that stopped because of its data. Without `max_epsilon` a run makes all attempts, unless it
diverges. Their number is fixed, so the history has `epsilon_sound` for every epoch.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from runner.config import EvaluationSplit
from runner.config.fields import expect, expect_option
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import generator
from runner.training.averaging import LAST
from runner.training.evaluate import Evaluation, Predictor, evaluate, evaluating
from runner.training.updates import UpdateRule, Updates

WEIGHTS = "weights"


@dataclass(frozen=True)
class Annealing(UpdateRule):
    """Parameters of the rule, and the images that screen.

    initial_temperature: Q0 >= 0. At 0 every update is kept and nothing is evaluated.
    rejection_threshold: mu0 >= 0 rejections in a row, after which an update is kept for any loss.
    images: "test", all test images, on which the accuracy is then selected, or "public_split", every second one.
    restores: "weights" if a rejection restores only these and not the optimizer's state; None if it restores both.

    Raises:
        ValueError: a number is out of range, or a name is unknown.
    """

    initial_temperature: float
    rejection_threshold: int
    images: str = "public_split"
    restores: str | None = None

    takes_back = True
    share_name = "screening_share"
    column_names = (
        "tries", "accepted", "forced", "acceptance_rate", "screening_loss", "screening_accuracy", "unscreened_accuracy",
    )  # fmt: skip

    def __post_init__(self) -> None:
        temperature, threshold = self.initial_temperature, self.rejection_threshold
        expect(0 <= temperature < math.inf, "screening.initial_temperature >= 0 and finite", temperature)
        expect(threshold >= 0, "screening.rejection_threshold >= 0", threshold)
        expect_option("screening.images", self.images, ("test", "public_split"))
        if self.restores not in (None, WEIGHTS):
            raise ValueError(f"screening.restores has no {self.restores}: it is {WEIGHTS}, or null for all.")

    def check(self, mechanism: Mechanism) -> None:
        """Check that the mechanism is DP-SGD's. Another one may charge steps together, kept or not."""
        if type(mechanism) is not Mechanism:
            raise ValueError("screening charges kept steps one by one, so it takes no mechanism but DP-SGD's own.")

    def most_steps(self, planned: int, paid_for: int | None) -> int:
        return planned if paid_for is None else min(planned, (self.rejection_threshold + 1) * paid_for)

    def split(self, test: Split) -> tuple[Split, ...]:
        """Return the images of the test split to report on, and the images that screen.

        The halves of public_split are every second image. In the order of their files, the first half of MNIST's test
        images is easier than the second.
        """
        if self.images == "test":
            return test, test
        return tuple(Split(test.images[i::2], test.targets[i::2]) for i in (1, 0))

    def due(self, run: Any, history: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Compute the columns that follow from others.

        At most mu0 rejections precede a kept update, or follow the last one. Exactly mu0 precede each update that was
        kept only because of them.
        """
        most, always = self.rejection_threshold, self.initial_temperature == 0
        due: dict[str, list[Any]] = {"tries": list(history["steps"])}
        due |= {name: [] for name in ("accepted", "forced", "acceptance_rate")}
        before = 0, 0, 0
        for row in zip(history["steps"], history["accepted"], history["forced"], strict=True):
            (tries, accepted, forced), (tried, accepted_before, by_force) = row, before
            least = tries if always else math.ceil((tries - most) / (most + 1))
            most_forced = by_force + accepted - accepted_before
            if most > 0:
                most_forced = min(most_forced, (tries - accepted) // most)
            due["accepted"].append(max(accepted, least))
            due["forced"].append(0 if always else min(max(forced, by_force), most_forced))
            due["acceptance_rate"].append((accepted - accepted_before) / (tries - tried) if tries > tried else math.nan)
            before = row
        loss, accuracy = LAST if LAST[0] in history else ("test_loss", "test_accuracy")
        if self._reports_others(run):
            return due | {"unscreened_accuracy": list(history[accuracy])}
        same = {"screening_loss": list(history[loss]), "screening_accuracy": list(history[accuracy])}
        return due | same | {"unscreened_accuracy": [math.nan] * len(history["epoch"])}

    def _reports_others(self, run: Any) -> bool:
        """Return True if the reported images differ from the images that screen."""
        return self.images == "public_split" or bool(run.config.evaluation == EvaluationSplit.holdout)

    def updates(self, run: Any, objective: Objective, aside: Sequence[Split]) -> "Screening":
        candidates = super().updates(run, objective, ())
        draws = generator(run.config.seed, "screening", torch.device("cpu"))
        return Screening(self, objective, candidates, aside[0], draws, run.paid_for, self._reports_others(run))


class Screening(Updates):
    """Algorithm 2's part of the training loop: an update attempted, evaluated, and kept or rejected.

    Args:
        rule: its parameters.
        objective: its network's loss on `images` decides.
        candidates: the step of these updates is the candidate.
        images: the images that screen.
        draws: a generator on the CPU for the uniform numbers, one per attempt.
        paid_for: the number of kept updates at which the run ends, or None.
        reports_others: True if the reported images differ from the images that screen.
    """

    def __init__(
        self,
        rule: Annealing,
        objective: Objective,
        candidates: Updates,
        images: Split,
        draws: Generator,
        paid_for: int | None = None,
        reports_others: bool = True,
    ) -> None:
        super().__init__(candidates.optimizer)
        self._rule, self._candidates, self._draws, self._paid_for = rule, candidates, draws, paid_for
        self._objective, self._images, self._reports_others = objective, images, reports_others
        self.loss = ScreeningLoss(objective.network, images, isolated=objective.isolated)
        self._total = math.nan  # the sum of the losses at the present weights
        self.tries = self.accepted = self.forced = self._rejected_in_a_row = 0
        self._before_epoch = (0, 0)

    @property
    def finished(self) -> bool:
        return self._paid_for is not None and self.accepted >= self._paid_for

    def start_epoch(self) -> None:
        """Sort the screening images by their loss at the present weights, and evaluate them in that order."""
        self._before_epoch = self.tries, self.accepted
        self._candidates.start_epoch()
        if self._rule.initial_temperature > 0:
            with self._timed():
                self.loss.sort()
                _, self._total = self.loss.sum_up_to(math.inf)

    def step(self) -> bool:
        """Make the candidate's step and keep it, or restore as the rule says. Return True if it is kept."""
        if self._rule.initial_temperature == 0:
            self._candidates.step()
            self.tries, self.accepted = self.tries + 1, self.accepted + 1
            return True
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        weights = [parameter.detach().clone() for parameter in parameters]
        state = {
            p: {name: v.clone() if isinstance(v, Tensor) else v for name, v in numbers.items()}
            for p, numbers in self.optimizer.state.items()
        }
        self._candidates.step()
        with self._timed(), torch.no_grad():
            accepted = self._keep()
            if not accepted:
                for parameter, before in zip(parameters, weights, strict=True):
                    parameter.copy_(before)
                if self._rule.restores != WEIGHTS:  # without any later entries
                    self.optimizer.state.clear()
                    self.optimizer.state.update(state)
        return accepted

    def _keep(self) -> bool:
        """Apply algorithm 2, lines 10 to 22.

        U <= exp(-dE Q0 tau) holds just if dE <= -ln(U) / (Q0 tau), with dE the difference of two means over n images.
        Drawing U first gives a bound on the candidate's sum, infinite if Q0 tau or U is 0.
        """
        self.tries += 1
        uniform = torch.rand((), dtype=torch.float64, generator=self._draws).item()
        temperature = self._rule.initial_temperature * self.accepted
        slack = -math.log(uniform) / temperature if uniform > 0 and temperature > 0 else math.inf  # by which J may rise
        bound = self._total + len(self.loss) * slack
        forced = self._rejected_in_a_row >= self._rule.rejection_threshold
        within, total = self.loss.sum_up_to(math.inf if forced else bound)
        if not (within or forced):
            self._rejected_in_a_row += 1
            return False
        self.forced += forced and not total <= bound
        self.accepted += 1
        self._rejected_in_a_row = 0
        self._total = total
        return True

    def columns(self, reported: Evaluation) -> dict[str, float]:
        """Return columns for the history, from the measurements on the reported images.

        tries, accepted, forced: counted from the start; forced ones are kept only because of the rejections before.
        acceptance_rate: the share of this epoch's attempts that is kept.
        screening_loss, screening_accuracy: on the images that screen, at the last weights.
        unscreened_accuracy: the same on images that do not screen; NaN if all reported images screen, as in the paper.
        """
        tries, accepted = self.tries - self._before_epoch[0], self.accepted - self._before_epoch[1]
        classes = len(reported.class_accuracy)
        measured = evaluate(self._objective, self._images, classes) if self._reports_others else reported
        return {
            "tries": self.tries,
            "accepted": self.accepted,
            "forced": self.forced,
            "acceptance_rate": accepted / tries,
            "screening_loss": measured.loss,
            "screening_accuracy": measured.accuracy,
            "unscreened_accuracy": reported.accuracy if self._reports_others else math.nan,
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
        self.loss.reorder(state["order"])
        self.tries, self.accepted, self.forced, self._rejected_in_a_row = state["counts"]
        self.seconds = state["seconds"]

    @contextmanager
    def _timed(self) -> Iterator[None]:
        def now() -> float:
            if self.loss.device.type == "cuda":
                torch.cuda.synchronize(self.loss.device)  # do not count the step's unfinished work
            return time.perf_counter()

        started = now()
        yield
        self.seconds += now() - started


class ScreeningLoss:
    """The sum of the cross-entropies of `images` at the network's present weights, which is n times J.

    Losses are summed in float64, batch by batch, in one fixed order. None is negative and rounding is monotone, so the
    running sum never falls, even in floating point. Once it is above a bound, so is the whole sum. `at_most` can stop
    there with the same answer as from the whole sum.

    `sort` puts the images with the largest losses first. Most images have almost no loss, so a bad candidate is
    rejected long before the last image.
    """

    def __init__(self, network: nn.Module, images: Split, *, isolated: bool = False) -> None:
        objective = Objective(network, nn.CrossEntropyLoss(reduction="none"))
        objective.isolated = isolated
        self._predictor, self._images, self._targets = Predictor(objective, images), images.images, images.targets
        self.device = self._images.device
        self.order = torch.arange(len(images), device=self.device)  # the index in `images` at each position

    def __len__(self) -> int:
        return len(self._images)

    def sum_up_to(self, bound: float) -> tuple[bool, float]:
        """Return True if the sum is at most `bound` (a NaN is not), and the sum: whole if it is, else maybe partial."""
        total = 0.0
        with evaluating(self._predictor.objective):
            for _, losses in self._predictor.batches(self._images, self._targets):  # a rejection can stop between two
                total += losses.double().sum().item()
                if total > bound:
                    return False, total
        return total <= bound, total

    def sort(self) -> None:
        """Sort the images by their losses at the present weights, the largest first."""
        with evaluating(self._predictor.objective):
            losses = torch.cat([losses for _, losses in self._predictor.batches(self._images, self._targets)])
        self.reorder(losses.argsort(descending=True, stable=True))

    def reorder(self, order: Tensor) -> None:
        """Put the images in another order, given by their present places."""
        order = order.to(self.device)
        self._images, self._targets, self.order = self._images[order], self._targets[order], self.order[order]
