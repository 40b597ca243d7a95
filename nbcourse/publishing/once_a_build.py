"""What Sphinx does anew for every page, done once: a Sphinx extension.

The sidebar names every page of the book on every page. Sphinx copies the contents of all of them
for it, each time with all their sections, of which only the titles stay.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def titles(contents: nodes.bullet_list) -> nodes.bullet_list:
    """The contents of a page without its sections: its title, and what lists other pages."""
    kept = contents.copy()
    for item in contents.children:
        if isinstance(item, nodes.list_item) and len(item) > 1:
            first = item.copy()
            lists = [found.deepcopy() for found in item.findall(addnodes.toctree)]
            first += [item[0].deepcopy(), *([nodes.bullet_list("", *lists)] if lists else [])]
            kept += first
        else:
            kept += item.deepcopy()
    return kept


def shorten(app: Sphinx, name: str, template: str, context: dict[str, Any], page: Any) -> None:
    """Let what asks for the titles of all pages find nothing else."""
    if "toctree" in context:
        context["toctree"] = _shortened(app, context["toctree"])


def _shortened(app: Sphinx, whole: Callable[..., str]) -> Callable[..., str]:
    def toctree(**options: Any) -> str:
        if not options.get("titles_only"):
            return whole(**options)
        tocs = app.env.tocs
        app.env.tocs = _all_titles(app)
        try:
            return whole(**options)
        finally:
            app.env.tocs = tocs

    return toctree


@cache
def _all_titles(app: Sphinx) -> dict[str, nodes.bullet_list]:
    return {name: titles(contents) for name, contents in app.env.tocs.items()}


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("html-page-context", shorten, priority=100)  # before the theme asks for a sidebar
