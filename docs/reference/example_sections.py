"""Example sections: docstrings in the words that griffe and Markdown know, for the pages of the reference."""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|exc|func|meth|mod):`~?([^`]+)`")


class ExampleSections(griffe.Extension):
    """Examples become sections of code instead of quotations, and references to names become code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = _ROLE.sub(r"`\1`", text)
