"""The parts of the site that are ours. ``make lint`` builds all of it and fails at a warning."""

import pytest
from mkdocs.exceptions import PluginError

from scripts import site_docstrings, site_pages


def test_a_page_that_would_fetch_something_is_refused() -> None:
    page = (
        '<a href="https://arxiv.org">the paper</a> <img src="front.png"> <script src="assets/a.js"></script>'
    )
    assert site_pages.on_post_page(page, page="index.md") == page
    for fetched in (
        '<script src="https://cdn.org/a.js">',
        "<link href=//fonts.org/a.css>",
        "<img src='http://a.org/b'>",
    ):
        with pytest.raises(PluginError, match=r"index.md would fetch from the network: <"):
            site_pages.on_post_page(page + fetched, page="index.md")


@pytest.mark.parametrize(
    ("link", "page"),
    [
        ("(../examples/engine.py)", "(examples.md#engine)"),
        ("(examples)", "(examples.md)"),
        ("(../../README.md)", "(../index.md)"),
        ("(CONTRIBUTING.md#words)", "(contributing.md#words)"),
        ("(notebooks/network.ipynb)", "(notebooks/network.md)"),
        ("(guarantees.md#publishing)", "(guarantees.md#publishing)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(link: str, page: str) -> None:
    assert site_pages.on_page_markdown(f"See [this]{link}.") == f"See [this]{page}."


def test_sessions_are_code_and_guarantees_stand_out() -> None:
    docstring = "One law.\n\nGuarantee: never\nworse.\n\n>>> 1 + 1\n2\n\nMore."
    assert site_docstrings.shown(docstring) == (
        'One law.\n\n!!! success "Guarantee"\n    Never\n    worse.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore.'
    )
