"""The mathematics of the pages, drawn while the site is built: a Sphinx extension.

A browser needs seconds of a phone's processor to draw the formulas of a chapter. Here MathJax draws
them beforehand, in V8: a page brings its formulas as they are seen, and as MathML for screen
readers, and needs no script for them. MathJax's parts and fonts come from sphinx-mathjax-offline.
"""

import atexit
import html
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING

from docutils import nodes
from py_mini_racer import JSEvalException, MiniRacer
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.writers.html5 import HTML5Translator

NAME = "drawn"  # of this renderer, among Sphinx's
SHEET = "mathematics.css"  # `bundles` removes the rules of characters that no page uses
FONTS = "output/chtml/fonts/woff-v2"
# Small letters as high as those of the text around them: MathJax's have .442 em.
SIZE = "mjx-container[jax] { font-size: calc(1ex / .442); }"
PARTS = (
    "core",
    "adaptors/liteDOM",
    "input/tex-base",
    "[tex]/ams",
    "[tex]/boldsymbol",
    "output/chtml",
    "output/chtml/fonts/tex",
    "a11y/assistive-mml",  # what is read aloud
)
# A mistake ends the drawing of a formula, where MathJax would print its message in the page; and
# formulas that scroll need the focus of the keyboard.
SETTINGS = """globalThis.window = globalThis;
globalThis.MathJax = {
  loader: { load: [] },
  startup: { typeset: false },
  tex: {
    packages: { "[+]": ["ams", "boldsymbol"] },
    formatError: (jax, error) => { throw new Error(error.message); },
  },
  chtml: { adaptiveCSS: false, fontURL: "FONTS" },
};"""
METHODS = """MathJax.startup.getComponents();
MathJax.startup.makeMethods();
const { adaptor } = MathJax.startup;
const sheet = () => adaptor.textContent(MathJax.chtmlStylesheet());
const drawn = (tex, display) => {
  const formula = MathJax.tex2chtml(tex, { display });
  if (display) adaptor.setAttribute(formula, "tabindex", "0");
  return adaptor.outerHTML(formula);
};"""

logger = logging.getLogger(__name__)


def folder() -> Path:
    """Where MathJax lies."""
    package = "sphinx-mathjax-offline"
    return Path(str(distribution(package).locate_file(f"{package}/static/mathjax")))


@cache
def mathjax() -> MiniRacer:
    """MathJax with its parts, ready to draw."""
    machine = MiniRacer()
    atexit.register(machine.close)  # its thread would keep the process
    files = ["startup", *(part.replace("[tex]", "input/tex/extensions") for part in PARTS)]
    start, *parts = ((folder() / f"{file}.js").read_text(encoding="utf-8") for file in files)
    there = f"MathJax.loader.preLoad({', '.join(map(repr, PARTS))});"
    for program in (SETTINGS.replace("FONTS", f"mathjax/{FONTS}"), start, there, *parts, METHODS):
        machine.eval(program)
    return machine


@cache
def drawn(tex: str, *, display: bool) -> str:
    r"""A formula as HTML.

    Args:
        tex: what stands between the dollars.
        display: whether it stands by itself, and not in a line of text.

    Raises:
        ValueError: if it is not a formula of TeX that MathJax knows.
    """
    try:
        return str(mathjax().call("drawn", tex, display))
    except JSEvalException as error:
        reason = str(error).splitlines()[0].rpartition("Error: ")[2]
        raise ValueError(f"the formula {tex!r} cannot be drawn: {reason}") from None


def visit_inline(translator: "HTML5Translator", node: nodes.math) -> None:
    """Draw a formula in a line."""
    start = translator.starttag(node, "span", "", CLASS="math notranslate nohighlight")
    translator.body += [start, _drawn(node, node.astext(), display=False), "</span>"]
    raise nodes.SkipNode


def visit_block(translator: "HTML5Translator", node: nodes.math_block) -> None:
    """Draw a formula that stands by itself, with the number that the notebook gave it."""
    translator.body.append(translator.starttag(node, "div", CLASS="math notranslate nohighlight"))
    tex = node.astext().strip()
    if node["number"]:
        translator.body.append(f'<span class="eqno">({node["number"]})')
        translator.add_permalink_ref(node, "Link to this equation")
        translator.body.append("</span>")
    if not node["nowrap"] and r"\\" in tex:
        tex = rf"\begin{{split}}{tex}\end{{split}}"
    translator.body += [_drawn(node, tex, display=True), "</div>\n"]
    raise nodes.SkipNode


def _drawn(node: nodes.Element, tex: str, *, display: bool) -> str:
    """The formula; where it has a mistake, its text, and a warning that names the place."""
    try:
        return drawn(tex, display=display)
    except ValueError as error:
        logger.warning(str(error), location=node)
        return html.escape(tex)


def set_up(app: Sphinx, config: Config) -> None:
    """Let formulas be drawn here, and pages ask for their style."""
    config.html_math_renderer = NAME
    app.add_css_file(SHEET)


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the style sheet, and the fonts that it names."""
    if error is not None:
        return
    static = Path(app.outdir, "_static")
    copytree(folder() / FONTS, static / "mathjax" / FONTS, dirs_exist_ok=True)
    (static / SHEET).write_text(str(mathjax().call("sheet")) + SIZE, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer(NAME, (visit_inline, None), (visit_block, None))
    app.connect("config-inited", set_up, priority=900)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": False}  # V8 survives no fork
