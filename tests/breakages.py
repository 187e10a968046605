"""Breaks the package on purpose, one way at a time, and counts the tests that turn red.

    python -m tests.breakages [NAME ...]

A breakage that no test notices means a missing test. The run ends with status 1 if there is one.
Each breakage is a piece of source and what replaces it; the work happens in a temporary copy.
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
OPTIONS = [
    "--continue-on-collection-errors",
    *(f"--ignore=tests/test_{name}.py" for name in ("breakages", "cli", "readme")),
]
MECHANISMS = "src/ringfence/mechanisms"


@dataclass(frozen=True)
class Breakage:
    name: str
    file: str
    before: str
    after: str


BREAKAGES = [
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
        "law = TruncatedNormal(*units.interval(theta, sigma, lower, upper))\n        shift = shift / sigma\n",
        "law = TruncatedNormal(*units.interval(theta + shift, sigma, lower, upper))\n"
        "        shift = -shift / sigma\n",
    ),
    Breakage(
        "P and Q swapped in the sign's divergence",
        f"{MECHANISMS}/sign.py",
        "log_p, rho = pieces.atoms(edge, edge, shift / sigma)\n"
        "        return pieces.renyi(log_p, rho, alpha)",
        "log_p, rho = pieces.atoms(edge, edge, shift / sigma)\n"
        "        return pieces.renyi(log_p - rho, -rho, alpha)",
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
        "        shift = shift / sigma\n",
        "        shift = shift / sigma**2\n",
    ),
    Breakage(
        "the shift only taken upwards",
        f"{MECHANISMS}/truncated.py",
        "toward, away = law.log_mgf(shift, (1 - alpha) * shift)",
        "toward, away = law.log_mgf(shift.abs(), (1 - alpha) * shift.abs())",
    ),
    Breakage("the density cut too early", "src/ringfence/truncated_normal.py", "cut=46.0", "cut=24.0"),
    Breakage("too few nodes", "src/ringfence/truncated_normal.py", "nodes_slope=6.2", "nodes_slope=4.6"),
    Breakage(
        "a term of the series lost",
        "src/ringfence/truncated_normal.py",
        "        while term > self.negligible:",
        "        while term > 1e-3:",
    ),
    Breakage(
        "the width formed from rounded ends",
        f"{MECHANISMS}/units.py",
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
        "src/ringfence/normal.py",
        "    small = size <= 1\n",
        "    small = size <= -1\n",
    ),
    Breakage(
        "a normal cdf that underflows in the sampler",
        "src/ringfence/normal.py",
        "return 0.5 * torch.erfc(-SQRT_HALF * x)",
        "return torch.special.ndtr(x)",
    ),
    Breakage(
        "the tail sampled as if it began at 4 sigma",
        f"{MECHANISMS}/truncated.py",
        "tail = low > _TAIL",
        "tail = low > 1e9",
    ),
    Breakage(
        "one Newton step too few in the tail sampler",
        f"{MECHANISMS}/truncated.py",
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
        "return torch.randn(shape",
        "return 0.98 * torch.randn(shape",
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
        'return require(name, "must not be NaN", tensor, ~torch.isnan(tensor))',
        "return tensor",
    ),
    Breakage(
        "infinite theta let through",
        "src/ringfence/checks.py",
        "if tensor.numel() and not all(map(math.isfinite, torch.aminmax(tensor))):",
        "if tensor.numel() and bool(torch.isnan(tensor).any()):",
    ),
    Breakage(
        "the global random state used",
        f"{MECHANISMS}/gaussian.py",
        "torch.randn(shape, generator=generator, ",
        "torch.randn(shape, ",
    ),
    Breakage(
        "the last block forgotten",
        "src/ringfence/blocks.py",
        "for start in range(0, count, length):",
        "for start in range(0, max(count - length, 1), length):",
    ),
]


def reds(breakage: Breakage) -> int:
    """How many tests fail in a copy of the tree with this breakage in it."""
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
            [sys.executable, "-m", "pytest", "--tb=no", "-p", "no:cacheprovider", *OPTIONS],
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
