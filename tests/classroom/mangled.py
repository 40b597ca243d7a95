"""Solved notebooks as people leave them: each way takes the cells of one and gives them back."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from nbcourse.classroom.leaks import REGION
from tests.checks import masters

Cells = list[dict[str, Any]]


def solved(chapter: str) -> Cells:
    """The student's notebook of a sheet with the master's solutions, and words for the words."""
    right = {
        masters.grader(cell).get("grade_id"): REGION.sub(r"\2", cell.source)
        for cell in masters.master(chapter).cells
        if masters.grader(cell).get("solution")
    }
    cells = [json.loads(json.dumps(cell)) for cell in masters.student(chapter).cells]
    for cell in cells:
        if (name := name_of(cell)) in right:
            cell["source"] = right[name].rstrip("\n")
    return cells


def handed_out(chapter: str) -> Cells:
    return [json.loads(json.dumps(cell)) for cell in masters.student(chapter).cells]


def name_of(cell: dict[str, Any]) -> str:
    return cell["metadata"].get("nbgrader", {}).get("grade_id", "")


def is_answer(cell: dict[str, Any]) -> bool:
    """Whether it is the cell of an exercise that has a check."""
    marks = cell["metadata"].get("nbgrader", {})
    return marks.get("solution", False) and not marks.get("grade", False)


def is_check(cell: dict[str, Any]) -> bool:
    return "sheet.check(" in cell["source"]


def new(source: str, kind: str = "code") -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": source}


def answers(cells: Cells) -> list[int]:
    return [i for i, cell in enumerate(cells) if is_answer(cell)]


def stubs(chapter: str) -> dict[str, str]:
    return {name_of(cell): cell["source"] for cell in handed_out(chapter) if is_answer(cell)}


# ---------------------------------------------------------------- ways


def as_it_is(cells: Cells, chapter: str) -> Cells:
    return cells


def metadata_lost(cells: Cells, chapter: str) -> Cells:
    """As nbstripout and some editors save it."""
    return [cell | {"metadata": {}} for cell in cells]


def metadata_and_ids_lost(cells: Cells, chapter: str) -> Cells:
    """As copying all cells into a new notebook does."""
    return [new(cell["source"], cell["cell_type"]) for cell in cells]


def by_colab(cells: Cells, chapter: str) -> Cells:
    """Ids of its own in the metadata, and nothing else."""
    return [
        new(cell["source"], cell["cell_type"]) | {"metadata": {"id": f"aB{i:03}"}}
        for i, cell in enumerate(cells)
    ]


def by_vs_code(cells: Cells, chapter: str) -> Cells:
    return [
        cell
        | {"id": f"{i:08x}", "metadata": cell["metadata"] | {"vscode": {"languageId": "python"}}}
        for i, cell in enumerate(cells)
    ]


def sources_in_lines(cells: Cells, chapter: str) -> Cells:
    return [cell | {"source": cell["source"].splitlines(keepends=True)} for cell in cells]


def lines_of_windows(cells: Cells, chapter: str) -> Cells:
    return [cell | {"source": cell["source"].replace("\n", "\r\n")} for cell in cells]


def in_new_cells_below_the_stubs(cells: Cells, chapter: str) -> Cells:
    stub, found = stubs(chapter), []
    for cell in cells:
        if is_answer(cell):
            found += [cell | {"source": stub[name_of(cell)]}, new(cell["source"])]
        else:
            found.append(cell)
    return found


def in_new_cells_above_the_stubs(cells: Cells, chapter: str) -> Cells:
    """The stub is emptied, or it would define the function anew."""
    found = []
    for cell in cells:
        found += [new(cell["source"]), cell | {"source": ""}] if is_answer(cell) else [cell]
    return found


def stubs_deleted(cells: Cells, chapter: str) -> Cells:
    return [new(cell["source"]) if is_answer(cell) else cell for cell in cells]


def cells_copied(cells: Cells, chapter: str) -> Cells:
    """Each answer twice, with its metadata: as Jupyter copies a cell."""
    return [copy for cell in cells for copy in ([cell, cell] if is_answer(cell) else [cell])]


def stubs_copied_to_the_end(cells: Cells, chapter: str) -> Cells:
    """A copy of each stub, kept to look at the statement again."""
    kept = [cell for cell in handed_out(chapter) if is_answer(cell)]
    return cells + kept


def drafts_above(cells: Cells, chapter: str) -> Cells:
    """A first try that is wrong, and a better one below, both between stub and check."""
    found = []
    for cell in cells:
        if is_answer(cell):
            draft = re.sub(
                r"(?m)^def (\w+)\((?s:.*)", r"def \1(*given):\n    return 0.0", cell["source"]
            )
            found += [cell | {"source": draft}, new(cell["source"])]
        else:
            found.append(cell)
    return found


def checks_deleted(cells: Cells, chapter: str) -> Cells:
    return [cell for cell in cells if not is_check(cell)]


def checks_above(cells: Cells, chapter: str) -> Cells:
    """Each check moved above its answer."""
    cells = list(cells)
    for i in answers(cells):
        j = next(j for j in range(i, len(cells)) if is_check(cells[j]))
        cells.insert(i, cells.pop(j))
    return cells


def exercises_turned_round(cells: Cells, chapter: str) -> Cells:
    """The last exercise first: imports stay where they are."""
    first = next(i for i, cell in enumerate(cells) if cell["source"].startswith("## Exercise"))
    parts: list[Cells] = []
    for cell in cells[first:]:
        if cell["source"].startswith("## Exercise"):
            parts.append([])
        parts[-1].append(cell)
    return cells[:first] + [cell for part in parts[::-1] for cell in part]


def answer_and_check_joined(cells: Cells, chapter: str) -> Cells:
    """As Jupyter merges cells: the metadata of the first one stays."""
    found: Cells = []
    for cell in cells:
        above = next((c for c in found[::-1] if c["cell_type"] == "code"), None)
        if is_check(cell) and above is not None and is_answer(above):
            above["source"] += f"\n\n{cell['source']}"
        else:
            found.append(deepcopy(cell))
    return found


def all_code_joined(cells: Cells, chapter: str) -> Cells:
    """One cell of code below all texts, without a name."""
    code = "\n\n".join(
        cell["source"] for cell in cells if cell["cell_type"] == "code" and not is_words(cell)
    )
    return [*(c for c in cells if c["cell_type"] != "code" or is_words(c)), new(code)]


def is_words(cell: dict[str, Any]) -> bool:
    marks = cell["metadata"].get("nbgrader", {})
    return marks.get("solution", False) and marks.get("grade", False)


def docstring_split_off(cells: Cells, chapter: str) -> Cells:
    """Imports and helpers of an answer in a cell of their own, the function in the named one."""
    found = []
    for cell in cells:
        head, define, rest = cell["source"].partition("def ")
        if is_answer(cell) and head.strip():
            found += [new(head.rstrip()), cell | {"source": define + rest}]
        else:
            found.append(cell)
    return found


def functions_renamed(cells: Cells, chapter: str) -> Cells:
    """And the check is called with the new name."""
    names = re.findall(r"sheet\.check\([^,]+, (\w+)\)", "\n".join(c["source"] for c in cells))
    pattern = re.compile(rf"(?<![\"'-])\b({'|'.join(names)})\b(?![\"'-])")
    return [
        cell | {"source": pattern.sub(r"my_\1", cell["source"])}
        if cell["cell_type"] == "code"
        else cell
        for cell in cells
    ]


def functions_renamed_and_metadata_lost(cells: Cells, chapter: str) -> Cells:
    return metadata_and_ids_lost(functions_renamed(cells, chapter), chapter)


def helpers_of_one_name(cells: Cells, chapter: str) -> Cells:
    """Each answer in a helper, and all helpers have one name: what counts is the last above."""
    found = []
    for cell in cells:
        names = re.findall(r"(?m)^def (\w+)\(", cell["source"])
        if is_answer(cell) and len(names) == 1:
            (name,) = names
            inner = re.sub(rf"\b{name}\b", "helper", cell["source"])
            found.append(
                cell | {"source": f"{inner}\n\n\ndef {name}(*given):\n    return helper(*given)"}
            )
        else:
            found.append(cell)
    return found


def with_ipython(cells: Cells, chapter: str) -> Cells:
    return [
        cell | {"source": f"%%time\n{cell['source']}"} if is_answer(cell) else cell
        for cell in cells
    ] + [new("%matplotlib inline\n!pip list\n?print")]


def stub_line_left(cells: Cells, chapter: str) -> Cells:
    """`raise NotImplementedError` below the return, where nobody comes to."""
    return [
        cell | {"source": f"{cell['source']}\n    raise NotImplementedError"}
        if is_answer(cell) and "    return" in cell["source"].splitlines()[-1]
        else cell
        for cell in cells
    ]


def broken_cells_between(cells: Cells, chapter: str) -> Cells:
    found = []
    for cell in cells:
        broken = ("1 / 0", "def half(", '=%"""')  # IPython has an IndexError of the last
        found += [cell, *map(new, broken)] if is_answer(cell) else [cell]
    return found


def tabs_for_spaces(cells: Cells, chapter: str) -> Cells:
    """As an editor indents that was told so."""

    def tabbed(source: str) -> str:
        return re.sub(r"(?m)^(?: {4})+", lambda found: "\t" * (len(found[0]) // 4), source)

    return [
        cell | {"source": tabbed(cell["source"])} if is_answer(cell) else cell for cell in cells
    ]


def under_a_name_of_ones_own(cells: Cells, chapter: str) -> Cells:
    """The function has another name, and the stub's is given to it below."""

    def mine(source: str) -> str:
        names = re.findall(r"(?m)^def (\w+)\(", source)
        for name in names[-1:]:
            source = re.sub(rf"\b{name}\b", f"my_{name}", source) + f"\n\n{name} = my_{name}"
        return source

    return [cell | {"source": mine(cell["source"])} if is_answer(cell) else cell for cell in cells]


def decorated(cells: Cells, chapter: str) -> Cells:
    """By a timer that stands in a cell above all."""
    timer = (
        "import time\nfrom functools import wraps\n\n\ndef timed(function):\n"
        "    @wraps(function)\n    def inside(*given):\n        began = time.perf_counter()\n"
        "        result = function(*given)\n"
        "        print(f'{time.perf_counter() - began:.3f} s')\n        return result\n\n"
        "    return inside"
    )
    return [
        new(timer),
        *(
            cell | {"source": re.sub(r"(?m)^def ", "@timed\ndef ", cell["source"])}
            if is_answer(cell)
            else cell
            for cell in cells
        ),
    ]


def helpers_far_above(cells: Cells, chapter: str) -> Cells:
    """Imports, constants and helpers of all answers in one cell at the top."""
    heads, found = [], []
    for cell in cells:
        at = cell["source"].rfind("\ndef ") + 1 if is_answer(cell) else 0
        heads += [cell["source"][:at].rstrip()] if at else []
        found.append(cell | {"source": cell["source"][at:]} if at else cell)
    sheet = next(i for i, cell in enumerate(found) if "sheet = Sheet(" in cell["source"])
    return [*found[: sheet + 1], new("\n\n".join(["LEVEL = 0.95", *heads])), *found[sheet + 1 :]]


def all_answers_at_the_top(cells: Cells, chapter: str) -> Cells:
    """Gathered in one new cell below the imports; the stubs are deleted, the checks stay."""
    sheet = next(i for i, cell in enumerate(cells) if "sheet = Sheet(" in cell["source"])
    gathered = new("\n\n\n".join(cell["source"] for cell in cells if is_answer(cell)))
    left = [cell for cell in cells if not is_answer(cell)]
    return [*left[: sheet + 1], gathered, *left[sheet + 1 :]]


def texts_deleted(cells: Cells, chapter: str) -> Cells:
    """No statement, no hint: only code, and the answer in words."""
    return [cell for cell in cells if cell["cell_type"] == "code" or is_words(cell)]


def tried_in_its_cell(cells: Cells, chapter: str) -> Cells:
    """Calls below the function, of which one fails, and a plot."""
    tries = "\n\nprint('works:', {name})\nimport matplotlib.pyplot as plt\nprint({name}(None, 3))"

    def tried(source: str) -> str:
        names = re.findall(r"(?m)^def (\w+)\(", source)
        return source + tries.format(name=names[-1]) if names else source

    return [cell | {"source": tried(cell["source"])} if is_answer(cell) else cell for cell in cells]


def with_a_drive_and_a_question(cells: Cells, chapter: str) -> Cells:
    """What works in Colab, or asks its owner, and not where it is graded."""
    first = [
        new("from google.colab import drive\n\ndrive.mount('/content/drive')\n%cd /content/drive"),
        new("!pip install -q torch\nname = input('Your name? ')\nprint('Hello', name)"),
    ]
    return [*first, *cells, new("quit()")]


def two_versions_in_one_cell(cells: Cells, chapter: str) -> Cells:
    """The first try above the second, which counts, and a third that is commented out."""

    def both(source: str) -> str:
        lines = "\n".join(f"# {line}" for line in source.splitlines())
        names = re.findall(r"(?m)^def (\w+)\(", source)
        first = f"def {names[-1]}(*given):\n    return None\n\n\n" if names else ""
        return f"{first}{source}\n\n{lines}"

    return [cell | {"source": both(cell["source"])} if is_answer(cell) else cell for cell in cells]


def pasted_below_the_original(cells: Cells, chapter: str) -> Cells:
    """The sheet as it was handed out, and below it the one that was worked on."""
    return [*handed_out(chapter), *cells]


def with_outputs_of_earlier_runs(cells: Cells, chapter: str) -> Cells:
    """Numbers of execution out of order, and a trace where all is well by now."""
    trace = {
        "output_type": "error",
        "ename": "NotRight",
        "evalue": "not yet",
        "traceback": ["NotRight: not yet"],
    }
    return [
        cell | {"execution_count": 90 - i, "outputs": [trace]}
        if cell["cell_type"] == "code"
        else cell
        for i, cell in enumerate(cells)
    ]


def checks_copied(cells: Cells, chapter: str) -> Cells:
    """Each check twice, and all of them once more at the end."""
    checks = [cell for cell in cells if is_check(cell)]
    twice = [copy for cell in cells for copy in ([cell, cell] if is_check(cell) else [cell])]
    return [*twice, *(new(cell["source"]) for cell in checks)]


WAYS: dict[str, Callable[[Cells, str], Cells]] = {
    way.__name__: way
    for way in (
        *(as_it_is, metadata_lost, metadata_and_ids_lost, by_colab, by_vs_code, sources_in_lines),
        *(lines_of_windows, in_new_cells_below_the_stubs, in_new_cells_above_the_stubs),
        *(stubs_deleted, cells_copied, stubs_copied_to_the_end, drafts_above, checks_deleted),
        *(checks_above, exercises_turned_round, answer_and_check_joined, all_code_joined),
        *(docstring_split_off, functions_renamed, functions_renamed_and_metadata_lost),
        *(helpers_of_one_name, with_ipython, stub_line_left, broken_cells_between),
        *(tabs_for_spaces, under_a_name_of_ones_own, decorated, helpers_far_above),
        *(all_answers_at_the_top, texts_deleted, tried_in_its_cell, with_a_drive_and_a_question),
        *(two_versions_in_one_cell, pasted_below_the_original, with_outputs_of_earlier_runs),
        *(checks_copied,),
    )
}


# ---------------------------------------------------------------- files


def notebook(cells: Cells) -> dict[str, Any]:
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def as_file(cells: Cells) -> bytes:
    return json.dumps(notebook(cells), ensure_ascii=False, indent=1).encode()


def by_key_order_of_colab(cells: Cells) -> bytes:
    book = notebook(cells)
    return json.dumps({key: book[key] for key in reversed(book)}, ensure_ascii=False).encode()


FILES: dict[str, Callable[[Cells], bytes]] = {
    "UTF-8 with a mark": lambda cells: b"\xef\xbb\xbf" + as_file(cells),
    "UTF-16": lambda cells: as_file(cells).decode().encode("utf-16"),
    "UTF-16 without a mark": lambda cells: as_file(cells).decode().encode("utf-16-le"),
    "Windows-1252": lambda cells: json.dumps(
        notebook(
            [
                cell | {"source": cell["source"].encode("cp1252", "ignore").decode("cp1252")}
                for cell in cells
            ]
        ),
        ensure_ascii=False,
    ).encode("cp1252"),
    "lines of Windows": lambda cells: as_file(cells).replace(b"\n", b"\r\n"),
    "keys in Colab's order": by_key_order_of_colab,
}
