"""The twenty items of `make test` that took longest, as a table: `make dearest`.

Each worker has a core and one thread, so that on a machine that does nothing else an item's seconds
are nearly its processor seconds. The cells of a notebook are one item here, and so are the cases of
one function.
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROWS = 20


def seconds(report: Path) -> Counter[str]:
    """What each notebook and each test function took, setting up included."""
    took: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        room, name = case.get("classname", ""), case.get("name", "")
        took[room if name.startswith("Cell ") else f"{room}.{name.partition('[')[0]}"] += float(
            case.get("time", 0)
        )
    return took


def table(took: Counter[str]) -> str:
    """Markdown: the items that took most, and what all took together."""
    rows = [f"| `{name}` | {time:.0f} |" for name, time in took.most_common(ROWS)]
    return "\n".join(["| item | seconds |", "|---|---|", *rows, f"| all | {took.total():.0f} |"])


if __name__ == "__main__":
    print(table(seconds(Path(sys.argv[1]))))
