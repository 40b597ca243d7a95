"""The reference pages of the site: every public function of the package, from its source.

One page for each room of the package. An entry has the signature, the docstring, links to the
book's equation and to the chapter that derives it, the tests that call it, and the source. The
source is read and not imported, so a page costs nothing but its text.
"""

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from nbcourse.publishing.numbering import Place
from nbcourse.repository import ROOT

PACKAGE = ROOT / "nbcourse"
ROOMS = {
    "functional": "Pure tensor functions: advantages, returns, surrogates, averages, KL",
    "toys": "Problems small enough to list every outcome",
    "agents": "Agents for Gymnasium, each a row of a table",
    "tasks": "Prompts, answers and rewards",
    "lm": "A language model as a policy",
    "training": "What happens in a step: algorithms, recipes, the loop",
    "experiments": "The life of a run: records, evaluation, comparison",
    "examine": "What a loss function does, by enumeration",
    "diagnosis": "What is wrong with a run: witness batches, planted faults, causes",
    "budget": "What a run will need, in memory and time",
    "display": "Figures, tables and explorers of the chapters",
}
FOLDER = "reference"
MANY_TESTS = 4
SECTIONS = {  # of a docstring → its title on the page
    "Args:": "Arguments",
    "Attributes:": "Attributes",
    "Returns:": "Returns",
    "Raises:": "Raises",
}

# What Markdown would read as its own, but for *emphasis*, which docstrings have as well.
MARKS = re.compile(r"[\\_$<>\[\]|#]|\*(?![^\s*][^*]*\*)(?<!\w\*)")

Public = ast.FunctionDef | ast.ClassDef


def write(book: Path, places: Mapping[str, Place]) -> list[str]:
    """Write a page for each room into `book`/reference and return their names, without suffix.

    Args:
        book: the folder of the pages.
        places: where the equations are that docstrings name, `numbering.places`.
    """
    folder = book / FOLDER
    folder.mkdir()
    tests = {
        file: set(re.findall(r"\w+", file.read_text(encoding="utf-8")))
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    for room, purpose in ROOMS.items():
        page = "\n\n".join(_page(room, purpose, places, tests))
        (folder / f"{room}.md").write_text(page + "\n", encoding="utf-8")
    return [f"{FOLDER}/{room}" for room in ROOMS]


def public(module: Path) -> Iterator[Public]:
    """The functions and classes that a module defines for others, in its order."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, Public) and not node.name.startswith("_"):
            yield node


def _page(
    room: str, purpose: str, places: Mapping[str, Place], tests: Mapping[Path, set[str]]
) -> Iterator[str]:
    yield f"# nbcourse.{room}\n\n{purpose}."
    for module in sorted((PACKAGE / room).glob("*.py")):
        nodes = list(public(module))
        if not nodes:
            continue
        source = module.read_text(encoding="utf-8")
        summary = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0]
        yield f"## {room}.{module.stem}\n\n{_prose(summary, places)}"
        for node in nodes:
            yield f"### {node.name}"
            yield f"```python\n{signature(node)}\n```"
            yield docstring(node, places)
            yield from _links(node, _tests_of(module, node, tests), places)
            yield _folded(module, node, source)


def signature(node: Public) -> str:
    """`leave_one_out(rewards: Tensor, *, group_size: int) -> Tensor`, broken where it is long."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"class {node.name}" + (f"({bases})" if bases else "")
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{node.name}({ast.unparse(node.args)}){returns}"
    if len(line) <= 88:
        return line
    parts = _split(ast.unparse(node.args))
    return f"{node.name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _split(arguments: str) -> list[str]:
    """Arguments at the commas that are in no bracket."""
    parts, depth = [""], 0
    for character in arguments:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def docstring(node: Public, places: Mapping[str, Place]) -> str:
    """A docstring as Markdown: indented formulas stay as they are, arguments become a list."""
    written = []
    for block in (ast.get_docstring(node) or "").split("\n\n"):
        heading, _, rest = block.partition("\n")
        if heading in SECTIONS:
            entries = _entries(textwrap.dedent(rest), places)
            written.append(f"**{SECTIONS[heading]}**\n\n{entries}")
        elif block.startswith("    "):
            written.append(f"```text\n{textwrap.dedent(block)}\n```")
        else:
            written.append(_prose(block, places))
    return "\n\n".join(written)


def _entries(text: str, places: Mapping[str, Place]) -> str:
    """`name: what it is` of a section, as a list; what has no name stays a paragraph."""
    lines = []
    for entry in re.split(r"\n(?=\S)", text):
        name, colon, meaning = entry.partition(": ")
        if colon and re.fullmatch(r"[\w, *]+", name):
            names = ", ".join(f"`{part}`" for part in name.split(", "))
            lines.append(f"- {names}: {_prose(meaning, places)}")
        else:
            lines.append(("  " if lines else "") + _prose(entry, places))
    return "\n".join(lines)


def _prose(text: str, places: Mapping[str, Place]) -> str:
    """A paragraph, with what Markdown would read as its own marks escaped, and links."""
    spans = re.split(r"(`[^`]+`)", " ".join(text.split()))
    spans[::2] = [MARKS.sub(r"\\\g<0>", span) for span in spans[::2]]

    def link(found: re.Match[str]) -> str:
        return _link(places[found[1]], f"({places[found[1]].number})")

    return re.sub(r"\((eq-[a-z0-9-]+)\)", link, "".join(spans))


def _link(place: Place, words: str) -> str:
    return f"[{words}](../{place.chapter}.ipynb#{place.anchor})"


def _links(node: Public, tests: list[str], places: Mapping[str, Place]) -> Iterator[str]:
    """The chapters that derive its equations, and the tests that call it."""
    labels = re.findall(r"\((eq-[a-z0-9-]+)\)", ast.get_docstring(node) or "")
    derived = sorted({places[label].chapter for label in labels})
    if derived:
        chapters = ", ".join(f"[chapter {int(name[:2])}](../{name}.ipynb)" for name in derived)
        yield f"*Derived in* {chapters}."
    if tests:
        shown = ", ".join(f"`{name}`" for name in tests[:MANY_TESTS])
        more = f" and {len(tests) - MANY_TESTS} more" if len(tests) > MANY_TESTS else ""
        yield f"*Tested in* {shown}{more}."


def _folded(module: Path, node: Public, source: str) -> str:
    first = min([node.lineno, *(line.lineno for line in node.decorator_list)])
    lines = source.splitlines()[first - 1 : node.end_lineno]
    if ast.get_docstring(node) is not None:  # it stands above
        said = node.body[0]
        del lines[said.lineno - first : (said.end_lineno or said.lineno) - first + 1]
    path = module.relative_to(ROOT).as_posix()
    code = "\n".join(lines)
    return f"::::{{dropdown}} Source: {path}, line {first}\n```python\n{code}\n```\n::::"


def _tests_of(module: Path, node: Public, tests: Mapping[Path, set[str]]) -> list[str]:
    """The test files that name it and its module, the module's own first."""
    own = f"test_{module.stem}.py"
    found = [file for file, words in tests.items() if {node.name, module.stem} <= words]
    found.sort(key=lambda file: (file.name != own, file.parent.name != module.parent.name))
    return [file.relative_to(ROOT).as_posix() for file in found]
