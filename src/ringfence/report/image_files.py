"""Charts as image files: matplotlib draws them to PNG and PDF."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.mechanisms.law import Look
from ringfence.report.axes import log_ticks, range_from_zero
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.content import Report, publishable_part
from ringfence.report.curves import Curve, band, curve, off_axes
from ringfence.report.looks import LABEL, TITLE, looks, looks_by, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_PANEL = (3.3, 3.6)  # width and height in inches
_LEGEND = 9  # height of its letters in points
_GRAY = "#777777"
_BAR = 0.75  # opacity of bars


def save_chart(chart: Chart, folder: Path) -> list[Path]:
    """Writes NAME.png and NAME.pdf of a chart, the same bytes each time, to a folder that is made if missing.

    >>> from tempfile import TemporaryDirectory
    >>> from ringfence.report.chart import Line
    >>> panel = Panel("one", "x", "y", (Line("Gaussian", (0.0, 1.0), (1.0, 2.0)),))
    >>> with TemporaryDirectory() as folder:
    ...     files = save_chart(Chart("demo", "A demonstration", "", (panel,)), Path(folder))
    >>> [file.name for file in files]
    ['demo.png', 'demo.pdf']
    """
    name = chart.name
    if name != Path(name).name or name in {"", ".", ".."}:
        raise ValueError(f"name must be a file name without a folder, got {name!r}")
    figure = paper_figure(chart)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    for path, undated in zip(paths, (("Software",), ("CreationDate", "Producer", "Creator")), strict=True):
        with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
            figure.savefig(file, format=path.suffix[1:], dpi=200, metadata=dict.fromkeys(undated))
    return paths


def save_charts(report: Report, folder: Path, publishable: bool = False) -> list[Path]:
    """Saves each chart of the report as PNG and PDF; ``publishable`` leaves out the sensitive charts.

    >>> save_charts(Report("No charts", ()), Path("unused"))
    []
    """
    shown = publishable_part(report) if publishable else report
    charts = [chart for section in shown.sections for chart in section.charts]
    names = [chart.name for chart in charts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"charts of a report must have different names, got twice: {', '.join(twice)}")
    return [path for chart in charts for path in save_chart(chart, folder)]


def paper_figure(chart: Chart) -> "Figure":
    """Draws the panels in rows of ``columns``, with one legend below. Only a page has title and caption.

    >>> len(paper_figure(Chart("demo", "", "", (Panel("one", "x", "y", ()),))).axes)
    1
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("figures need matplotlib: pip install 'ringfence[plots]'") from None
    columns = max(1, min(chart.columns, len(chart.panels)))
    rows = math.ceil(len(chart.panels) / columns)
    width = max(4.6, _PANEL[0] * columns)
    figure = Figure(figsize=(width, _PANEL[1] * rows + 0.4), layout="constrained")
    axes = list(figure.subplots(max(1, rows), columns, squeeze=False).flat)
    by_name = looks(chart)
    legend: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    for panel, place in zip(chart.panels, axes, strict=False):
        _draw(place, panel, by_name, legend, shapes)
    for place in axes[len(chart.panels) :]:
        place.set_axis_off()
    legend |= shapes  # shapes come last, as on the page
    if legend:
        figure.legend(
            list(legend.values()),
            [_plain(name) for name in legend],
            loc="outside lower center",
            ncols=_legend_columns(list(legend), width),
            frameon=False,
            fontsize=_LEGEND,
        )
    return figure


def _draw(
    place: "Axes", panel: Panel, by_name: dict[str, Look], legend: dict[str, Any], shapes: dict[str, Any]
) -> None:
    for order, line in enumerate(panel.lines):
        look, drawn = by_name[looks_by(line)], curve(panel, line, order)
        if line.bars:
            legend.setdefault(line.name, _bars(place, line, drawn, look))
            continue
        for stretch in band(panel, line):
            place.fill_between(
                stretch.x, stretch.low, stretch.high, color=look.color, alpha=0.15, linewidth=0
            )
        plain = line.dashed or not look.marker
        properties: dict[str, Any] = {
            "color": look.color,
            "marker": look.point if plain or line.points else look.marker,
            "markersize": 4,
        }
        if line.points:
            properties.update(linestyle="", alpha=0.6)
        else:
            properties["markevery"] = list(drawn.isolated if plain else drawn.marked)
            if line.dashed:
                properties.update(linestyle="--", linewidth=1.0)
        (artist,) = place.plot(drawn.x, drawn.y, **properties)
        if line.in_legend:
            legend.setdefault(line.name, _legend_handle(artist, plain and not line.points))
    if panel.shaded is not None:
        span = place.axvspan(*panel.shaded, color="#000000", alpha=0.06, linewidth=0)
        if panel.shaded_name:
            shapes.setdefault(panel.shaded_name, span)
    if panel.reference is not None:
        level = place.axhline(panel.reference, color=_GRAY, linewidth=1.2, linestyle=":", zorder=1)
        if panel.reference_name:
            shapes.setdefault(panel.reference_name, level)
    _axes(place, panel)


def _bars(place: "Axes", line: Line, drawn: Curve, look: Look) -> Any:
    """Draws bars with whiskers, and returns what the legend shows."""
    from matplotlib.patches import Patch

    there = [row for row, y in enumerate(drawn.y) if not math.isnan(y)]
    x, y = [drawn.x[row] for row in there], [drawn.y[row] for row in there]
    place.bar(x, y, color=look.color, alpha=_BAR, width=0.8)
    if line.low is not None and line.high is not None:
        below = [drawn.y[row] - line.low[row] for row in there]
        above = [line.high[row] - drawn.y[row] for row in there]
        place.errorbar(x, y, (below, above), fmt="none", ecolor="#1a1a1a", elinewidth=1.0, capsize=2.5)
    return Patch(color=look.color, alpha=_BAR)


def _legend_handle(artist: Any, plain: bool) -> Any:
    """The legend shows a line without markers without one, though a lone point of that line has a marker."""
    if not plain:
        return artist
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=artist.get_color(), linestyle=artist.get_linestyle(), linewidth=artist.get_linewidth()
    )


def _axes(place: "Axes", panel: Panel) -> None:
    place.set_title(_label(panel.title, TITLE), fontsize=11)
    place.set_xlabel(_label(panel.x_label))
    place.set_ylabel(_label(panel.y_label))
    place.grid(alpha=0.25, linewidth=0.6)
    if panel.x_log:
        place.set_xscale("log")
        _log_axis(place.xaxis, log_ticks(panel, "x"))
    if panel.y_log:
        place.set_yscale("log")
        _log_axis(place.yaxis, log_ticks(panel, "y"))
    elif panel.y_from_zero:
        place.set_ylim(range_from_zero(panel))
    if panel.x_names:
        place.set_xticks(range(len(panel.x_names)), [_plain(name) for name in panel.x_names])
        place.set_xlim(-0.6, len(panel.x_names) - 0.4)
        place.tick_params(axis="x", labelsize=8)
        for label in place.get_xticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")
    missing = off_axes(panel)
    if missing:
        text = f"not drawn: {missing} off the axes"
        place.text(0.98, 0.98, text, transform=place.transAxes, ha="right", va="top", fontsize=7, color=_GRAY)


def _log_axis(axis: "Axis", ticks: list[float]) -> None:
    from matplotlib.ticker import FixedLocator, NullFormatter

    if ticks:
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(lambda tick, _: f"{tick:g}")
        axis.set_minor_formatter(NullFormatter())


def _label(text: str, width: int = LABEL) -> str:
    return "\n".join(_plain(line) for line in wrapped(text, width))


def _plain(text: str) -> str:
    """Escapes dollar signs: matplotlib would read what is between two of them as mathematics."""
    return text.replace("$", r"\$")


def _legend_columns(names: list[str], width: float) -> int:
    """How many columns fit in ``width`` inches: a letter is 0.6 of its height wide, a handle 5."""
    for columns in range(len(names), 1, -1):
        rows, longer = divmod(len(names), columns)
        sizes = [rows + 1] * longer + [rows] * (columns - longer)  # how matplotlib distributes the entries
        left = iter(names)
        longest = [max(len(next(left)) for _ in range(size)) for size in sizes]
        if sum(_LEGEND * (0.6 * letters + 5) for letters in longest) <= 72 * width:
            return columns
    return 1
