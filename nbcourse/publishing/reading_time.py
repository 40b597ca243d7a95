"""How long a chapter takes to read, in the line with what it takes: a Sphinx extension.

It is counted as appendix D counts: 150 words of prose a minute, without the code.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from nbcourse.publishing.folds import Fold

WORDS = 150  # a minute
SHORT = 2  # minutes: less needs no saying


def minutes(document: nodes.document) -> tuple[int, int]:
    """What the main line of a page takes, and what goes deeper on top."""
    words = [0, 0]
    for block in document.findall(nodes.paragraph):
        words[_is_deeper(block)] += len(block.astext().split())
    return round(words[0] / WORDS), round(words[1] / WORDS)


def _is_deeper(node: nodes.Node) -> bool:
    return node is not None and (isinstance(node, Fold) or _is_deeper(node.parent))


class ReadingTime(SphinxTransform):
    """Puts the minutes before the run time of a chapter's opening."""

    default_priority = 830  # after `openings` and `folds`

    def apply(self, **kwargs: Any) -> None:
        main, deeper = minutes(self.document)
        if main < SHORT:
            return
        more = f", and {deeper} more for what goes deeper" if deeper else ""
        for block in self.document.findall(nodes.paragraph):
            if "nb-conditions" in block["classes"]:
                said = f" about {main} minutes{more}. "
                block.insert(0, [nodes.emphasis("", "Reading:"), nodes.Text(said)])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_transform(ReadingTime)
