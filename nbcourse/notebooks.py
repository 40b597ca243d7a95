"""Notebooks that others have written: their cells, and what is defined in them."""

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbcourse.errors import NotFound, UserError


def cells(file: Path) -> list[Mapping[str, Any]]:
    """The cells of a notebook, as nbformat 4 has them.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: in one line, if it is no notebook, or one of an older form.
    """
    if not file.is_file():
        raise NotFound(f"there is no {file}: expected a notebook")
    try:
        notebook = json.loads(file.read_text(encoding="utf-8-sig", errors="replace"))
        found = notebook["worksheets" if "worksheets" in notebook else "cells"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged: it is no notebook of nbformat 4 ({error})") from error
    if "worksheets" in notebook:
        raise UserError(f"{file} is a notebook of nbformat 3: open it in JupyterLab, and save it")
    if not isinstance(found, list) or not all(isinstance(cell, dict) for cell in found):
        raise UserError(
            f"{file} is damaged: it is no notebook of nbformat 4 (cells: {found!r:.40})"
        )
    return found


def code(cell: Mapping[str, Any]) -> str:
    """What stands in a code cell; nothing of another one."""
    return "".join(cell.get("source", "")) if cell.get("cell_type") == "code" else ""


def bound(node: ast.stmt) -> list[str]:
    """The names that a statement gives something."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return [
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        ]
    return []
