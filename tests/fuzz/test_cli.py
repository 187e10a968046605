"""The command line: any arguments give status 0, 1 or 2, and where it is not 0 one clear line."""

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from hypothesis import strategies as st

from experiments.sweep.probes import run_sweep
from tests.experiments.sweep.sweeps import DATA, GRID
from tests.fuzz.properties import fuzzed
from tests.shell import experiments, ringfence

PLACE = Path(mkdtemp(prefix="ringfence-fuzz-"))
atexit.register(shutil.rmtree, PLACE, ignore_errors=True)


@cache
def _prepare() -> None:
    """Makes the files, with the first command: a process that only collects does not wait for them."""
    np.save(PLACE / "theta.npy", np.linspace(-2, 2, 5))
    np.save(PLACE / "holes.npy", np.array([1.0, np.nan]))
    (PLACE / "text.npy").write_text("no array")
    values = {"features": DATA.train_features[:12], "labels": DATA.train_labels[:12]}
    np.savez(PLACE / "features.npz", **values)
    (PLACE / "grid.toml").write_text(
        'name = "toy"\nmechanisms = ["gaussian"]\n[paper]\nclip = [0.1]\nnoise_multiplier = [10]\n'
        "bound = [4]\nlearning_rate = [1]\nsteps = [1]\n"
    )
    run_sweep(GRID, DATA, PLACE / "sweep")


FILES = [
    str(PLACE / name) for name in ("theta.npy", "holes.npy", "text.npy", "features.npz", "grid.toml", "sweep")
]
FILES += ["", ".", "/dev/null", "/dev/null/x", str(PLACE), str(PLACE / "missing.npy")]
FILES += ["a\nb.npy", "é" * 300, "\0"]
NUMBERS = ["0", "-0", "1", "2", "-1", "nan", "inf", "-inf", "1e-300", "1e300", "5e-324", "1e400", "x"]
NUMBERS += ["0.5", "1e-5", "4", "1_0", "0x10", " 1", "٣", "9" * 25, ""]
LAWS = ["gaussian", "rectified", "truncated", "sign", "quantized", "laplace", "", "Gaussian", "cauchy"]
SMALL = ["1", "0", "-1", "x", "nan", "", "2"]

words = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(LAWS), st.text(max_size=5))
numbers = st.sampled_from(NUMBERS)


@st.composite
def _options(draw: Any, options: dict[str, Any]) -> list[str]:
    """Some of the options with good or bad values, sometimes an unknown one."""
    chosen = draw(st.lists(st.sampled_from(sorted(options)), max_size=6, unique=True))
    result = [
        word
        for name in chosen
        for word in (name, *([draw(options[name])] if options[name] is not None else []))
    ]
    if draw(st.integers(0, 7)) == 0:
        result.insert(draw(st.integers(0, len(result))), draw(st.one_of(words, st.just("--nope"))))
    return result


LAW_OPTIONS = {
    "--mechanism": st.sampled_from(LAWS),
    "--sigma": numbers,
    "--bound": numbers,
    "--levels": numbers,
    "--delta": numbers,
    "--steps": st.sampled_from(SMALL),
    "--json": None,
}
ACCOUNT = {**LAW_OPTIONS, "--sensitivity": numbers}
PROBE = {
    **LAW_OPTIONS,
    **dict.fromkeys(("--clip", "--learning-rate", "--momentum", "--public-center", "--seed"), numbers),
    **{"--public-scale": numbers, "--public-size": numbers, "--public-classes": st.sampled_from(SMALL)},
    **{"--fit-intercept": None, "--examples": None},
    **{"--device": words, "--labels": st.sampled_from(FILES), "--public-statistics": st.sampled_from(FILES)},
}
files = st.sampled_from(FILES)
KNOWN = {
    **{"file": files, "usual": st.booleans(), "folders": st.lists(files, max_size=2), "features": files},
    "search": st.sampled_from(("paper", "", "x")),
    **{"grid": st.sampled_from([*FILES, "digits", "cifar10"]), "engine": st.sampled_from(("local", "", "x"))},
    **{"device": st.sampled_from(("cpu", "cuda", "", "x")), "images": files},
    **{"backbone": words, "size": numbers, "kind": words},
}
USUAL_ACCOUNT = ["--sigma", "1", "--bound", "4", "--sensitivity", "1e-3"]
USUAL_PROBE = ["--sigma", "1", "--bound", "4", "--clip", "0.1", "--learning-rate", "1", "--steps", "2"]


def check(*arguments: str, program: Any = ringfence) -> None:
    _prepare()
    run = program(*arguments)
    status, out, err = run.returncode, run.stdout, run.stderr
    shown = f"{program.__name__} {arguments!r} gave {status}\n{out[-500:]}\n{err[-1500:]}"
    assert status in (0, 1, 2), shown
    assert "Traceback" not in err, shown
    if status == 2 and "Usage:" not in out + err:
        assert err.startswith(f"{program.__name__}: "), shown
        assert len(err.splitlines()) == 1, shown
    if status == 0:
        assert "nan" not in out.lower().split(), shown


@fuzzed("command line", 0.2, 25, KNOWN, options=_options(ACCOUNT))
def test_account(file: str, options: list[str], usual: bool) -> None:
    check("account", file, *(USUAL_ACCOUNT if usual else []), *options)


@fuzzed("command line", 0.2, 25, KNOWN, options=_options(PROBE))
def test_probe(file: str, options: list[str], usual: bool) -> None:
    check("probe", file, *(USUAL_PROBE if usual else []), *options)


COMMANDS = ["account", "probe", "compare", "sweep", "features", "audit", "figure"]
COMMANDS += ["nonsense", "--version", "-h", "--", "-", "--json", "--help", "--install-completion"]
COMPARE = {"--kind": words, "--json": None}


@fuzzed("command line", 0.04, 5, KNOWN, options=_options(COMPARE))
def test_comparisons(folders: list[str], options: list[str], usual: bool) -> None:
    out = ["--out", str(PLACE / "report.html")] if usual else []
    check("compare", *folders, *options, *out, program=experiments)


@fuzzed("command line", 0.06, 5, KNOWN)
def test_sweeps(grid: str, features: str, search: str, engine: str, device: str) -> None:
    shutil.rmtree(PLACE / "out", ignore_errors=True)
    options = ["--search", search, "--engine", engine, "--device", device]
    check("sweep", grid, "--features", features, "--out", str(PLACE / "out"), *options, program=experiments)


@fuzzed(
    *("command line", 0.3, 20),
    arguments=st.lists(st.one_of(st.sampled_from(COMMANDS), words), max_size=4).filter(
        lambda words: not {"reproduce", "figure", "features"} & set(words) or words[0] == "figure"
    ),
    program=st.sampled_from((ringfence, experiments)),
)
def test_any_words(arguments: list[str], program: Any) -> None:
    check(*arguments, program=program)


@fuzzed("command line", 0.06, 5, KNOWN)
def test_features(images: str, backbone: str, size: str, kind: str) -> None:
    options = ["--backbone", f"{PLACE}/{backbone}", "--out", str(PLACE / "f.npz")]
    check("features", images, *options, "--batch-size", size, "--dtype", kind, program=experiments)
