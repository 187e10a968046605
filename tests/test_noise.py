"""Random numbers that belong to a place: the whole key counts, and no two places share them."""

import copy
import os
import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats
from sklearn.model_selection import KFold

import ringfence as rf
from ringfence.noise import CipherDraws, GeneratorDraws, Noise
from ringfence.training.engine.batches import Batches
from ringfence.training.linear import train_linear
from tests.forks import ended

CPU = torch.device("cpu")


def released(probe: rf.LinearProbe) -> np.ndarray[Any, Any]:
    """What the only step of a probe released, from its published weights and settings."""
    return -probe.coef_ * probe.public_size / probe.learning_rate


# ------------------------------------------------------------------ attacks


def test_no_two_of_many_steps_share_their_noise() -> None:
    """With 32 bits of key, two of these pairs would agree on average. A key's stream is AES's, see below."""
    noise = Noise(seed=7)
    keys = {noise._derived(b"place", "noise", step) for step in range(1 << 17)}
    assert len(keys) == 1 << 17


def test_seeds_that_agree_in_their_low_bits_give_other_noise() -> None:
    """``torch.Generator().manual_seed`` takes all of these for one seed."""
    seeds = [5 + (1 << bits) for bits in (32, 63, 64, 127, 200, 255)]
    words = {Noise(seed).at("noise").word() for seed in (5, *seeds)}
    assert len(words) == 7


def test_a_poisson_sample_is_not_a_function_of_32_bits() -> None:
    batches = Batches("poisson", 64, 32, public_size=64)
    samples = {batches.of_step(0, Noise(5 + (k << 32)))[0].indices for k in range(100)}
    assert len(samples) == 100


SETTING: dict[str, Any] = {
    "clip": rf.Clamp(0.05),
    "learning_rate": 1.0,
    "steps": 1,
    "momentum": 0.0,
    "public_size": 300.0,
    "mechanism": rf.Gaussian(5.0),
}


@pytest.mark.parametrize(
    "change",
    [
        {"clip": rf.Clamp(0.1)},
        {"learning_rate": 2.0},
        {"steps": 2},
        {"momentum": 0.5},
        {"public_size": 301.0},
        {"mechanism": rf.Gaussian(5.5)},
        {"seed": 1 + 2**32},
    ],
    ids=lambda change: next(iter(change)),
)
def test_probes_that_differ_in_a_setting_share_no_noise(change: dict[str, Any]) -> None:
    """The weights of two probes with one random_state once gave the difference of their sums to 1e-6."""
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(300, 200, generator=generator), torch.arange(300) % 2
    noises = []
    for setting in ({**SETTING, "seed": 1}, {**SETTING, "seed": 1, **change}):
        run = train_linear(features, labels, 2, **setting)
        after = [*(step.weights for step in run.trajectory), run.weights][1]
        noises.append(-after * setting["public_size"] / setting["learning_rate"] - run.trajectory[0].theta)
    assert float(noises[0].std()) == pytest.approx(5.0, rel=0.15)
    both = torch.stack(noises).flatten(1)
    assert abs(float(torch.corrcoef(both)[0, 1])) < 0.2  # 400 numbers: four standard deviations


def test_grids_and_folds_share_no_noise() -> None:
    """A grid of probes and cross-validation with an integer random_state."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(300, 200)), rng.integers(0, 3, 300)
    settings = {"learning_rate": 1.0, "steps": 1, "random_state": 0, "public_size": 300}
    grid = [
        rf.LinearProbe(rf.Gaussian(50.0), clip=clip, **settings).fit(features, labels) for clip in (0.05, 0.1)
    ]
    folds = [
        rf.LinearProbe(rf.Gaussian(50.0), clip=0.05, **settings).fit(features[rows], labels[rows])
        for rows, _ in KFold(2).split(features)
    ]
    for one, other in (grid, folds):
        difference = released(one) - released(other)
        # independent noise of 50: the sums themselves are below 15
        assert np.std(difference) == pytest.approx(50 * np.sqrt(2), rel=0.15)
    again = rf.LinearProbe(rf.Gaussian(50.0), clip=0.05, **settings).fit(features, labels)
    assert np.allclose(released(again), released(grid[0]), rtol=1e-4, atol=1e-3)  # the same, repeated


def test_engines_that_differ_in_their_law_share_no_noise() -> None:
    """Two laws at one seed and one sum: sigma z and 2 sigma z would have given the sum away."""
    data = torch.utils.data.TensorDataset(torch.randn(64, 50), torch.randint(0, 2, (64,)))

    def move(sigma: float) -> torch.Tensor:
        model = torch.nn.Linear(50, 2)
        for parameter in model.parameters():  # the same sum to the last bit, on which the noise depends too
            torch.nn.init.zeros_(parameter)
        engine = rf.PrivacyEngine(rf.Gaussian(sigma), rf.Clamp(1e-9), sampling="full", seed=3)
        optimizer = torch.optim.SGD(model.parameters(), lr=64.0)
        private, optimizer, loader = engine.make_private(
            model, optimizer, torch.utils.data.DataLoader(data, batch_size=64)
        )
        for inputs, labels in loader:
            torch.nn.functional.cross_entropy(private(inputs), labels).backward()
            optimizer.step()
        return model.weight.detach().flatten() / sigma

    assert abs(float(torch.corrcoef(torch.stack((move(1.0), move(2.0))))[0, 1])) < 0.4


def in_a_fork(draw: Callable[[], object]) -> str:
    """What a process that is forked here says: what it drew, or why it did not."""
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = repr(draw())
        except RuntimeError as error:
            said = str(error)
        os.write(sender, said.encode())
        os._exit(0)
    os.close(sender)
    os.waitpid(child, 0)
    with os.fdopen(receiver) as file:
        return file.read()


def forks(seed: int | None) -> None:
    noise, theta, parent = Noise(seed), torch.zeros(2), os.getpid()
    draws: list[Callable[[], object]] = [
        lambda: noise.at("x").word(),
        lambda: noise.of("part").at("x").word(),
        lambda: noise.torch_seed("x"),
        lambda: noise.digest(theta),
        lambda: noise.draws("x", device=CPU).uniforms((1,)),
        lambda: rf.release_counts([1.0, 2.0], sigma=1.0, seed=noise),
    ]
    for draw in draws:
        assert in_a_fork(draw).startswith(f"Noise and engines serve the process that made them, {parent}: ")
        draw()  # and here it goes on
    assert in_a_fork(lambda: Noise(7).at("x").word()) == str(Noise(7).at("x").word())  # on purpose


@pytest.mark.parametrize("seed", [None, 7])
def test_a_fork_does_not_repeat_the_numbers(seed: int | None) -> None:
    assert ended(forks, seed) == 0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("seed", [None, 7])
def test_no_copy_repeats_the_numbers(copied: Callable[[Any], Any], seed: int | None) -> None:
    for held in (Noise(seed), Noise(seed).of("part")):
        with pytest.raises(TypeError, match="Noise cannot be copied or pickled, because a copy would draw"):
            copied(held)


# ------------------------------------------------------------------ what the numbers are


def test_streams_are_aes_in_counter_mode_and_stay_what_they_are() -> None:
    """Known bits: a seed means the same on every machine and with every version."""
    key = bytes(range(32))
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(24))
    draws = CipherDraws(key)
    got = torch.cat((draws.words(1), draws.words(2))).numpy().tobytes()
    assert got == stream
    noise = Noise(seed=7)
    assert noise.at("noise", 3).word() == KNOWN["word"]
    assert noise.at("sample", 0).chosen(20, 0.3) == KNOWN["sample"]
    assert noise.digest(torch.arange(4.0)).hex() == KNOWN["digest"]
    assert noise.at("noise").normals((3,)).tolist() == pytest.approx(KNOWN["normals"], rel=1e-14)


KNOWN: dict[str, Any] = {
    "word": 3265068657529088438,
    "digest": "30592cc822d16ba3520f53cb2647f6a80b0dbd01dd507d91fa5d71a805193b0e",
    "sample": [1, 2, 6, 8, 11, 13, 16, 18],
    "normals": [-2.0911324862432417, 0.09108002883378088, -1.6785094948477688],
}


def test_uniform_and_normal_numbers_have_their_laws() -> None:
    count = 400_001
    uniform, normal = Noise(1).at("u").uniforms((count,)), Noise(2).at("n").normals((count,))
    assert stats.kstest(uniform.numpy(), "uniform", method="asymp").pvalue > 1e-3
    assert stats.kstest(normal.numpy(), "norm", method="asymp").pvalue > 1e-3
    wrong = stats.kstest(1.02 * normal.numpy(), "norm", method="asymp")
    assert wrong.pvalue < 1e-3  # a wrong sigma is seen
    assert abs(float((normal[:-1] * normal[1:]).mean())) < 5e-3
    # the two halves of a pair come from one radius
    assert abs(float((normal[:32768] * normal[32768:65536]).mean())) < 0.03
    assert float(uniform.min()) >= 0
    assert float(uniform.max()) < 1


def test_the_numbers_do_not_depend_on_the_shape() -> None:
    one = Noise(1)
    for draw, shape in product(("uniforms", "normals"), ((3, 4), (2, 2, 3), (12, 1))):
        flat, shaped = (getattr(one.at("x"), draw)(size) for size in ((12,), shape))
        assert torch.equal(shaped, flat.view(shape))
    assert one.at("x").normals(()).shape == ()
    assert one.at("x").uniforms((0,)).shape == one.at("x").normals((0,)).shape == (0,)
    assert one.at("x").words(0).shape == (0,)


def test_places_do_not_run_into_each_other() -> None:
    noise = Noise(1)
    places: list[tuple[str | int | bytes, ...]] = [
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        ("ab", b"c", ""),
        (b"", "abc"),
    ]
    assert len({noise.at(*place).word() for place in places}) == len(places)
    assert noise.of("x").at("y").word() != noise.at("x", "y").word()
    assert noise.torch_seed("x") != noise.at("x").word() % 2**64


def test_a_poisson_choice_is_never_more_probable_than_the_rate() -> None:
    class Fixed(CipherDraws):
        def words(self, count: int) -> torch.Tensor:
            # 0, 2^-53, 1/4 - 2^-53, 1/4 and 3/4 of 2^64, with all of the last 11 bits, which do not count
            return torch.tensor([0, 2**11, 2**62 - 2**11, 2**62, -(2**62)]) + 2**11 - 1

    draws = Fixed(bytes(32))
    assert draws.chosen(5, 0.25) == [0, 1, 2]
    assert draws.chosen(5, 2.0**-53) == [0]
    assert draws.chosen(5, 2.0**-54) == []  # rather never than twice as often
    assert draws.chosen(5, 0.75) == [0, 1, 2, 3]
    assert draws.chosen(5, 1.0) == [0, 1, 2, 3, 4]


def test_a_poisson_choice_is_that_of_the_uniform_numbers() -> None:
    """Also where they are made in several blocks, of which the last has an odd length."""
    uniforms = Noise(2).at("x").uniforms((2**16 + 3,))
    assert Noise(2).at("x").chosen(2**16 + 3, 0.3) == (uniforms < 0.3).nonzero().flatten().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_digest_names_the_numbers(dtype: torch.dtype) -> None:
    """Every single bit of theta counts, its order and its shape."""
    noise = Noise(1)
    digest = noise.digest
    theta = torch.randn(10, 7, dtype=dtype, generator=torch.Generator().manual_seed(0))
    found = {digest(theta)}
    flat = theta.view(-1).view(torch.int32)
    for word in range(len(flat)):
        for bit in (0, 13, 31):
            changed = flat.clone()
            changed[word] ^= -(2**31) if bit == 31 else 1 << bit
            found.add(digest(changed.view(dtype).view(10, 7)))
    assert len(found) == 3 * len(flat) + 1
    assert digest(theta) == digest(theta.clone())
    assert digest(theta) != Noise(2).digest(theta)
    assert digest(theta) != digest(theta.flip(0))
    assert noise.digest(theta) != noise.digest(theta.view(7, 10))
    assert digest(theta.T) == digest(theta.T.contiguous())


def test_a_fresh_noise_has_a_key_of_256_bits_from_the_operating_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    monkeypatch.setattr("ringfence.noise.secrets.randbits", lambda bits: asked.append(bits) or 2**bits - 1)
    assert Noise().seed == 2**256 - 1
    assert asked == [256]
    assert not Noise().seeded
    assert Noise(0).seeded


def test_generators_of_torch_can_be_drawn_from() -> None:
    draws = GeneratorDraws(torch.Generator().manual_seed(2))
    expected = torch.randn(4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert torch.equal(draws.normals((4,)), expected)


def test_torchs_own_generators_are_left_as_they_were() -> None:
    before = torch.get_rng_state()
    with Noise(1).global_draws("forward", 0, device=CPU):
        first = torch.rand(3)
    with Noise(1).global_draws("forward", 0, device=CPU):
        assert torch.equal(first, torch.rand(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_masks_are_not_to_be_found_by_trying_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an example draws depends on its place in the batch: a guarantee needs that nobody guesses it."""
    monkeypatch.setattr(Noise, "torch_seed", lambda *place: 5)
    drawn = []
    for step in range(2):
        with Noise(1).global_draws("forward", step, device=CPU):
            drawn.append(torch.rand(10_000))
    assert not bool((drawn[0] == drawn[1]).any())
    assert all(abs(float(one.mean()) - 0.5) < 0.015 for one in drawn)


@pytest.mark.parametrize(("index", "seeded"), [(None, [False, True]), (0, [True, False])])
def test_of_several_gpus_the_one_that_is_used_is_seeded(
    index: int | None, seeded: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a number it is the current one, here the second; and its state is put back."""
    generators = (torch.Generator().manual_seed(1), torch.Generator().manual_seed(2))
    before = [generator.get_state() for generator in (*generators, torch.default_generator)]
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    device, seed = torch.device("cuda", index), Noise(7).torch_seed("dropout")
    with Noise(7).global_draws("dropout", device=device):
        assert [generator.initial_seed() == seed for generator in generators] == seeded
        assert torch.default_generator.initial_seed() == seed
    after = [generator.get_state() for generator in (*generators, torch.default_generator)]
    assert all(map(torch.equal, before, after))


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_bad_seeds_are_refused_by_name(seed: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="seed must be"):
        Noise(seed)
