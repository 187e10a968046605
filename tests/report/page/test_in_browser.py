"""The page in headless Chromium: drawn without an error, usable with the keyboard, alone with itself."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from experiments.comparison.comparison import compare
from experiments.comparison.frontier import by_clip
from experiments.comparison.page import write_comparison
from experiments.comparison.winner import winner
from ringfence.report.content import Report, Section, Table
from ringfence.report.page.page import write_report
from tests.experiments.comparison.test_winner import rows
from tests.report.page.browser import Opened, chromium
from tests.report.samples import HOSTILE, full_report, hostile_report

VISIBLE = "[...document.querySelectorAll('.chart')].filter((chart) => chart.checkVisibility())"
LINES = "path.js-line, .points path"
DRAWN = f"{VISIBLE}.every((chart) => chart.querySelector('{LINES}'))"
PHONE = 390


@pytest.fixture(scope="module")
def browser() -> Iterator[Opened]:
    with chromium() as started:
        yield Opened(started.new_page())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pages")
    write_report(full_report(), place / "full.html")
    write_report(full_report(), place / "public.html", publishable=True)
    write_report(hostile_report(), place / "hostile.html")
    write_report(Report("Short", (Section("Nothing"),)), place / "short.html")
    factors = {"gaussian": 1.0, "rectified": 0.5, "sign": 2.0}
    swept = [row for clip in ("norm", "clamp") for law in factors for row in rows(law, factors[law], clip)]
    laws = [compare(own, step=0.01, resamples=20) for own in by_clip(swept)]
    write_comparison([(laws, winner(swept, step=0.01, resamples=20))], place / "comparison.html")
    return place


@pytest.mark.parametrize(("name", "figures"), [("full", 3), ("public", 1), ("hostile", 1), ("comparison", 1)])
@pytest.mark.parametrize("width", [1280, PHONE])
def test_every_figure_is_drawn_without_an_error(
    browser: Opened, folder: Path, name: str, figures: int, width: int
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


def test_a_phone_shows_the_answer_within_ten_screens_and_the_rest_folds_open(
    browser: Opened, folder: Path
) -> None:
    browser.open(folder / "comparison.html", PHONE)
    browser.until(DRAWN)
    assert browser.run("document.documentElement.scrollHeight / innerHeight") <= 10
    assert browser.run("document.querySelector('main .lead').getBoundingClientRect().bottom < innerHeight")
    browser.page.locator("summary h2", has_text="Figure 3").click()
    browser.until(f"{VISIBLE}.length === 3 && {DRAWN}")
    assert browser.errors == []


def test_a_link_to_a_folded_part_opens_it(browser: Opened, folder: Path) -> None:
    browser.open(folder / "comparison.html", fragment="#section-2")
    browser.until(f"{VISIBLE}.length === 3 && {DRAWN}")


def test_there_is_a_way_back_to_the_top_of_a_long_page_alone(browser: Opened, folder: Path) -> None:
    browser.open(folder / "full.html", PHONE)
    browser.until(DRAWN)
    browser.run("scrollTo(0, 3000)")
    browser.page.locator(".back a").click()
    browser.until("scrollY === 0")
    browser.open(folder / "short.html")
    assert browser.run("document.documentElement.scrollHeight") == 844


def test_a_table_that_goes_on_has_a_shadow_where_it_does(browser: Opened, tmp_path: Path) -> None:
    wide = Table("Wide", tuple(f"column {k}" for k in range(20)), (("0",) * 20,))
    narrow = Table("Narrow", ("a",), (("0",),))
    browser.open(
        write_report(Report("t", (Section("h", tables=(wide, narrow)),)), tmp_path / "t.html"), PHONE
    )
    edges = []
    for name in ("Wide", "Narrow"):
        picture = Image.open(BytesIO(browser.page.get_by_role("region", name=name).screenshot())).convert("L")
        edges.append(picture.getpixel((picture.width - 2, picture.height - 18)))
    assert edges[0] < 215
    assert edges[1] == 255


def test_charts_follow_the_colour_scheme(browser: Opened, folder: Path) -> None:
    browser.open(folder / "comparison.html")
    gaussian = f"getComputedStyle({VISIBLE}[0].querySelector('path.js-line')).stroke"
    paper = "getComputedStyle(document.querySelector('.main-svg')).backgroundColor"
    browser.until(DRAWN)
    assert (browser.run(gaussian), browser.run(paper)) == ("rgb(0, 0, 0)", "rgb(255, 255, 255)")
    browser.page.emulate_media(color_scheme="dark")
    browser.until(f"{gaussian} === 'rgb(242, 242, 242)'")
    assert (
        browser.run(paper)
        == browser.run("getComputedStyle(document.body).backgroundColor")
        != "rgb(255, 255, 255)"
    )
    browser.page.emulate_media(color_scheme="light")
    browser.until(f"{gaussian} === 'rgb(0, 0, 0)'")


def test_panels_stand_side_by_side_where_there_is_room(browser: Opened, folder: Path) -> None:
    layout = "document.querySelector('.chart').layout"
    columns = (
        f"new Set([{layout}.xaxis, {layout}.xaxis2, {layout}.xaxis3].map((axis) => axis.domain[0])).size"
    )
    for width, expected in ((1280, 2), (PHONE, 1)):
        browser.open(folder / "full.html", width)
        browser.until(DRAWN)
        assert browser.run(columns) == expected


def test_the_toggle_works_with_the_keyboard(browser: Opened, folder: Path) -> None:
    browser.open(folder / "full.html")
    browser.until(DRAWN)
    pressed = "document.getElementById('hide-sensitive').getAttribute('aria-pressed')"
    seen = "document.body.innerText.includes('secret')"
    assert (browser.run(pressed), browser.run(seen)) == ("false", True)
    press = browser.page.keyboard.press
    press("Tab")
    assert browser.run("document.activeElement.className") == "skip"
    press("Tab")
    assert browser.run("document.activeElement.id") == "hide-sensitive"
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press("Enter")
    browser.until(f"{pressed} === 'true'")
    assert not browser.run(seen)
    assert browser.run(f"{VISIBLE}.length") == 1
    press("Space")
    browser.until(f"{pressed} === 'false'")
    assert browser.run(seen)
    assert browser.errors == []


def test_a_page_opened_hidden_draws_what_is_shown_later(browser: Opened, folder: Path) -> None:
    browser.open(folder / "full.html", fragment="#hide-sensitive")
    browser.until(f"{DRAWN} && {VISIBLE}.length === 1")
    assert not browser.run("document.body.innerText.includes('secret')")
    browser.page.locator("#hide-sensitive").click()
    browser.until(f"{VISIBLE}.length === 3 && {DRAWN}")


def test_hostile_text_is_shown_and_not_run(browser: Opened, folder: Path) -> None:
    browser.open(folder / "hostile.html")
    browser.until(DRAWN)
    assert HOSTILE in browser.run("document.querySelector('.legendtext').textContent")
    assert browser.run("document.querySelectorAll('.chart script').length") == 0


def test_hover_names_the_curve_and_its_values(browser: Opened, folder: Path) -> None:
    browser.open(folder / "full.html")
    browser.until(DRAWN)
    browser.run("document.querySelector('.chart').scrollIntoView()")
    point = browser.page.locator(".chart .trace .point").first.bounding_box()
    assert point is not None
    x, y = point["x"] + point["width"] / 2, point["y"] + point["height"] / 2
    browser.page.mouse.move(x + 9, y)
    browser.page.mouse.move(x, y, steps=5)
    hover = browser.page.locator(".chart .hovertext").first
    assert "chance of error: " in (hover.text_content() or "")


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_figure_can_be_saved(browser: Opened, folder: Path, kind: str) -> None:
    browser.open(folder / "full.html")
    browser.until(DRAWN)
    browser.page.locator(".more > summary").first.click()
    with browser.page.expect_download() as download:
        browser.page.locator(f"[data-save={kind}]").first.click()
    assert download.value.suggested_filename == f"everything.{kind}"
    assert download.value.path().read_bytes().startswith(b"<svg" if kind == "svg" else b"\x89PNG")
    assert browser.errors == []


def test_paper_has_every_part_open_and_the_screen_afterwards_as_before(browser: Opened, folder: Path) -> None:
    browser.open(folder / "comparison.html")
    browser.until(DRAWN)
    drawn = "document.querySelectorAll('.chart .main-svg:first-child')"
    widths = f"[...{drawn}].map((chart) => +chart.getAttribute('width'))"
    browser.run(f"addEventListener('afterprint', () => {{ window.printed = {widths} }})")
    browser.page.pdf()
    printed = browser.run("window.printed")
    assert len(printed) == 3  # also those of the part that is folded on the screen
    assert max(printed) <= 680
    assert browser.run("document.querySelectorAll('.part[open]').length") == 0
    assert browser.errors == []
