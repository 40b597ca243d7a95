"""What the chapters say to the package: their titles, and what their code and text name.

And how the package's own definitions use each other, so that one of which no chapter speaks can
say by way of which others, or by which command, readers come to it. (sphinx-codeautolink knows the
examples of a function alone, imports the package for them, and would save 3 lines: `by_chapters`.)
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nbcourse.publishing import chapters, stored
from nbcourse.publishing.numbering import CODE, SECTION
from nbcourse.repository import ROOT

TITLE = re.compile(rf"^#+ (?:(?P<number>{SECTION}) )?(?P<title>\S.*)$", re.M)
MAGIC = re.compile(r"^[%!].*$", re.M)
PACKAGE = ROOT / "nbcourse"
STUDIES = ROOT / "book" / "studies"  # which chapters import as `studies`
OURS = ("nbcourse", "studies")
SPAN = re.compile(r"`(\w+(?:\.\w+)*)[^`\n]*`")  # the name that a span of code begins with
DOTTED = re.compile(r"\b(?:nbcourse|studies)(?:\.\w+)+")
MADE = re.compile(r"\bmake ([a-z]+(?:-[a-z]+)*)")
TARGET = re.compile(r"^([a-z-]+):.*\n((?:\t.*\n)+)", re.M)  # of a Makefile, with its commands


@dataclass(frozen=True)
class Headings:
    """The chapters and their sections by name.

    Attributes:
        chapters: the file of each, by its number or letter: 03, B.
        sections: title → file and anchor of the sections that have it; a section without a number
            has no anchor of its own.
    """

    chapters: Mapping[str, str]
    sections: Mapping[str, list[str]]

    def find(self, title: str, *, chapter: str = "") -> str | None:
        """The section of this title, in one chapter's file or else the only one in the book."""
        found = [each for each in self.sections.get(title, []) if each.startswith(chapter)]
        return found[0] if len(found) == 1 else None


def headings() -> Headings:
    """Those of the book."""
    files, sections = {}, defaultdict(list)
    for page in (*chapters.notebooks(), *sorted(chapters.BOOK.glob("appendix-*.md"))):
        letter = chapters.names(page)[0].upper()
        files[f"{int(letter):02}" if letter.isdigit() else letter] = page.name
        text = chapters.text_of(page) if page.suffix == ".ipynb" else page
        prose = re.sub(CODE, "", text.read_text(encoding="utf-8"), flags=re.M | re.S)
        for found in TITLE.finditer(prose):
            anchor = f"#sec-{found['number'].lower().replace('.', '-')}" if found["number"] else ""
            sections[found["title"]].append(page.name + anchor)
    return Headings(files, dict(sections))


def called(chapter: str) -> str:
    """`chapter 3` or `appendix B`, by the name of its file."""
    name = chapters.names(Path(chapter))[0]
    return f"chapter {name}" if name.isdigit() else f"appendix {name.upper()}"


def by_chapters(book: Path = chapters.BOOK) -> dict[str, list[str]]:
    """The chapters whose code names a function of the package, by the function's dotted name."""
    return _where(
        book, lambda code, prose, known: {n for tree in code for n in _names(tree, known)}
    )


def by_prose(book: Path = chapters.BOOK) -> dict[str, list[str]]:
    """The chapters whose text names a function or a module, or a target of make that runs one."""
    makefile = ROOT / "Makefile"
    rules = TARGET.findall(makefile.read_text(encoding="utf-8") if makefile.exists() else "")
    made = {target: DOTTED.findall(commands) for target, commands in rules}

    def named(code: list[ast.Module], prose: str, known: Mapping[str, str]) -> set[str]:
        spans = [name.partition(".") for name in SPAN.findall(prose)]
        return {
            *DOTTED.findall(prose),
            *(known[first] + dot + rest for first, dot, rest in spans if first in known),
            *(name for target in MADE.findall(prose) for name in made.get(target, ())),
        }

    return _where(book, named)


def _where(
    book: Path, named: Callable[[list[ast.Module], str, Mapping[str, str]], set[str]]
) -> dict[str, list[str]]:
    """The chapters that name something: of their code, their prose, and what they import."""
    again, found = _exported_again(), defaultdict(list)
    for notebook in chapters.notebooks(book):
        read = stored.read(notebook)
        code = [ast.parse(MAGIC.sub("", cell.source)) for cell in stored.code_cells(read)]
        prose = "\n".join(cell.source for cell in read.cells if cell.cell_type == "markdown")
        known = {name: target for tree in code for name, target in _imported(tree)}
        for name in {again.get(name, name) for name in named(code, prose, known)}:
            found[name].append(notebook.stem)
    return dict(found)


def module_name(file: Path) -> str:
    """nbcourse.lm.sampling, by a file of the package; studies.field, by one of a study."""
    home = STUDIES if file.is_relative_to(STUDIES) else PACKAGE
    parts = file.relative_to(home.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def callers() -> dict[str, set[str]]:
    """The definitions of the package and the studies that name each of them, by dotted names.

    A definition is whatever a module binds a name to: a function or class, private ones included,
    or a table such as ALGORITHMS, which is how the trainer comes to the functions in its rows. What
    a module does when it is run as a program is done by the module.
    """
    again, found = _exported_again(), defaultdict(set)
    for file in (*sorted(PACKAGE.rglob("*.py")), *sorted(STUDIES.glob("*.py"))):
        tree, module = ast.parse(file.read_text(encoding="utf-8")), module_name(file)
        bound = [(f"{module}.{name}", node) for node in tree.body for name in _bound(node)]
        known = {name.rpartition(".")[2]: name for name, _ in bound} | dict(_imported(tree))
        bound += [(module, node) for node in tree.body if isinstance(node, ast.If)]
        for own, node in bound:
            for name in _names(node, known):
                for used in _beginnings(again.get(name, name)):
                    found[used].add(own)
    return {name: others - {name} for name, others in found.items()}


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _beginnings(name: str) -> Iterator[str]:
    """a.b.C.d → a.b.C.d, a.b.C, a.b, a: with whatever is behind its dot, the class is used."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def nearest(name: str, known: Container[str], callers: Mapping[str, set[str]]) -> list[str]:
    """Those of the `known` definitions that come to this one in the fewest steps."""
    seen, level = {name}, {name}
    while level:
        level = {caller for one in level for caller in callers.get(one, ())} - seen
        if found := sorted(caller for caller in level if caller in known):
            return found
        seen |= level
    return []


def commands(folder: Path = PACKAGE / "cli") -> dict[str, str]:
    """What is typed for each function of the command line: nbcourse.cli.builds.new → hunt new."""
    found = {}
    files = {file: ast.parse(file.read_text(encoding="utf-8")) for file in folder.glob("*.py")}
    for file, node in ((file, node) for file, tree in files.items() for node in tree.body):
        if not isinstance(node, ast.FunctionDef):
            continue
        for line in node.decorator_list:
            if isinstance(line, ast.Call) and ast.unparse(line.func).endswith(".command"):
                group = ast.unparse(line.func).removesuffix(".command")
                own = ast.literal_eval(line.args[0]) if line.args else node.name.replace("_", "-")
                typed = own if group == "app" else f"{group} {own}"
                found[f"nbcourse.cli.{file.stem}.{node.name}"] = f"nbcourse {typed}"
    return found


def _exported_again() -> dict[str, str]:
    """What a room's `__init__` imports, such as nbcourse.display.table → its own module's name."""
    return {
        f"nbcourse.{file.parent.name}.{name}": target
        for file in PACKAGE.glob("*/__init__.py")
        for name, target in _imported(ast.parse(file.read_text(encoding="utf-8")))
    }


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each name that code imports from the package or a study, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = f"studies.{node.module}" if node.level else node.module or ""  # of each other
            for alias in node.names if module.startswith(OURS) else ():
                yield alias.asname or alias.name, f"{module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("nbcourse") and alias.asname:
                    yield alias.asname, alias.name


def _names(tree: ast.AST, known: Mapping[str, str]) -> Iterator[str]:
    """Every name and attribute, in full, that begins with something imported."""
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in known:
            yield ".".join([known[node.id], *parts])
