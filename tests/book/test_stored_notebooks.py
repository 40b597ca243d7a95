"""The notebooks as committed: run from top to bottom, readable, their figures with a text.

The rules are functions that return complaints; each is shown a notebook that breaks it.
"""

import ast
import functools
import re
from collections.abc import Callable, Iterator

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from nbcourse import numerals
from nbcourse.display import phones
from nbcourse.publishing import chapters, drawings, stored
from nbcourse.publishing.anchors import ALT

NOTEBOOKS = pytest.mark.parametrize("path", chapters.notebooks(), ids=lambda path: path.stem)
SHEETS = (chapters.BOOK / "exercises").glob("*.ipynb")

COLUMNS, LINES = 88, 25
HEAVY = 250_000  # characters of a figure
COLUMN, PIXEL = 800, 0.75  # pixels of the site's column on a desktop; points of one
LEAST = 12  # pixels of the letters in a figure
# Diagrams, and a matrix with a number in each of its entries.
SIDEWAYS = {"00-start-here": 1, "03-critics": 1, "05-ppo": 1, "07-language-model": 1}
SIDEWAYS |= {"08-rlhf": 2, "10-grpo": 1, "11-kl": 3}
DISPLAYING = {"print", "display", "show", "show_source", "table"}
ABSOLUTE_PATH = re.compile(
    r"(?<![\w./:])(?:/(?:home|Users|root|tmp|var|usr|opt|private)/|[A-Z]:\\)"
)

read = functools.cache(stored.read)  # no rule changes what it is shown


def code_cells(notebook: NotebookNode) -> Iterator[NotebookNode]:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def outputs(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, NotebookNode]]:
    return ((cell, output) for cell in code_cells(notebook) for output in cell.outputs)


def not_in_stored_form(notebook: NotebookNode) -> list[str]:
    """Ids, prompts and metadata as `nbcourse run --write` leaves them."""
    tidied = stored.tidy(notebook)
    complaints = [
        f"{cell.id}: id, prompt or metadata not as stored"
        for cell, tidy_cell in zip(notebook.cells, tidied.cells, strict=True)
        if cell != tidy_cell
    ]
    return complaints + ["metadata of the notebook"] * (notebook.metadata != tidied.metadata)


def not_run(notebook: NotebookNode) -> list[str]:
    """Code cells without a prompt number; nbval compares nothing in them."""
    return [cell.id for cell in code_cells(notebook) if cell.execution_count is None]


def missing_outputs(notebook: NotebookNode) -> list[str]:
    """Cells that show something when they run, and have nothing stored."""
    return [c.id for c in code_cells(notebook) if not c.outputs and shows_something(c.source)]


def shows_something(source: str) -> bool:
    """Whether a cell prints, displays, or ends in a value.

    A last line that only calls a function may return None: such cells are left to nbval, which runs
    them and misses what is not stored.
    """
    statements = ast.parse(TransformerManager().transform_cell(source)).body
    if not statements:
        return False
    last = statements[-1]
    silenced = source.rstrip().endswith(";")
    ends_in_value = isinstance(last, ast.Expr) and not isinstance(
        last.value, ast.Call | ast.Constant
    )
    return (ends_in_value and not silenced) or any(map(displays, statements))


def displays(statement: ast.AST) -> bool:
    """Whether a statement calls one of DISPLAYING when it runs: defining a function does not."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Lambda):
        return False
    if isinstance(statement, ast.Call):
        function = statement.func
        name = getattr(function, "attr", getattr(function, "id", None))
        if name in DISPLAYING:
            return True
    return any(map(displays, ast.iter_child_nodes(statement)))


def errors(notebook: NotebookNode) -> list[str]:
    """Errors, and warnings that somebody would have to explain."""
    return [
        f"{cell.id}: {output.get('ename') or output.text.strip()}"
        for cell, output in outputs(notebook)
        if output.output_type == "error" or output.get("name") == "stderr"
    ]


def figures(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    """Each image of a notebook, with the position of its cell."""
    for position, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if any(kind.startswith("image/") for kind in output.get("data", {})):
                yield position, output


def figures_without_text(notebook: NotebookNode) -> list[str]:
    """Images that tell nothing to readers who cannot see them: the text is behind the caption."""
    behind = [*(cell.source for cell in notebook.cells[1:]), ""]
    return [notebook.cells[i].id for i, _ in figures(notebook) if len(ALT.findall(behind[i])) != 1]


def figures_of_pixels_or_weight(notebook: NotebookNode) -> list[str]:
    """Images that are blurred when enlarged, or heavy: many points want `rasterized=True`."""
    return [
        notebook.cells[i].id
        for i, output in figures(notebook)
        if len(output.data.get("image/svg+xml", HEAVY * " ")) >= HEAVY
    ]


def drawings_of(notebook: NotebookNode) -> Iterator[tuple[str, str]]:
    """Each vector graphic of a notebook, with the id of its cell."""
    for position, output in figures(notebook):
        if svg := output.data.get("image/svg+xml"):
            yield notebook.cells[position].id, svg


def figures_of_another_width(notebook: NotebookNode) -> list[str]:
    """Vector graphics that are wider or narrower than the site's column."""
    found = []
    for cell, svg in drawings_of(notebook):
        width = re.search(r'<svg [^>]*width="([\d.]+)pt"', svg)
        if width is None or abs(float(width[1]) - PIXEL * COLUMN) > 0.05:
            found.append(cell)
    return found


def small_letters(notebook: NotebookNode) -> list[str]:
    """Vector graphics with letters that are hard to read; Matplotlib's are a hundred points."""
    return [
        cell
        for cell, svg in drawings_of(notebook)
        if any(float(size) < PIXEL * LEAST / 100 for size in re.findall(r" scale\((\S+) -", svg))
    ]


def widgets_without_page(notebook: NotebookNode) -> list[str]:
    """Widgets with nothing to show where there is no kernel."""
    return [
        cell.id
        for cell, output in outputs(notebook)
        if stored.WIDGET_VIEW in output.get("data", {})
    ]


def hard_to_read(notebook: NotebookNode) -> list[str]:
    return [
        f"{cell.id}: {reason}"
        for cell in code_cells(notebook)
        for reason, broken in {
            f"a line over {COLUMNS} columns": any(
                len(s) > COLUMNS for s in cell.source.splitlines()
            ),
            f"more than {LINES} lines": len(cell.source.splitlines()) > LINES,
            "%autoreload left behind": "autoreload" in cell.source,
        }.items()
        if broken
    ]


def absolute_paths(notebook: NotebookNode) -> list[str]:
    """Paths that exist on the author's machine only, in what is written and in what is printed."""
    texts = [(cell, cell.source) for cell in notebook.cells]
    for cell, output in outputs(notebook):
        shown = [output.get("text", ""), *output.get("data", {}).values()]
        texts += [(cell, text) for text in shown if isinstance(text, str)]
    return [
        f"{cell.id}: {found[0]}" for cell, text in texts if (found := ABSOLUTE_PATH.search(text))
    ]


def imports_in_the_way(notebook: NotebookNode) -> list[str]:
    """Cells of five imports or more that define nothing, and are not folded."""
    found = []
    for cell in code_cells(notebook):
        body = ast.parse(TransformerManager().transform_cell(cell.source)).body
        imports = [one for one in body if isinstance(one, ast.Import | ast.ImportFrom)]
        others = [one for one in body if one not in imports and not isinstance(one, ast.Expr)]
        if len(imports) >= 5 and not others and "hide-input" not in cell.metadata.get("tags", []):
            found.append(cell.id)
    return found


def tables(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, list[list[str]]]]:
    """Each table that a cell displayed: its rows, of which the second names the sides."""
    for cell, output in outputs(notebook):
        text = output.get("data", {}).get("text/markdown", "")
        if text.startswith("|"):
            rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines()]
            yield cell, [[entry.strip() for entry in row] for row in rows]


def numbers_to_the_left(notebook: NotebookNode) -> list[str]:
    """Columns of numbers that JupyterLab would align to the left."""
    return [
        f"{cell.id}: {title}"
        for cell, (header, sides, *rows) in tables(notebook)
        for title, side, *column in zip(header, sides, *rows, strict=True)
        if numerals.is_numeric(column) and side != "---:"
    ]


def hyphens_for_minus(notebook: NotebookNode) -> list[str]:
    """Numbers in tables with an ASCII hyphen before them."""
    return [
        f"{cell.id}: {entry}"
        for cell, rows in tables(notebook)
        for row in rows[2:]
        for entry in row
        if numerals.has_hyphen(entry)
    ]


RULES = [
    not_in_stored_form,
    not_run,
    missing_outputs,
    errors,
    figures_without_text,
    figures_of_pixels_or_weight,
    figures_of_another_width,
    small_letters,
    widgets_without_page,
    hard_to_read,
    absolute_paths,
    imports_in_the_way,
    numbers_to_the_left,
    hyphens_for_minus,
]


@NOTEBOOKS
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_chapters_keep_the_rule(path, rule: Callable[[NotebookNode], list[str]]):
    assert rule(read(path)) == []


@pytest.mark.parametrize("path", sorted(SHEETS), ids=lambda path: path.stem)
def test_figures_of_exercises_are_like_those_of_chapters(path):
    sheet = read(path)
    assert figures_of_another_width(sheet) + small_letters(sheet) == []


@NOTEBOOKS
def test_figures_have_a_drawing_for_phones(path):
    """Those that do not are as wide there as they are, and move sideways under the finger."""
    notebook = read(path)
    drawn = [held.phone for _, held in drawings.for_phones(notebook)]
    assert len(list(figures(notebook))) - len(drawn) == SIDEWAYS.get(path.stem, 0)
    width = f' width="{72 * phones.WIDTH:g}pt"'
    assert all(width in phone[: phone.index(">")] for phone in drawn)


# ------------------------------------------------------------- the rules notice


def ran(source: str, **output) -> NotebookNode:
    """A notebook of one executed cell, in stored form."""
    shown = [new_output(**output)] if output else []
    cell = new_code_cell(source, execution_count=1, outputs=shown)
    return stored.tidy(new_notebook(cells=[cell]))


def unnumbered(notebook: NotebookNode) -> NotebookNode:
    notebook.cells[0].id = "a1b2c3"
    return notebook


def skipping_a_prompt(notebook: NotebookNode) -> NotebookNode:
    notebook.cells[0].execution_count = 2
    return notebook


def tagged(tag: str) -> NotebookNode:
    """Told to the site alone what is to be folded."""
    notebook = ran("x = 1")
    notebook.cells[0].metadata["tags"] = [tag]
    return notebook


def drawing(width: float = 600, size: float = 0.09) -> str:
    """A graphic with a letter, in points and hundreds of points."""
    return f'<svg width="{width}pt"><g transform="translate(1 2) scale({size} -{size})"></g></svg>'


def image(behind: str, **data: str) -> NotebookNode:
    """A figure with a text behind it."""
    notebook = ran("x", output_type="display_data", data=data or {"image/svg+xml": drawing()})
    notebook.cells.append(new_markdown_cell(behind))
    return stored.tidy(notebook)


def tabled(*lines: str) -> NotebookNode:
    """A cell that displayed this table."""
    return ran("table(x)", output_type="display_data", data={"text/markdown": "\n".join(lines)})


TOLD = "*Figure 1.1.* A line.\n\n<!-- alt: A line that rises. -->"


@pytest.mark.parametrize(
    ("rule", "notebook"),
    [
        (not_in_stored_form, unnumbered(ran("x = 1"))),
        (not_in_stored_form, skipping_a_prompt(ran("x = 1"))),
        (not_in_stored_form, tagged("hide-input")),
        (not_in_stored_form, tagged("hide-output")),
        (not_run, new_notebook(cells=[new_code_cell("x = 1")])),
        (missing_outputs, ran("x = 1\nx")),
        (missing_outputs, ran("x, y")),
        (missing_outputs, ran("for x in y:\n    print(x)")),
        (missing_outputs, ran("show(figure)\nx = 1")),
        (missing_outputs, ran("plt.show()")),
        (errors, ran("1 / 0", output_type="error", ename="ZeroDivisionError", evalue="")),
        (errors, ran("warn()", output_type="stream", name="stderr", text="careful")),
        (figures_without_text, image("*Figure 1.1.* A line.")),
        (figures_without_text, image("<!-- alt:  -->")),
        (figures_without_text, image(f"{TOLD}\n\n{TOLD}")),
        (figures_of_pixels_or_weight, image(TOLD, **{"image/png": ""})),
        (figures_of_pixels_or_weight, image(TOLD, **{"image/svg+xml": HEAVY * "x"})),
        (figures_of_another_width, image(TOLD, **{"image/svg+xml": drawing(width=599)})),
        (figures_of_another_width, image(TOLD, **{"image/svg+xml": drawing(width=648)})),
        (small_letters, image(TOLD, **{"image/svg+xml": drawing(size=0.085)})),
        (widgets_without_page, ran("w", output_type="display_data", data={stored.WIDGET_VIEW: {}})),
        (hard_to_read, ran("x" * 89)),
        (hard_to_read, ran("x\n" * 26)),
        (hard_to_read, ran("%autoreload 2")),
        (absolute_paths, ran("open('/home/ada/data.txt')")),
        (absolute_paths, ran("x", output_type="stream", text="saved to /tmp/x")),
        (absolute_paths, new_notebook(cells=[new_markdown_cell(r"see C:\book")])),
        (imports_in_the_way, ran("import a, b\n" * 5 + "a.begin()")),
        (numbers_to_the_left, tabled("| a | b |", "| ---: | --- |", "| 1 | 2 % |", "| 1 | – |")),
        (hyphens_for_minus, tabled("| a |", "| ---: |", "| −1 |", "| -2 to 3 |")),
    ],
)
def test_a_rule_notices(rule, notebook):
    assert len(rule(notebook)) == 1


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize(
    "notebook",
    [
        ran("x = 1"),
        ran("x;"),
        ran("losses.append(1)"),
        ran("import a\n" * 5 + "x = a.x"),
        ran("def f():\n    print(1)"),
        ran("x", output_type="execute_result", data={"text/plain": "1"}, execution_count=1),
        ran("see = 'https://example.org/home/x'"),
        image(TOLD),
        tabled("| a-1 | b |", "| --- | ---: |", "| x-1 | −2 |", "| 3 | 1 to 2 |"),
        stored.tidy(tagged("hide-input")),
        new_notebook(cells=[]),
    ],
)
def test_a_rule_lets_the_rest_pass(rule, notebook):
    assert rule(stored.tidy(notebook)) == []


@NOTEBOOKS
def test_cleared_outputs_are_noticed_in_every_chapter(path):
    notebook = stored.read(path)
    for cell in code_cells(notebook):
        cell.outputs = []
    assert missing_outputs(notebook)


@NOTEBOOKS
def test_cleared_prompts_are_noticed_in_every_chapter(path):
    notebook = stored.read(path)
    for cell in code_cells(notebook):
        cell.execution_count = None
    assert len(not_run(notebook)) == len(list(code_cells(notebook))) > 0
