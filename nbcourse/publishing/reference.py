"""The reference pages of the site: every public function of the package, from its source.

One page for each room of the package, one for the modules beside the rooms, and one for the command
line. An entry has the signature, the docstring, links to the book's equations, sections and
chapters that it names and to the chapters that use it, the tests that call it, and the source.
Where no chapter uses it, it says by way of what chapters come to it, or which command does. The
source is read and not imported, so a page costs nothing but its text; the command line describes
itself. (sphinx-autodoc2, tried at 0.5, would bring listing and signatures, some 40 of these lines,
leaves `Args:` running text, holds astroid below 4, and took 17 seconds for `functional`, not 0.1.)
"""

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nbcourse.publishing import uses
from nbcourse.publishing.numbering import Place
from nbcourse.publishing.uses import PACKAGE, Headings
from nbcourse.repository import ROOT

ROOMS = {
    "functional": "Pure tensor functions: advantages, returns, surrogates, averages, KL",
    "toys": "Problems small enough to list every outcome",
    "agents": "Agents for Gymnasium, each a row of a table",
    "tasks": "Prompts, answers and rewards",
    "lm": "A language model as a policy",
    "training": "What happens in a step: algorithms, recipes, the loop",
    "experiments": "The life of a run: records, evaluation, comparison",
    "mistakes": "Every mistake that can be named, and what a finding is",
    "examine": "What a loss function does, by enumeration",
    "diagnosis": "What is wrong with a run: witness batches, planted faults, causes",
    "budget": "What a run will need, in memory and time",
    "display": "Figures, tables and explorers of the chapters",
}
BESIDE = "beside-the-rooms"  # the page of what lies in no folder
MODULES = ("grpo_on_one_page", "ppo_on_one_page", "rows", "seeds")
COMMAND_LINE = "command-line"
FOLDER = "reference"
MANY_TESTS = 4
MANY_WAYS = 2
SECTIONS = {  # of a docstring → its title on the page
    "Args:": "Arguments",
    "Attributes:": "Attributes",
    "Returns:": "Returns",
    "Raises:": "Raises",
}

# What Markdown would read as its own, but for *emphasis*, which docstrings have as well.
MARKS = re.compile(r"[\\_$<>\[\]|#]|\*(?![^\s*][^*]*\*)(?<!\w\*)")
EQUATION = r"\((?P<equation>eq-[a-z0-9-]+)\)"
# chapter 10, "One table" · section 3.6 · section "Actor and critic" · appendix B; but not the
# section of a paper, after its title, or after its year
MENTION = re.compile(
    rf"{EQUATION}|(?<!\d, )(?<!\w, )\b(?P<words>[Cc]hapters? (?P<chapter>\d{{1,2}})"
    r"|[Aa]ppendix (?P<appendix>[A-Z])|[Ss]ection (?P<section>\d{1,2}\.\d{1,2})(?!\.?\d))\b"
    r"(?:, \"(?P<title>[^\"]+)\")?|\b[Ss]ection \"(?P<alone>[^\"]+)\""
)
SOURCE = re.compile(r"(?=\bSource: )")  # what follows is about papers
COMMAND = "typer nbcourse.cli utils docs --name nbcourse"

Public = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Book:
    """What the pages link to.

    Attributes:
        places: the equations and sections that docstrings name, `numbering.places`.
        headings: the titles of sections that they name, and the files of chapters.
        used: the chapters whose code uses a function, by its dotted name.
        named: those whose text names it, or its module.
        callers: the definitions that use it.
        commands: what is typed for a function of the command line.
        repository: the address of the repository, or nothing.
    """

    places: Mapping[str, Place]
    headings: Headings
    used: Mapping[str, list[str]]
    named: Mapping[str, list[str]] = field(default_factory=dict)
    callers: Mapping[str, set[str]] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    repository: str = ""

    def file(self, path: Path, line: int = 0) -> str:
        """The name of a file, which is a link where the book has a repository."""
        name = path.relative_to(ROOT).as_posix()
        at = f"#L{line}" if line else ""
        shown = f"{name}, line {line}" if line else f"`{name}`"
        return f"[{shown}]({self.repository}/blob/main/{name}{at})" if self.repository else shown


def write(book: Path, places: Mapping[str, Place], *, repository: str = "") -> list[str]:
    """Write all pages into `book`/reference and return their names, without suffix.

    Args:
        book: the folder of the pages.
        places: where the equations and sections are, `numbering.places`.
        repository: the address that `_config.yml` gives, or nothing.
    """
    if not ROOMS:
        return []
    folder = book / FOLDER
    folder.mkdir()
    tests = {
        file: set(re.findall(r"\w+", file.read_text(encoding="utf-8")))
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        if file.name != "test_reference.py"  # which tests pages, and names functions for it
    }
    linked = Book(
        places,
        uses.headings(),
        used=uses.by_chapters(),
        named=uses.by_prose(),
        callers=uses.callers(),
        commands=uses.commands(),
        repository=repository.rstrip("/"),
    )
    pages: dict[str, Iterable[str]] = {
        room: _page(
            f"nbcourse.{room}", purpose, sorted((PACKAGE / room).glob("*.py")), linked, tests
        )
        for room, purpose in ROOMS.items()
    }
    beside = [PACKAGE / f"{name}.py" for name in MODULES]
    purpose = "Modules that lie beside the folders of the package"
    pages[BESIDE] = _page("nbcourse", purpose, beside, linked, tests)
    pages[COMMAND_LINE] = [command_line(linked)]
    for name, parts in pages.items():
        (folder / f"{name}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return [f"{FOLDER}/{name}" for name in pages]


def command_line(book: Book) -> str:
    """The page of the command line: what each command says of itself with `--help`, with links."""
    command = [sys.executable, "-m", *COMMAND.split(), "--title", "The command line"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8")
    # The overview cuts its sentences, and the page has a table of contents.
    said = re.sub(r"\*\*Commands\*\*:\n\n(?:\* .*\n)+", "", shown.stdout)
    return MENTION.sub(lambda found: _mentioned(found, book) or found[0], said)


def public(module: Path) -> Iterator[Public]:
    """The functions and classes that a module defines for others, in its order."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, Public) and not node.name.startswith("_"):
            yield node


def _page(
    title: str, purpose: str, modules: list[Path], book: Book, tests: Mapping[Path, set[str]]
) -> Iterator[str]:
    yield f"# {title}\n\n{purpose}."
    for module in modules:
        nodes = list(public(module))
        if not nodes:
            continue
        source = module.read_text(encoding="utf-8")
        about = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")
        named = [text for text in about[1:] if MENTION.search(SOURCE.split(text)[0])]
        own = uses.module_name(module)
        yield f"## {own.removeprefix('nbcourse.')}\n\n" + "\n\n".join(
            _prose(text, book) for text in (about[0], *named)
        )
        taught = {one for node in nodes for one in book.used.get(f"{own}.{node.name}", [])}
        taught.update(book.named.get(own, []))
        told = _mentions("\n\n".join(about), book)
        yield from _chapters("Used in", sorted(taught))
        for node in nodes:
            yield f"### {node.name}"
            yield f"```python\n{signature(node)}\n```"
            yield docstring(node, book)
            yield from methods(node, book)
            yield from _links(f"{own}.{node.name}", node, book, sorted(taught), told)
            yield from _tested(_tests_of(module, node, tests), book)
            yield _folded(module, node, source, book)


def methods(node: Public, book: Book) -> Iterator[str]:
    """The public methods and properties of a class, with a sentence and the equation of each."""
    if isinstance(node, ast.FunctionDef):
        return
    lines = []
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
            kinds = {line.id for line in method.decorator_list if isinstance(line, ast.Name)}
            is_property = bool(kinds & {"property", "cached_property"})
            called = (
                method.name if is_property else _call(method, bound="staticmethod" not in kinds)
            )
            first, _, rest = (ast.get_docstring(method) or "").partition("\n\n")
            labels = re.findall(EQUATION, rest)
            said = " ".join([first, *(f"Equation ({label})." for label in labels)])
            lines.append(f"- `{called}`" + (f": {_prose(said, book)}" if first else ""))
    if lines:
        yield "**Methods**\n\n" + "\n".join(lines)


def _call(method: ast.FunctionDef, *, bound: bool) -> str:
    """`paired(number: str, …) -> Tensor`, as it is called: without `self`."""
    arguments = ast.unparse(method.args)
    if bound:
        arguments = re.sub(r"^\w+(?:, /)?(?:, )?", "", arguments)
    returns = f" -> {ast.unparse(method.returns)}" if method.returns else ""
    return f"{method.name}({arguments}){returns}"


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


def docstring(node: Public, book: Book) -> str:
    """A docstring as Markdown: indented formulas stay as they are, arguments become a list."""
    written = []
    for block in (ast.get_docstring(node) or "").split("\n\n"):
        heading, _, rest = block.partition("\n")
        if heading in SECTIONS:
            entries = _entries(textwrap.dedent(rest), book)
            written.append(f"**{SECTIONS[heading]}**\n\n{entries}")
        elif block.startswith(">>>"):
            written.append(f"```python\n{block}\n```")
        elif block.startswith("    "):
            written.append(f"```text\n{textwrap.dedent(block)}\n```")
        else:
            written.append(_prose(block, book))
    return "\n\n".join(written)


def _entries(text: str, book: Book) -> str:
    """`name: what it is` of a section, as a list; what has no name stays a paragraph."""
    lines = []
    for entry in re.split(r"\n(?=\S)", text):
        name, colon, meaning = entry.partition(": ")
        if colon and re.fullmatch(r"[\w, *]+", name):
            names = ", ".join(f"`{part}`" for part in name.split(", "))
            lines.append(f"- {names}: {_prose(meaning, book)}")
        else:
            lines.append(("  " if lines else "") + _prose(entry, book))
    return "\n".join(lines)


def _prose(text: str, book: Book) -> str:
    """A paragraph, with what Markdown would read as its own marks escaped, and links."""
    said, *source = SOURCE.split(" ".join(text.split()), maxsplit=1)
    linked: list[str] = []

    def keep(found: re.Match[str]) -> str:
        """A link, put aside while the rest is escaped."""
        link = _mentioned(found, book)
        if link is None:
            return found[0]
        linked.append(link)
        return f"\0{len(linked) - 1}\0"

    def only_equations(found: re.Match[str]) -> str:
        return keep(found) if found["equation"] else found[0]

    text = MENTION.sub(keep, said) + MENTION.sub(only_equations, "".join(source))
    return re.sub("\0(\\d+)\0", lambda found: linked[int(found[1])], escaped(text))


def escaped(text: str) -> str:
    """With what Markdown would read as its own marks escaped, but for code."""
    spans = re.split(r"(`[^`]+`)", text)
    spans[::2] = [MARKS.sub(r"\\\g<0>", span) for span in spans[::2]]
    return "".join(spans)


def _mentioned(found: re.Match[str], book: Book) -> str | None:
    """The link of a mention; None if nothing of this name is in the book."""
    if label := found["equation"]:
        return _link(book.places[label], f"({book.places[label].number})")
    if title := found["alone"]:
        near = book.headings.find(title)
        return _to(near, found[0]) if near else None
    if (number := found["section"]) is not None:
        place = book.places.get(number)
        return _link(place, found[0]) if place else None
    chapter = book.headings.chapters.get(found["appendix"] or f"{int(found['chapter']):02}")
    if chapter is None:
        return None
    title = found["title"]
    near = book.headings.find(title, chapter=chapter) if title else None
    return _to(near or chapter, found[0])


def _to(target: str, words: str) -> str:
    return f"[{words}](../{target})"


def _link(place: Place, words: str) -> str:
    return _to(f"{place.chapter}.ipynb#{place.anchor}", words)


def _links(
    name: str, node: Public, book: Book, taught: list[str], told: list[str]
) -> Iterator[str]:
    """The chapters that derive its equations, and how readers come to it.

    Where no chapter does, those that use other parts of its module (`taught`), or else those that
    the module itself names (`told`).
    """
    derived = sorted({book.places[label].chapter for label in _labels(node)})
    yield from _chapters("Derived in", derived)
    if name in book.used:
        yield from _chapters("Used in", book.used[name])
    elif name in book.named:
        yield from _chapters("Named in", book.named[name])
    elif ways := uses.nearest(name, {**book.named, **book.used}, book.callers):
        found = {chapter for way in ways for chapter in _of_chapters(way, book)}
        yield from _chapters("Reached from", sorted(found), f", by way of {_some(ways)}")
    else:
        if ways := uses.nearest(name, book.commands, book.callers):
            yield f"*Part of* {_some([book.commands[way] for way in ways])}."
        yield from _chapters("Its module is used in", taught)
        if not taught and told:
            yield f"*Its module belongs to* {', '.join(told)}."


def _mentions(text: str, book: Book) -> list[str]:
    """Links to what a docstring names of the book, each once."""
    said = SOURCE.split(" ".join(text.split()), maxsplit=1)[0]
    links = []
    for found in MENTION.finditer(said):
        if link := _mentioned(found, book):
            kind = "equation " if found["equation"] else ""
            links.append(f"{kind}[{link[1].lower()}{link[2:]}")  # it stands within a sentence
    return list(dict.fromkeys(links))


def _labels(node: Public) -> list[str]:
    """The equations that its docstring names, and if it is a class, those of its methods."""
    parts = [node, *(part for part in node.body if isinstance(part, ast.FunctionDef))]
    said = [ast.get_docstring(part) or "" for part in parts]
    return [label for text in said for label in re.findall(EQUATION, text)]


def _of_chapters(name: str, book: Book) -> list[str]:
    return [*book.used.get(name, []), *book.named.get(name, [])]


def _some(names: list[str]) -> str:
    """`experiments.run.train`, `training.loop.train` and 3 more."""
    return _first_of([f"`{name.removeprefix('nbcourse.')}`" for name in names], MANY_WAYS)


def _first_of(shown: list[str], most: int) -> str:
    """The first ones, and how many more there are."""
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


def _chapters(relation: str, names: list[str], more: str = "") -> Iterator[str]:
    if names:
        links = ", ".join(_to(f"{name}.ipynb", uses.called(name)) for name in names)
        yield f"*{relation}* {links}{more}."


def _tested(tests: list[Path], book: Book) -> Iterator[str]:
    if tests:
        yield f"*Tested in* {_first_of([book.file(file) for file in tests], MANY_TESTS)}."


def _folded(module: Path, node: Public, source: str, book: Book) -> str:
    first = min([node.lineno, *(line.lineno for line in node.decorator_list)])
    lines = source.splitlines()[first - 1 : node.end_lineno]
    if ast.get_docstring(node) is not None:  # it stands above
        said = node.body[0]
        del lines[said.lineno - first : (said.end_lineno or said.lineno) - first + 1]
    code = re.sub(EQUATION, lambda found: f"({book.places[found[1]].number})", "\n".join(lines))
    where = f"{module.relative_to(ROOT).as_posix()}, line {first}"
    link = f"\n\n{book.file(module, first)}" if book.repository else ""
    return f"::::{{dropdown}} Source: {where}\n```python\n{code}\n```{link}\n::::"


def _tests_of(module: Path, node: Public, tests: Mapping[Path, set[str]]) -> list[Path]:
    """The test files that name it and its module, the module's own first."""
    own = f"test_{module.stem}.py"
    found = [file for file, words in tests.items() if {node.name, module.stem} <= words]
    found.sort(key=lambda file: (file.name != own, file.parent.name != module.parent.name))
    return found
