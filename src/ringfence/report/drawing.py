"""Draws charts with matplotlib: PNG and PDF files, and SVG for pages."""

import io
import math
import re
import textwrap
import warnings
from base64 import b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.report.chart import Chart, Line, Look, Panel, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Points = NDArray[np.float64]

_PANEL = (3.3, 3.6)  # width and height in inches
_LEAST = 4.6  # inches of a chart in a file, so that its legend has room
_PHONE, _ABREAST = 3.5, 3  # inches that a phone shows, and panels that stand side by side on a page
_NAME, _MOST_NAMES = 0.2, 40  # inches of the x axis that a name needs, and how many names stand there
_SHORT = 40  # letters of all names that fit side by side
_LEGEND = 9  # height of its letters in points
_TITLE, _LABEL = 30, 36  # how many characters of a line fit above a panel, and how many beside it
_LARGEST = 1e100  # beyond it, and below 1 / it on a log axis, matplotlib's arithmetic of axes overflows
_MARKS = 8  # about how many markers a long curve carries
_GRAY = "#777777"
_BAR = 0.75  # opacity of bars
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # in XML


def save_chart(chart: Chart, folder: Path, kinds: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Writes NAME.png and NAME.pdf of a chart, the same bytes each time, to a folder that is made if missing.

    >>> from tempfile import TemporaryDirectory
    >>> panel = Panel("one", "x", "y", (Line("Gaussian", (0.0, 1.0), (1.0, 2.0)),))
    >>> with TemporaryDirectory() as folder:
    ...     files = save_chart(Chart("demo", "A demonstration", "", (panel,)), Path(folder))
    >>> [file.name for file in files]
    ['demo.png', 'demo.pdf']
    """
    from matplotlib import rc_context

    texts = [text for panel in chart.panels for text in (panel.title, panel.y_label, *panel.x_names)]
    with rc_context({"font.family": _fonts([chart.title, *texts])}):
        figure = paper_figure(chart)
    folder.mkdir(parents=True, exist_ok=True)
    undated = {"png": ("Software",), "pdf": ("CreationDate", "Producer", "Creator")}
    paths = [folder / f"{chart.name}.{kind}" for kind in kinds]
    for path, kind in zip(paths, kinds, strict=True):
        with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
            figure.savefig(file, format=kind, dpi=200, metadata=dict.fromkeys(undated[kind]))
    return paths


def svg_address(chart: Chart, phone: bool = False) -> str:
    """A data URL of the chart as SVG, whose text is text; for a ``phone`` panels stand below each other.

    >>> panel = Panel("one", "x", "y", (Line("Gaussian", (0.0, 1.0), (1.0, 2.0)),))
    >>> svg_address(Chart("demo", "A demonstration", "", (panel,)))[:30]
    'data:image/svg+xml;base64,PD94'
    """
    from matplotlib import rc_context

    figure = paper_figure(chart, 1, _PHONE) if phone else paper_figure(chart, min(_ABREAST, chart.columns))
    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "ringfence"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # the browser has other fonts
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return f"data:image/svg+xml;base64,{b64encode(file.getvalue()).decode()}"


def paper_figure(chart: Chart, columns: int | None = None, least: float = _LEAST) -> "Figure":
    """Draws the panels in rows of ``columns``, with one legend below, ``least`` inches wide.

    Only a page has title and caption.

    >>> len(paper_figure(Chart("demo", "", "", (Panel("one", "x", "y", ()),))).axes)
    1
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("figures need matplotlib: pip install 'ringfence[report]'") from None
    columns = max(1, min(columns or chart.columns, len(chart.panels)))
    rows = max(1, math.ceil(len(chart.panels) / columns))
    named = max((1 + _NAME * min(_MOST_NAMES, len(panel.x_names)) for panel in chart.panels), default=0)
    width = max(least, columns * max(_PANEL[0], named))
    figure = Figure(figsize=(width, _PANEL[1] * rows + 0.4), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    found, handles = looks(chart), dict[str, Any]()
    for panel, place in zip(chart.panels, axes, strict=False):
        place.set_title(_label(panel.title, _TITLE), fontsize=11)
        handles |= _draw(place, panel, found)
    for place in axes[len(chart.panels) :]:
        place.set_axis_off()
    if handles:
        letters = int(72 * width / (0.6 * _LEGEND)) - 5  # a letter is 0.6 of its height wide
        names = [_label(name, letters) for name in handles]
        longest = max(len(line) for name in names for line in name.split("\n"))
        figure.legend(
            list(handles.values()),
            names,
            loc="outside lower center",
            ncols=max(1, (letters + 5) // (longest + 5)),
            frameon=False,
            fontsize=_LEGEND,
        )
    return figure


def _fonts(texts: Iterable[str]) -> list[str]:
    """The families that draw these texts: matplotlib's own, and of those installed what it lacks.

    >>> _fonts(["North", "Zürich"])
    ['DejaVu Sans']
    """
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    families = ["DejaVu Sans"]
    left = {ord(letter) for text in texts for letter in text if letter.isprintable()}
    left -= get_font(findfont(FontProperties(family=families))).get_charmap().keys()
    for entry in fontManager.ttflist if left else ():
        if entry.style == "normal" and entry.name not in families:
            found = left & get_font(entry.fname).get_charmap().keys()
            if found:
                families.append(entry.name)
                left -= found
            if not left:
                break
    return families


def _draw(place: "Axes", panel: Panel, found: dict[str, Look]) -> dict[str, Any]:
    """Draws a panel with these looks, and returns what the legend shows, by name."""
    handles: dict[str, Any] = {}
    missing = 0
    for order, line in enumerate(panel.lines):
        x, y = _on_axis(line.x, panel.x_log), _on_axis(line.y, panel.y_log)
        gap = np.isnan(x) | np.isnan(y)
        missing += int(np.sum(gap & ~np.isnan(line.x) & ~np.isnan(line.y)))
        own = (line, found[line.looks_like], np.where(gap, math.nan, (x, y)))
        handle = _bars(place, *own) if line.bars else _curve(place, *own, panel, order)
        if line.in_legend:
            handles.setdefault(line.name, handle)
    if panel.shaded is not None:
        span = place.axvspan(*panel.shaded, color="#000000", alpha=0.06, linewidth=0)
        handles.setdefault(panel.shaded_name, span)
    if panel.reference is not None:
        level = place.axhline(panel.reference, color=_GRAY, linewidth=1.2, linestyle=":", zorder=1)
        handles.setdefault(panel.reference_name, level)
    _axes(place, panel)
    if missing:
        text = f"not drawn: {missing} off the axes"
        place.text(0.98, 0.98, text, transform=place.transAxes, ha="right", va="top", fontsize=7, color=_GRAY)
    return {name: handle for name, handle in handles.items() if name}


def _on_axis(values: Sequence[float], log: bool) -> Points:
    """The values, NaN where an axis, logarithmic or not, cannot hold one: a gap."""
    found = np.array(values, dtype=np.float64)
    fits = (np.abs(found) <= _LARGEST) & ((found >= 1 / _LARGEST) | (not log))
    return np.where(fits, found, math.nan)


def _curve(place: "Axes", line: Line, look: Look, points: Points, panel: Panel, order: int) -> Any:
    """Draws a line with its band, and returns what the legend shows; ``order`` staggers markers."""
    from matplotlib.lines import Line2D

    x, y = points
    if line.low is not None and line.high is not None:  # an edge off the axis is cut where values end
        columns = (column for each in panel.lines for column in (each.y, each.low or (), each.high or ()))
        values = _on_axis([value for column in columns for value in column], panel.y_log)
        values = values[~np.isnan(values)] if np.isfinite(values).any() else np.ones(1)
        low, high = (np.clip(end, values.min(), values.max()) for end in (line.low, line.high))
        across = _on_axis(line.x, panel.x_log)
        place.fill_between(across, low, high, color=look.color, alpha=0.15, linewidth=0)
    plain = line.dashed or not look.marker
    point: dict[str, Any] = {"marker": look.point if plain or line.points else look.marker, "markersize": 4}
    if line.points:
        (artist,) = place.plot(x, y, color=look.color, linestyle="", alpha=0.6, **point)
        return artist
    stroke: dict[str, Any] = {"linestyle": "--", "linewidth": 1.0} if line.dashed else {}
    gaps = np.concatenate(([True], np.isnan(y), [True]))
    marked = set(np.flatnonzero(gaps[:-2] & ~gaps[1:-1] & gaps[2:]).tolist())  # no line shows them
    if not plain:
        step = len(y) // _MARKS if len(y) > 2 * _MARKS else 1
        marked |= {*range(order * step // 5, len(y), step)}
    (artist,) = place.plot(x, y, color=look.color, markevery=sorted(marked), **stroke, **point)
    # of a line without markers only a lone point has one: the legend shows none
    return Line2D([], [], color=look.color, **stroke) if plain else artist


def _bars(place: "Axes", line: Line, look: Look, points: Points) -> Any:
    """Draws bars with whiskers, and returns what the legend shows."""
    from matplotlib.patches import Patch

    style: dict[str, Any] = {"color": look.color, "alpha": _BAR}
    if line.dashed:
        style = {"facecolor": "none", "edgecolor": look.color, "hatch": "////", "linewidth": 0.6}
    x, y = points
    there = ~np.isnan(y)
    place.bar(x[there], y[there], width=0.8, **style)
    if line.low is not None and line.high is not None:
        ends = np.array([y - line.low, line.high - y])[:, there]
        place.errorbar(x[there], y[there], ends, fmt="none", ecolor="#1a1a1a", elinewidth=1.0, capsize=2.5)
    return Patch(**style)


def _axes(place: "Axes", panel: Panel) -> None:
    place.set_xlabel(_label(panel.x_label))
    place.set_ylabel(_label(panel.y_label))
    place.grid(alpha=0.25, linewidth=0.6)
    if panel.x_log:
        place.set_xscale("log")
        _log_axis(place.xaxis, *place.get_xlim())
    if panel.y_log:
        place.set_yscale("log")
        _log_axis(place.yaxis, *place.get_ylim())
    elif panel.y_from_zero:
        ends = [end for end in (*place.dataLim.intervaly, *panel.y_also, 0.0) if math.isfinite(end)]
        if min(ends) < max(ends):
            place.set_ylim(1.05 * min(ends), 1.05 * max(ends))
    bars = _on_axis([y for line in panel.lines if line.bars for y in line.y], panel.y_log)
    bars = bars[~np.isnan(bars)]
    if bars.size and not panel.y_log and (bars == bars.round()).all():
        place.locator_params(axis="y", integer=True)
    if not panel.y_log and max(map(abs, place.get_ylim())) >= 1000:
        place.yaxis.set_major_formatter("{x:,.10g}")
    if panel.x_names:
        every = math.ceil(len(panel.x_names) / _MOST_NAMES)
        names = [_plain(name) for name in panel.x_names[::every]]
        place.set_xticks(range(0, len(panel.x_names), every), names)
        place.set_xlim(-0.6, len(panel.x_names) - 0.4)
        place.tick_params(axis="x", labelsize=8)
        for label in place.get_xticklabels() if len("  ".join(names)) > _SHORT else ():
            label.set(rotation=40, ha="right", rotation_mode="anchor")


def _log_axis(axis: "Axis", low: float, high: float) -> None:
    """Sets ticks at plain numbers, as many as have room."""
    from matplotlib.ticker import LogLocator, NullFormatter

    digits: tuple[float, ...] = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    if high > 5 * low:
        digits = (1,) if high > 150 * low else (1, 2, 5)
    axis.set_major_locator(LogLocator(subs=digits, numticks=7))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _label(text: str, width: int = _LABEL) -> str:
    """Breaks a text into lines that fit its panel; the two sides of an equals sign stay together."""
    together = text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return "\n".join(map(_plain, textwrap.wrap(together, width, break_long_words=False)))


def _plain(text: str) -> str:
    """A text that is drawn as it is: matplotlib reads what is between two dollar signs as mathematics."""
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text).replace("$", r"\$")
