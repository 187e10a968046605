"""Figure 1 of the paper: what one coordinate leaks under each mechanism, against where it lies."""

from collections.abc import Iterable

import pandas as pd
import torch

from experiments.drawing import SIGMA, Drawn, curve
from ringfence.accounting.divergence_sums import both_directions
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.quantized import QuantizedGaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.truncated import TruncatedGaussian
from ringfence.report.chart import Chart, Line, Panel

# The paper's settings.
SIGMAS = {0.5: "½", 1.0: "1"}
BOUND, SENSITIVITY, ALPHA = 1.0, 1.0, 2.0
FARTHEST = 4.0


def motivation(points: int = 401) -> pd.DataFrame:
    """One row for every mechanism, sigma and theta: eta, the paper's one-sided divergence, the worst case."""
    theta = torch.linspace(-FARTHEST, FARTHEST, points, dtype=torch.float64)
    move = theta.new_tensor(SENSITIVITY), theta.new_tensor([ALPHA])
    rows = []
    for sigma in SIGMAS:
        laws: dict[str, Mechanism] = {
            "Gaussian": Gaussian(sigma),
            "rectified": RectifiedGaussian(sigma, BOUND),
            "truncated": TruncatedGaussian(sigma, BOUND),
            "sign": StochasticSign(sigma),
            "quantised, 5 levels": QuantizedGaussian(sigma, BOUND, 5),
        }
        for name, law in laws.items():
            columns = {
                "mechanism": name,
                "sigma": sigma,
                "theta": theta,
                "fisher_information_loss": law.fisher_information(theta).sqrt(),
                "renyi_one_sided": law.renyi_divergence(theta, SENSITIVITY, ALPHA),
                # both signs of the shift, both directions: the paper understates the loss (erratum A7)
                "renyi_worst": both_directions(law, theta, *move)[:, 0].amax(dim=0),
            }
            rows.append(pd.DataFrame(columns))
    return pd.concat(rows, ignore_index=True)


def draw_motivation(points: int = 401) -> Drawn:
    """Panels of the Fisher information loss for each sigma, then panels of the Rényi divergence."""
    rows = motivation(points)

    def panel(title: str, sigma: float, y_label: str, lines: Iterable[Line]) -> Panel:
        return Panel(
            title=f"{title}, {SIGMA} = {SIGMAS[sigma]}",
            x_label="θ",
            y_label=y_label,
            lines=tuple(lines),
            y_from_zero=True,
            shaded=(-BOUND, BOUND),
            shaded_name="support",
        )

    said_once = Line("paper's one-sided curve, D(θ‖θ+c) only", (), (), mechanism="any", dashed=True)
    information, divergence = [], []
    for sigma, own_sigma in rows.groupby("sigma"):
        laws = list(own_sigma.groupby("mechanism", sort=False))
        etas = [curve(name, own, "theta", "fisher_information_loss") for name, own in laws]
        information.append(panel("Fisher information loss", sigma, "η", etas))
        worst = [curve(name, own, "theta", "renyi_worst") for name, own in laws]
        one_sided = [
            curve(f"{name}, one-sided", own, "theta", "renyi_one_sided", dashed=True, in_legend=False)
            for name, own in laws
        ]
        y_label = f"ε at order {ALPHA:g}, sensitivity {SENSITIVITY:g}"
        divergence.append(panel("Per-instance RDP", sigma, y_label, [*worst, *one_sided, said_once]))
    chart = Chart(
        "motivation",
        "What each mechanism leaks",
        "What one coordinate leaks, against where it lies. The Gaussian leaks the same everywhere; with a "
        "bounded support far less leaves where theta is far outside. Solid: the true worst case over both "
        "signs of the shift and both directions. Dashed: the paper's one-sided curve, too low where they "
        "part.",
        (*information, *divergence),
    )
    return Drawn(chart, rows)
