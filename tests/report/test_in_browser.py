"""The page in headless Chromium: drawn without an error, usable with the keyboard, alone with itself."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from experiments.comparison_page import Compared, write_comparison
from ringfence.report.page import Report, Section, Table, write_report
from tests.experiments.test_comparison import compare, compare_all, sweep
from tests.report.browser import Opened, chromium
from tests.report.samples import HOSTILE, full_report, hostile_report

VISIBLE = "[...document.querySelectorAll('figure')].filter((figure) => figure.checkVisibility())"
PHONE = 390


@pytest.fixture(scope="module")
def browser() -> Iterator[Opened]:
    with chromium() as started:
        yield Opened(started.new_page())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pages")
    write_report(full_report(), place / "full.html")
    write_report(hostile_report(), place / "hostile.html")
    write_report(Report("Short", (Section("Nothing"),)), place / "short.html")
    factors = {"gaussian": 1.0, "rectified": 0.5, "sign": 2.0}
    rows = [
        row for clip in ("norm", "clamp") for law in factors for row in sweep(law, factors[law], clip=clip)
    ]
    how = {"step": 0.01, "resamples": 20}
    write_comparison([Compared(compare(rows, **how), compare_all(rows, **how))], place / "comparison.html")
    return place


@pytest.mark.parametrize(("name", "figures"), [("full", 2), ("hostile", 1), ("comparison", 1)])
@pytest.mark.parametrize("width", [1280, PHONE])
def test_every_figure_is_drawn_without_an_error(
    browser: Opened, folder: Path, name: str, figures: int, width: int
) -> None:
    page = folder / f"{name}.html"
    browser.open(page, width)
    assert browser.run(f"{VISIBLE}.length") == figures
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing sticks out sideways
    drawn = "((image) => image.naturalWidth > 250 && image.clientWidth === image.naturalWidth)"
    assert browser.run(f"{VISIBLE}.every((one) => {drawn}(one.querySelector('img')))")  # legible as drawn
    assert browser.errors == []
    assert {url.split("#")[0] for url in browser.requests if not url.startswith(("data:", "blob:"))} == {
        page.as_uri()
    }


def test_a_phone_shows_the_answer_within_ten_screens_and_the_rest_folds_open(
    browser: Opened, folder: Path
) -> None:
    browser.open(folder / "comparison.html", PHONE)
    assert browser.run("document.documentElement.scrollHeight / innerHeight") <= 10
    assert browser.run("document.querySelector('main .lead').getBoundingClientRect().bottom < innerHeight")
    browser.page.locator("summary h2", has_text="Figure 3").click()
    browser.until(f"{VISIBLE}.length === 2")
    assert browser.errors == []


def test_a_link_to_a_folded_part_opens_it(browser: Opened, folder: Path) -> None:
    browser.open(folder / "comparison.html", fragment="#section-2")
    browser.until(f"{VISIBLE}.length === 2")


def test_there_is_a_way_back_to_the_top_of_a_long_page_alone(browser: Opened, folder: Path) -> None:
    browser.open(folder / "full.html", PHONE)
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


def test_a_drawing_fits_the_window_and_has_a_name_for_screen_readers(browser: Opened, folder: Path) -> None:
    for width in (1280, PHONE):
        browser.open(folder / "full.html", width)
        assert browser.run(
            "[...document.querySelectorAll('.drawn')].every((one) => one.scrollWidth <= innerWidth)"
        )
        name = "log axes: chance of error by epsilon, of Gaussian, rectified, truncated, sign."
        assert browser.page.get_by_role("img", name=name).count() == 1  # and one in a part that is folded


def test_the_first_key_leads_to_the_content(browser: Opened, folder: Path) -> None:
    browser.open(folder / "full.html")
    browser.page.keyboard.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert browser.errors == []


def test_hostile_text_is_shown_and_not_run(browser: Opened, folder: Path) -> None:
    browser.open(folder / "hostile.html")
    assert HOSTILE in browser.run("document.querySelector('figcaption').textContent")
    assert browser.run("document.querySelectorAll('script').length") == 0


def test_paper_has_every_part_open_and_is_white(browser: Opened, folder: Path) -> None:
    browser.open(folder / "comparison.html")
    assert browser.run(f"{VISIBLE}.length") == 1
    browser.page.emulate_media(media="print", color_scheme="dark")
    assert browser.run(f"{VISIBLE}.length") == 2  # also those of the part that is folded on the screen
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.page.pdf().startswith(b"%PDF")
    browser.page.emulate_media(media="screen", color_scheme="light")
    assert browser.run(f"{VISIBLE}.length") == 1
    assert browser.errors == []
