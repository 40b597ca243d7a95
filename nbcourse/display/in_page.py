"""Explorers whose program travels with them: they move without a kernel, and ask no other host.

NAME_explorer.js   defines `explore(root, …)`, which draws into an element of a page
NAME_explorer.css  its looks, if it has any of its own
explorer.js, .css  what all of them share
curves.js          what those of curves share
numbers.css        tables of numbers
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from IPython.display import HTML
from torch import Tensor

FILES = Path(__file__).parent
STYLE = f"<style>{(FILES / 'explorer.css').read_text(encoding='utf-8')}</style>"
# In a notebook that is not trusted yet no program runs, and the sentence stays.
STORED = """%(style)s<style>%(own_style)s</style>
<div class="nb-explorer" id="%(id)s">Run this cell to move what it shows.</div>
<script>(() => {
%(program)s
const root = document.getElementById("%(id)s");
// JupyterLab has uses of its own for plain keys.
root.addEventListener("keydown", event => {
  if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
});
explore(root, %(data)s);
})();</script>"""


def in_page(name: str, *data: object, parts: Sequence[str] = ()) -> HTML:
    """An explorer as a cell shows it, the same in a live notebook and on the site.

    Args:
        name: of its program, `NAME_explorer.js`.
        data: what the program is called with, as JSON.
        parts: shared programs and looks that it stands on, beside explorer.js and explorer.css.
    """
    own = (*parts, f"{name}_explorer")
    program, looks = _joined(("explorer", *own), "js"), _joined(own, "css")
    # "</script>" in a text would end the program.
    given = ", ".join(
        json.dumps(part, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
        for part in data
    )
    return HTML(
        STORED
        % {
            "style": STYLE,
            "own_style": looks,
            "id": "nb-explorer-" + sha256((program + given).encode()).hexdigest()[:8],
            "program": program,
            "data": given,
        }
    )


def rounded(values: Tensor | Sequence[float], *, digits: int) -> list[float]:
    """With so many significant digits, so that any machine stores the same."""
    numbers = values.tolist() if isinstance(values, Tensor) else values
    return [float(f"{number:.{digits}g}") + 0.0 for number in numbers]


def _joined(names: Sequence[str], suffix: str) -> str:
    files = (FILES / f"{name}.{suffix}" for name in names)
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())
