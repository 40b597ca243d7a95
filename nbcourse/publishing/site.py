"""Build the book as a folder of static pages that ask no other host for anything.

Jupyter Book turns the stored notebooks into pages; nothing runs while it does. The pages of the
reference are written from the package's source, and the explorer on the front page is the one that
its chapter has. Then every page is searched for addresses that a browser would fetch from
elsewhere: one is enough to fail the build.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory

from nbcourse.publishing import (
    bibliography,
    endings,
    every_mistake,
    numbering,
    reference,
    stored,
)
from nbcourse.repository import ROOT

FRONT_EXPLORER = ("01-bandit.ipynb", "explore_downhill")


class SiteFailed(Exception):
    """The site could not be built; the message lists every reason that was found."""


def build(output: Path = ROOT, *, root: Path = ROOT) -> Path:
    """Build the book of `root` into `output`/_build/html and return that folder.

    Warnings are errors: a reference to nowhere fails the build. Everything is built afresh, since a
    page that is not read again does not repeat its warnings.
    """
    site = output / "_build" / "html"
    shutil.rmtree(output / "_build", ignore_errors=True)
    with TemporaryDirectory() as folder:
        source = Path(folder)
        assemble(root, source)
        command = [sys.executable, "-m", "nbcourse.publishing.jupyter_book"]
        command += ["build", str(source / "book")]
        command += ["--config", str(source / "_config.yml"), "--toc", str(source / "_toc.yml")]
        command += ["--path-output", str(output), "-W", "--keep-going", "-n", "-q"]
        built = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"}
        )
    if built.returncode != 0:
        raise SiteFailed("the site was not built:\n" + complaints(built.stdout + built.stderr))
    if foreign := foreign_addresses(site):
        raise SiteFailed("these pages load from another host:\n" + "\n".join(foreign))
    return site


def assemble(root: Path, source: Path) -> None:
    """Copy what is built into `source`, and add the pages that are made for the site alone."""
    shutil.copytree(
        root / "book", source / "book", ignore=shutil.ignore_patterns(".*", "runs", "studies")
    )
    endings.add(source / "book")
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(root / name, source)
    config = (root / "_config.yml").read_text(encoding="utf-8")
    (repository,) = re.findall(r'^ *repository_url: "(.*)"', config, re.M)
    places = numbering.places(root / "book")
    pages = reference.write(source / "book", places, repository=repository)
    if pages:
        pages.append(every_mistake.write(source / "book", places))
        pages.append(bibliography.write(source / "book"))
        part = "".join(f"      - file: {page}\n" for page in pages)
        with (source / "_toc.yml").open("a", encoding="utf-8") as toc:
            toc.write(f"  - caption: Reference\n    chapters:\n{part}")
    if (notebook := source / "book" / FRONT_EXPLORER[0]).exists():
        page = explorer(notebook, FRONT_EXPLORER[1])
        (source / "book" / "explorer.html").write_text(page, encoding="utf-8")


def explorer(notebook: Path, name: str) -> str:
    """The explorer that a cell of a stored chapter shows, as HTML.

    Raises:
        SiteFailed: if no cell calls it.
    """
    for cell in stored.read(notebook).cells:
        if cell.source.startswith(f"{name}("):
            return cell.outputs[0].data["text/html"]
    raise SiteFailed(f"the front page shows {name}, which no cell of {notebook.name} calls")


def complaints(log: str) -> str:
    """What Jupyter Book objects to: the marked lines of its log, or the exception it died of."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    marked = re.findall(r"^.*\b(?:WARNING|ERROR|CRITICAL)\b.*$", plain, re.MULTILINE)
    crash = re.search(
        r"^[\w.]+(?:Error|Exception): .*?(?=^The above|^Traceback|\Z)",
        plain,
        re.MULTILINE | re.DOTALL,
    )
    if not marked:
        return crash.group().strip() if crash else plain
    return "\n".join(with_cell(line) for line in marked)


def with_cell(line: str) -> str:
    """A complaint about a notebook, placed by cell: myst-nb calls line 3 of cell 7 line 70003."""
    return re.sub(r"^.*/([^/]+\.ipynb):(\d+)\d{4}:", r"\1, cell \2:", line)


def foreign_addresses(site: Path) -> list[str]:
    """Every address on another host that a page or style sheet of `site` makes a browser fetch."""
    found = []
    for file in sorted(site.rglob("*")):
        if file.suffix == ".html":
            addresses = addresses_in_page(file.read_text(encoding="utf-8"))
        elif file.suffix == ".css":
            addresses = addresses_in_style(file.read_text(encoding="utf-8"))
        else:
            continue
        found += [f"{file.relative_to(site)}: {address}" for address in addresses]
    return found


def addresses_in_page(html: str) -> list[str]:
    """Foreign addresses in a page. Links are left out: to follow one is the reader's choice."""
    reader = _Fetched()
    reader.feed(html)
    return reader.addresses


def addresses_in_style(css: str) -> list[str]:
    """Foreign addresses in `url(…)` and `@import` of a style sheet."""
    return re.findall(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""", css)


class _Fetched(HTMLParser):
    """Collects what a browser fetches by itself: src, href, … of every tag but <a>, and styles."""

    attributes = frozenset({"src", "href", "srcset", "poster", "data", "xlink:href"})

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.in_style = tag == "style"
        if ("rel", "canonical") in attrs:  # says where the page is, and fetches nothing
            return
        for name, value in attrs:
            if name in self.attributes and tag != "a" and re.match(r"\s*(https?:)?//", value or ""):
                self.addresses.append(f"<{tag} {name}={value}>")
            elif name == "style":
                self.addresses += addresses_in_style(value or "")

    def handle_endtag(self, tag: str) -> None:
        self.in_style = False

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.addresses += addresses_in_style(data)
