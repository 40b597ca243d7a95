"""Where a loss comes from: a file and the name of a function in it, or the table of algorithms.

Appendix B shows how to examine one from a file.
"""

import ast
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nbcourse.errors import NotFound, UserError, did_you_mean
from nbcourse.examine import known, notebook_source
from nbcourse.examine.batches import MIXED, batch
from nbcourse.examine.conventions import BOOK, LAYOUTS, NAMES
from nbcourse.examine.subject import Subject
from nbcourse.training.algorithms import ALGORITHMS
from nbcourse.training.own_code import imported


def load(target: str, *, convention: str = BOOK, given: Sequence[str] = ()) -> Subject:
    """The loss that a user names, `FILE.py:FUNCTION`, `FILE.ipynb:FUNCTION` or the name of a row.

    Args:
        target: the name. A function may be a class, of which an instance is made, or one of its
            methods, as `CLASS.METHOD`.
        convention: whose names and shapes the arguments of a function have, of `NAMES`.
        given: settings that the function needs, each as NAME=VALUE or NAME.FIELD=VALUE.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: in one line, if it is neither, the file cannot be imported, or holds no such
            function.
    """
    if convention not in NAMES:
        raise UserError(
            f"--as is {convention!r}, expected one of {', '.join(NAMES)}"
            f"{did_you_mean(convention, NAMES)}"
        )
    file, colon, dotted = target.rpartition(":")
    if not colon:
        if target.endswith((".py", ".ipynb")):
            raise UserError(f"which function of {target}? Say {target}:FUNCTION")
        return known.row(target)
    path, (name, _, method) = Path(file), dotted.partition(".")
    if not path.is_file():
        raise NotFound(f"there is no file {file}; rows go by name: {', '.join(ALGORITHMS)}")
    if path.suffix == ".ipynb":
        defined = imported(path, notebook_source.source(path, name).encode())
    else:
        defined = imported(path)
    functions = [
        key
        for key, value in defined.items()
        if callable(value) and getattr(value, "__module__", None) == defined["__name__"]
    ]
    if not callable(defined.get(name)):
        raise UserError(
            f"{path} defines no function {name!r}; it defines {', '.join(functions) or 'none'}"
            f"{did_you_mean(name, functions)}"
        )
    function = defined[name]
    if inspect.isclass(function):
        function = _instance(function, method)
    subject, chosen = partial(Subject.of, function, name=dotted, given=settings(given)), convention
    if chosen in LAYOUTS:
        _require_layout(subject, chosen)
    return subject(convention=chosen)


def _require_layout(subject: Callable[..., Subject], chosen: str) -> None:
    """Say which layout of a program of one's own would do, where the chosen one does not.

    Raises:
        ValueError: in one line, if another would.
    """
    wrong = {layout: _refusal(subject, layout) for layout in LAYOUTS}
    fit = [layout for layout, message in wrong.items() if not message]
    if wrong[chosen] and fit:
        raise UserError(f"{wrong[chosen]}; it runs with --as {' or '.join(fit)}")


def _refusal(subject: Callable[..., Subject], layout: str) -> str:
    """What is wrong with a loss in this layout; nothing if it runs."""
    # so many of each that no axis can stand in for another
    one = batch([4, 2, 3, 4, 1, 2], MIXED, group_size=3)
    try:
        whole = subject(convention=layout)
        whole.loss(whole.quantities(one))
    except UserError as error:
        return str(error)
    return ""


def _instance(kind: type, method: str) -> Any:
    """An object of a class, or a method of it."""
    name, needs = kind.__name__, inspect.signature(kind).parameters.values()
    if missing := [p.name for p in needs if p.default is p.empty and p.kind < p.VAR_POSITIONAL]:
        raise UserError(
            f"{name} is a class, and needs {', '.join(missing)} to be made: say "
            f"loss = {name}(...) in the file, and examine loss"
        )
    made = kind()
    if method and callable(getattr(made, method, None)):
        return getattr(made, method)
    if method or not callable(made):
        methods = [key for key, value in vars(kind).items() if callable(value) and key[0] != "_"]
        raise UserError(
            f"{name} is a class{f' without a method {method!r}' if method else ''}; examine "
            f"{name}.METHOD, one of {', '.join(methods) or 'none'}{did_you_mean(method, methods)}"
        )
    return made


class Settings(dict[str, Any]):
    """A configuration whose fields are read as `config.eps`, `config["eps"]` or `config.get`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"it has no {name!r}; a field can be given: --given NAME.{name}=VALUE"
            ) from None


def settings(given: Sequence[str]) -> Settings:
    """The values of `--given`, Python literals or else words.

    Raises:
        ValueError: if one has no name or no value.
    """
    found = Settings()
    for one in given:
        path, equals, text = one.partition("=")
        *folders, name = path.split(".")
        if not equals or not all(part.isidentifier() for part in (*folders, name)):
            raise UserError(f"--given is {one!r}, expected NAME=VALUE, such as eps_clip=0.2")
        place = found
        for folder in folders:
            place = place.setdefault(folder, Settings())
        try:
            place[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            place[name] = text
    return found
