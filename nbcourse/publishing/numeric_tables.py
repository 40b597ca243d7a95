"""Tables of numbers as the site shows them: a Sphinx extension.

Columns of numbers are aligned to the right, and a hyphen before a number becomes a minus sign, by
the same rules as in `display.table`: what is left for the site are tables written by hand.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from nbcourse import numerals


class NumericColumns(SphinxTransform):
    """Marks the columns that hold nothing but numbers; their headings go with them."""

    default_priority = 800

    def apply(self, **kwargs: Any) -> None:
        for table in self.document.findall(nodes.tgroup):
            rows = [row for body in table.findall(nodes.tbody) for row in body.children]
            titles = [row for head in table.findall(nodes.thead) for row in head.children]
            for column in zip(*(row.children for row in rows), strict=False):
                if numerals.is_numeric([entry.astext() for entry in column]):
                    position = column[0].parent.index(column[0])
                    for entry in [*column, *(row[position] for row in titles)]:
                        entry["classes"] = [*_without_alignment(entry), "nb-number"]
                for entry in column:
                    if numerals.has_hyphen(entry.astext()):
                        _true_minus(entry)


def _without_alignment(entry: nodes.Element) -> list[str]:
    """The classes of a cell, less the one for the side that Markdown gave it."""
    return [name for name in entry["classes"] if not name.startswith("text-")]


def _true_minus(entry: nodes.Element) -> None:
    for text in list(entry.findall(nodes.Text)):
        text.parent.replace(text, nodes.Text(numerals.with_minus(text.astext())))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_transform(NumericColumns)
