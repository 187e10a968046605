"""What all pictures share: one colour and one line a mechanism, PNG and PDF side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers; the markers serve in black and white.
_LOOKS = {
    "Gaussian": ("#000000", ""),
    "rectified": ("#0072B2", "o"),
    "truncated": ("#D55E00", "s"),
    "sign": ("#009E73", "^"),
    "quantised": ("#CC79A7", "D"),
}


def style(mechanism: str) -> dict[str, Any]:
    """Line properties for a mechanism, by the first word of its label."""
    color, marker = _LOOKS[mechanism.split(",")[0]]
    return {"color": color, "marker": marker, "markersize": 4}


def new_figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("figures need matplotlib: pip install 'ringfence[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """NAME.png and NAME.pdf in the folder, the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    figure.savefig(paths[0], dpi=200, metadata={"Software": None})
    figure.savefig(paths[1], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return paths
