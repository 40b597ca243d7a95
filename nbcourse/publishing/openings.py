"""How a chapter opens on the site: with its question and one of its pictures. A Sphinx extension.

In a notebook the question stands in a box, and a quotation behind it names the picture and says
what is surprising in it: `> … ({numref}`fig-x`).` On the site the question stands below the title,
larger than the text and without a box; then come the picture, which is the output stored farther
down in the same page, the words about it, and last what the chapter takes.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

BOX = "The question of this chapter"


class Openings(SphinxTransform):
    """Turns the box with the question into an opening."""

    default_priority = 810  # after `anchors`, where figures get their ids and descriptions

    def apply(self, **kwargs: Any) -> None:
        for box in list(self.document.findall(nodes.admonition)):
            after = box.next_node(siblings=True, descend=False)
            if box.children[0].astext() == BOX and isinstance(after, nodes.block_quote):
                (words,) = after.children
                after.parent.remove(after)
                box.parent.replace(box, _opening(box, self._picture(_figure(words)), words))

    def _picture(self, label: str) -> nodes.image:
        cells = self.document.findall(nodes.container)
        cell = next(cell for cell in cells if label in cell["ids"])
        return next(cell.findall(nodes.image))


def _figure(words: nodes.Element) -> str:
    """The label of the figure that the words refer to."""
    links = (link["refuri"].removeprefix("#") for link in words.findall(nodes.reference))
    return next(label for label in links if label.startswith("fig-"))


def _opening(box: nodes.Element, picture: nodes.image, words: nodes.Element) -> nodes.container:
    """Question, picture, words and conditions, in the order in which they are read."""
    _title, question, conditions = box.children
    question["classes"].append("nb-question")
    conditions["classes"].append("nb-conditions")
    words["classes"].append("nb-caption")
    first = picture.deepcopy()
    first["classes"] = ["nb-first"]
    shown = nodes.container("", first, words, classes=["nb-shown"])
    return nodes.container("", question, shown, conditions, classes=["nb-opening"])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_transform(Openings)
