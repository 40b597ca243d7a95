r"""What `numbering` wrote into a notebook, as the site shows it: a Sphinx extension.

An anchor in a notebook is an empty `<div id="eq-x"></div>`, which JupyterLab can scroll to. On the
site what follows it takes over its id, an equation its number, so that both look as Sphinx makes
them; and links to the anchor are checked like all others.

A figure's alternative text is a comment behind its caption, `<!-- alt: … -->`, which is not shown;
on the site the figure takes it over.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ANCHOR = re.compile(r'<div id="((?:eq|fig|tab|sec)-[a-z0-9-]+)"></div>\s*')
ALT = re.compile(r"<!-- alt: (\S.*) -->\s*")
EQUATION = re.compile(
    r"\\begin\{equation\*\}\n(?P<body>.*?)\n(?:\\tag\{(?P<number>[^}]*)\}\n)?\\end\{equation\*\}",
    re.DOTALL,
)


class Anchors(SphinxTransform):
    """Moves ids, numbers and alternative texts to where Sphinx looks for them."""

    default_priority = 800  # before MyST resolves links to ids (879)

    def apply(self, **kwargs: Any) -> None:
        for block in self.document.findall(nodes.math_block):
            if found := EQUATION.fullmatch(block.astext().strip()):
                _as_sphinx_numbers(block, found["body"], found["number"])
        figure = None
        for node in list(self.document.findall()):
            if isinstance(node, nodes.image):
                figure = node
            elif not isinstance(node, nodes.raw):
                continue
            elif found := ANCHOR.fullmatch(node.astext()):
                self._move(found[1], node)
            elif (found := ALT.fullmatch(node.astext())) and figure is not None:
                figure["alt"] = found[1]
                node.parent.remove(node)

    def _move(self, anchor: str, raw: nodes.raw) -> None:
        """Give the id of an anchor to what it stands for, and let links find it there."""
        target = next(raw.findall(include_self=False, descend=False, siblings=False, ascend=True))
        if anchor.startswith(("fig-", "tab-")):
            caption, target = target, _shown_before(raw) or target
            caption["classes"].append("nb-caption")
            if isinstance(target, nodes.container):  # a cell, whose part the caption becomes
                caption.parent.remove(caption)
                target.append(caption)
        target["ids"].append(anchor)
        raw.parent.remove(raw)
        slugs = self.env.metadata[self.env.docname].setdefault("myst_slugs", {})
        slugs[anchor] = (0, anchor, "")
        self.document.myst_slugs = slugs


def _as_sphinx_numbers(block: nodes.math_block, body: str, number: str | None) -> None:
    block.children = [nodes.Text(body)]
    block.rawsource = body
    block["classes"] = [name for name in block["classes"] if name != "amsmath"]
    block["nowrap"], block["number"] = False, number


def _shown_before(raw: nodes.raw) -> nodes.Element | None:
    """The cell whose figure or table has its caption where `raw` stands, or a table by hand."""
    before = raw.previous_sibling()
    return before if isinstance(before, nodes.container | nodes.table) else None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_transform(Anchors)
