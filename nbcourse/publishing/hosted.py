"""Notebooks for hosts that know nothing of the book, as Colab: their first cell installs it.

The book's own notebooks do not have that cell. Where the site has a repository, the copies that its
pages offer get it, and so does Colab, which is sent to the same copies in the branch that the site
is published from. (Binder reads `.binder/` and needs no cell.)
"""

import re
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from nbcourse.publishing import stored

SITE_BRANCH = "gh-pages"
SOURCES = "_sources"
COLAB = re.compile(r"(https://colab\.research\.google\.com/github/[^/]+/[^/]+/blob/)[^/]+/book/")
# The lock, without what the host has in use: its torch is for its GPU, and its kernel runs already.
LOCKED = "grep -vE '^(torch|numpy|ipy|jupyter|traitlets|tornado|matplotlib-inline)'"
# Not the extra `book`, which would replace the host's kernel and IPython while they run.
BOOK, DRAWING = '"./nbcourse-book[lm,agents]"', 'matplotlib "ipywidgets>=8.1"'
# An editable install is seen by the next kernel only; this one is told the folder.
INSTALL = """# If the book is not here, fetch and install it, once: some minutes.
import os
import sys
from importlib.util import find_spec

if find_spec("nbcourse") is None:
    !git clone --quiet --depth 1 {repository} nbcourse-book
    !{locked} nbcourse-book/requirements.txt > nbcourse-book/hosted.txt
    %pip install --quiet --constraint nbcourse-book/hosted.txt --editable {book} {drawing}
    %cd nbcourse-book/book
    sys.path.insert(0, os.path.abspath(".."))"""


def installing(notebook: NotebookNode, repository: str) -> NotebookNode:
    """A notebook with a cell before all others that installs the book if it is not there."""
    source = INSTALL.format(repository=repository, book=BOOK, drawing=DRAWING, locked=LOCKED)
    notebook.cells.insert(0, new_code_cell(source))
    return notebook


def write(site: Path, repository: str) -> None:
    """Add the cell to the notebooks that the pages of a built site offer, and send Colab there."""
    for path in (site / SOURCES).rglob("*.ipynb"):
        stored.write(installing(stored.read(path), repository), path)
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(COLAB.sub(rf"\1{SITE_BRANCH}/{SOURCES}/", text), encoding="utf-8")
