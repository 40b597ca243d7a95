"""What the theme lacks for keyboards, screen readers and slow connections: a Sphinx extension.

- Tables and figures that scroll can be focused by the keyboard.
- The empty corner cell of a table is not a heading, and the side bar with the logo is a landmark.
- What can be unfolded is announced by its own words.
- Icons come from their font alone; the theme also loads them as a script of 1.5 MB.
- A page is light or dark from the start; otherwise every element would be styled twice.
- The letters of the text are read before the first of them is drawn, so that no line moves.
- The section being read is tracked only where the window is wide enough for the list of contents.
- Code has no markup for names, operators and brackets, which have no colour; it was a third of a
  page.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

# A page that is opened at its top is laid out as far as the window first: see book.css. Sections of
# plain text follow one by one while nothing else is to do; those of a chapter, whose formulas take
# long, when a reader comes near them. For a place further down, asked for by a link or by going
# back, the whole page is laid out at once.
AT_ONCE = """
for (const look of ["", "italic", "600"]) document.fonts.load(`${look} 1em "Source Serif 4"`);
if (innerWidth < 1200) document.body.removeAttribute("data-bs-spy");
if (!location.hash && performance.getEntriesByType("navigation")[0]?.type === "navigate") {
  const all = () => document.body.classList.remove("nb-from-the-top");
  document.body.classList.add("nb-from-the-top");
  addEventListener("click", ({ target }) => target.closest("a[href*='#']") && all(), true);
  addEventListener("load", () => {
    const text = ".bd-article:not(:has(div.cell)) > section > section";
    const later = [...document.querySelectorAll(text)];
    const idle = window.requestIdleCallback ?? setTimeout;
    idle(function next() {
      later[0]?.style.setProperty("content-visibility", "visible");
      if (later.shift()) idle(next);
    });
  });
}
"""
CHANGES = [
    (
        r'<div class="pst-scrollable-table-container">',
        r'<div class="pst-scrollable-table-container" tabindex="0">',
    ),
    (
        r'<div class="cell_output docutils container">(?=\s*<img )',
        r'<div class="cell_output docutils container" tabindex="0">',
    ),
    (r'<th class="[^"]*head[^"]*">(?:<p></p>)?</th>', r"<td></td>"),
    (
        r'<div class="bd-sidebar-primary bd-sidebar',
        r'<div role="complementary" aria-label="Book" class="bd-sidebar-primary bd-sidebar',
    ),
    (r'<script src="[^"]*/fontawesome/[^"]*"></script>', ""),
    (
        r'localStorage\.getItem\("theme"\) \|\| "auto"',
        'localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches '
        '? "dark" : "light")',
    ),
    (r'<summary aria-label="[^"]*">', "<summary>"),
    (r'<body data-bs-spy="scroll"[^>]*>', rf"\g<0><script>{AT_ONCE}</script>"),
    (r'<span class="(?:n|o|p|w)">([^<]*)</span>', r"\1"),  # names and brackets have no colour
]


def mended(page: str) -> str:
    """The HTML of a page with all changes."""
    for pattern, replacement in CHANGES:
        page = re.sub(pattern, replacement, page)
    return page


def mend(app: Sphinx, error: Exception | None) -> None:
    """Mend every page that was built."""
    if error is None:
        for file in Path(app.outdir).rglob("*.html"):
            file.write_text(mended(file.read_text(encoding="utf-8")), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("build-finished", mend)
