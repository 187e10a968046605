"""The page, read with the standard library's parser; in a browser: test_in_browser.py."""

import re
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.page import Report, Section, Table, data_tables, page, write_report
from tests.faults.conditions import no_room_beyond
from tests.report.samples import HOSTILE, bars, everything, full_report, hostile_report

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Tags(HTMLParser):
    """All tags with their attributes, and the text of each kind of tag; every tag must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def full() -> str:
    return page(full_report())


def test_the_structure(full: str) -> None:
    tags = Tags(full)
    ids = [attributes["id"] for _, attributes in tags.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for attributes in tags.all("a")]
    assert links[0] == "#content"
    assert {link.removeprefix("#") for link in links} <= set(ids)
    levels = [int(name[1]) for name, _ in tags.tags if re.fullmatch("h[1-6]", name)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in tags.all("meta")
    assert len(tags.all("figure")) == len(tags.all("figcaption")) == 3
    kinds = [attributes["class"] for attributes in tags.all("details")]
    assert (kinds.count("more"), kinds.count("part")) == (3, 3)  # figures; a section, settings and versions
    assert all(
        attributes["tabindex"] == "0" for name, attributes in tags.tags if attributes.get("class") == "scroll"
    )
    assert tags.all("html") == [{"lang": "en"}]


def test_nothing_is_run_and_nothing_is_loaded(full: str) -> None:
    tags = Tags(full)
    for name, attributes in tags.tags:
        assert name not in {"script", "iframe", "img", "image", "object", "embed", "base", "foreignobject"}
        assert "src" not in attributes
        assert not re.match("(https?:)?//", attributes.get("href", ""))
        assert not any(attribute.startswith("on") for attribute in attributes)
    assert tags.all("link") == [{"rel": "icon", "href": "data:,"}]
    assert not re.search(r"https?://|url\((?!#)|@import", full)
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in full


def test_drawings_have_names_and_refer_to_nothing_but_their_own_parts(full: str) -> None:
    tags = Tags(full)
    pictures = [attributes for attributes in tags.all("svg") if attributes.get("role") == "img"]
    assert len(pictures) == 3 + 1 + 3  # panels of three figures
    assert len(tags.all("svg")) > len(pictures)  # the legend: its text is beside it
    assert all("aria-hidden" in attributes for attributes in tags.all("svg") if attributes not in pictures)
    ids = {attributes["id"] for _, attributes in tags.tags if "id" in attributes}
    for picture in pictures:
        assert set(picture["aria-labelledby"].split()) <= ids
    used = {attributes["href"] for attributes in tags.all("use")}
    assert {name.removeprefix("#") for name in used | set(re.findall(r"url\((.*?)\)", full))} <= ids
    assert "chance of error by epsilon: Gaussian, rectified" in full
    drawn = "".join(re.findall(r"<svg.*?</svg>", full, flags=re.DOTALL))
    assert "var(--color-0072b2, #0072b2)" in drawn  # colours that the page can change
    assert not re.search(r"(?:fill|stroke): #", drawn)


def test_the_numbers_of_a_figure_are_in_a_table() -> None:
    assert data_tables(bars())[0].rows[1] == ("<b>", "5", "4", "6", "")
    first = data_tables(everything())[0]
    assert "one point" not in first.title
    assert first.columns[:5] == ("epsilon", "Gaussian", "rectified", "rectified, low", "rectified, high")
    assert first.rows[2] == ("1", "0.1", "0.1", "0", "inf", "inf")
    assert first.rows[1][1] == ""
    many = tuple(map(float, range(401)))
    [long] = data_tables(Chart("", "Long", "", (Panel("", "x", "y", (Line("sign", many, many),)),)))
    assert long.title == "Long: y, one point in 3"
    assert [row[0] for row in long.rows[:3]] == ["0", "3", "6"]


def test_a_notice_stands_at_the_top(full: str) -> None:
    assert '<p class="banner" role="note">Do not publish this file.</p>' in full
    assert 'class="banner"' not in page(Report("t", (Section("h"),)))


def test_text_is_text_everywhere() -> None:
    text = page(hostile_report())
    assert HOSTILE not in text
    tags = Tags(text)
    assert not tags.all("script")
    assert tags.texts["h1"] == [HOSTILE]
    assert set(tags.texts["title"]) == {HOSTILE}  # also of the drawing
    assert set(tags.texts["figcaption"]) == {HOSTILE}
    assert HOSTILE in tags.texts["text"]  # of the drawing


def test_the_same_bytes_each_time(full: str, tmp_path: Path) -> None:
    again = write_report(full_report(), tmp_path / "new" / "a.html").read_bytes()
    assert again == full.encode()
    assert len(again) < 250_000


def test_jinja_missing_is_said_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ModuleNotFoundError, match=r"jinja2: pip install 'ringfence\[report\]'"):
        page(Report("t", ()))


def test_numbers_stand_to_the_right_with_their_whole_column() -> None:
    table = Table("t", ("law", "epsilon"), (("sign", "never"), ("sign", "0.5")))
    text = page(Report("t", (Section("h", tables=(table,)),)))
    assert text.count('<td class="number">') == 2
    assert '<th scope="col" class="number">epsilon</th>' in text


def test_a_full_disk_leaves_the_old_page(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    with no_room_beyond(5_000), pytest.raises(OSError, match=r"File too large: '.*report\.html'"):
        write_report(Report("new", ()), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1
