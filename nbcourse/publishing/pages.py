"""What the site says of itself to search engines, and where it is linked to: a Sphinx extension.

Every page gets a description, its own first words. The rest needs an address, and takes it from one
setting: the repository's in `_config.yml`. Where that is empty, nothing that needs it is written:
no button to the repository, to Colab or Binder, no canonical address, no site map, no picture for
links, and no cell that installs the book in the notebooks that pages offer.
"""

import html
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config

from nbcourse.publishing import hosted

LONGEST = 200  # characters of a description: search engines show no more
PICTURE = "_static/leave-one-out.png"
LAUNCH = {
    "colab_url": "https://colab.research.google.com",
    "binderhub_url": "https://mybinder.org",
    "notebook_interface": "jupyterlab",
}


def address(repository: str) -> str:
    """Where the pages of a repository on GitHub are: https://OWNER.github.io/NAME/."""
    owner, _, name = urlsplit(repository).path.strip("/").removesuffix(".git").partition("/")
    return f"https://{owner.lower()}.github.io/{name}/" if owner and name else ""


def description(doctree: nodes.document) -> str:
    """The first paragraph of a page that is a sentence or more, cut at a word."""
    for paragraph in doctree.findall(nodes.paragraph):
        words = " ".join(paragraph.astext().split())
        if len(words) >= 40:
            return words if len(words) <= LONGEST else words[:LONGEST].rsplit(" ", 1)[0] + " …"
    return ""


def set_address(app: Sphinx, config: Config) -> None:
    """Take the address of the site from the repository's, if there is one."""
    repository = config.html_theme_options.get("repository_url") or ""
    config.html_baseurl = address(repository)
    config.html_theme_options["use_repository_button"] = bool(repository)
    if repository:
        config.html_theme_options |= {
            "launch_buttons": LAUNCH,
            "repository_branch": "main",
            "path_to_docs": "book",
        }


def describe(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Add a page's description, what shows where a link to it is shared, and the page's part."""
    if doctree is None:
        return
    context["part"] = part(app, page)
    words = description(doctree)
    title = html.unescape(re.sub(r"<[^>]+>", "", context.get("title", "")))
    tags = {"og:title": title, "og:description": words, "og:type": "article"}
    tags |= {"og:site_name": app.config.html_title}
    if base := app.config.html_baseurl:
        tags |= {"og:url": f"{base}{page}.html", "og:image": base + PICTURE}
    lines = [f'<meta name="description" content="{html.escape(words)}" />']
    lines += [
        f'<meta property="{name}" content="{html.escape(text)}" />' for name, text in tags.items()
    ]
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)


def part(app: Sphinx, page: str) -> str:
    """The part of the book that a page belongs to; empty for one that stands before them."""
    trees = app.env.tocs[app.config.root_doc].findall(addnodes.toctree)
    return next((tree["caption"] for tree in trees if page in tree["includefiles"]), "")


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write what only a site with an address has: a map, a page for addresses that are none."""
    base, folder = app.config.html_baseurl, Path(app.outdir)
    if error is not None or not base:
        return
    hosted.write(folder, app.config.html_theme_options["repository_url"])
    found = sorted(page.relative_to(folder).as_posix() for page in folder.rglob("*.html"))
    places = "".join(f"<url><loc>{html.escape(base + page)}</loc></url>\n" for page in found)
    (folder / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{places}</urlset>\n',
        encoding="utf-8",
    )
    (folder / "404.html").write_text(
        '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>Not here</title>\n<style>:root { color-scheme: light dark; font: 1.1rem/1.6 "
        "system-ui, sans-serif; } body { max-width: 34rem; margin: 20vh auto; padding: 0 1rem; }"
        "</style>\n<h1>There is no page here</h1>\n"
        f'<p>The book begins at <a href="{base}">{base}</a>.</p>\n</html>\n',
        encoding="utf-8",
    )


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("config-inited", set_address, priority=900)
    app.connect("html-page-context", describe)
    app.connect("build-finished", finish)
