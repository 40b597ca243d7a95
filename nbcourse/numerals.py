"""Which cells of a table are numbers, and how those are written: in JupyterLab as on the site."""

import re
from collections.abc import Iterable

SIGNED = r"[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+−-]?\d+)?(?: ?%)?"
# 0.3 · 1,319 · −2.5 % · 1e−5 · < 1e−11 · 0.75 ± 0.02 · 0.1 to 0.3 · 38 → 40 · 3 of 100 ·
# 0.02 / 0.10 / 0.39 · +0.01 (−0.03 to +0.05)
NUMBER = re.compile(
    rf"(?:[<>] ?)?{SIGNED}(?: (?:±|to|→|of|/) {SIGNED})*(?: \({SIGNED} to {SIGNED}\))?"
)
# Vectors and rows of numbers as well, which are no number and have signs.
NUMBERS = re.compile(r"(?:[\d\se.,%()+−±→/<>*-]|to|of)*")
HYPHEN = re.compile(r"(?<![\d)])-(?=\d)")
NO_NUMBER = {"", "nan", "inf", "−inf", "—", "–", "-"}


def is_numeric(cells: Iterable[str]) -> bool:
    """Whether every cell of a column is a number or says that there is none; bold ones count."""
    bare = [cell.strip().strip("*") for cell in cells]
    numbers = [NUMBER.fullmatch(cell) is not None for cell in bare]
    return any(numbers) and all(
        is_number or cell in NO_NUMBER for cell, is_number in zip(bare, numbers, strict=True)
    )


def has_hyphen(cell: str) -> bool:
    """Whether a hyphen stands for the minus of a number, in a cell of nothing but numbers."""
    return NUMBERS.fullmatch(cell) is not None and HYPHEN.search(cell) is not None


def with_minus(cell: str) -> str:
    """The cell with a true minus before its negative numbers; words keep their hyphens."""
    return HYPHEN.sub("−", cell) if NUMBERS.fullmatch(cell) else cell
