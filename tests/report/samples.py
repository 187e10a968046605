"""Charts and reports that use everything there is to use."""

import math

from experiments.drawing import flat
from ringfence.report.chart import Chart, Line, Panel, looks
from ringfence.report.page import Report, Section, Table

HOSTILE = "<script>alert(1)</script>"
X = (0.01, 0.1, 1.0, 10.0)


def assert_readable(chart: Chart) -> None:
    """A caption of at most 60 words, every style in the legend once, and no panel flat on its gray line."""
    assert len(chart.caption.split()) <= 60, chart.caption
    found = looks(chart)
    lines = [line for panel in chart.panels for line in panel.lines if line.in_legend]
    named = {((found[line.looks_like], line.dashed, line.points, line.bars), line.name) for line in lines}
    assert len({style for style, _ in named}) == len({name for _, name in named}) == len(named), named
    assert not any(flat(panel) for panel in chart.panels)


def everything() -> Chart:
    """Log axes, bands, gaps, values off the axes, points, dashes, empty lines, a reference, shading."""
    logarithmic = Panel(
        "log axes",
        "epsilon",
        "chance of error",
        (
            Line("Gaussian", X, (0.5, math.nan, 0.1, 0.01)),  # its first point stands alone
            Line(
                "rectified", X, (0.4, 0.2, 0.1, 0.0), low=(0.3, 0.1, 0.0, 0.0), high=(0.5, 0.3, math.inf, 0.1)
            ),
            Line("truncated", X, (0.3, 0.2, math.inf, 0.01), dashed=True),
            Line("sign", (), ()),
        ),
        x_log=True,
        y_log=True,
        reference=0.5,
        reference_name="a coin",
        shaded=(0.1, 1.0),
        shaded_name="usual epsilons",
    )
    linear = Panel(
        "linear axes, with a title that takes more than one line",
        "x",
        "y",
        (
            Line("quantised, 5 levels", (1.0, 2.0, 3.0), (1.0, 2.0, 1.5), points=True),
            Line("cells, empty", tuple(map(float, range(40))), tuple(math.sin(k) for k in range(40))),
            Line("rectified, again", (1.0, 2.0), (2.0, 1.0), in_legend=False, dashed=True),
            Line("Gaussian", (1.0, 2.0), (2.0, 2.0)),
        ),
        y_from_zero=True,
        shaded=(1.0, 2.0),
        shaded_name="usual epsilons",
    )
    return Chart("everything", "Everything", "All there is.", (logarithmic, linear, linear), 2, "And more.")


def hostile_chart(name: str = "hostile") -> Chart:
    line = Line(HOSTILE, (0.0, 1.0), (1.0, 2.0), low=(0.0, 1.0), high=(2.0, 3.0))
    panel = Panel(HOSTILE, HOSTILE, HOSTILE, (line,), reference=1.0, reference_name=HOSTILE,
                  shaded=(0.0, 1.0), shaded_name="%{x} " + HOSTILE)  # fmt: skip
    return Chart(name, HOSTILE, HOSTILE, (panel,))


def hostile_report() -> Report:
    table = Table(HOSTILE, (HOSTILE,), ((HOSTILE,),))
    pairs = ((HOSTILE, HOSTILE),)
    section = Section(HOSTILE, (HOSTILE,), (hostile_chart(HOSTILE),), (table,))
    return Report(HOSTILE, (section,), (HOSTILE,), pairs, pairs)


def full_report() -> Report:
    panel = Panel("one", "epsilon", "examples", (Line("sign", (0.5, 2.0), (1.0, 0.0)),))
    few = Chart("few", "Few", "", (panel,), details="More.")
    table = Table("Epsilon at equal accuracy", ("accuracy", "Gaussian"), (("80%", "1.5"),))
    return Report(
        "A report",
        (
            Section("Figures", ("Some text.",), (everything(), Chart("one", "One", "", (panel,))), (table,)),
            Section("What is promised", ("Nothing.\n\nAlmost.",), (few,), (), "In a line.", folded=True),
        ),
        ("What was run.",),
        (("data", "digits"),),
        (("Python", "3"),),
        "Do not publish this file.",
    )


def bars() -> Chart:
    """Bars with whiskers and names, one of them hidden, and a y axis that reaches farther than they do."""
    whole, nothing = math.nan, (math.nan,) * 2
    shown = Line("count", (0.0, 1.0, 2.0), (3.0, 5.0, whole), (2.0, 4.0, whole), (4.5, 6.0, whole), bars=True)
    hidden = Line("below 2", (0.0, 1.0, 2.0), (*nothing, 2.0), mechanism="any", dashed=True, bars=True)
    panel = Panel(
        "", "cell", "n", (shown, hidden), y_from_zero=True, y_also=(40.0,), x_names=("a $", "<b>", "c")
    )
    return Chart("bars", "Bars", "", (panel,))
