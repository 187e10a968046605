"""The page in headless Chromium: drawn without an error, usable with the keyboard, alone with itself."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.report.page.page import write_report
from tests.report.page.browser import Browser, needs_chromium
from tests.report.samples import HOSTILE, full_report, hostile_report

pytestmark = needs_chromium

VISIBLE = "[...document.querySelectorAll('.chart')].filter((chart) => chart.clientWidth)"
LINES = "path.js-line, .points path"
DRAWN = f"{VISIBLE}.every((chart) => chart.querySelector('{LINES}'))"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pages")
    write_report(full_report(), place / "full.html")
    write_report(full_report(), place / "public.html", publishable=True)
    write_report(hostile_report(), place / "hostile.html")
    return place


@pytest.mark.parametrize(("name", "figures"), [("full", 3), ("public", 1), ("hostile", 1)])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_figure_is_drawn_without_an_error(
    browser: Browser, folder: Path, name: str, figures: int, width: int
) -> None:
    page = folder / f"{name}.html"
    browser.open(page, width)
    browser.until(DRAWN)
    assert browser.run(f"{VISIBLE}.length") == figures
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing sticks out sideways
    assert browser.run(
        f"{VISIBLE}.every((chart) => chart.querySelector('.main-svg').clientWidth <= chart.clientWidth)"
    )
    assert browser.errors == []
    assert {url.split("#")[0] for url in browser.requests if not url.startswith(("data:", "blob:"))} == {
        page.as_uri()
    }


def test_panels_stand_side_by_side_where_there_is_room(browser: Browser, folder: Path) -> None:
    layout = "document.querySelector('.chart').layout"
    columns = (
        f"new Set([{layout}.xaxis, {layout}.xaxis2, {layout}.xaxis3].map((axis) => axis.domain[0])).size"
    )
    for width, expected in ((1280, 2), (390, 1)):
        browser.open(folder / "full.html", width)
        browser.until(DRAWN)
        assert browser.run(columns) == expected


def test_the_toggle_works_with_the_keyboard(browser: Browser, folder: Path) -> None:
    browser.open(folder / "full.html")
    browser.until(DRAWN)
    pressed = "document.getElementById('hide-sensitive').getAttribute('aria-pressed')"
    seen = "document.body.innerText.includes('secret')"
    assert (browser.run(pressed), browser.run(seen)) == ("false", True)
    browser.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"
    browser.press("Tab")
    assert browser.run("document.activeElement.id") == "hide-sensitive"
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter")
    browser.until(f"{pressed} === 'true'")
    assert not browser.run(seen)
    assert browser.run(f"{VISIBLE}.length") == 1
    browser.press("Space")
    browser.until(f"{pressed} === 'false'")
    assert browser.run(seen)
    assert browser.errors == []


def test_a_page_opened_hidden_draws_what_is_shown_later(browser: Browser, folder: Path) -> None:
    browser.open(folder / "public.html")
    browser.open(folder / "full.html", fragment="#hide-sensitive")
    browser.until(f"{DRAWN} && {VISIBLE}.length === 1")
    assert not browser.run("document.body.innerText.includes('secret')")
    browser.run("document.getElementById('hide-sensitive').click()")
    browser.until(f"{VISIBLE}.length === 3 && {DRAWN}")


def test_hostile_text_is_shown_and_not_run(browser: Browser, folder: Path) -> None:
    browser.open(folder / "hostile.html")
    browser.until(DRAWN)
    assert HOSTILE in browser.run("document.querySelector('.legendtext').textContent")
    assert browser.run("document.querySelectorAll('.chart script').length") == 0


def test_hover_names_the_curve_and_its_values(browser: Browser, folder: Path) -> None:
    browser.open(folder / "full.html")
    browser.until(DRAWN)
    browser.run("document.querySelector('.chart').scrollIntoView()")
    point = "document.querySelector('.chart .trace .point').getBoundingClientRect()"
    x, y = (
        browser.run(f"{point}.{side} + {point}.{size} / 2")
        for side, size in (("x", "width"), ("y", "height"))
    )
    for nearer in (3, 1, 0):
        browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x + nearer, y=y)
        time.sleep(0.1)
    browser.until("!!document.querySelector('.chart .hovertext')")
    assert "chance of error: " in browser.run("document.querySelector('.chart .hovertext').textContent")


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_figure_can_be_saved(browser: Browser, folder: Path, tmp_path: Path, kind: str) -> None:
    browser.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.open(folder / "full.html")
    browser.until(DRAWN)
    browser.run(f"document.querySelector('[data-save={kind}]').click()")
    path = tmp_path / f"everything.{kind}"
    end = time.monotonic() + 20
    while not path.exists() and time.monotonic() < end:
        browser.run("1")
        time.sleep(0.1)
    assert path.read_bytes().startswith(b"<svg" if kind == "svg" else b"\x89PNG")
    assert browser.errors == []


def test_it_prints(browser: Browser, folder: Path) -> None:
    browser.open(folder / "full.html")
    browser.until(DRAWN)
    width = "document.querySelector('.main-svg').clientWidth"
    browser.run(f"addEventListener('beforeprint', () => {{ window.printed = {width} }})")
    browser.send("Page.printToPDF")
    assert browser.run("window.printed") <= 680
    assert browser.errors == []
