"""Names and texts as plotly takes them."""

import html

from ringfence.report.figures import LABEL, wrapped


def axis_name(name: str, number: int) -> str:
    """The axes of the second panel are x2 and y2.

    >>> axis_name("x", 0), axis_name("yaxis", 1)
    ('x', 'yaxis2')
    """
    return f"{name}{number + 1}" if number else name


def shown_text(text: str) -> str:
    """As plotly shows it literally: tags escaped, and no template to fill in.

    >>> shown_text("<b> %{x}")
    '&lt;b&gt; %&#123;x}'
    """
    return html.escape(text, quote=False).replace("%{", "%&#123;")


def shown_lines(text: str, width: int = LABEL) -> str:
    """In lines that fit the panel.

    >>> shown_lines("a < b")
    'a &lt; b'
    """
    return "<br>".join(shown_text(line) for line in wrapped(text, width))
