"""The pieces of the trainer: their texts, the stubs made of them, and a reader's folder."""

import ast
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from nbcourse.errors import NotFound, UserError, did_you_mean

TRAINER = Path(__file__).with_name("trainer")
WARM = Path(__file__).with_name("warm.safetensors")
GIVEN = "given"
EXPLOITS = "exploits"
# In the order in which they are built; each may import those before it.
NAMES = (
    "estimator", "gae", "clip", "reinforce", "ppo", "grpo", "verifier", "planner",
    "gate",
)  # fmt: skip
SOLUTION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?^ *### END SOLUTION\n", re.M | re.S)
LONGEST = 100_000  # characters of a file
NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)  # what the parser raises


class PieceState(StrEnum):
    """What a reader has made of a piece."""

    MISSING = "not there"
    UNREADABLE = "not Python"
    UNFILLED = "not filled in yet"
    TAKEN = "taken from the book"
    OWN = "own"


@dataclass(frozen=True)
class Folder:
    """What a reader hands in.

    Attributes:
        name: of the folder.
        sources: name of a module → its text, of pieces, of tests (`test_…`) and of exploits.
    """

    name: str
    sources: Mapping[str, str]

    @property
    def tests(self) -> list[str]:
        """The modules with tests that the reader wrote."""
        return sorted(name for name in self.sources if name.startswith("test_"))

    def state(self, name: str) -> tuple[PieceState, str]:
        """What there is of a piece, and the functions or the line that keep it from being whole."""
        if name not in self.sources:
            return PieceState.MISSING, f"there is no {name}.py"
        try:
            tree = ast.parse(self.sources[name])
        except NO_PYTHON as error:
            line = getattr(error, "lineno", None)
            return PieceState.UNREADABLE, f"{name}.py is not Python, see line {line or 1}"
        if open_ones := _unfilled(tree):
            return PieceState.UNFILLED, f"{name}.py: {', '.join(open_ones)} still to be filled in"
        own, book = _functions(tree), _functions(ast.parse(solution(name)))
        taken = all(own.get(key) == body for key, body in book.items())
        return (PieceState.TAKEN if taken else PieceState.OWN), ""


@cache
def solution(name: str) -> str:
    """The book's text of a piece, which passes everything."""
    text = (TRAINER / f"{name}.py").read_text(encoding="utf-8")
    return re.sub(r"^ *### (BEGIN|END) SOLUTION\n", "", text, flags=re.M)


def stub(name: str) -> str:
    """What a reader starts from: signatures, docstrings, and nothing in them."""
    text = (TRAINER / f"{name}.py").read_text(encoding="utf-8")
    return SOLUTION.sub(r"\1raise NotImplementedError\n", text)


def start(folder: Path) -> list[Path]:
    """Write the stubs, what is given, and the warm model; files that are there stay as they are.

    Raises:
        UserError: if `folder` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, expected a folder")
    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: solution(name) for name in (GIVEN, EXPLOITS)}
    texts |= {name: stub(name) for name in NAMES}
    written = []
    for name, text in texts.items():
        if not (path := folder / f"{name}.py").exists():
            path.write_text(text, encoding="utf-8")
            written.append(path)
    if not (path := folder / WARM.name).exists():
        shutil.copyfile(WARM, path)
        written.append(path)
    return written


def require(name: str) -> None:
    """Insist on a piece.

    Raises:
        UserError: if there is no such piece.
    """
    if name not in NAMES:
        raise UserError(
            f"there is no piece {name!r}; the pieces are {', '.join(NAMES)}"
            f"{did_you_mean(name, NAMES)}"
        )


def take(folder: Path, name: str, *, force: bool = False) -> Path:
    """Put the book's piece into a folder.

    Raises:
        UserError: if there is no such piece, or it would replace something of the reader's own.
    """
    require(name)
    state, _ = read(folder).state(name)
    if state in (PieceState.OWN, PieceState.UNREADABLE) and not force:
        raise UserError(f"{folder / name}.py holds work of your own; --force replaces it")
    path = folder / f"{name}.py"
    path.write_text(solution(name), encoding="utf-8")
    return path


def read(folder: Path) -> Folder:
    """The Python files of a folder that matter, those of folders inside left aside.

    Raises:
        NotFound: if it does not exist.
    """
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}: `nbcourse build start {folder}` makes one")
    sources = {}
    for path in sorted(folder.glob("*.py")):
        wanted = path.stem in (*NAMES, EXPLOITS) or re.fullmatch(r"test_\w+", path.stem, re.ASCII)
        if wanted and path.is_file():  # neither a folder nor a link that leads nowhere
            sources[path.stem] = text(path)
    return Folder(folder.resolve().name, sources)


def text(path: Path) -> str:
    """What a file holds, as far as it is not too long."""
    return path.read_bytes()[:LONGEST].decode("utf-8", "replace")


def _unfilled(tree: ast.Module) -> list[str]:
    """The functions that do nothing but raise NotImplementedError."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and isinstance(last := node.body[-1], ast.Raise)
        and "NotImplementedError" in ast.dump(last)
    ]


def _functions(tree: ast.Module) -> dict[str, str]:
    """Name → what each function does, without docstrings and comments."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            found[node.name] = "".join(map(ast.dump, body))
    return found
