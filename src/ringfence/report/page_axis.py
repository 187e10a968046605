"""An axis of a panel as plotly's layout has it."""

from typing import Any

from ringfence.report.chart import Panel
from ringfence.report.page_text import shown_lines
from ringfence.report.scales import MOST_TICKS, log_ticks, range_from_zero

INK, RULE = "#1a1a1a", "#e3e3e3"

Data = dict[str, Any]


def page_axis(panel: Panel, axis: str) -> Data:
    """The x or the y axis.

    >>> from ringfence.report.chart import Line
    >>> panel = Panel("", "x", "y", (Line("sign", (1.0, 2.0), (0.01, 10.0)),), y_log=True)
    >>> page_axis(panel, "x")["type"], page_axis(panel, "y")["ticktext"]
    ('linear', ['0.01', '0.1', '1', '10'])
    """
    log, label = (panel.x_log, panel.x_label) if axis == "x" else (panel.y_log, panel.y_label)
    layout: Data = {
        "title": {"text": shown_lines(label), "standoff": 8, "font": {"size": 13}},
        "type": "log" if log else "linear",
        "exponentformat": "power",
        "gridcolor": RULE,
        "linecolor": INK,
        "showline": True,
        "mirror": True,
        "ticks": "outside",
        "ticklen": 4,
        "zeroline": False,
        "nticks": MOST_TICKS,
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
