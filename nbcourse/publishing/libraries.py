"""The table of appendix K: what libraries do by default, and what those installed here default to.

`libraries.toml` beside this file has one entry for each library, read in the library's own files,
with its version or commit. Each setting that an entry rests on names the file in which it stands,
so that it can be looked up again in an installed release. Nothing is imported for this: a library
may take a minute to import, or a GPU, and its files say what they default to.
"""

import ast
import importlib
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import util
from pathlib import Path
from typing import Any, Self

from nbcourse.errors import UserError
from nbcourse.installation import version_of

REGISTRY = Path(__file__).with_suffix(".toml")
GITHUB = "https://github.com"
COLUMNS = ("reference", "estimator", "mismatch", "loss")
"""What the table says of each library."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting, where its default stands, and the default that was read there.

    `kind` says what to look for in `file`, a path from the folder that holds the package: a `field`
    of the class `owner`, an `option` of argparse, a `yaml` key with dots, an `entry` of a
    dictionary, or an `assignment`.
    """

    name: str
    kind: str
    file: str
    default: object = None
    owner: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"{self.name}: kind is {self.kind!r}, expected one of {list(KINDS)}")
        if (self.kind == "field") != (self.owner is not None):
            raise UserError(f"{self.name}: a field, and nothing else, names the class it is in")

    def read(self, roots: Sequence[Path]) -> object:
        """Its default in the package that lies in one of `roots`, or in several of them.

        Raises:
            KeyError: if the file is not there, or does not have the setting.
        """
        for root in roots:
            if (root / self.file).is_file():
                return KINDS[self.kind]((root / self.file).read_text(encoding="utf-8"), self)
        raise KeyError(self.file)


@dataclass(frozen=True, kw_only=True)
class Library:
    """A row of the table: a library, the version that was read, and what it does by default."""

    name: str
    repository: str
    package: str
    distribution: str
    as_of: date
    reference: str
    estimator: str
    mismatch: str
    loss: str
    settings: tuple[Setting, ...]
    version: str | None = None
    commit: str | None = None

    def __post_init__(self) -> None:
        if (self.version is None) == (self.commit is None):
            raise UserError(f"{self.name}: give the version that was read, or the commit")
        if self.commit is not None and not re.fullmatch(r"[0-9a-f]{40}", self.commit):
            raise UserError(f"{self.name}: {self.commit!r} is not a full commit: 40 digits")
        for column in COLUMNS:
            self.said(column)

    def said(self, column: str) -> str:
        """A cell of the table; `{beta}` or `{GRPOConfig.beta}` in it is the default of `beta`."""
        defaults = {setting.name: setting.default for setting in self.settings}
        defaults |= {f"{s.owner}.{s.name}": s.default for s in self.settings}

        def default(found: re.Match[str]) -> str:
            if found[1] not in defaults:
                raise UserError(f"{self.name}: {column} speaks of {found[1]!r}, no setting")
            return str(defaults[found[1]])

        return re.sub(r"\{([^{}]+)\}", default, getattr(self, column))

    @property
    def read_in(self) -> str:
        """The version that was read, or the beginning of the commit."""
        return self.version or str(self.commit)[:7]

    def markdown(self) -> str:
        """“[TRL](…) 1.16.0, 2026-10-15”; of a commit, the link is to that commit."""
        where = f"{GITHUB}/{self.repository}"
        if self.commit is not None:
            where += f"/tree/{self.commit}"
        return f"[{self.name}]({where}) {self.read_in}, {self.as_of}"

    def installed(self) -> "Installed | None":
        """What an installed release defaults to; None if there is none, or only a namesake."""
        found = util.find_spec(self.package)
        if found is None or not found.submodule_search_locations:
            return None
        roots = [Path(folder).parent for folder in found.submodule_search_locations]
        if not any((root / setting.file).is_file() for root in roots for setting in self.settings):
            return None  # another package of that name
        defaults = tuple(_or_missing(setting, roots) for setting in self.settings)
        return Installed(self, version_of(self.distribution), defaults)

    @classmethod
    def parse(cls, raw: dict[str, Any]) -> Self:
        """Read an entry of the registry."""
        settings = tuple(Setting(**setting) for setting in raw["settings"])
        return cls(**{"distribution": raw["package"], **raw, "settings": settings})


MISSING = "gone"
"""Stands for the default of a setting that an installed release does not have."""


@dataclass(frozen=True)
class Installed:
    """A library as it is installed here: its version, and the defaults of the settings."""

    library: Library
    version: str | None
    defaults: tuple[object, ...]


def read(path: Path = REGISTRY) -> list[Library]:
    """All libraries, in the order of the file.

    Raises:
        UserError: if an entry lacks what it was read in, or speaks of a setting it does not have.
    """
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    return [Library.parse(entry) for entry in raw["libraries"]]


def rows(here: Installed) -> list[tuple[str, str, str]]:
    """Setting, default here, and the table's, behind a ≠ where it is another one."""
    pairs = zip(here.library.settings, here.defaults, strict=True)
    return [
        (s.name, str(found), f"{'' if found == s.default else '≠ '}{s.default}")
        for s, found in pairs
    ]


def _or_missing(setting: Setting, roots: Sequence[Path]) -> object:
    try:
        return setting.read(roots)
    except KeyError:
        return MISSING


def _field(text: str, setting: Setting) -> object:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == setting.owner:
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == setting.name:
                    return _default(line.value)
    raise KeyError(setting.name)


def _default(value: ast.expr | None) -> object:
    """Of `x: int = 3`, `= field(default=3)` and `= Field(3, ge=0)`: 3."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1].lower() == "field":
        named = {keyword.arg: keyword.value for keyword in value.keywords}
        return _value(named.get("default", value.args[0] if value.args else None))
    return _value(value)


def _option(text: str, setting: Setting) -> object:
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument")):
            continue
        if any(_value(argument) == setting.name for argument in node.args):
            named = {keyword.arg: _value(keyword.value) for keyword in node.keywords}
            absent = {"store_true": False, "store_false": True}.get(str(named.get("action")))
            return named.get("default", absent)
    raise KeyError(setting.name)


def _yaml(text: str, setting: Setting) -> object:
    found = importlib.import_module("yaml").safe_load(text)
    for key in setting.name.split("."):
        found = found[key]
    return found


def _entry(text: str, setting: Setting) -> object:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and _value(key) == setting.name:
                    return _value(value)
    raise KeyError(setting.name)


def _assignment(text: str, setting: Setting) -> object:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == setting.name:
            return _value(node.value)
    raise KeyError(setting.name)


def _value(node: ast.expr | None) -> object:
    """A literal; of anything else, such as `LossType.dapo`, its text."""
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


KINDS: dict[str, Callable[[str, Setting], object]] = {
    "field": _field,
    "option": _option,
    "yaml": _yaml,
    "entry": _entry,
    "assignment": _assignment,
}
