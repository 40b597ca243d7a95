"""What goes deeper is folded on the site: a Sphinx extension.

A section whose heading has a ○ goes deeper than the main line: `## 1.8 ○ Entropy`. Its first
paragraph, the gist, states the result and is always shown. What follows folds. A browser unfolds it
by itself for its own search and for a link into it; `folds.js` has the switch that unfolds all.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.writers.html5 import HTML5Translator

DEEPER = "○"


class Fold(nodes.General, nodes.Element):
    """What a reader unfolds."""


class Folds(SphinxTransform):
    """Folds each deeper section behind its gist."""

    default_priority = 820  # after `anchors`, which moves what stands between heading and gist

    def apply(self, **kwargs: Any) -> None:
        for section in list(self.document.findall(nodes.section)):
            if DEEPER in section[0].astext().split():
                gist = section.next_node(nodes.paragraph)
                after = 1 + section.index(gist) if gist in section.children else 1
                rest = section.children[after:]
                section.children[after:] = [Fold("", *rest, classes=["nb-deeper"])] if rest else []


def _unfolded(translator: HTML5Translator, fold: Fold) -> None:
    translator.body.append(translator.starttag(fold, "details"))
    translator.body.append("<summary>Go deeper</summary>\n")


def _folded(translator: HTML5Translator, fold: Fold) -> None:
    translator.body.append("</details>\n")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_node(Fold, html=(_unfolded, _folded))
    app.add_transform(Folds)
