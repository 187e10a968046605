"""Charts on a page: what plotly.js is given, as plain data without plotly's Python classes."""

import math
from typing import Any

from ringfence.report.axes import MOST_TICKS, log_ticks, range_from_zero
from ringfence.report.chart import Chart, Panel
from ringfence.report.curves import off_axes
from ringfence.report.looks import TITLE, wrapped
from ringfence.report.page.text import axis_name, shown_lines, shown_text
from ringfence.report.page.traces import page_traces

_GRAY, _INK, _RULE = "#777777", "#1a1a1a", "#e3e3e3"
_FONT = {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": _INK}
_NARROWEST = 250  # width in pixels of a panel with its axis
_MARGINS = {"r": 14, "t": 26}
_LINE = 17  # height in pixels of a line of text

Data = dict[str, Any]


def page_chart(chart: Chart) -> Data:
    """``data`` once, and a layout for each number of panels side by side: the page takes the one that fits.

    Text is escaped, since plotly reads some HTML in it. A gap is None, which JSON writes as null.

    >>> from ringfence.report.chart import Line
    >>> line = Line("<b>", (0.0, 1.0), (1.0, float("nan")))
    >>> drawn = page_chart(Chart("demo", "", "", (Panel("one", "x", "y", (line,)),)))
    >>> drawn["data"][0]["name"], drawn["data"][0]["y"], list(drawn["layouts"])
    ('&lt;b&gt;', [1.0, None], [1])
    """
    most = max(1, min(chart.columns, len(chart.panels)))
    traces = page_traces(chart)
    return {
        "data": traces,
        "layouts": {columns: _layout(chart, columns, traces) for columns in range(1, most + 1)},
        "narrowest": _NARROWEST,
        "widest": {1: 680, 2: 920}.get(most),  # a lone panel is not stretched over the whole page
    }


def _layout(chart: Chart, columns: int, traces: list[Data]) -> Data:
    rows = math.ceil(len(chart.panels) / columns)
    panel_height = 300 if columns == 1 else 270
    # The page has the title of the chart above it: a lone panel does not say it again.
    repeated = len(chart.panels) == 1 and chart.panels[0].title == chart.title
    headings = ["" if repeated else panel.title for panel in chart.panels]
    titles = max((len(wrapped(heading, TITLE)) * _LINE + 12 for heading in headings if heading), default=4)
    beside = max((len(wrapped(panel.y_label)) for panel in chart.panels), default=1) * _LINE - _LINE
    below = max((len(wrapped(panel.x_label)) for panel in chart.panels), default=1) * _LINE + 34
    below += max((5 * len(name) for panel in chart.panels for name in panel.x_names), default=0)
    inside = rows * (panel_height + titles) + (rows - 1) * below
    named_shapes = {name for panel in chart.panels for name in (panel.shaded_name, panel.reference_name)}
    names = [*(trace["name"] for trace in traces if trace["showlegend"]), *sorted(named_shapes - {""})]
    legend = _legend_height(names, max(320, columns * _NARROWEST))
    layout: Data = {
        "height": inside + below + legend + _MARGINS["t"],
        "margin": _MARGINS | {"l": 66 + beside, "b": below + legend},
        "font": _FONT,
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "hovermode": "closest",
        "barmode": "overlay",
        "hoverlabel": {"bgcolor": "#ffffff", "font": _FONT, "align": "left"},
        "legend": {
            "orientation": "h", "x": 0.5, "xanchor": "center", "y": -below / inside, "yanchor": "top",
            "itemwidth": 38, "traceorder": "normal",
        },
        "modebar": {"bgcolor": "rgba(255, 255, 255, 0)", "color": _GRAY, "activecolor": _INK},
        "annotations": [],
        "shapes": [],
    }  # fmt: skip
    gap = (0.26 + beside / _NARROWEST) / columns
    width = (1 - gap * (columns - 1)) / columns
    named: set[str] = set()
    for number, panel in enumerate(chart.panels):
        row, column = divmod(number, columns)
        left = column * (width + gap)
        top = 1 - (row * (panel_height + titles + below) + titles) / inside
        bottom = top - panel_height / inside
        layout[axis_name("xaxis", number)] = _axis(panel, "x") | {
            "domain": [left, min(1.0, left + width)],
            "anchor": axis_name("y", number),
        }
        layout[axis_name("yaxis", number)] = _axis(panel, "y") | {
            "domain": [max(0.0, bottom), top],
            "anchor": axis_name("x", number),
            "automargin": column == 0,  # room for long numbers beside the name of the axis
        }
        layout["annotations"] += _annotations(panel, number, headings[number])
        layout["shapes"] += _shapes(panel, number, named)
    return layout


def _axis(panel: Panel, axis: str) -> Data:
    """The x axis or the y axis of a panel."""
    log, label = (panel.x_log, panel.x_label) if axis == "x" else (panel.y_log, panel.y_label)
    layout: Data = {
        "title": {"text": shown_lines(label), "standoff": 8, "font": {"size": 13}},
        "type": "log" if log else "linear",
        "exponentformat": "power",
        "gridcolor": _RULE,
        "linecolor": _INK,
        "showline": True,
        "mirror": True,
        "ticks": "outside",
        "ticklen": 4,
        "zeroline": False,
        "nticks": MOST_TICKS,
    }
    if axis == "x" and panel.x_names:
        layout |= {
            "tickvals": list(range(len(panel.x_names))),
            "ticktext": [shown_text(name) for name in panel.x_names],
            "tickangle": -40,
            "range": [-0.6, len(panel.x_names) - 0.4],
        }
    if log:
        ticks = log_ticks(panel, axis)
        layout |= (
            {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
            if ticks
            else {"tickformat": ".3~g"}
        )
    elif axis == "y" and panel.y_from_zero:
        layout |= {"range": range_from_zero(panel)}
    return layout


def _annotations(panel: Panel, number: int, title: str) -> list[Data]:
    place = {
        "xref": f"{axis_name('x', number)} domain",
        "yref": f"{axis_name('y', number)} domain",
        "showarrow": False,
    }
    heading = {
        "text": shown_lines(title, TITLE),
        "x": 0.5,
        "y": 1.0,
        "yanchor": "bottom",
        "font": {"size": 14},
    }
    notes = [place | heading] if title else []
    missing = off_axes(panel)
    if missing:
        text = f"not drawn: {missing} off the axes"
        notes.append(place | {"text": text, "x": 0.98, "y": 0.98, "xanchor": "right", "yanchor": "top",
                              "font": {"size": 11, "color": _GRAY}})  # fmt: skip
    return notes


def _shapes(panel: Panel, number: int, named: set[str]) -> list[Data]:
    shapes: list[Data] = []
    if panel.shaded is not None:
        start, end = panel.shaded
        shapes.append({
            "type": "rect", "xref": axis_name("x", number), "x0": start, "x1": end,
            "yref": f"{axis_name('y', number)} domain", "y0": 0, "y1": 1,
            "fillcolor": "rgba(0, 0, 0, 0.07)", "line": {"width": 0}, "layer": "below",
        } | _in_legend(panel.shaded_name, named))  # fmt: skip
    if panel.reference is not None:
        shapes.append({
            "type": "line", "xref": f"{axis_name('x', number)} domain", "x0": 0, "x1": 1,
            "yref": axis_name("y", number), "y0": panel.reference, "y1": panel.reference,
            "line": {"color": _GRAY, "width": 1.5, "dash": "dot"}, "layer": "below",
        } | _in_legend(panel.reference_name, named))  # fmt: skip
    return shapes


def _in_legend(name: str, named: set[str]) -> Data:
    shown = bool(name) and name not in named
    named.add(name)
    return {"name": shown_text(name), "legendgroup": name, "showlegend": shown}


def _legend_height(names: list[str], width: float) -> float:
    """The height of the legend if its lines have this width: a letter takes 7 pixels, a handle 58."""
    lines, used = 1, 0.0
    for name in names:
        used += 7 * len(name) + 58
        if used > width:
            lines, used = lines + 1, 7.0 * len(name) + 58
    return 20 * lines + 12
