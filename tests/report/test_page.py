"""The page, read with the standard library's parser; in a browser: test_in_browser.py."""

import re
import sys
from base64 import b64decode
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from ringfence.report.page import Report, Section, Table, page, write_report
from tests.faults.conditions import no_room_beyond
from tests.report.samples import HOSTILE, full_report, hostile_report

VOID = {"meta", "link", "img", "source"}


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
    assert (kinds.count("more"), kinds.count("part")) == (2, 3)  # figures; a section, settings and versions
    assert all(
        attributes["tabindex"] == "0" for name, attributes in tags.tags if attributes.get("class") == "scroll"
    )
    assert tags.all("html") == [{"lang": "en"}]


def test_nothing_is_run_and_nothing_is_loaded(full: str) -> None:
    tags = Tags(full)
    for name, attributes in tags.tags:
        assert name not in {"script", "iframe", "image", "object", "embed", "base", "svg"}
        assert attributes.get("src", "data:").startswith("data:")
        assert not re.match("(https?:)?//", attributes.get("href", ""))
        assert not any(attribute.startswith("on") for attribute in attributes)
    assert tags.all("link") == [{"rel": "icon", "href": "data:,"}]
    assert not re.search(r"https?://|url\(|@import", full)
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in full


def test_drawings_are_in_the_page_and_said_in_words(full: str) -> None:
    tags = Tags(full)
    for kind, address in (("img", "src"), ("source", "srcset")):
        assert len(tags.all(kind)) == 3
        assert all(one[address].startswith("data:image/svg+xml;base64,") for one in tags.all(kind))
    assert tags.all("source")[0]["media"] == "(max-width: 40rem)"
    first = "log axes: chance of error by epsilon, of Gaussian, rectified, truncated, sign. linear axes, with"
    assert tags.all("img")[0]["alt"].startswith(first)


def test_a_notice_stands_at_the_top(full: str) -> None:
    assert '<p class="banner" role="note">Do not publish this file.</p>' in full
    assert 'class="banner"' not in page(Report("t", (Section("h"),)))


def test_text_is_text_everywhere() -> None:
    text = page(hostile_report())
    assert HOSTILE not in text
    tags = Tags(text)
    assert not tags.all("script")
    assert tags.texts["h1"] == [HOSTILE]
    assert tags.texts["title"] == [HOSTILE]
    assert set(tags.texts["figcaption"]) == {HOSTILE}
    [drawing] = tags.all("img")
    assert HOSTILE in drawing["alt"]
    inside = Tags(b64decode(drawing["src"].partition(",")[2]).decode().partition("?>")[2])
    assert {HOSTILE, "%{x} " + HOSTILE} <= {*inside.texts["text"]}
    assert not inside.all("script")


def test_the_same_bytes_each_time(full: str, tmp_path: Path) -> None:
    again = write_report(hostile_report(), tmp_path / "new" / "a.html").read_bytes()
    assert again == page(hostile_report()).encode()
    assert len(full) < 400_000


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
