"""Columns of numbers as the site shows them, to the right and with a minus: a Sphinx extension."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

NUMBER = re.compile(r"[−-]?[\d,]+(\.\d+)?(e[−-]?\d+)?( ?%)?")
NO_NUMBER = {"", "nan", "—", "–", "-"}


class NumericColumns(SphinxTransform):
    """Marks the columns that hold nothing but numbers; their headings go with them."""

    default_priority = 800

    def apply(self, **kwargs: Any) -> None:
        for table in self.document.findall(nodes.tgroup):
            rows = [row for body in table.findall(nodes.tbody) for row in body.children]
            titles = [row for head in table.findall(nodes.thead) for row in head.children]
            for column in zip(*(row.children for row in rows), strict=False):
                if is_numeric([entry.astext() for entry in column]):
                    position = column[0].parent.index(column[0])
                    for entry in [*column, *(row[position] for row in titles)]:
                        entry["classes"] = [*without_alignment(entry), "nb-number"]
                    for entry in column:
                        _true_minus(entry)


def is_numeric(cells: list[str]) -> bool:
    """Whether every cell of a column is a number or says that there is none."""
    return any(map(NUMBER.fullmatch, cells)) and all(
        cell in NO_NUMBER or NUMBER.fullmatch(cell) for cell in cells
    )


def without_alignment(entry: nodes.Element) -> list[str]:
    """The classes of a cell, less the one for the side that Markdown gave it."""
    return [name for name in entry["classes"] if not name.startswith("text-")]


def _true_minus(entry: nodes.Element) -> None:
    for text in list(entry.findall(nodes.Text)):
        text.parent.replace(text, nodes.Text(re.sub(r"(^|e)-(?=\d)", r"\1−", text.astext())))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(NumericColumns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
