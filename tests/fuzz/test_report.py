"""Reports: whatever a label says, it stays text."""

from base64 import b64decode
from typing import Any
from xml.etree import ElementTree

from hypothesis import strategies as st

from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.drawing import svg_address
from ringfence.report.page import Report, Section, Table, page
from tests.fuzz import strategies as fuzz
from tests.fuzz.properties import fuzzed
from tests.report.test_page import Tags

PIECES = ["<script>alert(1)</script>", "</script>", "<!--", "]]>", "$x^{", "{{ 7*7 }}", "{% raw %}"]
PIECES += ["&amp;", "\u2028", "<b>"]


@st.composite
def _texts(draw: Any) -> str:
    """Any text that can be written, often with what means something to a browser or to matplotlib."""
    characters = st.characters(exclude_categories=("Cs",), exclude_characters="\r\0")
    return draw(st.one_of(st.text(characters, max_size=8), st.sampled_from(PIECES))) + draw(
        st.text(characters, max_size=3)
    )


texts = _texts()
DRAWN = {"svg", "defs", "style", "clipPath", "g", "path", "rect", "use", "text", "tspan"}
DRAWN |= {"metadata", "RDF", "Work", "type", "date", "format", "creator", "Agent", "title"}
numbers = st.sampled_from(fuzz.FLOATS)


@fuzzed(
    *("report", 1, 6), text=texts, other=texts, x=st.lists(numbers, max_size=4), logarithmic=st.booleans()
)
def test_charts_hold_any_text_and_any_number(
    text: str, other: str, x: list[float], logarithmic: bool
) -> None:
    y = tuple(reversed(x))
    lines = (Line(text, tuple(x), y, low=y, high=y), Line(other, tuple(x), y, points=True, dashed=True))
    named = {"reference": 1.0, "reference_name": text, "shaded": (0.1, 1.0), "shaded_name": text}
    panel = Panel(other, text, other, lines, x_log=logarithmic, y_log=logarithmic, **named)
    drawing = b64decode(svg_address(Chart("name", text, other, (panel,))).partition(",")[2])
    shown = ElementTree.fromstring(drawing)
    assert {element.tag.rpartition("}")[2] for element in shown.iter()} <= DRAWN


PLAIN = [
    name
    for name, _ in Tags(page(Report("t", (Section("t", ("t",), (), (Table("t", ("t",), (("t",),)),)),)))).tags
]


@fuzzed("report", share=0.04, few=3, text=texts, cell=texts)
def test_a_page_has_the_same_tags_whatever_its_texts(text: str, cell: str) -> None:
    table = Table(text, (cell,), ((cell,),))
    shown = Tags(page(Report(text, (Section(text, (cell or "t",), (), (table,)),))))
    assert [name for name, _ in shown.tags] == PLAIN
