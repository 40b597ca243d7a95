"""What pages of the site share is made once, and is what Sphinx makes for each."""

from types import SimpleNamespace

from docutils import nodes
from sphinx import addnodes
from sphinx.environment.adapters.toctree import _entries_from_toctree

from nbcourse.publishing import once_a_build


class App:
    """What of Sphinx the extension looks at."""

    def __init__(self, **tocs: nodes.bullet_list) -> None:
        self.env = SimpleNamespace(tocs=tocs)


def entry(name: str, *below: nodes.Node) -> nodes.list_item:
    link = nodes.reference("", name, refuri=name, anchorname="")
    sections = [nodes.bullet_list("", *below)] if below else []
    return nodes.list_item("", addnodes.compact_paragraph("", "", link), *sections)


def contents() -> nodes.bullet_list:
    """Of a page with two sections, the first with one of its own, and a list of other pages."""
    others = addnodes.toctree("", entries=[(None, "b")])
    return nodes.bullet_list("", entry("a", entry("a1", entry("a11")), entry("a2"), others))


def sidebar(toc: nodes.bullet_list) -> str:
    """What Sphinx makes of the contents of a page, and of the one that it lists, as titles."""
    env = SimpleNamespace(tocs={"a": toc, "b": nodes.bullet_list("", entry("b"))})
    env.metadata = {"a": {}, "b": {}}
    listed = addnodes.toctree("", entries=[(None, "a")])
    made = _entries_from_toctree(env, True, True, False, True, None, set(), None, None, listed, [])
    return "".join(part.pformat() for part in made)


def test_titles_make_the_same_sidebar_of_fewer_nodes():
    short = once_a_build.titles(contents())
    assert [link.astext() for link in short.findall(nodes.reference)] == ["a"]
    assert sidebar(short) == sidebar(contents())
    assert sidebar(short).count("<reference") == 2


def test_only_what_asks_for_titles_gets_them_alone():
    app = App(a=contents())
    seen = []
    context = {"toctree": lambda **options: seen.append(app.env.tocs["a"].astext().split())}
    once_a_build.shorten(app, "a", "page.html", context, None)
    context["toctree"](titles_only=True)
    context["toctree"](titles_only=False)
    assert seen == [["a"], ["a", "a1", "a11", "a2"]]
    once_a_build.shorten(app, "search", "page.html", {}, None)  # a page without a sidebar
