"""Rows and tasks of a reader's own: a Python file beside the recipe, named by its key `code`.

The file defines one or both of two dictionaries, `ALGORITHMS` (name → `Algorithm`) and `TASKS`
(name → task class). It is imported by whatever trains or evaluates by the recipe.
"""

import hashlib
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from nbcourse.errors import NotFound, UserError, did_you_mean
from nbcourse.tasks.table import TASKS
from nbcourse.tasks.task import Task, check_task
from nbcourse.training.algorithms import ALGORITHMS, Algorithm


@dataclass(frozen=True)
class OwnCode:
    """What a reader's file brings.

    Attributes:
        path: of the file; None for a recipe without one.
        sha256: of its content.
        algorithms: its rows.
        tasks: its tasks.
    """

    path: Path | None = None
    sha256: str | None = None
    algorithms: Mapping[str, Algorithm] = field(default_factory=dict, compare=False)
    tasks: Mapping[str, type[Task]] = field(default_factory=dict, compare=False)

    def algorithm(self, name: str) -> Algorithm:
        """The row of that name, of the file or of the package.

        Raises:
            ValueError: with the names that there are.
        """
        return _entry(name, {**ALGORITHMS, **self.algorithms}, "algorithm.name")

    def task(self, name: str) -> type[Task]:
        """The task of that name, of the file or of the package.

        Raises:
            ValueError: with the names that there are.
        """
        return _entry(name, {**TASKS, **self.tasks}, "task.name")


NONE = OwnCode()


def load(path: Path) -> OwnCode:
    """Import a reader's file.

    Raises:
        FileNotFoundError: if it is not there.
        ValueError: in one line, if it cannot be imported, defines neither dictionary or something
            else in one of them, or a name that the package has already.
    """
    if not path.is_file():
        raise NotFound(f"code is {path.name!r}: there is no such file in {path.parent}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    module = imported(path)
    brought = {name: module.get(name) for name in ("ALGORITHMS", "TASKS")}
    if all(table is None for table in brought.values()):
        raise UserError(f"{path} defines neither ALGORITHMS nor TASKS")
    tables: Sequence[tuple[str, Callable[[object], None], Collection[str]]] = (
        ("ALGORITHMS", _check_algorithm, ALGORITHMS),
        ("TASKS", check_task, TASKS),
    )
    for name, check, known in tables:
        table = brought[name] or {}
        if not isinstance(table, dict):
            raise UserError(f"{path}: {name} is a {type(table).__name__}, expected a dictionary")
        for key, value in table.items():
            if key in known:
                raise UserError(
                    f"{path}: {name} defines {key!r}, which the package has already; "
                    "give it another name"
                )
            try:
                check(value)
            except ValueError as error:
                raise UserError(f"{path}: {name}[{key!r}] {error}") from error
    return OwnCode(path, digest, brought["ALGORITHMS"] or {}, brought["TASKS"] or {})


def _check_algorithm(value: object) -> None:
    if not isinstance(value, Algorithm):
        raise ValueError(f"is {value!r}, expected an Algorithm")


def imported(path: Path, content: bytes | None = None) -> dict[str, Any]:
    """What a reader's file defines; it is imported once while it stays as it is.

    The same content elsewhere is imported anew, since it may read what lies beside it.

    Args:
        path: of the file.
        content: the program, where it is only part of the file.

    Raises:
        ValueError: in one line, if it cannot be imported.
    """
    content, place = content or path.read_bytes(), bytes(path.resolve())
    name = f"nbcourse_own_code_{hashlib.sha256(place + content).hexdigest()[:16]}"
    if name not in sys.modules:
        module = ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module  # where dataclasses look for their module
        try:
            exec(compile(content, str(path), "exec"), vars(module))
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise UserError(f"{path} cannot be imported: {_reason(error, path)}") from error
    return vars(sys.modules[name])


def _reason(error: BaseException, path: Path) -> str:
    """Such as `line 3: NameError: name 'x' is not defined`."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    where = f"line {line}: " if line else ""
    return f"{where}{type(error).__name__}: {what}"


def _entry(name: str, table: Mapping[str, Any], key: str) -> Any:
    if name not in table:
        raise UserError(
            f"{key} is {name!r}, expected one of {', '.join(map(repr, table))}"
            f"{did_you_mean(name, table)}"
        )
    return table[name]
