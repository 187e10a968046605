"""Names and texts in the form plotly takes them."""

import html

from ringfence.report.looks import LABEL, wrapped


def axis_name(name: str, number: int) -> str:
    """What plotly calls an axis of the panel with this number: the axes of the second panel are x2 and y2.

    >>> axis_name("x", 0), axis_name("yaxis", 1)
    ('x', 'yaxis2')
    """
    return f"{name}{number + 1}" if number else name


def shown_text(text: str) -> str:
    """A text that plotly shows literally: tags are escaped, and no template is filled in.

    >>> shown_text("<b> %{x}")
    '&lt;b&gt; %&#123;x}'
    """
    return html.escape(text, quote=False).replace("%{", "%&#123;")


def shown_lines(text: str, width: int = LABEL) -> str:
    """The same, broken into lines that fit the panel.

    >>> shown_lines("a < b")
    'a &lt; b'
    """
    return "<br>".join(shown_text(line) for line in wrapped(text, width))
