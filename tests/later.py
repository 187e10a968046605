"""Packages that take seconds to import, imported by the first test that uses them."""

from typing import Any

import pytest


class Later:
    """The package of this name; tests that use it are skipped where it is not installed."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "pytest")):  # pytest looks for its own marks
            raise AttributeError(name)
        return getattr(pytest.importorskip(self._package), name)
