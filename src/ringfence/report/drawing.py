"""Draws charts with matplotlib: PNG and PDF files, and SVG for pages, one picture per panel."""

import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, replacing
from ringfence.report.chart import Chart, Line, Look, Panel, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_PANEL = (3.3, 3.6)  # width and height in inches, in a file
_ALONE, _BESIDE = (4.4, 3.3), (3.1, 2.9)  # on a page: a panel that is alone in its row, and one of several
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
    name = chart.name
    if name != Path(name).name or name in {"", ".", ".."}:
        raise ValueError(f"name must be a file name without a folder, got {name!r}")
    from matplotlib import rc_context

    texts = [text for panel in chart.panels for text in (panel.title, panel.y_label, *panel.x_names)]
    with rc_context({"font.family": _fonts([chart.title, *texts])}):
        figure = paper_figure(chart)
    folder.mkdir(parents=True, exist_ok=True)
    undated = {"png": ("Software",), "pdf": ("CreationDate", "Producer", "Creator")}
    paths = [folder / f"{name}.{kind}" for kind in kinds]
    for path, kind in zip(paths, kinds, strict=True):
        with replacing(path, mode=AS_THE_SYSTEM_SAYS) as file:
            figure.savefig(file, format=kind, dpi=200, metadata=dict.fromkeys(undated[kind]))
    return paths


def paper_figure(chart: Chart) -> "Figure":
    """Draws the panels in rows of ``columns``, with one legend below. Only a page has title and caption.

    >>> len(paper_figure(Chart("demo", "", "", (Panel("one", "x", "y", ()),))).axes)
    1
    """
    columns = max(1, min(chart.columns, len(chart.panels)))
    rows = math.ceil(len(chart.panels) / columns)
    width = max(4.6, _PANEL[0] * columns, columns * max(map(_named_width, chart.panels), default=0))
    figure = _figure(width, _PANEL[1] * rows + 0.4)
    axes = list(figure.subplots(max(1, rows), columns, squeeze=False).flat)
    found, handles = looks(chart), dict[str, Any]()
    for panel, place in zip(chart.panels, axes, strict=False):
        place.set_title(_label(panel.title, _TITLE), fontsize=11)
        handles |= _draw(place, panel, found)
    for place in axes[len(chart.panels) :]:
        place.set_axis_off()
    if handles:
        longest = _LEGEND * (0.6 * max(map(len, handles)) + 5)  # a letter is 0.6 of its height wide
        figure.legend(
            list(handles.values()),
            [_plain(name) for name in handles],
            loc="outside lower center",
            ncols=max(1, int(72 * width / longest)),
            frameon=False,
            fontsize=_LEGEND,
        )
    return figure


@dataclass(frozen=True)
class Drawing:
    """A chart on a page: pairs of a panel's title and its SVG, and of a name in the legend and its sample."""

    panels: tuple[tuple[str, str], ...]
    legend: tuple[tuple[str, str], ...]
    widest: int  # width of the widest panel in pixels


def page_drawing(chart: Chart, identifier: str) -> Drawing:
    """Draws each panel, and each sample of the legend, as an SVG of its own: a page wraps them as they fit.

    Text stays text. Every colour is a CSS variable with that colour as its default, so that a page can have
    others in the dark. ``identifier`` begins the names of all elements: no two charts of a page share one.

    >>> panel = Panel("one", "x", "y", (Line("Gaussian", (0.0, 1.0), (1.0, 2.0)),))
    >>> drawing = page_drawing(Chart("demo", "", "", (panel,)), "figure-1")
    >>> drawing.panels[0][1][:21], [name for name, _ in drawing.legend]
    ('<svg viewBox="0 0 316', ['Gaussian'])
    """
    found, panels, handles = looks(chart), [], dict[str, Any]()
    width, height = _ALONE if min(chart.columns, len(chart.panels)) == 1 else _BESIDE
    widths = [max(width, _named_width(panel)) for panel in chart.panels]
    for number, panel in enumerate(chart.panels, 1):
        figure = _figure(widths[number - 1], height)
        handles |= _draw(figure.subplots(), panel, found)
        names = ", ".join(dict.fromkeys(line.name for line in panel.lines))
        about = f"{panel.y_label} by {panel.x_label}: {names}. The numbers are in the tables below."
        drawn = _svg(figure, f"{identifier}-{number}", panel.title or chart.title, about)
        # The page has the title of the chart above it: a lone panel does not say it again.
        panels.append(("" if panel.title == chart.title else panel.title, drawn))
    samples = []
    for number, (name, handle) in enumerate(handles.items(), 1):
        figure = _figure(0.42, 0.2, layout=None)
        figure.legend([handle], [""], loc="center", frameon=False, borderpad=0, handletextpad=0, fontsize=9)
        samples.append((name, _svg(figure, f"{identifier}-legend-{number}")))
    return Drawing(tuple(panels), tuple(samples), math.ceil(72 * max(widths, default=0)))


def _figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError("figures need matplotlib: pip install 'ringfence[report]'") from None
    return Figure(figsize=(width, height), layout=layout)


def _named_width(panel: Panel) -> float:
    return 1 + _NAME * min(_MOST_NAMES, len(panel.x_names))


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


def _svg(figure: "Figure", identifier: str, title: str = "", description: str = "") -> str:
    """The figure as an SVG element for HTML: named where it has a title, else hidden from screen readers."""
    from matplotlib import rc_context

    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "ringfence"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # the browser has other fonts
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    parents = {child: parent for parent in root.iter() for child in parent}
    for element in list(root.iter()):
        element.tag = element.tag.rpartition("}")[2]
        if element.tag in {"metadata", "style"}:  # the page has its own style
            parents[element].remove(element)
        changed = {}
        for name, value in element.items():
            name = name.rpartition("}")[2]
            if name == "style":
                value = re.sub(r"#([0-9a-f]{6})", r"var(--color-\1, #\1)", value)
                value = re.sub(r"font-family: [^;]*(; )?", "", value)  # in the font of the page
                value = value.replace("url(#", f"url(#{identifier}-")  # of a hatching
            elif name == "id":
                if element.tag == "g":  # nothing refers to it
                    continue
                value = f"{identifier}-{value}"
            elif name in {"href", "clip-path"}:
                value = value.replace("#", f"#{identifier}-")
            changed[name] = value
        element.attrib.clear()
        element.attrib.update(changed)
    root.attrib = {"viewBox": root.attrib["viewBox"]}
    if title:
        width = float(root.attrib["viewBox"].split()[2])
        root.attrib |= {
            "role": "img",
            "aria-labelledby": f"{identifier}-title {identifier}-about",
            "style": f"min-width: {0.9 * width:.0f}px",  # letters stay legible: the panel scrolls
        }
        for place, (tag, text) in enumerate((("title", title), ("desc", description))):
            element = ElementTree.Element(tag, id=f"{identifier}-{'about' if place else 'title'}")
            element.text = _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)
            root.insert(place, element)
    else:
        root.attrib["aria-hidden"] = "true"
    return ElementTree.tostring(root, encoding="unicode")


def _draw(place: "Axes", panel: Panel, found: dict[str, Look]) -> dict[str, Any]:
    """Draws a panel with these looks, and returns what the legend shows, by name."""
    handles: dict[str, Any] = {}
    for order, line in enumerate(panel.lines):
        look = found[line.looks_like]
        handle = _bars(place, panel, line, look) if line.bars else _curve(place, panel, line, look, order)
        if line.in_legend:
            handles.setdefault(line.name, handle)
    if panel.shaded is not None:
        span = place.axvspan(*panel.shaded, color="#000000", alpha=0.06, linewidth=0)
        handles.setdefault(panel.shaded_name, span)
    if panel.reference is not None:
        level = place.axhline(panel.reference, color=_GRAY, linewidth=1.2, linestyle=":", zorder=1)
        handles.setdefault(panel.reference_name, level)
    _axes(place, panel)
    return {name: handle for name, handle in handles.items() if name}


def _fits(value: float, log: bool) -> bool:
    """Whether an axis, logarithmic or not, can hold the value."""
    return abs(value) <= _LARGEST and (value >= 1 / _LARGEST or not log)


def _drawn(panel: Panel, line: Line) -> tuple[list[float], list[float]]:
    """The points of the line; those that the axes cannot hold are NaN, which is a gap."""
    points = [
        (x, y) if _fits(x, panel.x_log) and _fits(y, panel.y_log) else (math.nan, math.nan)
        for x, y in zip(line.x, line.y, strict=True)
    ]
    return [x for x, _ in points], [y for _, y in points]


def _curve(place: "Axes", panel: Panel, line: Line, look: Look, order: int) -> Any:
    """Draws a line with its band, and returns what the legend shows; ``order`` staggers markers."""
    from matplotlib.lines import Line2D

    _band(place, panel, line, look)
    x, y = _drawn(panel, line)
    plain = line.dashed or not look.marker
    point: dict[str, Any] = {"marker": look.point if plain or line.points else look.marker, "markersize": 4}
    if line.points:
        (artist,) = place.plot(x, y, color=look.color, linestyle="", alpha=0.6, **point)
        return artist
    stroke: dict[str, Any] = {"linestyle": "--", "linewidth": 1.0} if line.dashed else {}
    gaps = [True, *map(math.isnan, y), True]
    marked = {i for i in range(len(y)) if gaps[i] and not gaps[i + 1] and gaps[i + 2]}  # no line shows them
    if not plain:
        step = len(y) // _MARKS if len(y) > 2 * _MARKS else 1
        marked |= {*range(order * step // 5, len(y), step)}
    (artist,) = place.plot(x, y, color=look.color, markevery=sorted(marked), **stroke, **point)
    # of a line without markers only a lone point has one: the legend shows none
    return Line2D([], [], color=look.color, **stroke) if plain else artist


def _band(place: "Axes", panel: Panel, line: Line, look: Look) -> None:
    """Draws the band around a line; an edge off the axis is cut where the values of the panel end."""
    if line.low is None or line.high is None:
        return
    columns = (column for each in panel.lines for column in (each.y, each.low or (), each.high or ()))
    values = [value for column in columns for value in column if _fits(value, panel.y_log)]
    bottom, top = min(values, default=1.0), max(values, default=1.0)
    x = [value if _fits(value, panel.x_log) else math.nan for value in line.x]
    low, high = ([min(max(end, bottom), top) for end in ends] for ends in (line.low, line.high))  # NaN stays
    place.fill_between(x, low, high, color=look.color, alpha=0.15, linewidth=0)


def _bars(place: "Axes", panel: Panel, line: Line, look: Look) -> Any:
    """Draws bars with whiskers, and returns what the legend shows."""
    from matplotlib.patches import Patch

    xs, ys = _drawn(panel, line)
    there = [row for row, y in enumerate(ys) if not math.isnan(y)]
    x, y = [xs[row] for row in there], [ys[row] for row in there]
    style: dict[str, Any] = {"color": look.color, "alpha": _BAR}
    if line.hatched:
        style = {"facecolor": "none", "edgecolor": look.color, "hatch": "////", "linewidth": 0.6}
    place.bar(x, y, width=0.8, **style)
    if line.low is not None and line.high is not None:
        below = [ys[row] - line.low[row] for row in there]
        above = [line.high[row] - ys[row] for row in there]
        place.errorbar(x, y, (below, above), fmt="none", ecolor="#1a1a1a", elinewidth=1.0, capsize=2.5)
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
    bars = [y for line in panel.lines if line.bars for y in line.y if _fits(y, panel.y_log)]
    if bars and not panel.y_log and all(y.is_integer() for y in bars):
        place.locator_params(axis="y", integer=True)
    if not panel.y_log and max(map(abs, place.get_ylim())) >= 1000:
        place.yaxis.set_major_formatter(lambda tick, _: f"{tick:,.10g}")
    if panel.x_names:
        every = math.ceil(len(panel.x_names) / _MOST_NAMES)
        names = [_plain(name) for name in panel.x_names[::every]]
        place.set_xticks(range(0, len(panel.x_names), every), names)
        place.set_xlim(-0.6, len(panel.x_names) - 0.4)
        place.tick_params(axis="x", labelsize=8)
        for label in place.get_xticklabels() if len("  ".join(names)) > _SHORT else ():
            label.set(rotation=40, ha="right", rotation_mode="anchor")
    if panel.y_names:
        place.set_yticks(range(len(panel.y_names)), [_plain(name) for name in panel.y_names])
        place.set_ylim(-0.5, len(panel.y_names) - 0.5)
    missing = sum(
        not (math.isnan(x) or math.isnan(y) or (_fits(x, panel.x_log) and _fits(y, panel.y_log)))
        for line in panel.lines
        for x, y in zip(line.x, line.y, strict=True)
    )
    if missing:
        text = f"not drawn: {missing} off the axes"
        place.text(0.98, 0.98, text, transform=place.transAxes, ha="right", va="top", fontsize=7, color=_GRAY)


def _log_axis(axis: "Axis", low: float, high: float) -> None:
    """Sets ticks at plain numbers, as many as have room."""
    from matplotlib.ticker import LogLocator, NullFormatter

    digits: tuple[float, ...] = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    if high > 5 * low:
        digits = (1,) if high > 150 * low else (1, 2, 5)
    axis.set_major_locator(LogLocator(subs=digits, numticks=7))
    axis.set_major_formatter(lambda tick, _: f"{tick:g}")
    axis.set_minor_formatter(NullFormatter())


def _label(text: str, width: int = _LABEL) -> str:
    """Breaks a text into lines that fit its panel; the two sides of an equals sign stay together."""
    together = text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return "\n".join(map(_plain, textwrap.wrap(together, width, break_long_words=False)))


def _plain(text: str) -> str:
    """A text that is drawn as it is: matplotlib reads what is between two dollar signs as mathematics."""
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text).replace("$", r"\$")
