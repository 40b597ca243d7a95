"""Recipe files: where they are, what they extend, and what `--set` changes in them.

A recipe is TOML. What comes out of here are nested tables, which `recipe` checks.
"""

import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from nbcourse.errors import NotFound, UserError

FOLDER = Path(__file__).resolve().parents[1] / "recipes"
"""The recipes that come with the package: each can be given by its name, without a path."""


KINDS = {  # tables whose settings go with one of their keys, and what that is if nothing is said
    "algorithm": ("name", None),
    "task": ("name", "arithmetic"),
    "reward": ("source", "verifier"),
}
DEEPEST = 20  # a chain of recipes that extend each other


def names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def name_of(recipe: str | Path) -> str:
    """What a recipe is called: its file's name without `.toml`."""
    return Path(recipe).name.removesuffix(".toml")


def summary(name: str) -> str:
    """The comment on the first line of one of the package's recipes."""
    with (FOLDER / f"{name}.toml").open(encoding="utf-8") as file:
        return file.readline().removeprefix("# ").strip()


def locate(recipe: str | Path, *, beside: Path | None = None) -> Path:
    """The file of a recipe that is given by its path, or by the name of one of the package's.

    Args:
        recipe: such as "mine.toml" or "arithmetic-grpo". A file comes before a name.
        beside: the folder that a path starts from; the current one if None.

    Raises:
        FileNotFoundError: if there is none, with the names that are close to it.
    """
    path = (beside or Path()) / recipe
    if path.is_file():
        return path
    name = name_of(recipe)
    if str(recipe) in (name, f"{name}.toml") and (FOLDER / f"{name}.toml").is_file():
        return FOLDER / f"{name}.toml"
    there = sorted(file.name for file in path.parent.glob("*.toml") if file.stem != "pyproject")
    close = get_close_matches(name, names(), n=3)
    hints = [
        *([f"did you mean {' or '.join(close)}?"] if close else []),
        *([f"in {path.parent} there are {', '.join(there)}"] if there else []),
        "`nbcourse recipes` lists those that come with the package",
    ]
    raise NotFound(f"no recipe {str(recipe)!r}: {'; '.join(hints)}")


def read(path: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The tables of a recipe file over those that it extends, with some keys changed, unchecked.

    The keys `code` and `reward.source` may name a file beside the recipe that says it, and come out
    as whole paths. `reward = "mine.py:score"` is short for `reward.source`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if a file is not TOML, or extends itself.
    """
    tables = _read(locate(path), below=())
    for override in overrides:
        _apply(tables, override)
    _name_the_reward(tables, Path())
    return tables


def _read(path: Path, *, below: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in below:
        raise UserError(f"{path} extends itself")
    if len(below) > DEEPEST:
        raise UserError(f"{path} is extended over more than {DEEPEST} files")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}") from error
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply for a recipe") from error
    if isinstance(tables.get("code"), str):
        tables["code"] = str(path.parent / tables["code"])
    _name_the_reward(tables, path.parent)
    parent = tables.pop("extends", None)
    if parent is None:
        return tables
    return _over(
        tables, _read(locate(str(parent), beside=path.parent), below=(*below, path.resolve()))
    )


def _name_the_reward(tables: dict[str, Any], folder: Path) -> None:
    """Turn `reward = "mine.py:score"` into the table that it is short for, with a whole path."""
    if isinstance(tables.get("reward"), str):
        tables["reward"] = {"source": tables["reward"]}
    reward = tables.get("reward")
    if isinstance(reward, dict) and ".py:" in str(reward.get("source")):
        reward["source"] = str(folder / reward["source"])


def _over(upper: dict[str, Any], lower: dict[str, Any]) -> dict[str, Any]:
    """Two nested tables as one; where both hold a value, the upper one's.

    Settings belong to the row, task or reward that they stand beside: under another they are left.
    """

    def joined(key: str, value: Any, below: Any) -> Any:
        if not (isinstance(value, dict) and isinstance(below, dict)):
            return value
        which, usual = KINDS.get(key, ("", None))
        another = which in value and value[which] != below.get(which, usual)
        return value if another else _over(value, below)

    return lower | {key: joined(key, value, lower.get(key)) for key, value in upper.items()}


def _apply(tables: dict[str, Any], override: str) -> None:
    """Write one `key=value` into the tables."""
    key, equals, text = override.partition("=")
    if "\n" in override:
        raise UserError(f"--set {override!r}: expected one line, and one key in it")
    if not equals or not key.strip():
        raise UserError(f"--set {override}: expected key=value, such as rollouts.group_size=4")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *sections, last = key.strip().split(".")
    table = tables
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {override}: {section} is a value, not a table")
    table[last] = value
