"""What ``import ringfence as rf`` gives: listed in full, nothing by accident, an example on each name."""

import doctest
import subprocess
import sys

import pytest

import ringfence as rf


def test_dir_lists_the_exports_and_nothing_else() -> None:
    assert dir(rf) == sorted([*rf.__all__, "__version__"])
    assert len(set(rf.__all__)) == len(rf.__all__)
    assert {"LinearProbe", "fit_probes", "StepProgress"} <= set(rf.__all__)
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
    with pytest.warns(DeprecationWarning, match=r"import it from ringfence\.training\.kernels\.outer_sum"):
        moved = rf.clipped_outer_sum
    from ringfence.training.kernels.outer_sum import clipped_outer_sum

    assert moved is clipped_outer_sum
    assert "clipped_outer_sum" not in dir(rf)


def test_an_unknown_name_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="module 'ringfence' has no attribute 'Laplace'"):
        _ = rf.Laplace


def test_importing_ringfence_does_not_load_what_is_slow() -> None:
    slow = ("sklearn", "rich", "scipy", "dp_accounting", "matplotlib", "plotly", "transformers", "ray")
    code = f"import sys, ringfence; print([name for name in {slow} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
