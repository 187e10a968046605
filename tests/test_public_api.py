"""What ``import ringfence as rf`` gives: listed in full, nothing by accident, an example on each name."""

import doctest
import importlib
import re
import subprocess
import sys

import pytest

import ringfence as rf
from tests.afresh import afresh


def test_dir_lists_the_exports_and_nothing_else() -> None:
    assert dir(rf) == sorted([*rf.__all__, "__version__"])
    assert len(set(rf.__all__)) == len(rf.__all__)
    assert {"LinearProbe", "tune"} <= set(rf.__all__)
    assert len(rf.__all__) == 44
    for name in rf.__all__:
        assert getattr(rf, name).__module__.startswith("ringfence."), name


@pytest.mark.parametrize("name", rf.__all__)
def test_every_export_has_an_example(name: str) -> None:
    """The doctests themselves are run where they stand."""
    examples = doctest.DocTestParser().get_examples(getattr(rf, name).__doc__ or "")
    assert any(example.want for example in examples)


def test_a_star_import_gives_every_export() -> None:
    names: dict[str, object] = {}
    exec("from ringfence import *", names)
    assert set(rf.__all__) <= names.keys()


def test_what_moved_deeper_still_works_and_says_where_it_is() -> None:
    assert not set(rf._MOVED) & set(rf.__all__)
    for name, home in rf._MOVED.items():
        with pytest.warns(DeprecationWarning, match=f"import it from {re.escape(home)}"):
            moved = getattr(rf, name)
        assert moved is getattr(importlib.import_module(home), name)


def test_what_is_gone_says_what_to_use() -> None:
    for name, instead in rf._INSTEAD.items():
        with pytest.raises(AttributeError, match=f"ringfence.{name} is gone: use {re.escape(instead)}"):
            getattr(rf, name)


def test_an_unknown_name_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="module 'ringfence' has no attribute 'Cauchy'"):
        _ = rf.Cauchy


def test_importing_ringfence_loads_nothing_slow() -> None:
    slow = ("torch", "sklearn", "scipy", "dp_accounting", "transformers", "ray")
    code = f"import sys, ringfence; print([name for name in {slow} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout == "[]\n", ran.stderr


def test_laws_need_neither_typer_nor_matplotlib() -> None:
    """Accelerator machines may have torch and nothing else."""
    code = "import ringfence; print(float(ringfence.Gaussian(1.0).fisher_information(0.0)))"
    ran = afresh(code, without=("typer", "rich", "matplotlib"))
    assert ran.stdout == "1.0\n", ran.stderr
