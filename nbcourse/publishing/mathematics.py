"""The mathematics of the pages: MathJax, with those of its parts that the book uses, in one file.

The file that MathJax offers ready-made is half as large again: it has a menu and packages of TeX
that the book does without. Parts and fonts come from sphinx-mathjax-offline, which has them all.
They are written for browsers of 2015: each of their modules brings functions along for what
JavaScript has learned since then, a sixth of the file. Here it has them once.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree

from sphinx.application import Sphinx
from sphinx.config import Config

BUNDLE = "mathjax/book.js"
FONTS = "output/chtml/fonts/woff-v2"
START = "startup"
PARTS = {  # the name that MathJax asks for a part by, and its file
    "core": "core",
    "input/tex-base": "input/tex-base",
    "[tex]/ams": "input/tex/extensions/ams",
    "[tex]/boldsymbol": "input/tex/extensions/boldsymbol",
    "output/chtml": "output/chtml",
    "output/chtml/fonts/tex": "output/chtml/fonts/tex",
    "a11y/assistive-mml": "a11y/assistive-mml",  # what is read aloud
}
# What TypeScript puts into every module, as `this && this.NAME || …`, in the JavaScript of today.
HELPERS = {
    "__extends": "(one, base) => { Object.setPrototypeOf(one, base);"
    " one.prototype = Object.create(base.prototype, { constructor: { value: one,"
    " writable: true, configurable: true } }); }",
    "__assign": "Object.assign",
    "__read": "(all, count) => count === undefined ? [...all] : [...all].slice(0, count)",
    "__spreadArray": "(to, from) => to.concat([...from])",
    "__values": "all => all[Symbol.iterator]()",
}
COPY = re.compile(rf"this&&this\.({'|'.join(HELPERS)})\|\|")
# A few formulas at a time, so that the page answers its reader meanwhile; more of them where the
# whole book is one page, to be printed. Without the menu no formula has the focus of the keyboard;
# those that scroll need it.
START_DRAWING = """MathJax.config.startup.pageReady = async () => {
  const formulas = [...document.querySelectorAll(".math.notranslate")];
  const few = Math.max(5, Math.ceil(formulas.length / 30));
  while (formulas.length) {
    await MathJax.typesetPromise(formulas.splice(0, few));
    await new Promise(done => setTimeout(done));
  }
  for (const formula of document.querySelectorAll('mjx-container[display="true"]')) {
    formula.tabIndex = 0;
  }
};"""
SETTINGS = {"loader": {"load": []}, "tex": {"packages": {"[+]": ["ams", "boldsymbol"]}}}


def bundle(mathjax: Path) -> str:
    """The parts behind each other, and before them, that nothing is left to be fetched."""
    start, *parts = (
        (mathjax / f"{name}.js").read_text(encoding="utf-8") for name in (START, *PARTS.values())
    )
    there = f"MathJax.loader.preLoad({', '.join(map(repr, PARTS))});"
    once = f"const {', '.join(f'{name} = {code}' for name, code in HELPERS.items())};"
    return "\n;".join([once, *map(without_copies, [start, there, *parts]), START_DRAWING])


def without_copies(program: str) -> str:
    """A program whose modules call the helpers of TypeScript by name, and bring none along."""
    kept, end = [], 0
    for copy in COPY.finditer(program):
        kept += [program[end : copy.start()], copy[1]]
        end = _end_of_expression(program, copy.end())
    return "".join([*kept, program[end:]])


def _end_of_expression(program: str, start: int) -> int:
    """Where the comma or semicolon is behind an expression; its texts have no brackets."""
    depth = 0
    for i in range(start, len(program)):
        depth += (program[i] in "([{") - (program[i] in ")]}")
        if depth == 0 and program[i] in ",;":
            return i
    raise ValueError("the program has a helper of TypeScript that does not end")


def set_up(app: Sphinx, config: Config) -> None:
    """Let pages ask for the file."""
    config.mathjax_path = BUNDLE
    config.mathjax_options = {"async": "async"}  # a task of its own, beside those of the theme
    config.mathjax3_config = {**(config.mathjax3_config or {}), **SETTINGS}


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the file and the fonts beside it."""
    found = find_spec("sphinx-mathjax-offline")
    if error is not None or found is None or found.origin is None:
        return
    mathjax, file = (
        Path(found.origin).parent / "static/mathjax",
        Path(app.outdir, "_static", BUNDLE),
    )
    copytree(mathjax / FONTS, file.parent / FONTS, dirs_exist_ok=True)
    file.write_text(bundle(mathjax), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("config-inited", set_up, priority=900)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
