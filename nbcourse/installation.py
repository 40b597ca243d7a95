"""Is everything here that the book needs? A table for chapter 0 and for `nbcourse doctor`."""

import platform
import re
import sys
from dataclasses import dataclass
from importlib import metadata

PACKAGES = ("torch", "transformers", "numpy", "matplotlib", "jupyterlab", "ipywidgets")


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    name: str
    version: str
    ok: bool
    remark: str = ""


def report() -> list[Row]:
    """Compare what is installed with what the book was tested with.

    Returns:
        One row for Python and one for each package; `ok` is False where a version is missing or
        differs from the pinned one, and `remark` says what to do.
    """
    rows = [_python()]
    pins = _pins()
    for name in PACKAGES:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            rows.append(Row(name, "missing", False, f"run: python -m pip install {name}"))
            continue
        pinned = pins.get(name, version)
        same = version.split("+")[0] == pinned
        rows.append(Row(name, version, same, "" if same else f"the book was tested with {pinned}"))
    return rows


def _python() -> Row:
    ok = sys.version_info >= (3, 11)
    return Row(
        "Python", platform.python_version(), ok, "" if ok else "the book needs 3.11 or newer"
    )


def _pins() -> dict[str, str]:
    """The versions that requirements.txt pins, read back from the installed package's metadata."""
    requirements = metadata.requires("nbcourse") or []
    exact = (re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line) for line in requirements)
    return {match[1]: match[2] for match in exact if match}
