"""Breaks the package on purpose, one way at a time, and counts the tests that turn red, up to three.

    python -m tests.breakages [NAME ...]

A breakage that no test notices means a missing test. The run ends with status 1 if there is one. The work
happens in a temporary copy.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_OPTIONS = "--tb=no -p no:cacheprovider --continue-on-collection-errors --maxfail=3"  # three are proof enough
_LAWS = (
    "tests/mechanisms",
    *("tests/test_golden.py", "tests/test_checks.py"),
    *(f"tests/numerics/test_{name}.py" for name in ("normal", "truncated_normal", "blocks")),
)
_ENTRY = r"([^-+\n].*)\n((?:-.*\n?)+)((?:\+.*\n?)*)"


@dataclass(frozen=True)
class Breakage:
    """A piece of source that stands once in its file, what replaces it, and the tests that should notice."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


def parsed(text: str) -> Iterator[Breakage]:
    """The breakages of a text like ``_TEXT``.

    A line "@ file: tests" begins a group: "accounting/ledger" stands for tests/accounting/test_ledger.py, and
    without tests it is those of the laws that should notice. In the group each breakage is a line with its
    name, lines "- before" and lines "+ after"; without the latter the piece is removed.

    >>> [one] = parsed("@ a.py: b/c\\na name\\n- x\\n-     y\\n+ z")
    >>> one.before, one.after, one.tests
    ('x\\n    y', 'z', ('tests/b/test_c.py',))
    """
    for group in re.split(r"^@ ", text, flags=re.M)[1:]:
        head, _, body = group.strip("\n").partition("\n")
        file, _, names = head.partition(":")
        paths = [Path("tests", name) for name in names.split()]
        tests = tuple(str(path.with_name(f"test_{path.name}.py")) for path in paths) or _LAWS
        if not re.fullmatch(f"(?:{_ENTRY})+", body):
            raise ValueError(f"{file}: each breakage is a name, lines with - and lines with +")
        for name, before, after in re.findall(_ENTRY, body):
            lines = ([line[2:] for line in part.splitlines()] for part in (before, after))
            yield Breakage(name, file, *map("\n".join, lines), tests)


_TEXT = r'''
@ experiments/comparison.py: experiments/comparison_page
a yes where the band of a law includes 1
- return self.times[2] < 1
+ return self.times[0] < 1

@ experiments/comparison_page.py: experiments/comparison_page
a page of a sweep that does not say that it is sensitive
- notice=SENSITIVE
+ notice=""

@ experiments/features.py: experiments/features
features that everybody may read
- replacing(out)
+ replacing(out, mode=0o666)

@ experiments/grid_accounts.py: experiments/grid_accounts
pages read without the margin above their chords
- * (raised * (1 + ROUNDING))
+ * (1 + ROUNDING)

@ experiments/information/network.py: experiments/information/network
a run's eta for its measured steps alone
- sampling_rate * steps / len(moments)
+ sampling_rate

@ experiments/information/networks.py: experiments/information/networks
the epsilon of a network for one step
- plan.cost(parameters, setting.steps)
+ plan.cost(parameters, 1)

@ experiments/linear_grid.py: experiments/linear_grid
one noise for all settings of a call of the sampler
- for one in noise])
+ for one in noise[:1] * len(noise)])

@ src/ringfence/accounting/calibration.py: accounting/calibration
calibration returns the end that fails
-             return passing[0]
+             return failing[0]
sigma calibrated on this dataset unless told otherwise
- kind: EpsilonKind = "data_independent",
-     coordinates: int | None = None,
-     sampling_rate: float = 1.0,
- ) -> float:
-     """A sigma
+ kind: EpsilonKind = "per_instance",
+     coordinates: int | None = None,
+     sampling_rate: float = 1.0,
+ ) -> float:
+     """A sigma
an answer from theta without its warning
-         if self.kind == "data_independent":
-             return
+         return
one sampled release calibrated for many
- account.step_worst_case(self.theta, count=steps)
+ account.step_worst_case(self.theta, count=1)
@ src/ringfence/accounting/calibration.py: accounting/calibration
a target that is not spent
- passing[1] >= (1 - tolerance) * epsilon or
+ True or
@ src/ringfence/accounting/calibration.py: training/target
the sigma that fails the target
-             return passing[0]
-         elif attempt
+             return failing[0]
+         elif attempt

@ src/ringfence/accounting/central_limit.py: accounting/central_limit accounting/profile
the width of a piece of third cumulants not charged
- self.remainder(size, real) + half_width * size * (size**2 + 1) / 6
+ self.remainder(size, real)
the fourth cumulant not charged
- fourth + fifth + 0.5 * square + cube
+ fifth + 0.5 * square + cube
variances that differ by sign not charged
- return centred + size * mean + spread
+ return centred + size * mean
half the extent of the loss
- extent=max(float(side.extent.max()) for side in both)
+ extent=max(float(side.extent.max()) for side in both) / 2
the far part of the transform left out
- float((near + far).max())
+ float(near.max())

@ src/ringfence/accounting/conversion.py: accounting/conversion accounting/examples
delta not split over the orders
- (math.log(len(orders)) - math.log(delta))
+ -math.log(delta)
@ src/ringfence/accounting/conversion.py: accounting/conversion
a Gaussian epsilon with rounding on the wrong side
- epsilon = float(root)  # which may be on either side
-     while gaussian_delta(mu, epsilon) > delta:
+ epsilon = float(root) * (1 - 1e-9)
+     while False:
the sign of log(1 / delta) in an example's epsilon
- - torch.log(delta * orders) / (orders - 1)
+ + torch.log(delta * orders) / (orders - 1)

@ src/ringfence/accounting/divergence_sums.py: accounting/divergence_sums accounting/per_instance
only upward pushes in the sums
- forward = (theta, move), (theta, -move)
+ forward = (theta, move), (theta, move)
@ src/ringfence/accounting/divergence_sums.py: accounting/examples
the way back taken from the wrong end
- backward = (theta + move, -move), (theta - move, move)
+ backward = (theta - move, -move), (theta + move, move)
@ src/ringfence/accounting/divergence_sums.py: accounting/far_out
the other end of a huge support
- (theta - lower).abs() <= (theta - upper).abs()
+ (theta - lower).abs() >= 0

@ src/ringfence/accounting/decisions.py: releases/every_job
a replaced ballot that is bounded never leaves a query for another one
- twice = 2 * cost("added") if
+ twice = 0.0 if
@ src/ringfence/accounting/decisions.py: accounting/decisions
moves between candidates who are behind are free
- (outside, others.to_second), (outside, others.from_second)
+ (0 * outside, others.to_second), (0 * outside, others.from_second)
queries that a replaced ballot leaves and joins are not charged
- torch.cat((changed / 2, moved), dim=2)
+ torch.cat((changed / 2, 0 * moved), dim=2)
a voter who is replaced has the backward induction of one who is added
- return 2 * at_most if at_most is not None and neighbours == "replaced" else at_most
+ return at_most
a voter is never taken from one candidate and given to another
- if neighbours == "replaced":
-         # from
+ if neighbours == "other":
+         # from

@ src/ringfence/accounting/divergence_sums.py: accounting/divergence_sums
the better end of every bin taken
- _OFF_THE_MIDDLE = (0.5 + _MISPLACED)
+ _OFF_THE_MIDDLE = (-0.5 + _MISPLACED)
a table read without the margin above its chords
- raised = above.view(2, len(self.orders)) * self.margin(setting)
+ raised = above.view(2, len(self.orders))
chords for shifts of any size
- _LARGEST_SHIFT = 32
+ _LARGEST_SHIFT = 1 << 20
no charge for a coordinate rounded into the next bin
- _OFF_THE_MIDDLE = (0.5 + _MISPLACED)
+ _OFF_THE_MIDDLE = 0.5
more counted at once than float32 holds
- _COUNTED_AT_ONCE = {"cpu": 1 << 22}
+ _COUNTED_AT_ONCE = {"cpu": 1 << 26}
coordinates far from the others left out
- total = total + exact_sums(setting.mechanism, far, size, self.orders)
+ total = total + 0 * exact_sums(setting.mechanism, far, size, self.orders)
@ src/ringfence/accounting/divergence_sums.py: accounting/curvature
a chord raised by an eighth of the squared spacing, not by a sixth
- * spacing**2 / 6)
+ * spacing**2 / 8)
@ src/ringfence/accounting/divergence_sums.py: accounting/curvature accounting/divergence_sums
no more bend at orders below two
- return 4 + (2 - orders).clamp(min=0) * shift.square() / 4
+ return 4 + 0 * orders * shift
@ src/ringfence/accounting/divergence_sums.py: accounting/far_out
theta + shift rounded far from 0
- mechanism, theta = recentre(mechanism, theta)  # because theta + s is rounded
a table of theta that float64 holds coarsely
- FARTHEST = 1e6  #
+ FARTHEST = 1e300  #

@ src/ringfence/accounting/equivalent_information.py: accounting/equivalent_information accounting/sensitivity
equivalent information: the backward direction is the forward one
- pushes(self.theta[places], moves)[backward]
+ pushes(self.theta[places], moves)[False]
@ src/ringfence/accounting/equivalent_information.py: accounting/equivalent_information
equivalent information: only the longest moves
- if all_below else 1
+ if False else 1
equivalent information: nothing between two moves
- above = torch.minimum(_between(high, low, halves, ratio, backward), self.most[places])
+ above = torch.minimum(torch.maximum(high, low), self.most[places])
equivalent information: a stretch that is not searched further is forgotten
- bounds = _raised(bounds, places[~far], above[:, ~far])
+ bounds = bounds.clone()

@ src/ringfence/accounting/examples.py: accounting/examples
an example removed as if it were added
- sign = (-1) ** k if variant.startswith("remove") else 1
+ sign = 1
polynomials through the information instead of above it
- factor = (most / least).amax(dim=1, keepdim=True)
+ factor = (most / least).mean(dim=1, keepdim=True)
polynomials used beyond their reach
- torch.where(within, result, torch.inf)
+ result
every shift of an example charged as its largest ones
- last = max(int(number) - _APART, self._smallest)
+ last = int(number)
small shifts of an example charged as the next larger ones alone
- self._charges(last, and_below=True)
+ self._charges(last)

@ src/ringfence/accounting/examples.py: accounting/examples accounting/contract
examples' running sums in float32
- self.sums + count * sums if self.steps else count * sums
+ (self.sums + count * sums if self.steps else count * sums).float()
@ src/ringfence/accounting/examples.py: accounting/examples
an example's own epsilon above what is promised to everybody
- epsilons.clamp(max=PrivacyLoss.of_zcdp(gaussian, bounded).epsilon(delta))
+ epsilons

@ src/ringfence/accounting/fisher.py: accounting/fisher
eta squared for eta
- torch.minimum(raised, ceiling).sqrt().reshape(-1) * UP
+ torch.minimum(raised, ceiling).reshape(-1) * UP
only the last release in the Gram matrix
- self._gram = gram if self._gram is None else self._gram.plus(gram)
+ self._gram = gram

@ src/ringfence/accounting/guarantee.py: accounting/guarantee
assumptions that a statement leaves out
- if self.assumptions else ()
+ if False else ()

@ src/ringfence/accounting/induction.py: accounting/induction accounting/decisions accounting/profile
composed losses charged in one direction only
- max(forward(epsilon), backward(epsilon))
+ forward(epsilon)
@ src/ringfence/accounting/induction.py: accounting/induction
losses on a grid rounded down
- np.concatenate((mass * (1 - share), mass * share))
+ np.concatenate((mass, 0 * share))
losses beyond the grid forgotten
- infinite = self.infinite + float(self.masses[high].sum())
+ infinite = self.infinite
the first move stands for all
- for loss in losses[1:]:
+ for loss in losses[:0]:
yes and no in a cell of t dominated by the coin at its end
- high, low = yes[:-1], no[1:]
+ high, low = yes[1:], no[1:]
yes and no far from a tie left out
- losses = [Loss(np.array([0]), np.array([1 - rare]), rare), Loss.of_atoms(np.ones(1), yes[-1:], step)]
+ losses, high, low = [], high[half:], low[half:]
pure privacy as if the truth were told half the time
- 1 / (1 + math.exp(-size)), 1 / (1 + math.exp(size))
+ 0.5, 0.5
@ src/ringfence/accounting/induction.py: accounting/decisions accounting/induction
releases seen from one side
- (self.log_p - self.rho, -self.rho)
+ (self.log_p.expand_as(self.rho), self.rho)

@ src/ringfence/accounting/ledger.py: accounting/ledger
a ledger writes down what was released after it was released
- self.charge(what, account)
+ pass
a ledger compares every release with its whole budget
- total = self._charged + cost
+ total = cost
a ledger is opened as if it had another budget
- if self._header.get(name) != ours:
+ if False:
a copy of a ledger spends its budget again
- def __reduce_ex__(self, _: object)
+ def reduced(self, _: object)
a release is charged before its arguments are checked
- draw = mechanism.prepared(theta, secure=secure, step=step, generator=generator)
+ draw = lambda: mechanism.release(theta, secure=secure, step=step, generator=generator)
@ src/ringfence/accounting/ledger.py: training/engine/run_file
a resumed run pays again for steps that it was charged for
- if entry.run == run.run_id:
+ if False:

@ src/ringfence/accounting/per_instance.py: mechanisms/laplace
a table of divergences for a law with kinks
- if theta.numel() > FEW and not mechanism.whole:
+ if theta.numel() > FEW:
@ src/ringfence/accounting/divergence_sums.py: mechanisms/laplace
whole numbers moved by a part of one
- nearer.round() if law.whole else nearer
+ nearer
@ src/ringfence/accounting/per_instance.py: accounting/per_instance accounting/guarantee
a sum not capped by what holds for every theta
- forward, backward = torch.minimum(sums, bounded * self._orders)
+ forward, backward = sums
@ src/ringfence/accounting/per_instance.py: accounting/per_instance accounting/contract accounting/guarantee
count forgotten in the backward sum
- self.backward + count * backward
+ self.backward + backward
count forgotten in what holds for every theta
- self.bounded_zcdp += count * bounded
+ self.bounded_zcdp += bounded

@ src/ringfence/accounting/privacy_loss.py: releases/budget
a Gaussian beside pure privacy is free
- entries.append(("gaussian", loss.mu, 1))
+ pass
pure privacy beside samples is free
- pairs=(*loss.pairs, (added, 0.0))
+ pairs=loss.pairs
@ src/ringfence/accounting/privacy_loss.py: accounting/privacy_loss
sums for the data at hand pass for every dataset's where a pair is beside them
- every_dataset=not is_smaller,
+ every_dataset=not is_smaller or bool(self.pairs),
a negative cost makes others smaller
- if not value >= 0:
+ if False:
a loss without releases costs nothing
- if self._costly and not self.releases:
+ if False:
what is released beside known sums is free for the data at hand
- total += loss.divergences(at)
+ pass
a budget covers samples that were chosen along the way
- if not self.is_gaussian:
+ if False:
mu squared taken for zCDP
- (GaussianRelease(math.sqrt(2 * gaussian), bounded),)
+ (GaussianRelease(math.sqrt(gaussian), bounded),)
a zCDP that only holds for a smaller move
- RenyiBound.of_zcdp(self.zcdp)
+ RenyiBound.of_zcdp(self.zcdp / 4)
what pairs take not taken from delta
- math.nextafter(delta - self.taken, 0.0) if self.taken else delta
+ delta
@ src/ringfence/accounting/privacy_loss.py: accounting/per_instance accounting/contract accounting/guarantee
one direction only in a running account
- """The larger of the two running sums, order by order."""
-         return torch.maximum(self.forward, self.backward)
+ """The larger of the two running sums, order by order."""
+         return self.forward
@ src/ringfence/accounting/privacy_loss.py: accounting/per_instance accounting/contract
the backward sum not restored
- for name in cls._COUNTED:
+ for name in cls._COUNTED[:2]:
@ src/ringfence/accounting/privacy_loss.py: accounting/subsampling
a sampled epsilon said to be the Gaussian's
- if self._everything else _SAMPLED
+ if self._everything else _GAUSSIAN
@ src/ringfence/accounting/privacy_loss.py: accounting/guarantee
per-instance above what holds for every dataset
- epsilon=min(renyi[0], every.epsilon),
+ epsilon=renyi[0],
orders that change after the run
- return self._orders.clone()
+ return self._orders

@ src/ringfence/accounting/profile.py: accounting/profile
a table's envelope leaves out a coordinate
- clamp(0, 1).amax(dim=-1)
+ clamp(0, 1)[..., 0]
several moves are charged as one
- _composed([(every, at_most * steps)])
+ _composed([(every, steps)])
one direction only in the central limit
- max(sums.delta(epsilon) for sums in directions)
+ directions[0].delta(epsilon)
hockey sticks of one sign only
- for curve in curves]
+ for curve in curves[:1]]

@ src/ringfence/accounting/publication.py: accounting/publication
a published table counts its first cells
- worst.reshape(-1).topk(own.at_most)[0]
+ worst.reshape(-1)[: own.at_most]
too little noise in a published number
- change / math.sqrt(2 * zcdp)
+ change / (2 * math.sqrt(zcdp))
the margin of a published number below instead of above
- quantile = -float(
+ quantile = float(
publishing itself not paid for
- claim = (loss + publishing).guarantee(delta)
+ claim = loss.guarantee(delta)
noise of a published number from torch's generator
- float(noise.draw(value))
+ value + float(noise.law.sigma * torch.randn(()))
a published number beyond the end of its grid
- _LEAST_DEVIATION = 2.0**-40
+ _LEAST_DEVIATION = 2.0**-60

@ src/ringfence/accounting/decision_publication.py: accounting/decision_publication
the neighbour's end of a published pair left out
- step * (k + 1)
+ step * k
a published sum of decisions that voters change by more than its noise is made for
- best = max(best, bound *
+ best = max(best, 0 * bound *
an outcome is seen from one end of a pair
- terms += [pieces.log_excess(rho, order) - rho, pieces.log_excess(-rho, order)]
+ terms += [pieces.log_excess(rho, order) - rho]
one candidate of a replaced ballot is charged as if it did not move
- {"replaced": 1, "added": 0}
+ {"replaced": 0, "added": 0}
the likeliest of many outcomes is charged as if its chance were above a half
- likeliest[-1][0] = others[-1][0] = torch.maximum(likeliest[-1][0], others[-1][0])
+ pass
the chance of an answer is that of the votes and not of the neighbour
- ends = (top + 1 - law.threshold)
+ ends = (top - law.threshold)
voters who leave the leader lower the largest count by more than they are
- self.leading[:, 0] + voters - 2 * left
+ self.leading[:, 0] + voters - 9 * left
a leader is taken for the same in votes that have another one
- & (lead >= 2 * left + others + 2)
+ & (lead >= 0)
voters move the second no farther than the others
- closer[0] = self.places[1] - left * s1 - others * s3
+ closer[0] = closer[0]
a published sum that stops where winners are ties, though answers become likelier still
- farthest = max(farthest, math.ceil(rarest))
+ farthest += 0
a published sum that stops where voters may still leave the leader
- farthest = int(places.max()) // steps[2] + 1
+ farthest = int(places.max()) // steps[0] + 1
winners that cost more than floats hold
- if not (self.alpha - 1) * self.alpha * query < _OVERFLOW:
+ if not self.alpha < math.inf:
the question for an answer not charged in a published number
- whole = min(plan.question + plan.most
+ whole = min(plan.most
a published number of decisions that ignores how many a person takes part in
- filled(costs.at(at).view(1, 1, -1), costs.repeats.double(), float(moved))
+ filled(costs.at(at).view(1, 1, -1), costs.repeats.double(), 1.0)

@ src/ringfence/accounting/selection.py: accounting/selection
the choice among runs is not charged
- (gaussian_epsilon(mu, share) + 2 * _slack(mu, runs))
+ gaussian_epsilon(mu, share)
the choice among runs is charged once instead of twice
- + 2 * _slack(mu, runs)
+ + _slack(mu, runs)
@ src/ringfence/accounting/selection.py: fuzz/arguments
a number of runs without end
- if not 1 <= runs <= _MOST_RUNS:
+ if not 1 <= runs:

@ src/ringfence/accounting/sensitivity.py: accounting/sensitivity accounting/per_instance
a length is put where it costs least
- values.topk(needed, dim=-1) if needed < count else values.sort(dim=-1, descending=True)
+ values.sort(dim=-1, descending=False)
a length that binds is dropped
- math.sqrt(without.longest_square(ONE, shape)) <= self.norm
+ math.sqrt(without.longest_square(ONE, shape)) >= self.norm

@ src/ringfence/accounting/steepness.py: accounting/steepness
the slope between nodes taken for the largest
- (steepest + 1.5 * bend * widest * highest)
+ steepest
the rounding of theta far from 0 free of charge
- _LOCATION = 2.0**-51
+ _LOCATION = 0.0
@ src/ringfence/accounting/steepness.py: accounting/publication accounting/steepness
slopes sought around the support of a narrow law only
- reach = _REACH * unit +
+ reach = _REACH * float(mechanism.sigma) +
slopes sought to alpha c, not to twice that
- 2 * alpha * move
+ alpha * move
a support too wide for nodes taken to be flat
- not dense or zones[0][1]
+ zones[0][1]

@ src/ringfence/accounting/gaussian_releases.py: accounting/gaussian_releases
a sample bounded by the Taylor polynomial without its remainder's factor
- (orders - 1) * log_out + second
+ second
a weighted mean without what its weights cost
- b * divergence + zcdp
+ zcdp
a mean of powers of the ratio under the other law
- (p * b + 1)).amin
+ (p * b)).amin
the cost of an order counted for the next larger one
- endless[..., torch.searchsorted(torch.tensor(known, dtype=orders.dtype), orders)]
+ endless[..., (torch.searchsorted(torch.tensor(known, dtype=orders.dtype), orders) - 1).clamp(min=0)]
equal releases counted once
- counts.get(kind, 0) + release.count
+ release.count
a release that would take from what others cost
- if not (self.mu >= 0 and self.zcdp >= 0):
+ if False:
@ src/ringfence/accounting/subsampling.py: accounting/subsampling
steps that a file counts and no release has
- if sum(release.count for release in account.releases) != account.steps:
+ if False:

@ src/ringfence/accounting/conversion.py: accounting/trade_off
attacks on the record that is removed left out
- torch.maximum(_divergence(orders, first, second), _divergence(orders, second, first))
+ torch.minimum(_divergence(orders, first, second), _divergence(orders, second, first))
@ src/ringfence/accounting/gaussian_releases.py: accounting/trade_off
the mu of a sample with twice the slack
- + slack - deltas
+ + 2 * slack - deltas
@ src/ringfence/accounting/conversion.py: accounting/trade_off
true positive rates rounded to the defender's favour
- return cumulative(place) * (1 + ROUNDING), cumulative(-place) * (1 - ROUNDING)
+ return cumulative(place) * (1 - 100 * ROUNDING), cumulative(-place) * (1 + 100 * ROUNDING)

@ src/ringfence/accounting/moving.py: accounting/moving
bounded noise charged as the whole Gaussian
-     tau = min(1.0, numbers * _UP * (_tail(upper / sigma) + _tail(-lower / sigma)))
+     tau = 0.0
bounded noise in one number alone
- tau = min(1.0, numbers * _UP
+ tau = min(1.0, _UP

@ src/ringfence/auditing/bounds.py: audit/lower_bound audit/doors
rates that are observed, not bounded
- betaincinv(np.maximum(found, 1), trials + 1 - found, failure_probability)
+ found / trials
a threshold that is chosen on the draws that judge it
-     turned = [sign * side[row] for side in judge]
+     turned = [sign * side[row] for side in choose]
one run without the charge of delta
- max(0.0, (rate - delta) / factor, 1 - delta - (1 - rate) * factor)
+ max(0.0, rate / factor, 1 - (1 - rate) * factor)
one run in which every rule has the whole significance
- share = significance / len(rules)
+ share = significance
equal scores in the order of the sides
- shuffled = rng.permutation(len(scores))
+ shuffled = np.arange(len(scores))[::-1]
a right guess that asks for no wrong ones
- hits + count / (guesses - count) * (asked - misses), asked
+ hits + count * (asked - misses), asked
rounding that raises what a Gaussian curve proves
- least = delta * (1 + _ROUNDING)
+ least = delta * (1 - 1e-3)

@ src/ringfence/auditing/scores.py: audit/lower_bound
independent scores that judge the threshold they chose
- best_event(first, second, delta, significance / 2)
+ best_event(first, first, delta, significance / 2)

@ src/ringfence/auditing/function.py: audit/doors
rounds that each have the whole significance
- share = significance / (2 * rounds)
+ share = significance
a round that tests what it learned from
- for one, other in (choose, fresh))
+ for one, other in (choose, choose))
a constant mechanism that passes
-     if len(outputs) == 1:
+     if len(outputs) == 0:

@ src/ringfence/checks.py:
NaN let through
- return require(name, "must not be NaN", values, ~torch.isnan(values))
+ return values
infinite theta let through
- if not all(map(math.isfinite, ends.tolist())):
+ if bool(torch.isnan(values).any()):
an infinite number let through
- ends = values.reshape(-1) if short else
+ ends = torch.zeros(1) if short else
@ src/ringfence/checks.py: fuzz/arguments
numpy's integers refused
- not isinstance(value, Integral):
+ not isinstance(value, int):
any object taken for another
- if not isinstance(value, kind):
+ if False:

@ src/ringfence/cli/app.py: cli/app
an interrupt without a word
- if status == _INTERRUPTED:
+ if False:
DuckDB's interrupt taken for an error
- if str(error) != "Query interrupted":
+ if True:

@ src/ringfence/cli/common.py: cli/app
the option --out is looked at after training
- if not place.is_dir() or not os.access(place, os.W_OK):
+ if False:

@ src/ringfence/cli/release.py: cli/release
a folder is claimed after the release
- new_folder(out) as beside, hidden as apart:
-         made = job(files, **options)
+ ((made := job(files, **options)) and new_folder(out)) as beside, hidden as apart:
chances of error for everybody
- if not made.errors_are_sensitive:
+ if made.error_columns:

@ src/ringfence/checks.py:
integers are rounded to float64 in silence
- (values.abs() < 2.0**53)
+ (values.abs() < 2.0**64)
@ src/ringfence/checks.py: containers
a masked cell released
- if np.ma.is_masked(value):
+ if False:

@ src/ringfence/files/atomic.py: files/atomic cli/release
the record of what a release cost replaced by the next one
- (path.exists() and os.listdir(path))
+ (path.exists() and shutil.rmtree(path))
@ src/ringfence/files/atomic.py: files/atomic
a pipe is replaced by a file
- if path.exists() and not path.is_file() and not path.is_dir():
+ if False:
two processes write one folder
-         beside.mkdir()
+         beside.mkdir(exist_ok=True)

@ src/ringfence/files/checkpoint.py: files/checkpoint
a checkpoint's checksum not looked at
-     if checksum.hexdigest().encode() != data[at : at + len(_BLANK)]:
+     if False:

@ src/ringfence/files/shared_table.py: files/shared_table
two processes read a ledger before either has charged it
- "BEGIN IMMEDIATE"
+ "BEGIN DEFERRED"
a process forks in the middle of a charge
- before=_ALONE.acquire, after_in_parent=_ALONE.release, after_in_child=_ALONE.release
+ before=bool
a file is closed beside a transaction, whose lock ends with it
- with _ALONE, path.open("rb") as file:
+ with path.open("rb") as file:
@ src/ringfence/files/shared_table.py: accounting/ledger
a URL with a typo leaves an empty ledger
- if begin is None and not self._place.exists():
-                 raise FileNotFoundError(f"{place} holds no ledger: give epsilon to make one")
-             with _ALONE:
-                 made = 0 if begin is None else os.O_CREAT
+ with _ALONE:
+                 made = os.O_CREAT
a forked child spends the budget of a ledger in memory again
- if os.getpid() != self._process:
+ if False:
a ledger that was removed begins at nothing
- number not in hashes or known not in ("", hashes[number])
+ bool(self._number) and number not in hashes
rows of another ledger are taken
- if number != self._number + 1 or found != _hash(self._hash, content):
+ if False:
a ledger that was replaced while it was open is charged
- known not in ("", hashes[number])
+ False

@ src/ringfence/huggingface.py: huggingface
a Trainer that accumulates batches
- "gradient_accumulation_steps": ((1,), "each batch is one release"),
the number of examples read off the rounding of a Trainer's secure mean
-         if engine.secure:
+         if False:
a Trainer that forgets its account
- if resume_from_checkpoint:
+ if False:

@ src/ringfence/lightning.py: lightning
Lightning with a scaled loss
- ("32-true", "64-true", "bf16-mixed")
+ ("32-true", "64-true", "bf16-mixed", "16-true")

@ src/ringfence/noise.py:
sigma 2 % too small in every sampler
- return self.normals(torch
+ return 0.98 * self.normals(torch

@ src/ringfence/mechanisms/base.py: accounting/per_instance accounting/contract accounting/guarantee
the truncated law's factor given to every law
- return self.sigma.double() ** -2
+ return 0.5 * self.sigma.double() ** -2

@ src/ringfence/mechanisms/pieces.py:
the upper atom dropped from the divergence
- log_p = torch.stack((log_tail(-lower), log_tail(upper)))
+ log_p = torch.stack((log_tail(-lower), torch.full_like(upper, -torch.inf)))
the wrong tail for the upper atom
- log_tail(upper)))
+ log_tail(-upper)))
the width formed from rounded ends
- ((upper - lower) / sigma).clamp(max=2 * limit)
+ ((upper - theta) / sigma - (lower - theta) / sigma).clamp(max=2 * limit)
the ratio of a heavy piece left blunt
-     if not bool(heavy.any()):
-         return rho
+     return rho
two pieces of one half both taken for heavy
- _HEAVY = math.log(0.6)
+ _HEAVY = math.log(0.499)

@ src/ringfence/mechanisms/laplace.py:
Laplace noise compared with the Gaussian of its scale
- _SCALE = math.sqrt(math.pi / 2)
+ _SCALE = 1.0
the bound not reflected with the shift
- below = torch.where(down, -upper, lower).floor()
+ below = lower.floor()
whole numbers that theta passes are left out
- inside = k <= last
+ inside = k < last
@ src/ringfence/mechanisms/laplace.py: mechanisms/laplace
pure epsilon of a part of a whole step
- torch.minimum(move.ceil(), 2 * move)
+ move
the information at a kink from one side
- for left in (False, True)
+ for left in (False, False)

@ src/ringfence/mechanisms/rectified.py:
a sign in the rectified information
- far_mills.reciprocal() - far - far_mills
+ far_mills.reciprocal() - far + far_mills
the atoms dropped from the hockey stick
- return pieces.hockey_stick(log_p, rho, epsilon) + torch
+ return torch
sigma squared for sigma in a shift
-         shift = shift / sigma
-         middle
+         shift = shift / sigma**2
+         middle
noise added after the clamp
- torch.minimum(torch.maximum(theta + sigma * noise, lower), upper)
+ torch.minimum(torch.maximum(theta, lower), upper) + sigma * noise
the hockey stick's threshold on the wrong side
- threshold = 0.5 * shift - epsilon / shift
+ threshold = 0.5 * shift + epsilon / shift

@ src/ringfence/mechanisms/secure.py:
cells of the quantiser shifted by a tenth
- return self._at(number, 0.5)
+ return self._at(number, 0.6)
@ src/ringfence/mechanisms/secure.py: mechanisms/samplers
the tail sampled as if it began at 4 sigma
- tail = self.near > TAIL
+ tail = self.near > 1e9

@ src/ringfence/mechanisms/secure.py: mechanisms/secure
secure winners: float64 decides what it cannot know
- doubted = (high >= low.gather(1, best))
+ doubted = (high > high)
a winner among noises that their bits do not tell apart
- if ends[k][1] >= least]
+ if ends[k][0] >= least]
@ src/ringfence/mechanisms/secure.py: mechanisms/secure mechanisms/laplace
noise from the first 64 bits where more are needed
- value(self.bits))) is None:
+ value(self.bits))) is None and False:
Laplace noise cut in the middle of a whole number
- (number.double() + 0.5) * self.step
+ (number.double() - 0.5) * self.step

@ src/ringfence/mechanisms/sign.py:
P and Q swapped in the sign's divergence
- return pieces.atoms(edge, edge, shift / sigma)
+ return pieces.atoms(edge - shift / sigma, edge - shift / sigma, -shift / sigma)

@ src/ringfence/mechanisms/truncated.py:
P and Q swapped in the truncated divergence
- law = TruncatedNormal(*pieces.standardized(theta, sigma, lower, upper))
-         shift = shift / sigma
+ law = TruncatedNormal(*pieces.standardized(theta + shift, sigma, lower, upper))
+         shift = -shift / sigma
sigma for sigma squared in the truncated information
- .div_(sigma * sigma)
+ .div_(sigma)
the shift only taken upwards
- toward, away = law.log_mgf(shift, (1 - alpha) * shift)
+ toward, away = law.log_mgf(shift.abs(), (1 - alpha) * shift.abs())

@ src/ringfence/mechanisms/winner.py: mechanisms/winner
confident winners: whether there is an answer is not charged
- answer = pieces.atoms(edge, edge, shift)
+ answer = pieces.atoms(edge, edge, 0 * shift)

@ src/ringfence/noise.py:
the global random state used
- .normal_(generator=self._generator)
+ .normal_()
@ src/ringfence/noise.py: noise training/engine/engine
numbers that a fork repeats
-         self.require_own_process()
-         parts
+         parts
@ src/ringfence/noise.py: noise
masks of dropout that a search of 2^32 seeds finds
- torch.default_generator.set_state(state)
+ pass
a copy that draws the same numbers
- def __reduce__(self: object) -> NoReturn:
+ def __reduce__(self):
+         return Noise, (self.seed,)
32 bits of a place's key
- return CipherDraws(self._derived(b"place", *place))
+ return CipherDraws(self._derived(b"place", *place)[:4].ljust(32))
a seed cut to 32 bits
- b"%x" % self.seed
+ b"%x" % (self.seed % 2**32)
a key that the operating system did not give
- secrets.randbits(256) if seed is None
+ torch.seed() if seed is None
places that run into each other
- len(part).to_bytes(8, "big") + part
+ part
a Poisson choice more probable than the rate
- _DROPPED < limit
+ _DROPPED <= limit
the digest of a part of theta
- values.numpy().tobytes()
+ values.numpy().tobytes()[:8]

@ src/ringfence/numerics/blocks.py:
the last block forgotten
- for start in range(0, count, length):
+ for start in range(0, max(count - length, 1), length):

@ src/ringfence/numerics/largest_normal.py: numerics/largest_normal mechanisms/winner
winners: the candidate who is moved is charged as if it stood still
- own = every.unsqueeze(2) - losses + gains
+ own = every.unsqueeze(2) - losses
@ src/ringfence/numerics/largest_normal.py: numerics/largest_normal
winners: the windows of the moved counts are left out
- ends[:, -1] = end + up
+ ends[:, -1] = end

@ src/ringfence/numerics/normal.py:
tails subtracted instead of integrated
-     small = size <= 1
+     small = size <= -1
a normal cdf that underflows in the sampler
- return 0.5 * torch.erfc(-SQRT_HALF * x)
+ return torch.special.ndtr(x)
the density cut too early
- cut=46.0
+ cut=24.0
too few nodes
- nodes_slope=6.2
+ nodes_slope=4.6
a term of the series lost
-         while term > self.negligible:
+         while term > 1e-3:
mass and mean of other intervals come along
- [moment.expand_as(chosen)[chosen] for moment
+ [moment.expand_as(chosen)[chosen].flip(0) for moment

@ src/ringfence/numerics/operators.py: numerics/operators
what rounding adds to the recurrence left out
- products[degree] + _charge(rounding, degree) * (1 + squares).sqrt()
+ products[degree]
a failure probability for each matrix instead of all of them
- checks.probability("failure_probability", failure_probability) / operator.count
+ checks.probability("failure_probability", failure_probability)
the estimate of a trace taken for its bound
- total / (math.sqrt(smallest) - moved) ** 2 * slack
+ total / probes * slack

@ src/ringfence/numerics/rounding.py: numerics/rounding training/clipping
a clip is rounded up to float32
- single = torch.nextafter(single, torch.zeros_like(single))
+ pass
@ src/ringfence/numerics/rounding.py: numerics/rounding
a printed bound rounded to nearest
- context.prec, context.rounding = digits, ROUND_CEILING
+ context.prec = digits

@ src/ringfence/numerics/singular_values.py: numerics/singular_values
an eigenvalue believed without a proof
- return proposed + unproved, largest, vectors[:, :, -1:]
+ return proposed, largest, vectors[:, :, -1:]

@ src/ringfence/numerics/truncated_normal.py:
one Newton step too few in the tail sampler
- for _ in range(3):
+ for _ in range(1):

@ src/ringfence/opacus.py: opacus
an account of Opacus that does not say what its divisor tells
- assumptions=(SIZE, STEPS, assumptions.FLOATS)
+ assumptions=()
what Opacus released before is forgotten
-     _charge(ours.account, engine.accountant.history)

@ src/ringfence/releases/budget.py: accounting/ledger
a job is charged before its seed is checked
- noise = seed if isinstance(seed, Noise) else Noise(seed)
+ noise = Noise() if seed is None else seed
@ src/ringfence/releases/budget.py: releases/every_job
one noise for the tables of two years
- digest = self.noise.digest(values)
+ digest = len(values)
@ src/ringfence/accounting/allocation.py: accounting/allocation
numbers that are moved to the grid without keeping their mean
- found += np.bincount(above, masses * share, minlength=len(points))
+ found += np.bincount(above - 1, masses * share, minlength=len(points))
@ src/ringfence/accounting/subsampling.py: accounting/allocation
epochs that were begun are not counted
- (math.ceil(steps / self.steps_an_epoch) for steps
+ (math.floor(steps / self.steps_an_epoch) for steps
@ src/ringfence/training/engine/run.py: training/engine/allocation
an epoch that a resumed run goes on with, though it draws another
-         self.begun = self.number
+         pass
a ledger pays for steps of an epoch, however often it is drawn
- return self.account.before(self._epoch(self.number))
+ return self.number // self.plan.batches.steps_an_epoch
a plan that begins in the middle of an epoch forgets that epoch
- (first,), (last,) = self._epoch(self.number), self._epoch(self.number + steps - 1)
+ (first,), (last,) = self._epoch(0), self._epoch(steps - 1)
@ src/ringfence/training/engine/batches.py: training/engine/allocation
the same allocation in every epoch
- noise.at("allocation", first)
+ noise.at("allocation", 0)
@ src/ringfence/releases/release.py: releases/ballots
Rényi sums are a per-instance epsilon of queries that were chosen by earlier answers
- if not self.adaptive:
+ if True:
@ src/ringfence/releases/release.py: releases/release
an account that everybody may read
- replacing(path, mode=OWNER_ALONE)
+ replacing(path, mode=0o644)

@ src/ringfence/releases/ballots.py: releases/ballots
as many answers of a person as were given
- place.argsort(dim=1)[:, :at_most]
+ place.argsort(dim=1)
@ src/ringfence/releases/decisions.py: releases/votes
a published epsilon that is not paid for
- publishing_loss(found.publishing_zcdp, account
+ publishing_loss(0 * found.publishing_zcdp, account
@ src/ringfence/releases/decisions.py: releases/votes
Gumbel noise found for voters who are added, where they are replaced
- poll.neighbours, poll.at_most, steps=queries)
+ "added", poll.at_most, steps=queries)
@ src/ringfence/releases/decisions.py: releases/votes
Gumbel noise found for one query
- charged = poll.at_most or queries
+ charged = 1
yes or no with the noise of the Gaussian, where less is enough
- less = cost(most) <= target
+ less = False
less noise for yes or no where Gaussians are counted
- or poll.publish or poll.budget.ledger is not None:
+ or poll.publish:
@ src/ringfence/releases/decisions.py: releases/votes releases/winners
the worse noise
- lead_of(gumbel, choices, close) < lead_of(gaussian, choices, close)
+ lead_of(gumbel, choices, close) > lead_of(gaussian, choices, close)
@ src/ringfence/releases/ballots.py: releases/engines
several votes of a person at one query
- own = bounded(rows, own, cells.count, 1, each=("person", "query"))
+ own = own.distinct()

@ src/ringfence/releases/cells.py: releases/cells
whole numbers beyond the bins count in the first of them
- ifelse(low - 1, column)
+ ifelse(low, column)
an infinite value is in an open bin
- ends if dates else (min(max(end, -LARGEST), LARGEST) for end in ends)
+ ends
what is no number counts as nothing
- if any(survey[f"wrong{at}"].to_pylist()):
+ if False:
@ src/ringfence/releases/cells.py: releases/cells
a person in as many cells as there are
- filter(own.turn < at_most)
+ filter(own.turn >= 0)
ranks of values that are those of a person's cells
- mutate(turn=turn, many=many)
+ mutate(turn=turn, many=many, choice=turn)
values that are not clamped
- .clip(low, high))
+ )
people who are told apart by numbers that stand for several of them
- asked["rounded"] = (who.abs() >= 2.0**53).cast("int32").sum()
+ pass
@ src/ringfence/releases/cells.py: releases/engines
rows without a value are counted in another cell
- return own.filter(own.cell != _LEFT_OUT) if _LEFT_OUT in places["cell"].to_pylist() else own
+ return own.mutate(cell=own.cell.abs())
@ src/ringfence/releases/cells.py: releases/every_job
a table of counts taken for rows of people
- if int(people.max()) > 1 or
+ if True or
a column of the data is overwritten by what is released
- if name in taken:
+ if False:

@ src/ringfence/releases/counts.py: releases/counts
standard errors are said to hold for counts that were selected
- exact = _selection(threshold, used)
+ exact = exact

@ src/ringfence/releases/means.py: releases/means
means say that small groups are never shown
- alone = used.exceeded(threshold - 1.5)
+ alone = 0.0
a person with Laplace noise moves one of the two numbers more than is charged
- sides = (everybody + units, everybody - units)
+ sides = (everybody + units, everybody - 2 * units)
@ src/ringfence/releases/means.py: releases/shares_sums_quantiles
several columns for the price of one
- laplace_scale(budget, at_most * columns)
+ laplace_scale(budget, at_most)
@ src/ringfence/releases/means.py: releases/every_job
several sums for the price of one
- used = count_noise(budget, read.most * len(columns), UNITS)
-     promised = used.loss(read.units, read.most * len(columns))
+ used = count_noise(budget, read.most, UNITS)
+     promised = used.loss(read.units, read.most)

@ src/ringfence/releases/counts.py: releases/shares_sums_quantiles
intervals of counts that are too short
- error, total - far, total
+ error, total - far / 2, total

@ src/ringfence/releases/quantiles.py: releases/shares_sums_quantiles
noise of ranks for half of what one person moves
- return 2 * max(_rounded(level), 1 - _rounded(level))
+ return max(_rounded(level), 1 - _rounded(level))
a person who leaves is not accounted for
- removed = self.utility(people.unsqueeze(-2) - one) - own
+ removed = 0 * added
ends of intervals for the ranks of the quantile itself
- side * math.ceil(shift * level_range(level) * _GRID) / _GRID
+ 0 * side

@ src/ringfence/releases/quantiles.py: releases/every_job
ranks so far apart that floats round them
- if shift > _MOST_PEOPLE / 2:
+ if shift > 2.0**1000:

@ src/ringfence/releases/means.py: releases/every_job
many questions for the price of one
- used = count_noise(budget, most * len(names), _COUNTED)
+ used = count_noise(budget, most, _COUNTED)
@ src/ringfence/releases/means.py: releases/shares_sums_quantiles
intervals of shares without the noise of the number of people
- used.deviation * math.sqrt(answers)
-     ends
+ 1e-9
+     ends

@ src/ringfence/releases/reader.py: releases/reader
a row that begins with # switches comments on
- "comment": ""
+ "comment": "#"
lines that do not fit the dialect are read all the same
- "strict_mode": True
+ "strict_mode": False
a quote inside a cell is taken as it comes
- if before not in around or (piece < len(pieces) - 1 and after not in around[:2]):
+ if False:
a quote that nothing closes swallows the rows behind it
-     if inside:
+     if False:
a file that is given twice counts twice
- map(os.stat, files)}) < len(files):
+ map(os.stat, files)}) < 0:
a name with brackets stands for another file
- [escape(name) for name in files],
-         columns
+ list(files),
+         columns
a masked cell is released
- if np.ma.is_masked(
+ if None is np.ma.is_masked(

@ src/ringfence/releases/pate.py: releases/pate
labels: one noise for all calls with equal votes
- f"labels {len(self._calls)}"
+ "labels"
labels: a published epsilon is not in the account
- for number in self._published if counts is None else ():
+ for number in ():
labels: more queries than were planned
- if self.queries is not None and asked > self.queries:
+ if False:
labels: the account has the last call alone
- torch.cat(self._calls) if counts is None else counts,
+ self._calls[-1] if counts is None else counts,

@ src/ringfence/releases/release.py: releases/release
a formula in table.csv
- writerows(map(_no_formula, row) for row in rows)
+ writerows(rows)
the account in the public folder
- self.account.to_json(apart / "account.json"
+ self.account.to_json(beside / "account.json"
a killed process leaves a part of a release
- beside = folders.enter_context(new_folder(folder))
+ (beside := Path(folder)).mkdir(parents=True, exist_ok=True)

@ src/ringfence/releases/budget.py: releases/shares_sums_quantiles
totals with the interval of one cell
- .chances(points))) ** numbers
+ .chances(points)))
@ src/ringfence/releases/budget.py: releases/means
intervals with Laplace noise as wide as if it had one scale
- NormalDist().inv_cdf(0.5 + 0.5 * coverage)) * _WIDER
+ 0.0) * _WIDER

@ src/ringfence/releases/budget.py: releases/budget
a person in several cells charged for one of them
- dominating=(("pure", each, moved),)
+ dominating=(("pure", each, 1),)
Laplace noise for one cell where a person is in several
- added = at_most / target * _ROUNDED
+ added = 1 / target * _ROUNDED
the larger noise is taken
- and error < gaussian_error
+ and error > gaussian_error
a ledger that counts Gaussians gets Laplace noise
- counted = budget.epsilon is None or (budget.ledger is not None and budget.ledger.delta > 0)
+ counted = budget.epsilon is None
counts below the threshold shown as the threshold
- (threshold - 1.0, math.inf)
+ (threshold, math.inf)

@ src/ringfence/releases/decisions.py: releases/every_job
zeros of a survey are taken for no answer without a word
- codes[0.0] = UNCLEAR
+ codes[0.0] = -1
a person whose answers are replaced charged as one who is added
- 4.0 if poll.neighbours == "replaced" else 1.0
+ 1.0

@ src/ringfence/report/certificate.py: report/certificate
a certificate commits to a private file without a secret
- nonce = nonce or secrets.token_hex(32)
+ nonce = "00" * 32
an edited certificate verified
- if _rounded(content.get(name)) != _rounded(anew.content.get(name)):
+ if False:
an edited page verified
- if shown.exists() and
+ if False and
an account with a flipped digit certified
- refuse_changed(path, state)
+ pass

@ src/ringfence/report/drawing.py: report/drawing
a full disk leaves half a chart
- with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
+ with path.open("wb") as file:

@ src/ringfence/report/page.py: report/page
a full disk leaves half a page
- with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
+ with path.open("wb") as file:

@ src/ringfence/training/engine/engine.py: training/assumptions
a number of records taken from the data without a word
- assumptions.SIZE: self.public_size is None
+ assumptions.SIZE: False
a plain run whose statement does not mention floating point
- assumptions.FLOATS: not self.secure
+ assumptions.FLOATS: False
@ src/ringfence/training/assumptions.py: training/assumptions
a secure run that divides by the number of records
- if secure and public_size is None:
+ if False:
@ src/ringfence/training/probe.py: training/assumptions
a probe that takes the number of records from the data without a word
- assumptions.SIZE: self.public_size is None
+ assumptions.SIZE: False
a probe that does not say what pipelines and searches add
- assumptions.OUTSIDE: True
+ assumptions.OUTSIDE: False

@ src/ringfence/training/clipping.py: training/clipping
an L2 clip that rounding makes longer than C
- _SHORTER = 1 - 2.0**-20
+ _SHORTER = 1.0
an L2 clip by factors without digits
- _DIGITS = 2.0**16
+ _DIGITS = 0.0
an L2 clip of residuals that forgets the features
- norms / lengths.clamp(min=_NO_LENGTH).unsqueeze(1)
+ norms.expand_as(own)

@ src/ringfence/training/distributed.py: training/distributed
noise on every process
-         torch.distributed.broadcast(whole, src=0)
+         pass
the sum of one process only
-         torch.distributed.all_reduce(values)
+         pass

@ src/ringfence/training/engine/trainers.py: huggingface lightning
a resumed training whose account begins at 0
-         self.engine.load(file)
a second training that forgets what the first one spent
- if folder is not None and (folder / RUN_FILE).exists():
+ if False:
@ src/ringfence/huggingface.py: huggingface
a checkpoint of another step than the run's
- return bool(state.global_step == self.engine.steps)
+ return True

@ src/ringfence/lightning.py: lightning
a fit that goes on from another checkpoint than its account
- lambda: self._found == self.state_dict()
+ lambda: True
a training step that goes past the private module
-         if not self._called:
+         if False:

@ src/ringfence/training/engine/run.py: training/engine/run
a batch that is added again after an interrupt
-         self._handed = None  # first: a loop that goes on after an interrupt adds it once
-         step = self._step
-         step.sum = part if step.sum is None else step.sum + part
+         step = self._step
+         step.sum = part if step.sum is None else step.sum + part
+         self._handed = None
a sum is finite if one of its coordinates is
- torch.isfinite(theta).all()
+ torch.isfinite(theta).any()

@ src/ringfence/training/sharding.py: training/sharding
the noise of one shard on the other
- ("shard", distributed.rank())
+ ("shard",)
a shard that is charged for itself alone
- each.full_tensor().flatten() for
+ each.to_local().flatten() for
a shard of the gradients of one process
- DTensor, Partial, distribute_tensor
+ DTensor, Replicate as Partial, distribute_tensor
weights of before the last step
-             layer.set_reshard_after_forward(True, recurse=False)
+             pass
@ src/ringfence/training/engine/run.py: training/sharding
a NaN that one process has
- return together.logical_and(sums[0].logical_not())
+ return torch.isfinite(theta).all()
@ src/ringfence/training/engine/run.py: training/distributed
shares of different samples in one sum
- together = sums[1] == own * distributed.world_size()
+ together = sums[1] == sums[1]

@ src/ringfence/training/engine/batches.py: training/distributed
a sample of one process's batch_size
-         batch_size *= 1 if asked.sampling == "full" else distributed.world_size()
@ src/ringfence/training/engine/batches.py: training/engine/batches
a part of a step that one process lacks
- range(0, most, self.batch_size)
+ range(0, max(1, len(mine)), self.batch_size)
samples that repeat every step
- noise.at("sample", number)
+ noise.at("sample")
@ src/ringfence/training/engine/batches.py: training/distributed
every process takes every example
- everyone[distributed.rank() :: distributed.world_size()]
+ everyone
@ src/ringfence/training/engine/batches.py: training/engine/batches
a loader of some examples taken for one of all
- if drawn != count:
+ if False:
a sampler of one process's share taken for one of all
-     if not plain or getattr(sampler, "replacement", False):
+     if getattr(sampler, "replacement", False):

@ src/ringfence/training/engine/batches.py: training/engine/units
people's records said to be protected one by one
-             return "unit with all its rows"
+             return "record"
the same rows of a person in every step
- range(step * self.per_unit, (step + 1) * self.per_unit)
+ range(self.per_unit)
rows that come again and count
- [i < len(self.members[unit]) for
+ [True for
@ src/ringfence/training/engine/batches.py: training/engine/units
rows sampled in place of persons
-         count = units.count
+         count = rows
@ src/ringfence/training/per_example/isolation.py: training/engine/units
rows clipped in place of units
-         self.units = self.examples // per_unit
+         self.units = self.examples
@ src/ringfence/training/per_example/gradients.py: training/engine/units
a unit whose rows decide differently clipped in parts
-             if one_unit or torch.equal(answers, answers[::each].repeat_interleave(each)):
+             if True:
@ src/ringfence/training/kernels/standardised.py: training/per_example/layers
the gradient by standardised filters clipped in place of that by the weight
-         return self._mapped(self._product.rows(examples))
+         return self._product.rows(examples)

@ src/ringfence/training/engine/engine.py: training/engine/engine
an engine that begins in a fork
-         self._noise.require_own_process()
-         if self._run is not None:
+         if self._run is not None:
a fork that writes the files of a run
-         self._noise.require_own_process()
-         if self._run is None:
+         if self._run is None:
a copy of an engine
-     __reduce__ = Noise.__reduce__

@ src/ringfence/training/engine/run.py: training/engine/engine
a penalty on parameters dropped in silence
-         self._refuse_penalties()
+         pass
@ src/ringfence/training/engine/run.py: training/engine/layers
a frozen normalisation thawed by train()
-             layer.eval()
+             pass
@ src/ringfence/training/engine/run.py: training/isolation
a pass in training mode writes to the model
-             return deepcopy(self.module)(*args, **kwargs)
+             return self.module(*args, **kwargs)

@ src/ringfence/training/engine/run.py: training/engine/run_file
releases that no file knows, after it was closed
- if self.file is not None and not self.file.is_taken:
+ if False:
other settings loaded
- if theirs != ours:
+ if False:
a resumed run forgets how many steps were charged
- state["run"], account, spent["most"]
+ state["run"], account, None
epsilons of examples that are those of another run
-                 self.examples = own if known is None else
+                 self.examples = self.examples if known is None else
a claim about a model that was half loaded
-         if self._loading is not None:
-             self._require_open()
+         if False:
+             pass
a charge that came after the save is forgotten with it
-         self.most = most
-         self._write_down()
+         self.most = most
the journal not written
-         self._write_down()
-         if self.plan.secure:
+         if self.plan.secure:
a run that was closed saved to another file
-         self._require_open()
-         self.findings.settle()
-         state = {
+         self.findings.settle()
+         state = {
samples of a step released again after a load
- start, noise, begun = releases.number,
+ start, noise, begun = self._run.steps,
samples released again by an engine that goes back
-         if self.number:
+         if False:
@ src/ringfence/training/engine/run.py: accounting/ledger
an engine goes on after the steps that its ledger was charged
- if self.most is not None and self._charged() >= self.most:
+ if False:
@ src/ringfence/training/engine/run.py: training/engine/batches
what workers draw is known to everybody
- generator=torch.Generator().manual_seed(noise.torch_seed("loader", start, distributed.rank())),
+ generator=torch.Generator(),
@ src/ringfence/training/engine/run.py: training/engine/run
the sum divided by the examples that came
- / self.plan.batches.divisor
+ / max(1, self.account.steps)
a cotangent of the mean taken for the example's
- (len(output) if is_mean else 1)
+ 1
half a step kept when a loop breaks off
-         self._step = OpenStep()
-         self._handed:
+         self._step = OpenStep(sum=self._step.sum) if hasattr(self, "_step") else OpenStep()
+         self._handed:
a model called twice for one batch
- if handed.inputs is not None:
+ if False:
batches passed over
- if (batch.number, batch.part) != (number, part):
+ if False:
released before it is charged
- self.layout.charge(self.account, theta)
+ pass
epsilons of examples that forget releases
- if self.examples.steps != self.releases.number:
+ if False:
what examples paid for gradients that were not clipped
- yield self.plan.clip(rows)
+ yield rows
dropout drawn anew for what examples paid
-             with self._pass_of(batch, inputs):
-                 for rows
+             if True:
+                 for rows
@ src/ringfence/training/engine/run.py: training/isolation
a gradient of the user's own moves a parameter
-                 parameter.grad = None  # nothing but the released sum moves a parameter
+                 pass
@ src/ringfence/training/engine/run.py: training/engine/run training/engine/run_file
dropout drawn anew for the gradient
-         with self._pass_of(batch, inputs):
-             return batch,
+         with self.layout.gathered():
+             return batch,
@ src/ringfence/training/engine/run.py: training/assumptions
a seed that a resumed run forgets was given
- (*self.assumptions, *state["assumptions"])
+ self.assumptions
@ src/ringfence/training/engine/run.py: training/secure_run
the loop's gradients taken where the engine has its own
-             cotangents = self._own_cotangents(
+             self._own_cotangents(
gradients of single examples taken many at a time in a secure run
- one_by_one=self.plan.secure)
+ one_by_one=False)
@ src/ringfence/training/engine/run.py: faults/training
a sample released again after a release that failed
- start, noise, begun = releases.number,
+ start, noise, begun = self._run.steps,
@ src/ringfence/training/engine/run.py: training/engine/run
noise of a given seed that does not depend on the sum
- (self.noise, self.noise.digest(theta)) if
+ (self.noise, b"") if
an error of the last step that nobody hears of
-         self.findings.settle()
-         claim
+         claim
a sum that is not finite released
- torch.where(finite, released, 0.0)
+ released
@ src/ringfence/training/engine/engine.py: training/secure_run
the number of examples read off the rounding of a secure mean
- if self.secure and self.loss_reduction == "mean" and self.loss is None:
+ if False:
@ src/ringfence/training/engine/engine.py: training/assumptions
a loss that nobody gave is not said to be assumed
- assumptions.LOSS: self.loss is None
+ assumptions.LOSS: False
passes of a secure run that examples share are not said to be
- assumptions.PASSES: self.secure and self.memory_budget != 1
+ assumptions.PASSES: False
@ src/ringfence/training/engine/batches.py: training/engine/engine
samples that are cut charged as if they were not
- self.sensitivity, rate, cut=cut)
+ self.sensitivity, rate)
more examples than the account of cut samples is about
- if self.at_most is not None and self.count > self.public_size:
+ if False:
@ src/ringfence/training/engine/batches.py: training/engine/batches
a sample beyond its maximum
- if self.at_most is not None and len(everyone) > self.at_most:
+ if False:
the first of a sample kept in place of any
- priorities.argsort()[: self.at_most]
+ torch.arange(len(everyone))[: self.at_most]
@ src/ringfence/training/engine/engine.py: training/engine/engine
for how many records the account of cut samples holds is not said
- (plan.batches.public_size): self.max_batch_size is not None
+ (plan.batches.public_size): False
@ src/ringfence/accounting/subsampling.py: accounting/cut_samples
a record that takes another's place charged as one that comes
- size.times(2) if self.cut else size
+ size
a cut when there is one record more than the maximum
- binom.sf(maximum - 1,
+ binom.sf(maximum,
@ src/ringfence/accounting/gaussian_releases.py: accounting/cut_samples
losses of cut samples that forget the record in another's place
- losses = losses_of(one.mu, one.rate)
+ losses = losses_of(one.mu / 2, one.rate)
divergences of cut samples that forget the record in another's place
- excess + chance.log()
+ usual + chance.log()
@ src/ringfence/training/engine/batches.py: training/engine/engine
a run of many epochs planned as one step
- account.step_worst_case(torch.zeros(()).expand(numbers), count=steps)
+ account.step_worst_case(torch.zeros(()).expand(numbers), count=1)
@ src/ringfence/training/engine/run.py: noise
one noise for engines of one seed
- .of("engine", repr(sorted(settings.items())))
+ .of("engine")

@ src/ringfence/training/engine/run.py: faults/training
a run that goes on without the file that it was saved to
-                 if not new.is_taken:
+                 if True:
@ src/ringfence/training/engine/run_file.py: report/certificate
another run's journal certified
- if spent["run"] != state["run"]:
+ if False:
@ src/ringfence/training/engine/run_file.py: training/engine/run_file
another run overwritten
- if self.path.exists():
+ if False:
a relative name that is another file in another folder
- self.path = path.resolve()
+ self.path = path
@ src/ringfence/training/engine/run_file.py: faults/training
two files of one run that both go on
- os.replace(old.journal, self.journal)
+ self.charge(spent)
a journal that is damaged
- refuse_changed(self.journal, spent)
+ pass
a journal that was put back
- if spent["account"]["steps"] < state["charged"]:
+ if False:

@ src/ringfence/training/information.py: training/fisher_tracking
an example that was never measured with an eta of 0
- (1 + 1e-15), torch.nan)
+ (1 + 1e-15), 0.0)

@ src/ringfence/training/jacobian.py: training/jacobian
the derivative of a network's L2 clip left out
- torch.addcmul(moved, units, (units * moved).sum(1, keepdim=True), value=-1)
+ moved
the second derivative of patches added back to other places
- window.kernel, window.dilation, window.padding, window.stride)
+ window.kernel, window.dilation, window.padding[::-1], window.stride)
groups of a convolution taken for one
- .unflatten(1, (groups, -1))
+ .unflatten(1, (1, -1))

@ src/ringfence/training/kernels/clipped_sums.py: training/kernels/clipped_sums
the clamped sum of a layer adds products as they are
- (products if limit is None else products.clamp_(-limit, limit))
+ products
lengths of products are taken as computed, though they were rounded
- (lengths + places * torch.finfo(self._dtype).eps * scale)
+ lengths

@ src/ringfence/training/linear.py: fuzz/arguments
steps without end
- at_least=1, at_most=_MOST_STEPS)
+ at_least=1)
@ src/ringfence/training/linear.py: noise
one noise for every setting of a seed
- .of("linear", *setting, data)
+ .of("linear", data)
one noise for every dataset of a seed
- .of("linear", *setting, data)
+ .of("linear", *setting)

@ src/ringfence/training/linear_information.py: training/linear_information
the L2 clip's own derivative left out
- changed = torch.cat((spread - along.mT * (along @ spread), -share), dim=2)
+ changed = torch.cat((spread, -share), dim=2)

@ src/ringfence/training/kernels/clipped_sums.py: training/per_example/layers
a word clipped at each of its places
- torch.searchsorted(ordered, ordered)
+ torch.arange(words.shape[1]).expand_as(words)

@ src/ringfence/training/per_example/gradients.py: training/engine/layers
layers switched back behind the engine's back
-         refuse_layers(self.model)
@ src/ringfence/training/per_example/gradients.py: training/per_example/layers
a shared parameter clipped in each of its layers
-                 if one.tapes[0].uses[name] > 1:
+                 if False:
@ src/ringfence/training/per_example/gradients.py: training/per_example/memory
copies of the model held by the graph that their memory was measured with
- tensor.numel()] = tensor.detach()
+ tensor.numel()] = tensor
@ src/ringfence/training/per_example/gradients.py: training/isolation
an example after the other through one model
-         copy = deepcopy(self.model)
+         copy = self.model
unfreezing after make_private
-         refuse_other_parameters(self.model, self.parameters)
@ src/ringfence/training/per_example/gradients.py: training/per_example/layers
the gradient of a known layer missed where its weight is used elsewhere
- zip(owned, found, strict=True) if gradient is not None}
+ zip(owned, found, strict=True) if False}

@ src/ringfence/training/per_example/isolation.py: training/per_example/isolation
each call of a layer clipped by itself
- tape.uses[name] += 1
+ tape.uses[name] = 1
@ src/ringfence/training/per_example/attention.py: training/per_example/layers
attentions that share a matrix clipped in pieces
- if any(tape.uses[name] > 1 for name in self.trained.values()):
+ if False:
@ src/ringfence/training/per_example/layers.py: training/per_example/layers
a layer with a method of its own taken for a known one
-         if counts and callable(getattr(kind, name, None)):
+         if False:
@ src/ringfence/training/per_example/isolation.py: training/isolation
examples that decide differently go the way of the first
-                     raise DisagreementError(answers)
+                     pass
copies of a parameter that examples share
- parameter.detach().expand(self.examples, *parameter.shape).clone()
+ parameter.detach().expand(self.examples, *parameter.shape)
@ src/ringfence/training/per_example/isolation.py: training/per_example/memory
activations held by a cycle through the graph when a pass has ended
-                 tape.receive = _nobody
+                 pass

@ src/ringfence/training/per_example/layers.py: training/isolation
a normalisation over all examples taken for one that looks at rows
- few = x.dim() <= len(self.layer.normalized_shape)
+ few = False

@ src/ringfence/training/per_example/layers.py: training/engine/layers
batch normalisation let through
-     if isinstance(layer, _BatchNorm) and not is_frozen(layer):
+     if False:

@ src/ringfence/training/per_example/isolation.py: training/per_example/isolation
inputs kept in attributes of layers
-                 kept += [(name, layer, own) for own, value in now.items() if _is_of_pass(value)]
+                 pass
answers about examples kept in attributes of layers
-                 now.clear()
-                 now.update(attributes)
+                 pass
@ src/ringfence/training/per_example/isolation.py: training/isolation training/per_example/isolation
running statistics of private data kept
-             if written != versions:
+             if False:

@ src/ringfence/training/probe.py: training/probe_accounts
a sum before training that is not charged
-                 account.step(theta, mechanism=planned.law, sensitivity=plan.moves(planned.clip))
+                 pass
a sum before training that is left out of single examples
-             examples.step(theta, parts(), mechanism=planned.law)
+             pass
information claimed where features were counted
-         if training.scaling is not None:
-             raise
+         if False:
+             raise
@ src/ringfence/training/probe.py: training/probe_target
a target that forgets the sums before training
- account.step_worst_case(theta, mechanism=one.law, sensitivity=self.moves(one.clip))
+ pass
@ src/ringfence/training/probe.py: training/probe training/probe_accounts
a pickled probe that carries sums of the data
- "account_": state["_training"].plan.account()
+ "account_": self.account_
the training data in a saved probe
- .plan.account(), "_training": None}
+ .plan.account()}
rounding of secure sums before training not charged
- self.examples, self.size, secure=self.secure)
+ self.examples, self.size, secure=False)

@ src/ringfence/training/private_statistics.py: training/private_statistics
rows of any length in the moments
-                 yield clip(torch.cat((z, z.square()), dim=1))
+                 yield torch.cat((z, z.square()), dim=1)
rows of any norm in their mean
- lambda: map(clip, _chunks(rows, width))
+ lambda: _chunks(rows, width)
more spent on the mean of rows than its share
- sums["mean"] = PlannedSum.of(features, 1.0, mu * math.sqrt(min(share, MEAN_SHARE)))
+ sums["mean"] = PlannedSum.of(features, 1.0, mu)
magnitudes within a row that are not clipped
-             yield clip(there * (octave - mean))
+             yield there * (octave - mean)
counts of magnitudes charged as if a record had one feature
- sums["magnitudes"] = PlannedSum.of(_BINS * features, root,
+ sums["magnitudes"] = PlannedSum.of(_BINS * features, 1.0,
more spent on the scaling than its share
-             own = mu * math.sqrt(share / 2 / _ROUNDS)
+             own = mu * math.sqrt(share / 2)
two sums with the same noise
- noise.draws(name, device
+ noise.draws("sum", device
a sum released without noise
-             released = planned.law.sample(theta, generator=draws)
+             released = theta
@ src/ringfence/training/linear.py: training/regression
labels that stay integers in squared errors
-     if labels.is_floating_point():
+     if False:
secure squared errors whose rounding is not charged
-     if secure and classes == 1:
+     if False:

@ src/ringfence/training/probe_file.py: cli/app
a model written in place
- with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
+ with path.open("wb") as file:

@ src/ringfence/training/clipping.py: training/secure_run
the rounding of sums not charged
- times((1 + slack) * (1 + 2.0**-50))
+ times(1.0)

@ src/ringfence/training/target.py: cli/app
an epsilon that overflows
- if epsilon > _LARGEST:
+ if False:

@ src/ringfence/training/tune.py: training/tune
the score of a run comes on top of what it may spend
- training_mu = math.sqrt(1 - share) / sigma
+ training_mu = 1 / sigma
tuning stops after another number of runs than is charged for
- uniforms((1,))) < 1 / plan.expected_runs
+ uniforms((1,))) < 2 / plan.expected_runs
the chosen probe says what its own run cost
-     probe._training = None
a grid without end
- > _MOST_SETTINGS:
+ > math.inf:
'''

BREAKAGES = list(parsed(_TEXT))


@contextmanager
def copied(root: Path) -> Iterator[Path]:
    """A temporary copy of the tree at ``root``."""
    with tempfile.TemporaryDirectory() as folder:
        keep_out = shutil.ignore_patterns(".git", ".venv", "out", ".*_cache", ".hypothesis")
        yield shutil.copytree(root, Path(folder) / "tree", ignore=keep_out)


def run_tests(
    tree: Path, options: str, tests: Sequence[str], seconds: float | None = None
) -> tuple[int, str]:
    """Status and output of pytest in a copy of the tree; ``TimeoutExpired`` after so many seconds.

    What the tests started ends with them.
    """
    names = tree / "tests.txt"
    names.write_text("\n".join(tests))  # more of them than a command line holds
    # what is compiled of a file is not kept: a change of the same length within a second would not be seen
    settings = {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *options.split(), f"@{names}"],
        cwd=tree,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            said, _ = run.communicate(timeout=seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    return run.returncode, said


def reds(breakage: Breakage) -> int:
    """How many tests fail in a copy of the tree with this breakage in it; three end the count."""
    with copied(ROOT) as tree:
        source = tree / breakage.file
        text = source.read_text()
        if text.count(breakage.before) != 1:
            raise ValueError(f"{breakage.name}: stands {text.count(breakage.before)} times")
        source.write_text(text.replace(breakage.before, breakage.after))
        status, said = run_tests(tree, _OPTIONS, breakage.tests)
    count = sum(map(int, re.findall(r"(\d+) (?:failed|error)", said)))
    if count == 0 and status != 0:
        raise RuntimeError(said)
    return count


def main() -> None:
    chosen = [one for one in BREAKAGES if not sys.argv[1:] or one.name in sys.argv[1:]]
    unseen = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for breakage, count in zip(chosen, pool.map(reds, chosen), strict=True):
            unseen += count == 0
            print(f"{count:5d} red  {breakage.name}", flush=True)
    print(f"{len(chosen) - unseen} of {len(chosen)} breakages seen")
    sys.exit(1 if unseen else 0)


if __name__ == "__main__":
    main()
