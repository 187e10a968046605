"""The contract of winners: masses by definition, divergences of atoms, the Gaussian above, samplers below."""

import itertools
import math
from functools import cache
from statistics import NormalDist

import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

import ringfence as rf
from ringfence.mechanisms import pieces
from ringfence.mechanisms.decision import Decision
from ringfence.noise import GeneratorDraws, Noise
from tests.numerics.largest_oracle import exact
from tests.oracle import below

SIGMA = 2.0
WINNER = rf.NoisyWinner(SIGMA)
CONFIDENT = rf.ConfidentWinner(SIGMA, threshold=10.0, threshold_sigma=3.0)
GUMBEL = rf.GumbelWinner(SIGMA)
LAWS = (WINNER, CONFIDENT, GUMBEL)
ROWS = torch.tensor([[12, 11, 3, 0], [5, 5, 5, 5], [60, 9, 8, 0], [0, 2, 2, 9]], dtype=torch.float64)
SWAPS = torch.tensor(
    [[(k == up) - (k == down) for k in range(4)] for up, down in itertools.permutations(range(4), 2)],
    dtype=torch.float64,
)


once = cache(exact)


def weights(groups: list[tuple[mpf, mpf, int]]) -> list[list[mpf]]:
    """e^(counts / scale) at the counts, and at the moved counts."""
    return [[mp.exp(c) for c, _, _ in groups], [mp.exp(c + m) for c, m, _ in groups]]


def ceiling(law: Decision, counts: Tensor, move: Tensor) -> Tensor:
    """2 D / alpha that holds for all counts, by the definitions."""
    if law is GUMBEL:
        return ((move.amax(dim=-1) - move.amin(dim=-1)) / SIGMA) ** 2 / 4
    top = (counts + move).amax(dim=-1) - counts.amax(dim=-1)
    return move.square().sum(dim=-1) / SIGMA**2 + (top**2 / 9 if law is CONFIDENT else 0)


@pytest.mark.parametrize("law", LAWS)
def test_definition(law: Decision) -> None:
    """Divergence and hockey stick from masses that the oracle integrates, both parts charged."""
    counts, move, alpha, epsilon = (12.0, 11.0, 3.0), (-1.0, 0.0, 1.0), 8.0, 0.3
    groups = [(mpf(c) / 2, mpf(m) / 2, 1) for c, m in zip(counts, move, strict=True)]
    with mp.workdps(60):
        log_p, rho = once(tuple(groups))
        p = [mp.exp(one) for one in log_p]
        q = [mp.exp(one - ratio) for one, ratio in zip(log_p, rho, strict=True)]
        if law is GUMBEL:
            p, q = ([weight / sum(row) for weight in row] for row in weights(groups))
        if law is CONFIDENT:  # the largest count is 12, then 11
            yes_p, yes_q = below(mpf(2) / 3), below(mpf(1) / 3)
            p = [*(yes_p * one for one in p), 1 - yes_p]
            q = [*(yes_q * one for one in q), 1 - yes_q]
        divergence = mp.log(sum(a**8 * b**-7 for a, b in zip(p, q, strict=True))) / 7
        stick = sum(max(a - mp.exp(mpf(epsilon)) * b, 0) for a, b in zip(p, q, strict=True))
    masses = [float(law.log_prob(outcome, counts).exp()) for outcome in (0, 1, 2)]
    assert masses == pytest.approx([float(one) for one in p[:3]], rel=1e-13)
    assert float(law.renyi_divergence(counts, move, alpha)) == pytest.approx(float(divergence), rel=1e-12)
    found = pieces.hockey_stick(*law.pair(counts, move), torch.tensor(epsilon, dtype=torch.float64))
    assert float(found) == pytest.approx(float(stick), rel=1e-12)


def test_two_candidates_are_a_sign() -> None:
    """Of the difference, with the noise of two: to 40 sigma and down to moves of 1e-6 sigma."""
    sign = rf.StochasticSign(SIGMA * math.sqrt(2))
    counts = torch.tensor([[80.0, 0.0], [5.0, 5.0], [3.0, 9.0], [25.0, 0.0]], dtype=torch.float64)
    move = torch.tensor([[-1.0, 1.0], [2e-6, 0.0], [0.0, -1e-3], [-9.0, 0.0]], dtype=torch.float64)
    theta, shift = counts[:, 0] - counts[:, 1], move[:, 0] - move[:, 1]
    for alpha in (1.5, 8.0, 512.0):
        found, expected = (
            WINNER.renyi_divergence(counts, move, alpha),
            sign.renyi_divergence(theta, shift, alpha),
        )
        assert torch.allclose(found, expected, rtol=1e-12, atol=0)
    assert torch.allclose(WINNER.log_prob(0, counts), sign.log_prob(1.0, theta), rtol=1e-12, atol=0)


@pytest.mark.parametrize("law", LAWS)
def test_below_what_holds_for_all_counts_and_growing_with_the_order(law: Decision) -> None:
    """A breach would show where the move is long: the minimum with the bound is left out here."""
    orders = torch.tensor([1.01, 2.0, 8.0, 64.0, 512.0], dtype=torch.float64).view(-1, 1, 1)
    moves = torch.cat((SWAPS, 5 * SWAPS, torch.eye(4).double()))
    log_p, rho = law.pair(ROWS.unsqueeze(1), moves)
    divergence = pieces.renyi(log_p.unsqueeze(1), rho.unsqueeze(1), orders)
    bound = ceiling(law, ROWS.unsqueeze(1), moves)
    assert bool((divergence > 0).all())
    assert bool((divergence <= 0.5 * orders * bound * (1 + 1e-12)).all())
    assert bool((divergence[1:] >= divergence[:-1] * (1 - 1e-9)).all())
    assert torch.allclose(law.renyi_divergence(ROWS.unsqueeze(1), moves, orders), divergence, rtol=1e-12)
    for law_of_two in (log_p, log_p - rho):
        assert float((law_of_two.exp().sum(dim=0) - 1).abs().max()) < 1e-13


@pytest.mark.parametrize("law", LAWS)
def test_the_ceiling_holds_whatever_the_atoms_say(law: Decision, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest count falls from 12 to 10: |move|^2 / sigma^2 = 14 / 4, and 4 / 9 for the question."""
    monkeypatch.setattr(pieces, "renyi", lambda log_p, rho, order: torch.full_like(order * rho[0], math.inf))
    bound = {WINNER: 14 / 4, CONFIDENT: 14 / 4 + 4 / 9, GUMBEL: (5 / 2) ** 2 / 4}[law]
    found = law.renyi_divergence([12.0, 9.0, 3.0], [-2.0, 1.0, 3.0], [2.0, 8.0])
    assert found.tolist() == pytest.approx([0.5 * order * bound for order in (2.0, 8.0)], rel=1e-14)
    if law is not GUMBEL:
        most = {WINNER: 14 / 4, CONFIDENT: 14 / 4 + 9 / 9}[law]
        assert law.zcdp(torch.tensor([-2.0, 1.0, 3.0])) == pytest.approx(0.5 * most, rel=1e-14)


@pytest.mark.parametrize("law", LAWS)
def test_other_direction_and_other_order_of_candidates(law: Decision) -> None:
    log_p, rho = law.pair(ROWS.unsqueeze(1), SWAPS)
    moved, back = law.pair(ROWS.unsqueeze(1) + SWAPS, -SWAPS)
    assert torch.allclose(moved, log_p - rho, rtol=1e-11)
    assert torch.allclose(back, -rho, rtol=1e-9, atol=1e-14)
    turn = torch.tensor([2, 0, 3, 1])
    outcomes = torch.cat((turn, torch.arange(4, len(log_p))))
    turned = law.pair(ROWS[:, turn].unsqueeze(1), SWAPS[:, turn])
    assert torch.allclose(turned[0], log_p[outcomes], rtol=1e-12)
    assert torch.allclose(turned[1], rho[outcomes], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("law", LAWS)
def test_near_neighbours_cost_half_the_information(law: Decision) -> None:
    """D = alpha I h^2 / 2, with the information I from differences of the masses."""
    direction, small, alpha = SWAPS[4], 1e-6, 3.0
    step = 1e-3
    up, down = (law.pair(ROWS, sign * step * direction) for sign in (1, -1))
    slopes = ((up[0] - up[1]).exp() - (down[0] - down[1]).exp()) / (2 * step)
    information = (slopes**2 / up[0].exp()).sum(dim=0)
    found = law.renyi_divergence(ROWS, small * direction, alpha)
    assert torch.allclose(found, 0.5 * alpha * information * small**2, rtol=1e-4)


@pytest.mark.parametrize("size", [1e-12, 1e-3, 1.0, 30.0, 2e3])
@pytest.mark.parametrize("counts", [(3.0, 2.0, 0.0), (5.0, 4.5, 4.5), (90.0, 1.0, 0.0), (900.0, 2.0, 0.0)])
def test_softmax_ratios_keep_their_digits(size: float, counts: tuple[float, ...]) -> None:
    """Moves of 1e-12 and of 2,000 scales, candidates 900 scales behind, and the ratio of a sure winner."""
    for move in ((size, 0.0, 0.0), (-size, size, 0.0), (0.0, 0.0, size)):
        log_p, rho = rf.GumbelWinner(1.0).pair(counts, move)
        with mp.workdps(3000):
            before, after = weights([(mpf(c), mpf(m), 1) for c, m in zip(counts, move, strict=True)])
            rest = [mp.log(sum(row)) for row in (before, after)]
            for k, (c, m) in enumerate(zip(counts, move, strict=True)):
                assert float(log_p[k]) == pytest.approx(float(c - rest[0]), rel=1e-13)
                off = 1e-15 * size if size > 1 else 1e-320
                assert float(rho[k]) == pytest.approx(float(rest[1] - rest[0] - m), rel=1e-13, abs=off)


@pytest.mark.parametrize("eta", [1e-9, 1e-3, 0.25, 2.0, 9.0, 60.0, 5000.0])
def test_a_gaussian_dominates_every_law_of_this_range(eta: float) -> None:
    """Phi^-1(p) - Phi^-1(q) of coins whose logits differ by eta is at most mu, and mu is not above it by
    more than rounding: the two sides of a tied vote attain it."""
    law = rf.GumbelWinner(1 / eta)
    move = torch.tensor([1.0], dtype=torch.float64)
    mu = math.sqrt(2 * law.zcdp(move))
    assert law.loss_range(move) == pytest.approx(eta, rel=1e-15)
    with mp.workdps(50 + int(eta / 2)):
        quantile = lambda z: mp.sqrt(2) * mp.erfinv(mp.tanh(z / 2))  # noqa: E731
        worst = 2 * quantile(mpf(eta) / 2) if eta < 100 else 2 * mp.sqrt(mpf(eta))
        assert -1e-15 < float(mpf(mu) / worst - 1) < 1e-7  # what uses it adds 1e-12
        if eta < 30:
            for place in (0.01, 0.5, 3.0, 20.0):
                assert quantile(place + mpf(eta) / 2) - quantile(place - mpf(eta) / 2) < mu


def test_range_and_gaussian_hold_at_random_counts() -> None:
    """Log ratios lie in an interval of length eta, and every likelihood ratio test is below mu's curve."""
    law, normal = rf.GumbelWinner(0.7), NormalDist()
    mu = math.sqrt(2 * law.zcdp(torch.tensor([1.0, -1.0])))
    counts = torch.randint(0, 6, (300, 1, 4), generator=torch.Generator().manual_seed(3))
    log_p, rho = (part.reshape(4, -1) for part in law.pair(counts, SWAPS))
    assert float((rho.amax(dim=0) - rho.amin(dim=0)).max()) == pytest.approx(2 / 0.7, rel=1e-12)
    order = rho.argsort(dim=0, descending=True)
    found, alarms = (part.gather(0, order).exp().cumsum(dim=0)[:-1] for part in (log_p, log_p - rho))
    pairs = zip(found.flatten().tolist(), alarms.flatten().tolist(), strict=True)
    assert max(normal.inv_cdf(p) - normal.inv_cdf(q) for p, q in pairs if 0 < q <= p < 1) <= mu


def test_only_the_winner_is_charged_where_an_answer_is_certain() -> None:
    sure = rf.ConfidentWinner(SIGMA, threshold=-1e6, threshold_sigma=1.0)
    found, expected = (law.renyi_divergence(ROWS, SWAPS[0], 8.0) for law in (sure, WINNER))
    assert torch.allclose(found, expected, rtol=1e-12)
    assert float(sure.log_prob(-1, ROWS[0])) < -1e11


def test_only_the_question_is_charged_where_the_winner_is_certain() -> None:
    clear = torch.tensor([900.0, 0.0, 0.0], dtype=torch.float64)
    law = rf.ConfidentWinner(1.0, threshold=903.0, threshold_sigma=2.0)
    move = torch.tensor([-1.0, 1.0, 0.0], dtype=torch.float64)
    sign = rf.StochasticSign(2.0)
    expected = sign.renyi_divergence(-3.0, -1.0, 8.0)
    assert float(law.renyi_divergence(clear, move, 8.0)) == pytest.approx(float(expected), rel=1e-12)


def test_the_chance_of_an_error_is_that_of_those_behind() -> None:
    law = rf.NoisyWinner(8.0)
    assert float(law.chance_of_error([40, 9, 2])) == pytest.approx(
        1 - float(law.log_prob(0, [40, 9, 2]).exp())
    )
    assert float(law.chance_of_error([7, 7, 7])) == 0  # the one that is announced has the largest count
    far = float(rf.NoisyWinner(1.0).chance_of_error([40, 0]))
    assert far == pytest.approx(float(rf.StochasticSign(math.sqrt(2)).log_prob(-1.0, 40.0).exp()), rel=1e-10)
    silent = rf.ConfidentWinner(8.0, threshold=80.0, threshold_sigma=5.0)
    assert float(silent.chance_of_error([40, 9, 2])) < 1e-12


def rejected(law: Decision, drawn: Tensor, row: Tensor) -> bool:
    """Whether frequencies lie more than 5 standard errors from the masses."""
    outcomes = range(-1 if isinstance(law, rf.ConfidentWinner) else 0, len(row))
    for outcome in outcomes:
        mass = float(law.log_prob(outcome, row).exp())
        count = int((drawn == outcome).sum())
        if abs(count - len(drawn) * mass) > 5 * math.sqrt(len(drawn) * mass * (1 - mass)) + 1:
            return True
    return False


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("secure", [False, True])
def test_outcomes_have_their_masses_and_a_wrong_sigma_is_rejected(law: Decision, secure: bool) -> None:
    row = torch.tensor([13.0, 10.0, 9.0], dtype=torch.float64)
    many = row.expand(20_000, -1)
    generator = torch.Generator().manual_seed(5)
    drawn = law.release(many, draws=Noise(5).at("test")) if secure else law.sample(many, generator=generator)
    assert not rejected(law, drawn, row)
    for name in law.fields():
        if name != "threshold":  # a wrong sigma, scale or threshold_sigma
            other = type(law)(
                **{key: getattr(law, key) * (1.2 if key == name else 1) for key in law.fields()}
            )
            assert rejected(other, drawn, row), name


def test_samples_are_the_largest_of_the_counts_and_their_noise() -> None:
    """Of a count at the threshold itself, without noise, there is an answer."""
    counts = 3 * torch.rand(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    confident = rf.ConfidentWinner(0.7, threshold=2.0, threshold_sigma=0.5)

    def draws() -> GeneratorDraws:
        return GeneratorDraws(torch.Generator().manual_seed(1))

    noise = draws()
    answered = counts.amax(dim=1) + 0.5 * noise.normals((200,)) >= 2
    winner = (counts + 0.7 * noise.normals((200, 3))).argmax(dim=1)
    assert torch.equal(confident.sample(counts, generator=draws()), torch.where(answered, winner, -1))
    alone = (counts + 0.7 * draws().normals((200, 3))).argmax(dim=1)
    assert torch.equal(rf.NoisyWinner(0.7).sample(counts, generator=draws()), alone)
    still = draws()
    still.normals = lambda shape: torch.zeros(shape).double()  # type: ignore[method-assign]
    assert confident.sample([[0.0, 2.0], [1.9, 0.0]], generator=still).tolist() == [1, -1]  # type: ignore[arg-type]
