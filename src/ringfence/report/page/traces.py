"""The curves of a chart as plotly's traces."""

import math
from typing import Any

from ringfence.mechanisms.law import Look
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.curves import band, curve
from ringfence.report.looks import looks, looks_by
from ringfence.report.page.text import axis_name, shown_text

_SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "x": "x-thin", ".": "circle",
    "v": "triangle-down", "P": "cross", "X": "x", "<": "triangle-left", ">": "triangle-right",
}  # fmt: skip

Data = dict[str, Any]


def page_traces(chart: Chart) -> list[Data]:
    """The bands, then the lines above them, then one entry of the legend per name: a sample without data.

    >>> chart = Chart("", "", "", (Panel("", "x", "y", (Line("sign", (1.0, 2.0), (3.0, 4.0)),)),))
    >>> [(trace["name"], trace["showlegend"], trace["y"]) for trace in page_traces(chart)]
    [('sign', False, [3.0, 4.0]), ('sign', True, [None])]
    """
    by_name, groups = looks(chart), _groups(chart)
    bands, lines, entries = [], [], {}
    for number, panel in enumerate(chart.panels):
        for order, line in enumerate(panel.lines):
            look = by_name[looks_by(line)]
            group = line.name if line.in_legend else groups.get(looks_by(line), line.name)
            place = {
                "type": "scatter",
                "xaxis": axis_name("x", number),
                "yaxis": axis_name("y", number),
                "legendgroup": group,
                "name": shown_text(line.name),
                "showlegend": False,
            }
            if line.bars:
                lines.append(place | _bars(panel, line, look, order))
                if line.in_legend and line.name not in entries:
                    sample = {"type": "bar", "x": [None], "y": [None], "marker": _filled(look)}
                    entries[line.name] = place | sample | {"showlegend": True}
                continue
            if line.low is not None:
                bands.append(place | _band(panel, line, look))
            if line.x:
                lines.append(place | _trace(panel, line, look, order))
            if line.in_legend and line.name not in entries:
                entries[line.name] = place | _entry(line, look) | {"showlegend": True}
    return [*bands, *lines, *entries.values()]


def _groups(chart: Chart) -> dict[str, str]:
    """Which legend entry switches the lines that have none of their own: the first entry of the same look."""
    groups: dict[str, str] = {}
    for panel in chart.panels:
        for line in panel.lines:
            if line.in_legend:
                groups.setdefault(looks_by(line), line.name)
    return groups


def _trace(panel: Panel, line: Line, look: Look, order: int) -> Data:
    drawn = curve(panel, line, order)
    marked = set(
        range(len(drawn.x)) if line.points else drawn.isolated if _plain(line, look) else drawn.marked
    )
    trace: Data = {
        "x": _gaps(drawn.x),
        "y": _gaps(drawn.y),
        "mode": "markers" if line.points else "lines+markers" if marked else "lines",
        "line": _stroke(line, look),
        "hovertemplate": (
            f"<b>{shown_text(line.name)}</b><br>{shown_text(panel.x_label)}: %{{x:.5g}}"
            f"<br>{shown_text(panel.y_label)}: %{{y:.5g}}"
        ),
    }
    if marked:
        trace["marker"] = _marker(line, look) | {
            "size": [7 if i in marked else 0 for i in range(len(drawn.x))]
        }
    if line.low is not None and line.high is not None:
        trace["customdata"] = [list(pair) for pair in zip(_gaps(line.low), _gaps(line.high), strict=True)]
        trace["hovertemplate"] += "<br>%{customdata[0]:.5g} to %{customdata[1]:.5g}"
    trace["hovertemplate"] += "<extra></extra>"
    return trace


def _bars(panel: Panel, line: Line, look: Look, order: int) -> Data:
    drawn = curve(panel, line, order)
    names = [shown_text(name) for name in panel.x_names] or [f"{x:g}" for x in drawn.x]
    trace: Data = {
        "type": "bar",
        "x": _gaps(drawn.x),
        "y": _gaps(drawn.y),
        "marker": _filled(look),
        "customdata": names,
        "hovertemplate": f"<b>%{{customdata}}</b><br>{shown_text(line.name)}: %{{y:.6g}}<extra></extra>",
    }
    if line.low is not None and line.high is not None:
        rows = list(zip(drawn.y, line.low, line.high, strict=True))
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": _gaps(tuple(high - y for y, _, high in rows)),
            "arrayminus": _gaps(tuple(y - low for y, low, _ in rows)),
            "color": "#1a1a1a",
            "thickness": 1.2,
            "width": 3,
        }
    return trace


def _filled(look: Look) -> Data:
    return {"color": look.color, "opacity": 0.75}


def _entry(line: Line, look: Look) -> Data:
    """What the legend shows: plotly makes no entry for a trace without points or with many sizes."""
    unmarked = _plain(line, look) and not line.points
    return {
        "x": [None],
        "y": [None],
        "mode": "lines" if unmarked else "markers" if line.points else "lines+markers",
        "line": _stroke(line, look),
        "marker": _marker(line, look) | {"size": 7},
    }


def _plain(line: Line, look: Look) -> bool:
    """Whether the line carries no markers between its ends."""
    return line.dashed or not look.marker


def _stroke(line: Line, look: Look) -> Data:
    return (
        {"color": look.color, "width": 1.5, "dash": "5px,3px"}
        if line.dashed
        else {"color": look.color, "width": 2}
    )


def _marker(line: Line, look: Look) -> Data:
    symbol = _SYMBOLS[look.point if _plain(line, look) else look.marker]
    return {
        "color": look.color,
        "symbol": symbol,
        "opacity": 0.65 if line.points else 1,
        "line": {"color": look.color, "width": 1.5 if symbol.endswith("thin") else 0},
    }


def _band(panel: Panel, line: Line, look: Look) -> Data:
    """A closed outline per stretch: plotly's own fill between two lines would run across gaps."""
    x: list[float | None] = []
    y: list[float | None] = []
    for stretch in band(panel, line):
        x += [*_gaps((*stretch.x, *reversed(stretch.x))), None]
        y += [*_gaps((*stretch.low, *reversed(stretch.high))), None]
    return {
        "x": x, "y": y, "mode": "lines", "line": {"width": 0}, "fill": "toself",
        "fillcolor": _faint(look.color), "hoverinfo": "skip",
    }  # fmt: skip


def _gaps(values: tuple[float, ...]) -> list[float | None]:
    """Six digits, which no eye can tell from more; None, which JSON writes as null, where not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def _faint(color: str) -> str:
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.15)"
