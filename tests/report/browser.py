"""A page in headless Chromium, through Playwright: the installed browser, or Playwright's own."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser; where there is none, the test is skipped with how to get one."""
    with sync_playwright() as playwright:
        installed = next(
            filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
        )
        path = installed or playwright.chromium.executable_path
        if not Path(path).exists():
            pytest.skip(
                "no browser tests pages here: install chromium, or run .venv/bin/playwright install chromium"
            )
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Opened:
    """One page; what went wrong on it and what it asked for are in ``errors`` and ``requests``."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path, width: int = 1280, fragment: str = "") -> None:
        self.page.goto("about:blank")
        self.errors.clear()
        self.requests.clear()
        self.page.set_viewport_size({"width": width, "height": 844})
        self.page.goto(path.as_uri() + fragment)

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        return self.page.evaluate(script)

    def until(self, condition: str, seconds: float = 30) -> None:
        """Waits from outside: the policy of the page lets nobody wait inside it."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, f"never came true: {condition}"
            self.page.wait_for_timeout(30)
