"""Code cells as text: what IPython would make of them, where there is no IPython to run them."""

import re
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager


def writable(text: str) -> str:
    """An untrusted text with "?" for lone surrogates, which no file in UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plain_python(source: str) -> str:
    """The source of a cell without IPython's own syntax: `%magic` and `!command` become calls.

    They are calls of `get_ipython()`, which answers `WithoutIPython` where there is no IPython. A
    cell of which IPython can make nothing is returned as it is, and is no Python.
    """
    lines = (line.lstrip() for line in source.splitlines())
    marked = any(mark in source for mark in (*"%!?", ">>>", "In ["))  # behind a prompt may be one
    escaped = marked or any(line[:1] in (*",;/",) for line in lines)
    manager = TransformerManager() if escaped else _WithoutEscapes()
    try:
        return re.sub(r"\n\Z", "", manager.transform_cell(source))
    except (SyntaxError, IndexError):  # of indentation; of `=%` in front of an open string
        return source


class _WithoutEscapes(TransformerManager):
    """For cells in which nothing can be one: looking for them takes nearly all of the time."""

    def do_token_transforms(self, lines: list[str]) -> list[str]:
        return lines


class WithoutIPython:
    """Stands for IPython where a notebook is graded: magics and shell commands do nothing."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def run_cell_magic(self, magic: str, line: str, body: str) -> None:
        """Cells that are only timed or silenced are run; other languages are not."""
        if magic in ("time", "timeit", "capture"):
            exec(plain_python(body), self._names)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **keywords: None
