"""Appendix B: every entry in the same form, with its dates and commits, and its test is there."""

import ast
import re
from datetime import date

import pytest
from nbformat import NotebookNode

from nbcourse.errors import UserError
from nbcourse.publishing import chapters, errata, stored

CELLS = stored.read(chapters.find("errata")).cells
HEADING = re.compile(r"^### (B\.\d+) · \S", re.MULTILINE)


def entries(cells: list[NotebookNode]) -> dict[str, list[NotebookNode]]:
    """The cells of each entry, by the number in its heading."""
    found: dict[str, list[NotebookNode]] = {}
    number = None
    for cell in cells:
        if cell.cell_type == "markdown":
            heading = HEADING.search(cell.source)
            number = heading[1] if heading else None if cell.source.startswith("## ") else number
        if number is not None:
            found.setdefault(number, []).append(cell)
    return found


def calls_of_entry(cells: list[NotebookNode]) -> list[ast.Call]:
    return [
        node
        for cell in cells
        if cell.cell_type == "code"
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "entry"
    ]


def exists(file: str, name: str) -> bool:
    """Whether tests/FILE.py defines NAME, which is `test_…` or `TestClass::test_…`."""
    path = chapters.ROOT / "tests" / f"{file}.py"
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []
    *classes, function = name.split("::")
    for wanted in classes:
        body = next(
            (node.body for node in body if isinstance(node, ast.ClassDef) and node.name == wanted),
            [],
        )
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in body)


ENTRIES = entries(CELLS)
REGISTRY = errata.read()
KEYS = [entry.number for entry in REGISTRY]


def test_the_text_has_the_entries_of_the_registry_with_their_anchors():
    headings = [cells[0].source for cells in ENTRIES.values()]
    assert len(headings) == len(REGISTRY) > 20
    for heading, entry in zip(headings, REGISTRY, strict=True):
        number = '<div id="sec-{}"></div>'.format(entry.number.lower().replace(".", "-"))
        title = f"### {entry.number} · {entry.title}\n"
        assert f'<a id="{entry.id}"></a>\n\n{number}\n\n{title}' in heading
    assert len({entry.id for entry in REGISTRY}) == len(REGISTRY)


@pytest.mark.parametrize("entry", REGISTRY, ids=KEYS)
def test_an_entry_has_the_form(entry):
    cells = ENTRIES[entry.number]
    assert [cell.cell_type for cell in (cells[0], cells[1], cells[-1])] == [
        "markdown",
        "code",
        "markdown",
    ]
    claim, *_, fix = cells
    assert claim.source.index("**The claim.**") < claim.source.index("**What is wrong.**")
    assert fix.source.startswith("**The fix.**")
    (call,) = calls_of_entry(cells)
    assert ast.literal_eval(call.args[0]) == entry.id
    assert any("assert" in cell.source for cell in cells if cell.cell_type == "code")


@pytest.mark.parametrize("entry", REGISTRY, ids=KEYS)
def test_every_printed_number_is_computed(entry):
    """A literal among the values of the table would be typed in, not found out."""
    (call,) = calls_of_entry(ENTRIES[entry.number])
    assert not typed(call.args[1])


def typed(rows: ast.expr) -> list[str]:
    """The values of a displayed dictionary, or parts of them, that are constants."""
    values = rows.values if isinstance(rows, ast.Dict) else []
    parts = [
        part
        for value in values
        for part in (value.elts if isinstance(value, ast.Tuple) else [value])
    ]
    return [ast.unparse(part) for part in parts if isinstance(part, ast.Constant)]


def test_a_typed_value_is_noticed():
    assert typed(ast.parse("{'slope': ('positive', x), 'mean': (y, 0.0)}", mode="eval").body) == [
        "'positive'",
        "0.0",
    ]


@pytest.mark.parametrize("entry", REGISTRY, ids=KEYS)
def test_the_test_that_would_have_caught_it_exists(entry):
    file, name = entry.test.split(".py::")
    assert exists(file, name)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("functional/test_nothing", "TestPpoClip::test_cases"),
        ("functional/test_surrogates", "TestPpoClip::test_no_such_case"),
        ("functional/test_surrogates", "test_cases"),
        ("functional/test_surrogates", "TestNothing::test_cases"),
    ],
)
def test_a_test_that_does_not_exist_is_noticed(file, name):
    assert not exists(file, name)


@pytest.mark.parametrize("entry", REGISTRY, ids=KEYS)
def test_nothing_was_mended_before_it_was_seen(entry):
    for seen in entry.seen:
        if seen.mended is not None:
            assert seen.as_of is not None
            assert seen.as_of <= seen.mended.on


@pytest.mark.parametrize("number", ENTRIES)
def test_no_commit_is_quoted_that_is_not_linked(number):
    """A commit in the text stands in a link of 40 digits, so that it can be looked up."""
    text = "\n".join(cell.source for cell in ENTRIES[number] if cell.cell_type == "markdown")
    short = re.findall(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,9}\b", text)
    full = re.findall(r"/commit/([0-9a-f]{40})\)", text)
    assert sorted(short) == sorted(commit[: len(s)] for s, commit in zip(short, full, strict=True))


COMMIT = "0123456789abcdef0123456789abcdef01234567"
PLACE = {"commit": COMMIT, "as_of": date(2026, 1, 2), "path": "a.py", "lines": "L3-L4"}
CODE = errata.Project(name="Code", repository="a/b")
POST = errata.Project(name="Post", author="A", link="https://a.b", published=date(2026, 1, 2))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"commit": None}, "names the commit"),
        ({"commit": COMMIT[:7]}, "40 digits"),
        ({"as_of": None}, "needs as_of"),
        ({"path": None}, "needs as_of, path"),
        ({"lines": "3"}, "not of the form"),
    ],
)
def test_a_place_without_commit_or_date_is_refused(changed, complaint):
    errata.Seen(project=CODE, **PLACE)
    with pytest.raises(UserError, match=complaint):
        errata.Seen(project=CODE, **{**PLACE, **changed})


def test_what_was_mended_names_who_can_show_it():
    with pytest.raises(UserError, match="names the commit"):
        errata.Mended(on=date(2026, 1, 3))
    with pytest.raises(UserError, match="40 digits"):
        errata.Mended(on=date(2026, 1, 3), commit=COMMIT[:7])
    with pytest.raises(TypeError, match="on"):
        errata.Mended(commit=COMMIT)


@pytest.mark.parametrize("missing", ["author", "link", "published"])
def test_a_post_needs_author_link_and_date(missing):
    known = {"author": "A", "link": "https://a.b", "published": date(2026, 1, 2)}
    with pytest.raises(UserError, match="name its author, link and date"):
        errata.Project(name="Post", **{**known, missing: None})


def test_a_place_as_it_is_printed():
    mended = errata.Mended(on=date(2026, 1, 3), commit=COMMIT, pull=7)
    assert errata.Seen(project=CODE, note="loss", **PLACE, mended=mended).markdown() == (
        f"[Code](https://github.com/a/b/blob/{COMMIT}/a.py#L3-L4) (loss), as of 2026-01-02, "
        f"**fixed on 2026-01-03 in [0123456](https://github.com/a/b/commit/{COMMIT}), "
        "[#7](https://github.com/a/b/pull/7)**"
    )
    gone = errata.Mended(on=date(2026, 1, 4), pull=8, removed=True)
    assert gone.markdown("a/b") == "removed on 2026-01-04 in [#8](https://github.com/a/b/pull/8)"
    draft = errata.Project(
        name="Post", author="A", link="https://a.b", published=date(2026, 1, 2), draft=True
    )
    assert errata.Seen(project=draft).markdown() == "[Post](https://a.b), draft of 2026-01-02"
    assert errata.Seen(project=POST).markdown() == "[Post](https://a.b), 2026-01-02"
