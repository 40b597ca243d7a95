"""Cells in pages, in which a reader answers exercises without a kernel: a Sphinx extension.

In the page of a sheet a cell stands in place of the notebook's own cells, the stub and the check,
of each exercise that a page can check; where it cannot (`Exercise.elsewhere`) a line says why, and
leads to the notebook. In a chapter a cell stands where its ending asks for the first exercise
(`publishing.endings`). Python, which is Brython inside of a worker, is one file for all pages; a
page loads it when the first answer is checked. It is a string in a script, so that it can also be
loaded from a disk.
"""

import json
import re
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from nbcourse.classroom import masters
from nbcourse.publishing import endings
from nbcourse.repository import ROOT

HERE = Path(__file__).parent
FILE = "python.js"  # below _static
NOTICE = (
    "/* Brython, https://brython.info, by Pierre Quentel and others: BSD 3-Clause licence. */\n"
)
MARKER = re.compile(rf'class="{endings.HERE}" data-exercise="(?P<exercise>[\w-]+)"')
LIBRARY = re.compile(r"var scripts = (\{.*\})\s*__BRYTHON__\.update_VFS", re.DOTALL)

# Brython 3.15 takes whatever a comparison returns for true, in `max`, `sorted`, `in`, `==` of lists
# and a < b < c: so also a tensor that holds False. Its own uses of a comparison ask for the truth.
COMPARED = re.compile(r"(?<!`)\$B\.rich_comp\((?=['\"]__|op,x_value)")
CHAINED = "comps.push(`$B.rich_comp('${op}'"
DEFINED = "$B.rich_comp=function(op,x,y){"
TRUTH = "$B.rich_truth=function(op,x,y){return $B.$bool($B.rich_comp(op,x,y))}\n"
# And its `zip` of no iterable never ends. The small torch asks for one: where a number is True.
ZIPPED = "_b_.zip.tp_iternext=function*(self){"

INTRODUCTION = (
    "<p><strong>Answer here.</strong> The checks are those of the notebook, and so is what you "
    "write: Python with <code>math</code> and a small <code>torch</code>, which has what the "
    "sheets need and says so where it lacks something. The first check fetches both, 1.7 "
    "megabytes, from this site. What you type stays in this browser.</p>"
)
AGAIN = "<p><strong>Answer here.</strong></p>"
IN_NOTEBOOK, IN_PAGE = ", run the cell, then run the check below it", ", and press Check"
ELSEWHERE = (
    '<p class="nb-elsewhere"><strong>Answer this one in <a href="{notebook}">the notebook</a>.'
    "</strong> {why}</p>"
)
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
    """Add the cells of a sheet to its page, and that of its first exercise to the chapter's."""
    name = app.env.docname
    folder, _, sheet = name.rpartition("/")
    path = ROOT / "solutions" / f"{sheet}.ipynb"
    markers = [] if folder else _markers(page)
    if not path.exists() or not (folder == "exercises" or markers):
        return
    # These import torch, which most sites and most of their pages do without.
    from nbcourse.classroom.page_python import program

    master = masters.load_master(path)
    stubs, elsewhere = program.stubs(master), program.elsewhere(master)
    if stubs and brython() is None:
        logger.warning("the exercises in the pages need Brython: python -m pip install brython")
        return
    up, words = "../" if folder else "", INTRODUCTION
    notebook = f"{up}_sources/exercises/{sheet}.ipynb"
    placed = []
    for exercise, place in _checks(page) if folder else markers:
        if exercise in elsewhere and folder:
            said = ELSEWHERE.format(notebook=notebook, why=elsewhere[exercise])
            place.parent.insert(place.parent.index(place) + 1, nodes.raw("", said, format="html"))
        if exercise not in stubs:
            continue
        answer, stub = stubs[exercise]
        html = CELL.format(
            sheet=sheet,
            exercise=exercise,
            answer=answer,
            words=words,
            notebook=notebook,
            stub=stub,
        )
        _put(place, nodes.raw("", html, format="html"), answer)
        placed.append(exercise)
        words = AGAIN
    if folder and placed:
        _begin(page)
    if placed:
        page += nodes.raw("", _script(program.program(master, placed), up), format="html")
        app.env.metadata[name]["python"] = True


def _begin(page: nodes.document) -> None:
    """Begin a sheet with its exercises: without what only a notebook runs, or is told to run."""
    for block in list(page.findall(nodes.literal_block)):
        if "from nbcourse.checks import Sheet" in block.astext():
            cell = _cell(block)
            cell.parent.remove(cell)
            break
    for text in list(page.findall(nodes.Text)):
        if IN_NOTEBOOK in text:
            text.parent.replace(text, nodes.Text(text.replace(IN_NOTEBOOK, IN_PAGE)))
            break


def _markers(page: nodes.document) -> list[tuple[str, nodes.Element]]:
    """Where the ending of a chapter asks for an answer: exercise and place."""
    found = [(MARKER.search(raw.astext()), raw) for raw in page.findall(nodes.raw)]
    return [(marker["exercise"], raw) for marker, raw in found if marker]


def _checks(page: nodes.document) -> list[tuple[str, nodes.Element]]:
    """The cells with checks in the page of a sheet, by their exercises."""
    from nbcourse.classroom.worked_cases import CALLS_CHECK

    blocks = [(CALLS_CHECK.search(b.astext()), b) for b in page.findall(nodes.literal_block)]
    return [(call["exercise"], _cell(block)) for call, block in blocks if call]


def _put(place: nodes.Element, cell: nodes.raw, answer: str) -> None:
    """In place of a marker; or of a stub, whose check goes as well; or behind what is solved."""
    siblings = place.parent
    if isinstance(place, nodes.raw):
        siblings.replace(place, cell)
        return
    at = siblings.index(place)
    stubs = [i for i in range(at) if _is_stub(siblings[i], answer)]
    if stubs:
        siblings.remove(place)
        siblings[stubs[-1]] = cell
    else:
        siblings.insert(at + 1, cell)


def _is_stub(node: nodes.Node, answer: str) -> bool:
    text = node.astext() if "cell" in getattr(node, "attributes", {}).get("classes", ()) else ""
    return f"def {answer}(" in text and endings.STUB in text


def _script(text: str, up: str) -> str:
    style, cells = ((HERE / name).read_text(encoding="utf-8") for name in ("cells.css", "cells.js"))
    return PROGRAM.format(
        style=style, cells=cells, program=quoted(text), python=quoted(f"{up}_static/{FILE}")
    )


def quoted(text: str) -> str:
    """A text as a string of JavaScript in a page, where "</script>" would end the program."""
    return json.dumps(text, ensure_ascii=False).replace("</", "<\\/")


def _cell(block: nodes.Element) -> nodes.Element:
    """The cell whose code a block is."""
    while "cell" not in block.get("classes", []):
        block = block.parent
    return block


def brython() -> Path | None:
    """The folder of Brython's files, if it is installed."""
    found = find_spec("brython")
    return Path(found.origin).parent / "data" if found and found.origin else None


def mended(brython: str) -> str:
    """Brython, less two mistakes: see `COMPARED` and `ZIPPED`.

    Raises:
        ValueError: if its text has another form.
    """
    if any(brython.count(known) != 1 for known in (CHAINED, DEFINED, ZIPPED)):
        raise ValueError("brython.js compares or zips in another way than Brython 3.15")
    asked = COMPARED.sub("$B.rich_truth(", brython)
    chained = CHAINED.replace("$B.rich_comp", "${len > 1 ? '$B.rich_truth' : '$B.rich_comp'}")
    compared = asked.replace(CHAINED, chained).replace(DEFINED, TRUTH + DEFINED)
    return compared.replace(ZIPPED, ZIPPED + "if(!self.iters?.length){return}\n")


def python(files: Path) -> str:
    """The program of the worker: Brython, what all pages share, and worker.js."""
    from nbcourse.classroom.page_python.program import PLAIN, shared

    library = LIBRARY.search((files / "brython_stdlib.js").read_text(encoding="utf-8"))
    if library is None:
        raise ValueError("brython_stdlib.js has another form than that of Brython 3.15")
    every = json.loads(library[1])
    taken = json.dumps({name: every[name] for name in PLAIN})
    return "\n;".join(
        [
            'globalThis.__BRYTHON__ = {brython_path: "https://nowhere.invalid/"}',
            mended((files / "brython.js").read_text(encoding="utf-8")),
            f"__BRYTHON__.use_VFS = true\n;__BRYTHON__.update_VFS({taken})",
            f"const SHARED = {json.dumps(shared(), ensure_ascii=False)}",
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
