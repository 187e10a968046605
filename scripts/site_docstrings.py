"""Docstrings as the site shows them, by an extension of griffe: sessions are code, guarantees stand out."""

import re
from typing import Any

import griffe

_SESSION = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.M)
_GUARANTEE = re.compile(r"^Guarantee: (.*(?:\n(?! *$).*)*)", re.M)


class Docstrings(griffe.Extension):
    """Rewrites every docstring of the package before it is turned into HTML."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = shown(obj.docstring.value)


def shown(docstring: str) -> str:
    """The docstring as Markdown."""
    text = _SESSION.sub(lambda found: f"```pycon\n{found[0]}\n```", docstring)
    return _GUARANTEE.sub(lambda found: _box(found[1]), text)


def _box(guarantee: str) -> str:
    """A guarantee under a heading of its own, where it is a sentence and not the end of one."""
    sentence = guarantee[0].upper() + guarantee[1:]
    return '!!! success "Guarantee"\n    ' + sentence.replace("\n", "\n    ")
