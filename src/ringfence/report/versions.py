"""Which versions of which packages computed a report."""

from importlib.metadata import PackageNotFoundError, version
from platform import platform, python_version

from ringfence.report.content import Pairs

_PACKAGES = ("ringfence", "torch", "numpy", "dp-accounting", "scikit-learn", "matplotlib")


def installed_versions() -> Pairs:
    """The versions of Python, of the platform and of the packages that can change a number.

    >>> dict(installed_versions())["Python"] == python_version()
    True
    """
    pairs = [("Python", python_version()), ("platform", platform())]
    for package in _PACKAGES:
        try:
            pairs.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return tuple(pairs)
