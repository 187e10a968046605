"""Breaks the package on purpose, one way at a time, and counts the tests that turn red, up to three.

    python -m tests.breakages [NAME ...]

A breakage that no test notices means a missing test. The run ends with status 1 if there is one.
Each breakage is a piece of source, what replaces it, and the tests that should notice: those of the
laws unless it names others. The work happens in a temporary copy.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_OPTIONS = "--tb=no -p no:cacheprovider --continue-on-collection-errors --maxfail=3"  # three are proof enough
LAWS = (
    "tests/mechanisms",
    *("tests/test_golden.py", "tests/test_checks.py"),
    *(f"tests/numerics/test_{name}.py" for name in ("normal", "truncated_normal", "blocks")),
)
MECHANISMS = "src/ringfence/mechanisms"
ACCOUNTING = "src/ringfence/accounting"
TRAINING = "src/ringfence/training"
DECISIONS = "src/ringfence/decisions"
NOISE = "src/ringfence/noise.py"
NUMERICS = "src/ringfence/numerics"


@dataclass(frozen=True)
class Breakage:
    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...] = LAWS  # paths given to pytest


def accounting(*names: str) -> tuple[str, ...]:
    """Tests of the accounting room, by the names of the files they mirror."""
    return _tests("accounting", names)


def training(*names: str) -> tuple[str, ...]:
    """Tests of the training room."""
    return _tests("training", names)


def decisions(*names: str) -> tuple[str, ...]:
    """Tests of the room of decisions."""
    return _tests("decisions", names)


def _tests(room: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Chapter/file: tests/room/chapter/test_file.py."""
    paths = (Path("tests", room, name) for name in names)
    return tuple(str(path.with_name(f"test_{path.name}.py")) for path in paths)


BREAKAGES = [
    Breakage(
        "the clamped sum of a layer adds products as they are",
        f"{TRAINING}/kernels/product_sum.py",
        "(products if limit is None else products.clamp_(-limit, limit))",
        "products",
        training("kernels/product_sum"),
    ),
    Breakage(
        "lengths of products are taken as computed, though they were rounded",
        f"{TRAINING}/kernels/product_sum.py",
        "(measured + places * torch.finfo(dtype).eps * scale)",
        "measured",
        training("kernels/product_sum"),
    ),
    Breakage(
        "a clip is rounded up to float32",
        f"{NUMERICS}/rounding.py",
        "single = torch.nextafter(single, torch.zeros_like(single))",
        "pass",
        ("tests/numerics/test_rounding.py", *training("kernels/product_sum")),
    ),
    Breakage(
        "the choice among runs is not charged",
        f"{ACCOUNTING}/decisions/selection.py",
        "(gaussian_epsilon(mu, share) + 2 * _slack(mu, runs))",
        "gaussian_epsilon(mu, share)",
        accounting("decisions/selection"),
    ),
    Breakage(
        "the noise of a seed does not belong to the weights of examples",
        f"{TRAINING}/linear/regression.py",
        "data_digest(features, labels, *own)",
        "data_digest(features, labels)",
        training("linear/example_weights"),
    ),
    Breakage(
        "a certificate commits to a private file without a secret",
        "src/ringfence/report/certificate.py",
        "nonce = nonce or secrets.token_hex(32)",
        'nonce = "00" * 32',
        ("tests/report/test_certificate.py",),
    ),
    Breakage(
        "an edited certificate verified",
        "src/ringfence/report/certificate.py",
        "if _rounded(content.get(name)) != _rounded(anew.content.get(name)):",
        "if False:",
        ("tests/report/test_certificate.py",),
    ),
    Breakage(
        "an edited page verified",
        "src/ringfence/report/certificate.py",
        "if shown.exists() and",
        "if False and",
        ("tests/report/test_certificate.py",),
    ),
    Breakage(
        "an account with a flipped digit certified",
        "src/ringfence/report/certificate_source.py",
        "refuse_changed(path, state)",
        "pass",
        ("tests/report/test_certificate_source.py",),
    ),
    Breakage(
        "another run's journal certified",
        f"{TRAINING}/engine/run_file.py",
        'if header["run"] != state.run_id:',
        "if False:",
        ("tests/report/test_certificate_source.py",),
    ),
    Breakage(
        "a ledger writes down what was released after it was released",
        f"{ACCOUNTING}/ledger.py",
        "self.charge(what, account, numbers=numbers if secure else 0)",
        "pass",
        accounting("ledger"),
    ),
    Breakage(
        "a missing order has the sum of a smaller one",
        f"{ACCOUNTING}/costs/account_cost.py",
        "if at >= order), default",
        "if at <= order), default",
        accounting("costs/account_cost"),
    ),
    Breakage(
        "a budget covers samples that were chosen along the way",
        f"{ACCOUNTING}/costs/budget.py",
        "if not total.is_whole:",
        "if False:",
        accounting("costs/budget"),
    ),
    Breakage(
        "an engine goes on after the steps that its ledger was charged",
        f"{TRAINING}/engine/ledger.py",
        "if self.most is not None and self.account.steps >= self.most:",
        "if False:",
        accounting("ledger"),
    ),
    Breakage(
        "the weight of an example is not charged",
        f"{TRAINING}/linear/regression.py",
        "sensitivity = sensitivity.times(example_weights.largest)",
        "pass",
        training("linear/example_weights"),
    ),
    Breakage(
        "the weight of an example is not part of a target",
        f"{TRAINING}/probe/plan.py",
        "moves.times(_largest_weight(data))",
        "moves",
        training("linear/example_weights"),
    ),
    Breakage(
        "integers are rounded to float64 in silence",
        "src/ringfence/containers.py",
        "(values.abs() < 2.0**53)",
        "(values.abs() < 2.0**64)",
    ),
    Breakage(
        "the choice among runs is charged once instead of twice",
        f"{ACCOUNTING}/decisions/selection.py",
        "/ (1 + ROUNDING) - 2 * _slack(mu, runs)",
        "/ (1 + ROUNDING) - _slack(mu, runs)",
        accounting("decisions/selection"),
    ),
    Breakage(
        "the score of a run comes on top of what it may spend",
        f"{DECISIONS}/tune.py",
        "training_mu = math.sqrt(1 - share) / sigma",
        "training_mu = 1 / sigma",
        ("tests/decisions/test_tune.py",),
    ),
    Breakage(
        "tuning stops after another number of runs than is charged for",
        f"{DECISIONS}/tune.py",
        "uniforms((1,))) < 1 / plan.expected_runs",
        "uniforms((1,))) < 2 / plan.expected_runs",
        ("tests/decisions/test_tune.py",),
    ),
    Breakage(
        "the chosen probe says what its own run cost",
        f"{DECISIONS}/tune.py",
        "    probe._training = None\n",
        "",
        ("tests/decisions/test_tune.py",),
    ),
    Breakage(
        "winners: the candidate who is moved is charged as if it stood still",
        f"{NUMERICS}/largest_normal.py",
        "own = every.unsqueeze(2) - losses + gains",
        "own = every.unsqueeze(2) - losses",
        ("tests/numerics/test_largest_normal.py", "tests/mechanisms/test_winner.py"),
    ),
    Breakage(
        "winners: the windows of the moved counts are left out",
        f"{NUMERICS}/largest_normal.py",
        "ends[:, -1] = end + up",
        "ends[:, -1] = end",
        ("tests/numerics/test_largest_normal.py",),
    ),
    Breakage(
        "confident winners: whether there is an answer is not charged",
        f"{MECHANISMS}/winner.py",
        "answer = pieces.atoms(edge, edge, shift)",
        "answer = pieces.atoms(edge, edge, 0 * shift)",
        ("tests/mechanisms/test_winner.py",),
    ),
    Breakage(
        "secure winners: float64 decides what it cannot know",
        f"{MECHANISMS}/secure/largest.py",
        "doubted = (high >= reached)",
        "doubted = (high > high)",
        ("tests/mechanisms/secure/test_largest.py",),
    ),
    Breakage(
        "a length is put where it costs least",
        f"{ACCOUNTING}/sensitivity.py",
        "values.topk(needed, dim=-1) if needed < count else values.sort(dim=-1, descending=True)",
        "values.sort(dim=-1, descending=False)",
        accounting("sensitivity", "per_instance/worst_move"),
    ),
    Breakage(
        "a length that binds is dropped",
        f"{ACCOUNTING}/sensitivity.py",
        "if longest <= self.norm:",
        "if longest >= self.norm:",
        accounting("sensitivity", "per_instance/worst_move"),
    ),
    Breakage(
        "equivalent information: the backward direction is the forward one",
        f"{ACCOUNTING}/per_instance/equivalent_information.py",
        "law.renyi_curve(theta + moves, -moves, orders)",
        "law.renyi_curve(theta, moves, orders)",
        accounting("per_instance/equivalent_information", "sensitivity"),
    ),
    Breakage(
        "equivalent information: moves of one sign",
        f"{ACCOUNTING}/per_instance/equivalent_information.py",
        "torch.cat((self.farthest, -self.farthest))",
        "torch.cat((self.farthest, self.farthest))",
        accounting("per_instance/equivalent_information", "sensitivity"),
    ),
    Breakage(
        "equivalent information: no stretch is looked into",
        f"{ACCOUNTING}/per_instance/equivalent_information.py",
        "bounds = self._raised(bounds, places[~open_], above[:, ~open_])",
        "bounds = bounds.clone()",
        accounting("per_instance/equivalent_information"),
    ),
    Breakage(
        "a table's envelope leaves out a sign",
        f"{ACCOUNTING}/profile/few_moves.py",
        "torch.maximum(*curves)",
        "curves[0]",
        accounting("profile/few_moves"),
    ),
    Breakage(
        "several moves are charged as one",
        f"{ACCOUNTING}/profile/profile.py",
        "size.at_most * steps",
        "steps",
        accounting("profile/profile", "profile/few_moves"),
    ),
    Breakage(
        "sampling: a third moment that only full moves have",
        f"{ACCOUNTING}/sampled/divergence.py",
        "if not size.binding(released_shape(self.mechanism, theta, size.farthest)).is_plain:",
        "if False:",
        accounting("sampled/divergence"),
    ),
    Breakage(
        "a published table counts its first cells",
        f"{ACCOUNTING}/publication.py",
        "worst.reshape(-1).topk(own.at_most)[0]",
        "worst.reshape(-1)[: own.at_most]",
        accounting("publication"),
    ),
    Breakage(
        "a sign in the rectified information",
        f"{MECHANISMS}/rectified.py",
        "far_mills.reciprocal() - far - far_mills",
        "far_mills.reciprocal() - far + far_mills",
    ),
    Breakage(
        "the upper atom dropped from the divergence",
        f"{MECHANISMS}/pieces.py",
        "log_p = torch.stack((log_tail(-lower), log_tail(upper)))",
        "log_p = torch.stack((log_tail(-lower), torch.full_like(upper, -torch.inf)))",
    ),
    Breakage(
        "the atoms dropped from the hockey stick",
        f"{MECHANISMS}/rectified.py",
        "return pieces.hockey_stick(log_p, rho, epsilon) + ",
        "return ",
    ),
    Breakage(
        "P and Q swapped in the truncated divergence",
        f"{MECHANISMS}/truncated.py",
        "law = TruncatedNormal(*pieces.standardized(theta, sigma, lower, upper))\n"
        "        shift = shift / sigma\n",
        "law = TruncatedNormal(*pieces.standardized(theta + shift, sigma, lower, upper))\n"
        "        shift = -shift / sigma\n",
    ),
    Breakage(
        "P and Q swapped in the sign's divergence",
        f"{MECHANISMS}/sign.py",
        "return pieces.renyi(*self._masses(theta, sigma, shift), alpha)",
        "return pieces.renyi(*self._masses(theta + shift, sigma, -shift), alpha)",
    ),
    Breakage(
        "the wrong tail for the upper atom",
        f"{MECHANISMS}/pieces.py",
        "log_tail(upper)))",
        "log_tail(-upper)))",
    ),
    Breakage(
        "sigma for sigma squared in the truncated information",
        f"{MECHANISMS}/truncated.py",
        ".div_(sigma * sigma)",
        ".div_(sigma)",
    ),
    Breakage(
        "sigma squared for sigma in a shift",
        f"{MECHANISMS}/rectified.py",
        "        shift = shift / sigma\n        middle",
        "        shift = shift / sigma**2\n        middle",
    ),
    Breakage(
        "the shift only taken upwards",
        f"{MECHANISMS}/truncated.py",
        "toward, away = law.log_mgf(shift, (1 - alpha) * shift)",
        "toward, away = law.log_mgf(shift.abs(), (1 - alpha) * shift.abs())",
    ),
    Breakage("the density cut too early", f"{NUMERICS}/truncated_normal.py", "cut=46.0", "cut=24.0"),
    Breakage("too few nodes", f"{NUMERICS}/truncated_normal.py", "nodes_slope=6.2", "nodes_slope=4.6"),
    Breakage(
        "a term of the series lost",
        f"{NUMERICS}/truncated_normal.py",
        "        while term > self.negligible:",
        "        while term > 1e-3:",
    ),
    Breakage(
        "mass and mean of other intervals come along",
        f"{NUMERICS}/truncated_normal.py",
        "[moment.expand_as(chosen)[chosen] for moment",
        "[moment.expand_as(chosen)[chosen].flip(0) for moment",
    ),
    Breakage(
        "the width formed from rounded ends",
        f"{MECHANISMS}/pieces.py",
        "((upper - lower) / sigma).clamp(max=2 * limit)",
        "((upper - theta) / sigma - (lower - theta) / sigma).clamp(max=2 * limit)",
    ),
    Breakage(
        "the ratio of a heavy piece left blunt",
        f"{MECHANISMS}/pieces.py",
        "    if not bool(heavy.any()):\n        return rho\n",
        "    return rho\n",
    ),
    Breakage(
        "two pieces of one half both taken for heavy",
        f"{MECHANISMS}/pieces.py",
        "_HEAVY = math.log(0.6)",
        "_HEAVY = math.log(0.499)",
    ),
    Breakage(
        "tails subtracted instead of integrated",
        f"{NUMERICS}/normal.py",
        "    small = size <= 1\n",
        "    small = size <= -1\n",
    ),
    Breakage(
        "a normal cdf that underflows in the sampler",
        f"{NUMERICS}/normal.py",
        "return 0.5 * torch.erfc(-SQRT_HALF * x)",
        "return torch.special.ndtr(x)",
    ),
    Breakage(
        "the tail sampled as if it began at 4 sigma",
        f"{MECHANISMS}/secure/inversion.py",
        "tail = self.near > TAIL",
        "tail = self.near > 1e9",
        ("tests/mechanisms/test_samplers.py",),  # secure releases would ask the exact law for every draw
    ),
    Breakage(
        "one Newton step too few in the tail sampler",
        f"{NUMERICS}/truncated_quantile.py",
        "for _ in range(3):",
        "for _ in range(1):",
    ),
    Breakage(
        "noise added after the clamp",
        f"{MECHANISMS}/rectified.py",
        "torch.minimum(torch.maximum(theta + sigma * noise, lower), upper)",
        "torch.minimum(torch.maximum(theta, lower), upper) + sigma * noise",
    ),
    Breakage(
        "sigma 2 % too small in every sampler",
        f"{MECHANISMS}/gaussian.py",
        "return draws.normals(",
        "return 0.98 * draws.normals(",
    ),
    Breakage(
        "cells of the quantiser shifted by a tenth",
        f"{MECHANISMS}/quantized.py",
        "((index + 0.5) / (self.levels - 1))",
        "((index + 0.4) / (self.levels - 1))",
    ),
    Breakage(
        "the hockey stick's threshold on the wrong side",
        f"{MECHANISMS}/rectified.py",
        "threshold = 0.5 * shift - epsilon / shift",
        "threshold = 0.5 * shift + epsilon / shift",
    ),
    Breakage(
        "NaN let through",
        "src/ringfence/checks.py",
        'return require(name, "must not be NaN", values, ~torch.isnan(values))',
        "return values",
    ),
    Breakage(
        "infinite theta let through",
        "src/ringfence/checks.py",
        "if not all(map(math.isfinite, ends.tolist())):",
        "if bool(torch.isnan(values).any()):",
    ),
    Breakage(
        "an infinite number let through",
        "src/ringfence/checks.py",
        "ends = values.reshape(-1) if short else",
        "ends = torch.zeros(1) if short else",
    ),
    Breakage("the global random state used", NOISE, "row.normal_(generator=generator)", "row.normal_()"),
    Breakage(
        "the last block forgotten",
        f"{NUMERICS}/blocks.py",
        "for start in range(0, count, length):",
        "for start in range(0, max(count - length, 1), length):",
    ),
    # ------------------------------------------------------------------ accounting: sums
    Breakage(
        "only upward pushes in the sums",
        f"{ACCOUNTING}/per_instance/divergence_sums.py",
        "for s in (sensitivity, -sensitivity)",
        "for s in (sensitivity, sensitivity)",
        accounting("per_instance/divergence_sums", "per_instance/rdp"),
    ),
    Breakage(
        "the better end of every bin taken",
        f"{ACCOUNTING}/per_instance/histogram_sums.py",
        "torch.cat((number, right, left))",
        "torch.cat((number, left, right))",
        accounting("per_instance/histogram_sums"),
    ),
    Breakage(
        "a table read without the margin above its chords",
        f"{ACCOUNTING}/per_instance/histogram_sums.py",
        "return upper * self._margin, gap",
        "return upper, gap",
        accounting("per_instance/histogram_sums"),
    ),
    Breakage(
        "pages read without the margin above their chords",
        f"{ACCOUNTING}/per_instance/block_sums.py",
        "* (raised * (1 + ROUNDING))",
        "* (1 + ROUNDING)",
        accounting("per_instance/block_sums"),
    ),
    Breakage(
        "a chord raised by an eighth of the squared spacing, not by a sixth",
        f"{ACCOUNTING}/per_instance/curvature.py",
        "* spacing**2 / 6)",
        "* spacing**2 / 8)",
        accounting("per_instance/curvature"),
    ),
    Breakage(
        "no more bend at orders below two",
        f"{ACCOUNTING}/per_instance/curvature.py",
        "return 4 + (2 - orders).clamp(min=0) * shift.square() / 4",
        "return 4 + 0 * orders * shift",
        accounting("per_instance/curvature", "per_instance/histogram_sums"),
    ),
    Breakage(
        "chords for shifts of any size",
        f"{ACCOUNTING}/per_instance/divergence_table.py",
        "_LARGEST_SHIFT = 32",
        "_LARGEST_SHIFT = 1 << 20",
        accounting("per_instance/histogram_sums", "per_instance/block_sums"),
    ),
    Breakage(
        "no charge for a coordinate rounded into the next bin",
        f"{ACCOUNTING}/per_instance/histogram_sums.py",
        "chords[:, 0] = nodes[..., :-1] + _MISPLACED / bins * steepest",
        "chords[:, 0] = nodes[..., :-1]",
        accounting("per_instance/histogram_sums"),
    ),
    Breakage(
        "more counted at once than float32 holds",
        f"{ACCOUNTING}/per_instance/histogram_sums.py",
        "_CHUNK = 1 << 22",
        "_CHUNK = 1 << 26",
        accounting("per_instance/histogram_sums"),
    ),
    Breakage(
        "coordinates far from the others left out",
        f"{ACCOUNTING}/per_instance/histogram_sums.py",
        "return apart + self.sums(theta[near])",
        "return self.sums(theta[near])",
        accounting("per_instance/histogram_sums"),
    ),
    Breakage(
        "one direction only in a running account",
        f"{ACCOUNTING}/per_instance/accountant.py",
        '"""The larger of the two running sums, order by order."""\n'
        "        return torch.maximum(self.forward, self.backward)",
        '"""The larger of the two running sums, order by order."""\n        return self.forward',
        accounting("per_instance/accountant", "contract", "claim/guarantee"),
    ),
    Breakage(
        "a sum not capped by what holds for every theta",
        f"{ACCOUNTING}/per_instance/rdp.py",
        "forward, backward = torch.minimum(sums, bounded * orders)",
        "forward, backward = sums",
        accounting("per_instance/rdp", "claim/guarantee"),
    ),
    Breakage(
        "the truncated law's factor given to every law",
        f"{MECHANISMS}/law.py",
        "return self.sigma.double() ** -2\n",
        "return 0.5 * self.sigma.double() ** -2\n",
        accounting("per_instance/accountant", "per_instance/rdp", "contract", "claim/guarantee"),
    ),
    Breakage(
        "count forgotten in the backward sum",
        f"{ACCOUNTING}/per_instance/accountant.py",
        "self.backward + count * backward",
        "self.backward + backward",
        accounting("per_instance/accountant", "contract", "claim/guarantee"),
    ),
    Breakage(
        "count forgotten in what holds for every theta",
        f"{ACCOUNTING}/per_instance/accountant.py",
        "self.bounded_zcdp += count * bounded",
        "self.bounded_zcdp += bounded",
        accounting("per_instance/accountant", "contract", "claim/guarantee"),
    ),
    Breakage(
        "the backward sum not restored",
        f"{ACCOUNTING}/per_instance/accountant.py",
        'for name in ("forward", "backward"):',
        'for name in ("forward",):',
        accounting("per_instance/accountant", "contract"),
    ),
    # ------------------------------------------------------------------ accounting: conversions
    Breakage(
        "delta not split over the orders",
        f"{ACCOUNTING}/claim/conversion.py",
        "(math.log(len(orders)) - math.log(delta))",
        "-math.log(delta)",
        accounting("claim/conversion", "examples/accountant"),
    ),
    Breakage(
        "the sign of log(1 / delta) in an example's epsilon",
        f"{ACCOUNTING}/examples/guarantee.py",
        "- torch.log(delta * orders) / (orders - 1)",
        "+ torch.log(delta * orders) / (orders - 1)",
        accounting("examples/guarantee"),
    ),
    Breakage(
        "a printed bound rounded to nearest",
        f"{NUMERICS}/rounding.py",
        "context.prec, context.rounding = digits, ROUND_CEILING",
        "context.prec = digits",
        accounting("claim/guarantee"),
    ),
    Breakage(
        "mu squared taken for zCDP",
        f"{ACCOUNTING}/claim/data_independent.py",
        "gaussian_epsilon(mu := math.sqrt(2 * gaussian_zcdp), delta)",
        "gaussian_epsilon(mu := math.sqrt(gaussian_zcdp), delta)",
        accounting("claim/guarantee", "claim/data_independent"),
    ),
    Breakage(
        "attacks on the record that is removed left out",
        f"{ACCOUNTING}/claim/renyi_rates.py",
        "torch.maximum(_divergence(orders, first, second), _divergence(orders, second, first))",
        "torch.minimum(_divergence(orders, first, second), _divergence(orders, second, first))",
        accounting("claim/renyi_rates"),
    ),
    Breakage(
        "the mu of a sample with twice the slack",
        f"{ACCOUNTING}/claim/trade_off.py",
        "+ slack - deltas",
        "+ 2 * slack - deltas",
        accounting("claim/trade_off"),
    ),
    Breakage(
        "true positive rates rounded to the defender's favour",
        f"{ACCOUNTING}/claim/trade_off.py",
        "return cumulative(place) * (1 + ROUNDING), cumulative(-place) * (1 - ROUNDING)",
        "return cumulative(place) * (1 - 100 * ROUNDING), cumulative(-place) * (1 + 100 * ROUNDING)",
        accounting("claim/trade_off"),
    ),
    Breakage(
        "a zCDP that only holds for a smaller move",
        f"{ACCOUNTING}/claim/data_independent.py",
        "zcdp=bounded_zcdp if bounded_zcdp < gaussian_zcdp else math.inf",
        "zcdp=bounded_zcdp / 4 if bounded_zcdp < gaussian_zcdp else math.inf",
        accounting("claim/data_independent", "claim/trade_off"),
    ),
    Breakage(
        "calibration returns the end that fails",
        f"{ACCOUNTING}/calibration.py",
        "            failing = middle\n    return passing",
        "            failing = middle\n    return failing",
        accounting("calibration"),
    ),
    Breakage(
        "sigma calibrated on this dataset unless told otherwise",
        f"{ACCOUNTING}/calibration.py",
        'kind: EpsilonKind = "data_independent",\n    coordinates: int | None = None,\n'
        '    sampling_rate: float = 1.0,\n) -> float:\n    """A sigma',
        'kind: EpsilonKind = "pdp",\n    coordinates: int | None = None,\n'
        '    sampling_rate: float = 1.0,\n) -> float:\n    """A sigma',
        accounting("calibration"),
    ),
    Breakage(
        "an answer from theta without its warning",
        f"{ACCOUNTING}/calibration_question.py",
        '        if self.kind == "data_independent":\n            return\n',
        "        return\n",
        accounting("calibration"),
    ),
    Breakage(
        "one sampled release calibrated for many",
        f"{ACCOUNTING}/calibration_question.py",
        "account.step_of_any(self.theta, count=steps)",
        "account.step_of_any(self.theta, count=1)",
        accounting("calibration"),
    ),
    # ------------------------------------------------------------------ accounting: profiles
    Breakage(
        "the width of a piece of third cumulants not charged",
        f"{ACCOUNTING}/profile/central_limit.py",
        "self.remainder(size, real) + half_width * size * (size**2 + 1) / 6",
        "self.remainder(size, real)",
        accounting("profile/central_limit", "profile/profile"),
    ),
    Breakage(
        "the fourth cumulant not charged",
        f"{ACCOUNTING}/profile/central_limit.py",
        "fourth + fifth + 0.5 * square + cube",
        "fifth + 0.5 * square + cube",
        accounting("profile/central_limit", "profile/profile"),
    ),
    Breakage(
        "variances that differ by sign not charged",
        f"{ACCOUNTING}/profile/central_limit.py",
        "return centred + size * mean + spread",
        "return centred + size * mean",
        accounting("profile/central_limit", "profile/profile"),
    ),
    Breakage(
        "half the extent of the loss",
        f"{ACCOUNTING}/profile/central_limit.py",
        "extent=max(float(side.extent.max()) for side in both)",
        "extent=max(float(side.extent.max()) for side in both) / 2",
        accounting("profile/central_limit", "profile/profile"),
    ),
    Breakage(
        "the far part of the transform left out",
        f"{ACCOUNTING}/profile/central_limit.py",
        "float((near + far).max())",
        "float(near.max())",
        accounting("profile/central_limit", "profile/profile"),
    ),
    Breakage(
        "one direction only in the central limit",
        f"{ACCOUNTING}/profile/profile.py",
        "max(sums.delta(epsilon) for sums in directions)",
        "directions[0].delta(epsilon)",
        accounting("profile/profile"),
    ),
    Breakage(
        "one sign only in a dominating pair",
        f"{ACCOUNTING}/profile/dominating_pair.py",
        "pessimistic(np.maximum(*curves), step)",
        "pessimistic(curves[0], step)",
        accounting("profile/dominating_pair", "profile/profile"),
    ),
    Breakage(
        "repeated releases all pushed the same way",
        f"{ACCOUNTING}/profile/dominating_pair.py",
        "for k in range(releases + 1)]",
        "for k in (0, releases)]",
        accounting("profile/dominating_pair", "profile/profile"),
    ),
    # ------------------------------------------------------------------ accounting: Poisson samples
    Breakage(
        "a record that is removed forgotten",
        f"{ACCOUNTING}/sampled/subsampling.py",
        "added, removed, torch.maximum(added, removed)",
        "added, added, added",
        accounting("sampled/subsampling", "sampled/accountant"),
    ),
    Breakage(
        "the third moment bounded from above",
        f"{ACCOUNTING}/sampled/divergence.py",
        "smaller = [torch.minimum(*values)",
        "smaller = [torch.maximum(*values)",
        accounting("sampled/divergence", "sampled/subsampling"),
    ),
    Breakage(
        "every batch taken for one that lacks the removed record",
        f"{ACCOUNTING}/sampled/divergence.py",
        "lacking = added - math.log1p(-self.sampling_rate)",
        "lacking = added",
        accounting("sampled_exact", "sampled/subsampling"),
    ),
    Breakage(
        "batches that hold the record forgotten where they cost more",
        f"{ACCOUNTING}/sampled/divergence.py",
        "return torch.minimum(worse, torch.minimum(lacking, holding))",
        "return added",
        accounting("sampled_exact", "sampled/subsampling"),
    ),
    Breakage(
        "few coordinates pushed up only",
        f"{ACCOUNTING}/sampled/few_coordinates.py",
        "for side in pair]",
        "for side in pair[:1]]",
        accounting("sampled/few_coordinates", "sampled/divergence"),
    ),
    Breakage(
        "ratios beyond the grid forgotten",
        f"{ACCOUNTING}/sampled/few_coordinates.py",
        "zeros, infinities = (1 + rounding) * first[0] + UNDERFLOW,",
        "zeros, infinities = 0 * first[0] + UNDERFLOW,",
        accounting("sampled/few_coordinates", "sampled/divergence"),
    ),
    Breakage(
        "slopes of a curve over the neighbouring cell",
        f"{ACCOUNTING}/sampled/few_coordinates.py",
        "_slopes(below, width * down[1:])",
        "_slopes(below, width * down[:-1])",
        accounting("sampled/few_coordinates", "sampled/divergence"),
    ),
    Breakage(
        "an average over batches without its confidence term",
        f"{NUMERICS}/confidence.py",
        "torch.log1p(-scaled).mean(dim=0) - wide / n",
        "torch.log1p(-scaled).mean(dim=0)",
        ("tests/numerics/test_confidence.py", *accounting("sampled/subsampling")),
    ),
    Breakage(
        "one failure probability for all orders together",
        f"{ACCOUNTING}/sampled/subsampling.py",
        "share = failure_probability / values[0][0].numel()",
        "share = failure_probability",
        accounting("sampled/subsampling"),
    ),
    Breakage(
        "what estimating spent not taken from delta",
        f"{ACCOUNTING}/claim/guarantee.py",
        "left = delta - spent",
        "left = delta",
        accounting("sampled/accountant"),
    ),
    # ------------------------------------------------------------------ accounting: single examples
    Breakage(
        "an example removed as if it were added",
        f"{ACCOUNTING}/examples/information_polynomials.py",
        'sign = (-1) ** k if variant.startswith("remove") else 1',
        "sign = 1",
        accounting("examples/information_polynomials", "examples/accountant"),
    ),
    Breakage(
        "polynomials through the information instead of above it",
        f"{ACCOUNTING}/examples/information_polynomials.py",
        "factor = (most / least).amax(dim=1, keepdim=True)",
        "factor = (most / least).mean(dim=1, keepdim=True)",
        accounting("examples/information_polynomials", "examples/accountant"),
    ),
    Breakage(
        "polynomials used beyond their reach",
        f"{ACCOUNTING}/examples/information_polynomials.py",
        "torch.where(within, result, torch.inf)",
        "result",
        accounting("examples/information_polynomials", "examples/accountant"),
    ),
    Breakage(
        "no margin between the shifts of a table",
        f"{ACCOUNTING}/examples/shift_tables.py",
        "_MARGINS = (0.02, 0.05)",
        "_MARGINS = (0.0, 0.0)",
        accounting("examples/shift_tables", "examples/accountant"),
    ),
    Breakage(
        "the way back taken from the wrong end",
        f"{ACCOUNTING}/examples/shift_tables.py",
        "torch.stack((up, -up, -up, up))",
        "torch.stack((up, -up, up, -up))",
        accounting("examples/shift_tables", "examples/accountant"),
    ),
    Breakage(
        "examples' running sums in float32",
        f"{ACCOUNTING}/examples/accountant.py",
        "torch.zeros(len(VARIANTS), total, len(self._orders), dtype=torch.float64)",
        "torch.zeros(len(VARIANTS), total, len(self._orders), dtype=torch.float32)",
        accounting("examples/accountant", "contract"),
    ),
    # ------------------------------------------------------------------ accounting: Fisher information
    Breakage(
        "eta squared for eta",
        f"{ACCOUNTING}/fisher/loss.py",
        "torch.minimum(raised, ceiling).sqrt().reshape(-1) * UP",
        "torch.minimum(raised, ceiling).reshape(-1) * UP",
        accounting("fisher/loss", "fisher/accountant"),
    ),
    Breakage(
        "the lower end returned as the upper",
        f"{ACCOUNTING}/fisher/loss.py",
        "SingularValueBounds(ends.lower * LOWER, ends.upper, share)",
        "SingularValueBounds(ends.lower * LOWER, ends.lower, share)",
        accounting("fisher/loss"),
    ),
    Breakage(
        "what rounding adds to the recurrence left out",
        f"{NUMERICS}/spectral/lanczos_bounds.py",
        "products[degree] + _charge(rounding, degree) * (1 + squares).sqrt()",
        "products[degree]",
        ("tests/numerics/spectral/test_lanczos_bounds.py",),
    ),
    Breakage(
        "a failure probability for each matrix instead of all of them",
        f"{NUMERICS}/spectral/chebyshev_bounds.py",
        "chi_threshold(failure_probability / operator.count, start.shape[1])",
        "chi_threshold(failure_probability, start.shape[1])",
        ("tests/numerics/spectral/test_lanczos_bounds.py",),
    ),
    Breakage(
        "examples that are mixed in a batch measured as if they were not",
        f"{TRAINING}/per_example/recorded_jacobian.py",
        "> _AGREEMENT * theirs.norm(dim=1)).any()",
        "> _AGREEMENT * theirs.norm(dim=1)).all() and False",
        training("per_example/recorded_jacobian"),
    ),
    Breakage(
        "the second derivative of a normalisation left out",
        f"{TRAINING}/per_example/recorded_functions.py",
        "    return _curve(a, b, of_b, z, rate) + _slope(c, z, rate)\n",
        "    return _slope(c, z, rate)\n",
        training("per_example/recorded_functions", "per_example/recorded_jacobian"),
    ),
    Breakage(
        "an eigenvalue believed without a proof",
        f"{NUMERICS}/spectral/singular_values.py",
        "proved = (torch.linalg.cholesky_ex(shifted).info == 0) | (trial >= ceiling)",
        "proved = trial > 0",
        ("tests/numerics/spectral/test_singular_values.py",),
    ),
    Breakage(
        "only the last release in the Gram matrix",
        f"{ACCOUNTING}/fisher/accountant.py",
        "self._gram = gram if self._gram is None else self._gram.plus(gram)",
        "self._gram = gram",
        accounting("fisher/accountant"),
    ),
    Breakage(
        "information of a sample as if batches were known to hide everything",
        f"{ACCOUNTING}/fisher/loss.py",
        "sampling_rate * share * UP",
        "sampling_rate * sampling_rate * UP",
        accounting("fisher/loss", "fisher/accountant"),
    ),
    # ------------------------------------------------------------------ accounting: decisions
    Breakage(
        "a voter is never taken from one candidate and given to another",
        f"{ACCOUNTING}/decisions/moves.py",
        'if neighbours == "replaced":\n        # from',
        'if neighbours == "other":\n        # from',
        accounting("decisions/moves", "decisions/rdp"),
    ),
    Breakage(
        "decisions charged in one direction only",
        f"{ACCOUNTING}/profile/atoms.py",
        "max(first(epsilon), second(epsilon))",
        "first(epsilon)",
        accounting("profile/atoms", "decisions/profile"),
    ),
    Breakage(
        "losses on a grid rounded down",
        f"{ACCOUNTING}/profile/backward_induction.py",
        "np.concatenate((mass * (1 - share), mass * share))",
        "np.concatenate((mass, 0 * share))",
        accounting("profile/backward_induction", "profile/atoms"),
    ),
    Breakage(
        "losses beyond the grid forgotten",
        f"{ACCOUNTING}/profile/backward_induction.py",
        "infinite = self.infinite + float(self.masses[high].sum())",
        "infinite = self.infinite",
        accounting("profile/backward_induction"),
    ),
    Breakage(
        "the first move stands for all",
        f"{ACCOUNTING}/profile/backward_induction.py",
        "for loss in losses[1:]:",
        "for loss in losses[:0]:",
        accounting("profile/backward_induction", "profile/atoms"),
    ),
    Breakage(
        "the neighbour's end of a published pair left out",
        f"{ACCOUNTING}/decisions/publication.py",
        "_PER_VOTER * (voters + 1)",
        "_PER_VOTER * voters",
        accounting("decisions/publication"),
    ),
    Breakage(
        "a published sum of decisions that voters change by more than its noise is made for",
        f"{ACCOUNTING}/decisions/publication.py",
        "best = max(best, math.exp(-beta * voters)",
        "best = max(best, (voters == 0)",
        accounting("decisions/publication"),
    ),
    Breakage(
        "single voters seen from one side",
        f"{ACCOUNTING}/decisions/voter.py",
        "    yield cast.log_p - cast.rho, margin - cast.rho\n",
        "    yield cast.log_p.expand_as(cast.rho), cast.rho + margin\n",
        accounting("decisions/voter"),
    ),
    # ------------------------------------------------------------------ accounting: publication
    Breakage(
        "too little noise in a published number",
        f"{ACCOUNTING}/publication.py",
        "change / math.sqrt(2 * zcdp)",
        "change / (2 * math.sqrt(zcdp))",
        accounting("publication"),
    ),
    Breakage(
        "the margin of a published number below instead of above",
        f"{ACCOUNTING}/publication.py",
        "quantile = -float(",
        "quantile = float(",
        accounting("publication"),
    ),
    Breakage(
        "publishing itself not paid for",
        f"{ACCOUNTING}/publication.py",
        "largest * published + alpha * publishing_zcdp",
        "largest * published",
        accounting("publication"),
    ),
    Breakage(
        "noise of a published number from torch's generator",
        f"{ACCOUNTING}/publication.py",
        "float(noise.draw(value))",
        "value + float(noise.law.sigma * torch.randn(()))",
        accounting("publication"),
    ),
    Breakage(
        "a published number beyond the end of its grid",
        f"{ACCOUNTING}/publication.py",
        "_LEAST_DEVIATION = 2.0**-40",
        "_LEAST_DEVIATION = 2.0**-60",
        accounting("publication"),
    ),
    Breakage(
        "the slope between nodes taken for the largest",
        f"{ACCOUNTING}/steepness.py",
        "(steepest + 1.5 * bend * widest * highest)",
        "steepest",
        accounting("steepness"),
    ),
    Breakage(
        "slopes sought around the support of a narrow law only",
        f"{ACCOUNTING}/steepness.py",
        "reach = _REACH * unit +",
        "reach = _REACH * float(mechanism.sigma) +",
        accounting("publication", "steepness"),
    ),
    Breakage(
        "slopes sought to alpha c, not to twice that",
        f"{ACCOUNTING}/steepness.py",
        "2 * alpha * move",
        "alpha * move",
        accounting("publication", "steepness"),
    ),
    Breakage(
        "a support too wide for nodes taken to be flat",
        f"{ACCOUNTING}/steepness.py",
        "not dense or zones[0][1]",
        "zones[0][1]",
        accounting("publication", "steepness"),
    ),
    Breakage(
        "the rounding of theta far from 0 free of charge",
        f"{ACCOUNTING}/steepness.py",
        "_LOCATION = 2.0**-51",
        "_LOCATION = 0.0",
        accounting("steepness"),
    ),
    Breakage(
        "information about projected features said to be about those given",
        "src/ringfence/data/projection.py",
        "return rates * PublicProjection.from_argument(public_projection).rates * UP",
        "return rates",
        (*training("linear/information"), "tests/data/test_projection.py"),
    ),
    Breakage(
        "a projection that the statement does not mention",
        f"{TRAINING}/assumptions.py",
        "(PROJECTION, projection_given),",
        "(PROJECTION, False),",
        training("probe/probe"),
    ),
    Breakage(
        "an L2 clip that rounding makes longer than C",
        f"{TRAINING}/clipping.py",
        "_SHORTER = 1 - 2.0**-20",
        "_SHORTER = 1.0",
        training("clipping"),
    ),
    Breakage(
        "an L2 clip by factors without digits",
        f"{TRAINING}/clipping.py",
        "_DIGITS = 2.0**16",
        "_DIGITS = 0.0",
        training("clipping"),
    ),
    Breakage(
        "an L2 clip of residuals that forgets the features",
        f"{TRAINING}/clipping.py",
        "norms / lengths.clamp(min=_NO_LENGTH).unsqueeze(1)",
        "norms.expand_as(own)",
        training("clipping"),
    ),
    Breakage(
        "the L2 clip's own derivative left out",
        f"{TRAINING}/linear/residual_derivative.py",
        "spread = inner.spread - unit * (unit.mT @ inner.spread)",
        "spread = inner.spread",
        training("linear/information"),
    ),
    Breakage(
        "the sum divided by the examples that came",
        f"{TRAINING}/engine/run.py",
        "/ self.batches.divisor",
        "/ max(1, self.ledger.account.steps)",
        training("engine/run"),
    ),
    Breakage(
        "a cotangent of the mean taken for the example's",
        f"{TRAINING}/engine/loop.py",
        'len(batch.indices) if self._reduction == "mean" else 1',
        "1",
        training("engine/loop"),
    ),
    Breakage(
        "half a step kept when a loop breaks off",
        f"{TRAINING}/engine/loop.py",
        "        self._sum: Tensor | None = None\n        self._batch",
        "        self._sum: Tensor | None = getattr(self, '_sum', None)\n        self._batch",
        training("engine/loop"),
    ),
    Breakage(
        "a model called twice for one batch",
        f"{TRAINING}/engine/loop.py",
        "if self._output is not None:",
        "if False:",
        training("engine/loop"),
    ),
    Breakage(
        "batches passed over",
        f"{TRAINING}/engine/loop.py",
        "if (batch.step, batch.part) != self._due:",
        "if False:",
        training("engine/loop"),
    ),
    Breakage(
        "the batch after a release that failed taken for the next",
        f"{TRAINING}/engine/loop.py",
        "        if batch.last:\n            total, self._sum",
        "        self._due = (batch.step + 1, 0)\n        if batch.last:\n            total, self._sum",
        training("engine/loop"),
    ),
    Breakage(
        "released before it is charged",
        f"{TRAINING}/engine/ledger.py",
        "            self.account.charge(theta, batches)\n",
        "",
        training("engine/ledger"),
    ),
    Breakage(
        "a sum is finite if one of its coordinates is",
        f"{TRAINING}/engine/ledger.py",
        "torch.isfinite(theta).all()",
        "torch.isfinite(theta).any()",
        training("engine/ledger"),
    ),
    Breakage(
        "noise that does not depend on the sum",
        f"{TRAINING}/engine/ledger.py",
        '"noise", step, name, device',
        '"noise", step, device',
        training("engine/run_file"),
    ),
    Breakage(
        "the journal not written",
        f"{TRAINING}/engine/ledger.py",
        "if self.journal is not None:\n                self.journal.append(",
        "if False:\n                self.journal.append(",
        training("engine/run_file"),
    ),
    Breakage(
        "what the journal holds charged again",
        f"{TRAINING}/engine/ledger.py",
        "if self.secure or (step, name.hex()) not in self.known:",
        "if True:",
        training("engine/run_file"),
    ),
    Breakage(
        "the journal's account forgotten",
        f"{TRAINING}/engine/run_file.py",
        'if record["account"]["steps"] > account.steps:',
        "if False:",
        training("engine/run_file"),
    ),
    Breakage(
        "another run overwritten",
        f"{TRAINING}/engine/run_file.py",
        'if saved["run"] != run_id:',
        "if False:",
        training("engine/run_file"),
    ),
    Breakage(
        "other settings loaded",
        f"{TRAINING}/engine/run_file.py",
        "if theirs != ours:",
        "if False:",
        training("engine/run_file"),
    ),
    Breakage(
        "samples that repeat every step",
        f"{TRAINING}/engine/sampling.py",
        'self.draw(noise, "sample", step)',
        'self.draw(noise, "sample")',
        training("engine/sampling"),
    ),
    Breakage(
        "a sample that was drawn ahead with another key",
        f"{TRAINING}/engine/sampling.py",
        "ahead[0] is noise and ahead[1].step == step",
        "ahead[1].step == step",
        training("engine/sampling"),
    ),
    Breakage(
        "every process takes every example",
        f"{TRAINING}/engine/sampling.py",
        "everyone[distributed.rank() :: distributed.world_size()]",
        "everyone",
        training("distributed"),
    ),
    Breakage(
        "noise on every process",
        f"{TRAINING}/distributed.py",
        "        torch.distributed.broadcast(values, src=0)\n",
        "        pass\n",
        training("distributed"),
    ),
    Breakage(
        "the sum of one process only",
        f"{TRAINING}/distributed.py",
        "        torch.distributed.all_reduce(values)\n",
        "        pass\n",
        training("distributed"),
    ),
    Breakage(
        "batch normalisation let through",
        f"{TRAINING}/engine/model_checks.py",
        "    if isinstance(layer, _BatchNorm) and not is_frozen(layer):",
        "    if False:",
        training("engine/model_checks"),
    ),
    Breakage(
        "a frozen normalisation thawed by train()",
        f"{TRAINING}/engine/private_objects.py",
        "            layer.eval()\n",
        "            pass\n",
        training("engine/model_checks"),
    ),
    Breakage(
        "layers switched back behind the engine's back",
        f"{TRAINING}/engine/private_objects.py",
        "            refuse_layers(self.module)",
        "            pass",
        training("engine/model_checks"),
    ),
    Breakage(
        "a word clipped at each of its places",
        f"{TRAINING}/per_example/fused/layers/embedding.py",
        "torch.searchsorted(ordered, ordered)",
        "torch.arange(words.shape[1]).expand_as(words)",
        training("per_example/fused/layers/embedding"),
    ),
    Breakage(
        "each call of a layer clipped by itself",
        f"{TRAINING}/per_example/fused/watching.py",
        "    if planned.calls < 1 or (planned.calls == 1 and planned.name in called):",
        "    if False:",
        training("per_example/fused/watching"),
    ),
    Breakage(
        "a shared parameter clipped in each of its layers",
        f"{TRAINING}/per_example/fused/gradients.py",
        "                if name in several:",
        "                if False:",
        training("per_example/fused/together"),
    ),
    Breakage(
        "attentions that share a matrix clipped in pieces",
        f"{TRAINING}/per_example/fused/plan.py",
        "any(uses[name] > 1 for name in one.trained.values())",
        "False",
        training("per_example/fused/plan"),
    ),
    Breakage(
        "a layer with a method of its own taken for a known one",
        f"{TRAINING}/per_example/fused/layers/rules.py",
        "        if counts and callable(getattr(kind, name, None)):",
        "        if False:",
        training("per_example/fused/layers/rules"),
    ),
    Breakage(
        "outputs that other examples have a part in let through",
        f"{TRAINING}/per_example/fused/check.py",
        "if not all(torch.equal(now[i], then[i]) for now, then in zip(theirs, again, strict=True)):",
        "if False:",
        training("per_example/fused/check"),
    ),
    Breakage(
        "gradients that other examples have a part in let through",
        f"{TRAINING}/per_example/fused/check.py",
        "if bool(contribution.sum(None, others).count_nonzero()):",
        "if False:",
        training("per_example/fused/check"),
    ),
    Breakage(
        "running statistics of private data kept",
        f"{TRAINING}/per_example/buffers.py",
        "        if before.get(name) != after.get(name):",
        "        if False:",
        training("per_example/buffers"),
    ),
    Breakage(
        "a loader of some examples taken for one of all",
        f"{TRAINING}/engine/sampling.py",
        "if not isinstance(loader.sampler, DistributedSampler) and len(loader.sampler) != count:",
        "if False:",
        training("engine/model_checks"),
    ),
    Breakage(
        "dropout drawn anew for the gradient",
        f"{TRAINING}/engine/loop.py",
        "        with self._seeded(batch, inputs):\n            part",
        "        if True:\n            part",
        training("engine/run", "engine/run_file", "per_example/gradients"),
    ),
    Breakage(
        "a checkpoint's checksum not looked at",
        "src/ringfence/files/checkpoint.py",
        "    if checksum.hexdigest().encode() != data[at : at + len(_BLANK)]:",
        "    if False:",
        ("tests/files/test_checkpoint.py",),
    ),
    # ------------------------------------------------------------------ statements, and numbers far out
    Breakage(
        "theta + shift rounded far from 0",
        f"{ACCOUNTING}/per_instance/divergence_sums.py",
        "mechanism, theta = from_nearer_end(mechanism, theta.double())",
        "theta = theta.double()",
        accounting("far_out"),
    ),
    Breakage(
        "the other end of a huge support",
        f"{ACCOUNTING}/per_instance/translation.py",
        "(theta - lower).abs() <= (theta - upper).abs()",
        "(theta - lower).abs() >= 0",
        accounting("far_out"),
    ),
    Breakage(
        "a table of theta that float64 holds coarsely",
        f"{ACCOUNTING}/per_instance/divergence_table.py",
        "_FARTHEST = 1e6 ",
        "_FARTHEST = 1e300 ",
        accounting("far_out"),
    ),
    Breakage(
        "per-instance above what holds for every dataset",
        f"{ACCOUNTING}/claim/guarantee.py",
        "epsilon_pdp=min(epsilon_renyi, data_independent.epsilon),",
        "epsilon_pdp=epsilon_renyi,",
        accounting("claim/guarantee"),
    ),
    Breakage(
        "orders that change after the run",
        f"{ACCOUNTING}/per_instance/accountant.py",
        "return self._orders.clone()",
        "return self._orders",
        accounting("claim/guarantee"),
    ),
    Breakage(
        "assumptions that a statement leaves out",
        f"{ACCOUNTING}/claim/guarantee.py",
        "if self.assumptions else ()",
        "if False else ()",
        accounting("claim/guarantee"),
    ),
    Breakage(
        "a number of records taken from the data without a word",
        f"{TRAINING}/assumptions.py",
        "(SIZE, not size_given)",
        "(SIZE, False)",
        training("assumptions"),
    ),
    Breakage(
        "a secure engine that divides by the number of records",
        f"{TRAINING}/engine/engine.py",
        "if secure and public_size is None:",
        "if False:",
        training("assumptions"),
    ),
    Breakage(
        "a seed that a resumed run forgets was given",
        f"{TRAINING}/engine/run.py",
        "(*self.assumptions, *state.assumptions)",
        "self.assumptions",
        training("assumptions"),
    ),
    # ------------------------------------------------------------------ training: secure
    Breakage(
        "the rounding of sums not charged",
        f"{TRAINING}/secure_run.py",
        "times((1 + slack) * (1 + 2.0**-50))",
        "times(1.0)",
        training("secure_run"),
    ),
    Breakage(
        "finite randomness not taken off delta",
        f"{ACCOUNTING}/costs/finite_randomness.py",
        "math.nextafter(delta - added, 0.0)",
        "delta",
        accounting("costs/finite_randomness"),
    ),
    Breakage(
        "noise that 256 bits cannot carry claimed to protect",
        f"{ACCOUNTING}/costs/finite_randomness.py",
        "if added > half:",
        "if False:",
        accounting("costs/finite_randomness"),
    ),
    Breakage(
        "a table whose finite randomness is not charged",
        f"{DECISIONS}/account.py",
        "change=change, numbers=theta.numel())",
        "change=change)",
        accounting("costs/finite_randomness"),
    ),
    Breakage(
        "a published number of decisions that pays for one draw",
        f"{ACCOUNTING}/decisions/publication.py",
        "delta_left(2 * queries + 1, delta",
        "delta_left(1, delta",
        accounting("costs/finite_randomness"),
    ),
    Breakage(
        "a published number that pays for one draw",
        f"{ACCOUNTING}/publication.py",
        "delta_left(count + 1, delta",
        "delta_left(1, delta",
        accounting("costs/finite_randomness"),
    ),
    Breakage(
        "finite randomness left out of what attacks can do",
        f"{ACCOUNTING}/costs/finite_randomness.py",
        "attacks.off_by + added_delta(numbers, 0.0) / 2",
        "0.0",
        accounting("costs/finite_randomness"),
    ),
    Breakage(
        "secure releases that are made again free",
        f"{TRAINING}/engine/ledger.py",
        "if self.secure or (step, name.hex()) not in self.known:",
        "if (step, name.hex()) not in self.known:",
        training("secure_run"),
    ),
    Breakage(
        "a batch released twice by a secure run",
        f"{TRAINING}/engine/run.py",
        "if not self.ledger.secure:  # a secure batch that is released twice would not be two samples",
        "if True:",
        training("secure_run"),
    ),
    Breakage(
        "32 bits of a place's key",
        NOISE,
        'return CipherDraws([self._derived(b"place", *place)])',
        'return CipherDraws([self._derived(b"place", *place)[:4].ljust(32)])',
        ("tests/test_noise.py",),
    ),
    Breakage(
        "a seed cut to 32 bits",
        NOISE,
        'b"%x" % self.seed',
        'b"%x" % (self.seed % 2**32)',
        ("tests/test_noise.py",),
    ),
    Breakage(
        "a key that the operating system did not give",
        NOISE,
        "secrets.randbits(256) if seed is None",
        "torch.seed() if seed is None",
        ("tests/test_noise.py",),
    ),
    Breakage(
        "places that run into each other",
        NOISE,
        'len(part).to_bytes(8, "big") + part',
        "part",
        ("tests/test_noise.py",),
    ),
    Breakage(
        "a Poisson choice more probable than the rate",
        NOISE,
        "_DROPPED < limit",
        "_DROPPED <= limit",
        ("tests/test_noise.py",),
    ),
    Breakage(
        "the digest of a part of theta",
        NOISE,
        "for block in words.split(_HASHED):",
        "for block in words.split(_HASHED)[:1]:",
        ("tests/test_noise.py",),
    ),
    Breakage(
        "one noise for every setting of a seed",
        f"{TRAINING}/linear/run_noise.py",
        '.of("linear", *setting, data)',
        '.of("linear", data)',
        ("tests/test_noise.py",),
    ),
    Breakage(
        "a private mean that is not charged",
        f"{TRAINING}/probe/run.py",
        "            self.mean.charge(account)\n",
        "            pass\n",
        training("probe/run"),
    ),
    Breakage(
        "a private mean of rows of any length",
        f"{TRAINING}/probe/private_mean.py",
        "clipped = CLIP(rows.double())",
        "clipped = rows.double()",
        training("probe/private_mean"),
    ),
    Breakage(
        "a target that forgets the private mean",
        f"{TRAINING}/probe/plan.py",
        "        account.step_of_any(torch.zeros(data.width), mechanism=plan.mean, sensitivity=mean_moves)\n",
        "        pass\n",
        training("probe/plan"),
    ),
    Breakage(
        "the sigma that fails the target",
        f"{TRAINING}/target.py",
        "return passing[0]",
        "return failing[0]",
        training("target"),
    ),
    Breakage(
        "a run of many epochs planned as one step",
        f"{TRAINING}/engine/plan.py",
        "account.step_of_any(theta, count=steps)",
        "account.step_of_any(theta, count=1)",
        training("engine/plan"),
    ),
    Breakage(
        "the training data in a saved probe",
        f"{TRAINING}/probe/probe.py",
        '            state["_training"] = None\n',
        "            pass\n",
        training("probe/probe", "probe/run"),
    ),
    Breakage(
        "one noise for every dataset of a seed",
        f"{TRAINING}/linear/run_noise.py",
        '.of("linear", *setting, data)',
        '.of("linear", *setting)',
        ("tests/test_noise.py",),
    ),
    Breakage(
        "one noise for all settings of a call of the sampler",
        f"{TRAINING}/linear/grid.py",
        "draws = side_by_side(self.noise, step",
        "draws = side_by_side(self.noise[:1] * len(self.noise), step",
        training("linear/grid"),
    ),
    Breakage(
        "one noise for engines of one seed",
        f"{TRAINING}/engine/run.py",
        '.of("engine", repr(sorted(released.items())))',
        '.of("engine")',
        ("tests/test_noise.py",),
    ),
    Breakage(
        "the record of what a release cost replaced by the next one",
        "src/ringfence/cli/release.py",
        '(account := folder / "account.json").exists()',
        '(account := folder / "account.json").exists() and False',
        ("tests/cli/test_release.py",),
    ),
    Breakage(
        "a sampled epsilon said to be the Gaussian's",
        f"{ACCOUNTING}/claim/data_independent.py",
        "else SAMPLED",
        "else GAUSSIAN",
        ("src/ringfence/accounting/claim/data_independent.py",),
    ),
    Breakage(
        "a person in as many cells as there are",
        f"{DECISIONS}/tables/contributions.py",
        "WHERE place <= {at_most}",
        "WHERE place >= {at_most - at_most}",
        decisions("tables/contributions"),
    ),
    Breakage(
        "values that are not clamped",
        f"{DECISIONS}/tables/contributions.py",
        "CAST(least(greatest({scaled}, -{UNITS}), {UNITS}) AS BIGINT)",
        "CAST({scaled} AS BIGINT)",
        decisions("tables/contributions"),
    ),
    Breakage(
        "one noise for the tables of two years",
        f"{DECISIONS}/account.py",
        "source.digest(values))",
        "len(values))",
        decisions("counts", "account"),
    ),
    Breakage(
        "a person whose values are replaced charged as one who is added",
        f"{DECISIONS}/noisy_means.py",
        "table_account(law, totals, 2.0,",
        "table_account(law, totals, 1.0,",
        decisions("noisy_means"),
    ),
    Breakage(
        "an account that everybody may read",
        f"{DECISIONS}/account.py",
        "replacing(path, mode=OWNER_ALONE)",
        "replacing(path, mode=0o644)",
        decisions("result"),
    ),
    Breakage(
        "as many answers of a person as were given",
        f"{DECISIONS}/ballots/ballots.py",
        "place.argsort(dim=1)[:, :at_most]",
        "place.argsort(dim=1)",
        decisions("ballots/ballots"),
    ),
    Breakage(
        "chances of error for everybody",
        "src/ringfence/cli/release.py",
        "if not made.errors_are_sensitive:",
        "if made.error_columns:",
        ("tests/cli/test_release.py",),
    ),
    Breakage(
        "per-instance numbers in what may be published of a sweep",
        "src/ringfence/paper/comparison/publication.py",
        "if not one.per_instance]",
        "if one.per_instance]",
        ("tests/paper/comparison/test_publication.py",),
    ),
    Breakage(
        "a yes where the band of a law includes 1",
        "src/ringfence/paper/comparison/comparison.py",
        "for name, band in self.bounded if band[2] < 1]",
        "for name, band in self.bounded if band[0] < 1]",
        ("tests/paper/comparison/test_answer.py",),
    ),
    Breakage(
        "an empty page where nothing may be published",
        "src/ringfence/report/content.py",
        "if report.sections and not sections:",
        "if False:",
        ("tests/report/test_content.py",),
    ),
    Breakage(
        "a published epsilon that is not paid for",
        f"{DECISIONS}/ballots/cost.py",
        "accountant.gaussian_zcdp += cost",
        "accountant.gaussian_zcdp += 0 * cost",
        decisions("votes"),
    ),
    Breakage(
        "a run's eta for its measured steps alone",
        "src/ringfence/paper/information/full_size/information.py",
        "sampling_rate * steps / len(moments)",
        "sampling_rate",
        ("tests/paper/information/full_size/test_information.py",),
    ),
    Breakage(
        "the epsilon of a network for one step",
        "src/ringfence/paper/information/full_size/rows.py",
        "count=setting.steps",
        "count=1",
        ("tests/paper/information/full_size/test_rows.py",),
    ),
    Breakage(
        "examples that are free where they were not measured",
        f"{ACCOUNTING}/sampled/examples.py",
        "self.sums += count * table.largest",
        "self.sums += 0 * table.largest",
        accounting("sampled/examples"),
    ),
    Breakage(
        "what Opacus released before is forgotten",
        "src/ringfence/opacus/conversion.py",
        "charge(account, noise_multiplier, sampling_rate, steps)",
        "charge(account, noise_multiplier, sampling_rate, 1)",
        ("tests/opacus/test_conversion.py",),
    ),
    Breakage(
        "a batch of Opacus taken for another",
        "src/ringfence/opacus/loader.py",
        "self.current = self.pending.popleft()",
        "self.current = self.pending.pop()",
        ("tests/opacus/test_loader.py",),
    ),
    Breakage(
        "a Trainer that accumulates batches",
        "src/ringfence/huggingface.py",
        '"gradient_accumulation_steps": (1, "each batch is one release"),',
        "",
        ("tests/test_huggingface.py",),
    ),
    Breakage(
        "a Trainer that forgets its account",
        "src/ringfence/huggingface.py",
        "if resume_from_checkpoint:",
        "if False:",
        ("tests/test_huggingface.py",),
    ),
    Breakage(
        "Lightning with a scaled loss",
        "src/ringfence/lightning.py",
        '("32-true", "64-true", "bf16-mixed")',
        '("32-true", "64-true", "bf16-mixed", "16-true")',
        ("tests/test_lightning.py",),
    ),
]


def reds(breakage: Breakage) -> int:
    """How many tests fail in a copy of the tree with this breakage in it; three end the count."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        keep_out = shutil.ignore_patterns(".git", ".venv", "out", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, copy, ignore=keep_out)
        source = copy / breakage.file
        text = source.read_text()
        if text.count(breakage.before) != 1:
            raise ValueError(f"{breakage.name}: stands {text.count(breakage.before)} times")
        source.write_text(text.replace(breakage.before, breakage.after))
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *_OPTIONS.split(), *breakage.tests],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    count = sum(map(int, re.findall(r"(\d+) (?:failed|error)", run.stdout)))
    if count == 0 and run.returncode != 0:
        raise RuntimeError(run.stdout + run.stderr)
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
