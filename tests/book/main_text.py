"""The main line of a chapter: its cells without what goes deeper, and what can be counted in them.

cells(path)        → every cell, and whether it goes deeper
prose(markdown)    → what is read as sentences: no formulas, tables, comments, addresses
defined, used      → the names that a code cell binds at its top, and those that it looks up
"""

import ast
import builtins
import functools
import re
import symtable
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from nbcourse.publishing import twins
from nbcourse.publishing.folds import DEEPER

HEADING = re.compile(r"^(#+) (.*)$", re.M)
NOT_READ_ON = ("Readings", "Exercises", "Summary")
LETTER = re.compile(
    r"\\(?:alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|kappa|lambda|mu|pi|rho|sigma|tau"
    r"|chi|Psi|psi|phi)|(?<![a-zA-Z\\])[A-Za-z](?![a-zA-Z])"
)


@functools.cache
def cells(text: Path) -> tuple[tuple[NotebookNode, bool], ...]:
    """Every cell of a chapter and whether it goes deeper; a heading with its gist does not."""
    return tuple(_cells(text))


def _cells(text: Path) -> Iterator[tuple[NotebookNode, bool]]:
    folded_at = None  # the level of the deeper section that we are in
    for cell in twins.read_text(text).cells:
        heading = HEADING.search(cell.source) if cell.cell_type == "markdown" else None
        if heading and folded_at is not None and heading.start():
            before = cell.source[: heading.start()]
            assert not before or before.startswith("<div"), f"a cell of its own: {heading[0]}"
        if heading and (folded_at is None or len(heading[1]) <= folded_at):
            folded_at = len(heading[1]) if DEEPER in heading[2].split() else None
            yield cell, False
        else:
            yield cell, folded_at is not None


def main(text: Path) -> list[NotebookNode]:
    """The cells of the main line."""
    return [cell for cell, deeper in cells(text) if not deeper]


def prose(markdown: str) -> str:
    """What is read as sentences; a formula within one counts as a word."""
    for pattern, instead in (
        (r"<!--.*?-->", ""),
        (r"^> [^\n]*$", ""),  # the caption of the picture that opens a chapter
        (r"^\s*\\begin\{equation\*\}.*?\\end\{equation\*\}", ""),
        (r"^\$\$.*?^\$\$[^\n]*", ""),
        (r"^```.*?^```", ""),
        (r"\$[^$\n]+\$", "X"),
        (r"\]\([^)]*\)", "]"),
        (r"<[^>]+>", ""),
        (r"`[^`\n]*`", "C"),
        (r"^(\||:::|:class)[^\n]*$", ""),
    ):
        markdown = re.sub(pattern, instead, markdown, flags=re.S | re.M)
    return markdown


def running_cells(text: Path) -> list[str]:
    """The Markdown of the main line but for what to remember, exercises and readings."""
    sources, reading = [], True
    for cell in main(text):
        if cell.cell_type != "markdown":
            continue
        if heading := HEADING.search(cell.source):
            reading = not heading[2].endswith(NOT_READ_ON)
        if reading:
            sources.append(cell.source)
    return sources


@functools.cache
def running_text(text: Path) -> str:
    """The prose of these cells."""
    return "\n\n".join(map(prose, running_cells(text)))


def argued(running: str) -> str:
    """What argues: no headings, list entries and captions."""
    lines = running.split("\n")
    return " ".join(line for line in lines if not re.match(r"\s*(#|- |\*Table|\*Figure)", line))


def sentences(running: str) -> list[str]:
    """The sentences that argue."""
    split = re.split(r"(?<=[.!?:])\s+(?=[A-Z*(“\"0-9])", argued(running))
    return [sentence for sentence in split if len(sentence.split()) > 2]


@functools.cache
def letters(text: Path) -> frozenset[str]:
    """The letters that stand for something in the formulas of the main line."""
    source = " ".join(cell.source for cell in main(text) if cell.cell_type == "markdown")
    formulas = re.findall(r"\$[^$]+\$|\\begin\{equation\*\}.*?\\end\{equation\*\}", source, re.S)
    return frozenset(
        LETTER.findall(
            re.sub(r"\\(?:text|mathrm|begin|end|tag|operatorname)\{[^}]*\}", "", " ".join(formulas))
        )
    )


def defined(code: str) -> set[str]:
    """The names that a cell binds at its top level."""
    names: set[str] = set()
    for statement in ast.parse(_plain(code)).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.add(statement.name)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    return names


def used(code: str) -> set[str]:
    """The names that a cell looks up in the notebook, less those of Python."""
    return set(_looked_up(symtable.symtable(_plain(code), "cell", "exec"))) - set(dir(builtins))


def _looked_up(table: symtable.SymbolTable) -> Iterator[str]:
    whole_cell = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (whole_cell or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _looked_up(inner)


def _plain(code: str) -> str:
    """Without the lines that are IPython's."""
    return re.sub(r"^\s*[%!].*$", "pass", code, flags=re.M)
