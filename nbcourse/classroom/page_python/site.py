"""Cells in the pages of sheets, in which a reader answers without a kernel: a Sphinx extension.

After the check of each exercise that a page can offer (`Exercise.in_page`) there is a cell. Python,
which is Brython inside of a worker, is one file for all pages; a page loads it when the first
answer is checked. It is a string in a script, so that it can also be loaded from a disk.
"""

import json
import re
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from nbcourse.classroom import masters
from nbcourse.repository import ROOT

HERE = Path(__file__).parent
FILE = "python.js"  # below _static
NOTICE = (
    "/* Brython, https://brython.info, by Pierre Quentel and others: BSD 3-Clause licence. */\n"
)
MODULES = ("math",)  # of the standard library: Brython's others take seconds to load
LIBRARY = re.compile(r"var scripts = (\{.*\})\s*__BRYTHON__\.update_VFS", re.DOTALL)

INTRODUCTION = (
    "<p><strong>Or here, in this page.</strong> Plain Python, and the checks of the notebook: a "
    "list of numbers stands for a tensor, a list of lists for one of two dimensions, and "
    "<code>math</code> can be imported. The first check fetches Python, a megabyte and a half, "
    "from this site. What you type stays in this browser.</p>"
)
AGAIN = "<p><strong>Or here</strong>, in plain Python, with lists for tensors.</p>"
CELL = (
    '<div class="nb-python" data-sheet="{sheet}" data-exercise="{exercise}" data-answer="{answer}">'
    '{words}<p class="nb-without">That needs a browser that runs JavaScript; '
    '<a href="{notebook}">the notebook</a> does without.</p>'
    '<script type="text/plain">{stub}</script></div>'
)
PROGRAM = (
    "<style>{style}</style><script>(() => {{\n{cells}\noffer({program}, {python});\n}})();</script>"
)

logger = logging.getLogger(__name__)


def insert(app: Sphinx, page: nodes.document) -> None:
    """Add the cells of a sheet to its page."""
    name = app.env.docname
    folder, _, sheet = name.rpartition("/")
    path = ROOT / "solutions" / f"{sheet}.ipynb"
    if folder != "exercises" or not path.exists():
        return
    # These import torch, which most sites and most of their pages do without.
    from nbcourse.classroom.page_python import program
    from nbcourse.classroom.worked_cases import CALLS_CHECK

    master = masters.load_master(path)
    stubs = program.stubs(master)
    if not stubs:
        return
    if brython() is None:
        logger.warning("the exercises in the pages need Brython: python -m pip install brython")
        return
    words = INTRODUCTION
    for block in list(page.findall(nodes.literal_block)):
        call = CALLS_CHECK.search(block.astext())
        if call is None or call["exercise"] not in stubs:
            continue
        answer, stub = stubs[call["exercise"]]
        html = CELL.format(
            sheet=sheet,
            exercise=call["exercise"],
            answer=answer,
            words=words,
            notebook=f"../_sources/{name}.ipynb",
            stub=stub,
        )
        _after(_cell(block), html)
        words = AGAIN
    page += nodes.raw("", _script(program.program(master)), format="html")
    app.env.metadata[name]["python"] = True


def _script(text: str) -> str:
    style, cells = ((HERE / name).read_text(encoding="utf-8") for name in ("cells.css", "cells.js"))
    return PROGRAM.format(
        style=style, cells=cells, program=quoted(text), python=quoted(f"../_static/{FILE}")
    )


def quoted(text: str) -> str:
    """A text as a string of JavaScript in a page, where "</script>" would end the program."""
    return json.dumps(text, ensure_ascii=False).replace("</", "<\\/")


def _cell(block: nodes.Element) -> nodes.Element:
    """The cell whose code a block is."""
    while "cell" not in block.get("classes", []):
        block = block.parent
    return block


def _after(cell: nodes.Element, html: str) -> None:
    cell.parent.insert(cell.parent.index(cell) + 1, nodes.raw("", html, format="html"))


def brython() -> Path | None:
    """The folder of Brython's files, if it is installed."""
    found = find_spec("brython")
    return Path(found.origin).parent / "data" if found and found.origin else None


def python(files: Path) -> str:
    """The program of the worker: Brython, the modules that it needs, and worker.js."""
    library = LIBRARY.search((files / "brython_stdlib.js").read_text(encoding="utf-8"))
    if library is None:
        raise ValueError("brython_stdlib.js has another form than that of Brython 3.15")
    every = json.loads(library[1])
    taken = json.dumps({name: every[name] for name in MODULES})
    return "\n;".join(
        [
            'globalThis.__BRYTHON__ = {brython_path: "https://nowhere.invalid/"}',
            (files / "brython.js").read_text(encoding="utf-8"),
            f"__BRYTHON__.use_VFS = true\n;__BRYTHON__.update_VFS({taken})",
            (HERE / "worker.js").read_text(encoding="utf-8"),
        ]
    )


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the file that every page with a cell asks for, if there is one."""
    files = brython()
    if error is not None or files is None:
        return
    if any(data.get("python") for data in app.env.metadata.values()):
        text = f"{NOTICE}globalThis.nbPython = {quoted(python(files))};"
        Path(app.outdir, "_static", FILE).write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", insert)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
