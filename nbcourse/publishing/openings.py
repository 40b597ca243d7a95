"""How a chapter opens on the site: with its question and one of its pictures. A Sphinx extension.

In a notebook the question stands in a box, and a comment behind it, which is not shown, names the
picture and says what is surprising in it: `<!-- opening: … ({numref}`fig-x`). -->`. On the site the
question stands below the title, larger than the text and without a box; then come the picture,
which is the output stored farther down in the same page, the words about it, and last what the
chapter takes.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

# As `numbering` writes it: a label has become a link.
OPENING = re.compile(
    r"<!-- opening: (?P<before>.+)\[(?P<number>figure [\d.]+)\]\(#(?P<label>fig-[a-z0-9-]+)\)"
    r"(?P<after>.*) -->\s*"
)


class Openings(SphinxTransform):
    """Turns the box with the question into an opening."""

    default_priority = 810  # after `anchors`, where figures get their ids and descriptions

    def apply(self, **kwargs: Any) -> None:
        for comment in list(self.document.findall(nodes.raw)):
            if found := OPENING.fullmatch(comment.astext()):
                box = comment.parent[comment.parent.index(comment) - 1]
                comment.parent.remove(comment)
                box.parent.replace(box, _opening(box, self._picture(found["label"]), found))

    def _picture(self, label: str) -> nodes.image:
        cells = self.document.findall(nodes.container)
        cell = next(cell for cell in cells if label in cell["ids"])
        return next(cell.findall(nodes.image))


def _opening(box: nodes.Element, picture: nodes.image, words: re.Match[str]) -> nodes.container:
    """Question, picture, words and conditions, in the order in which they are read."""
    _title, question, conditions = box.children
    question["classes"].append("nb-question")
    conditions["classes"].append("nb-conditions")
    first = picture.deepcopy()
    first["classes"] = ["nb-first"]
    link = nodes.reference("", words["number"], refid=words["label"], internal=True)
    caption = nodes.paragraph("", words["before"], link, nodes.Text(words["after"]))
    caption["classes"].append("nb-caption")
    shown = nodes.container("", first, caption, classes=["nb-shown"])
    return nodes.container("", question, shown, conditions, classes=["nb-opening"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(Openings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
