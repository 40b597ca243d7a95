"""The scan finds a secret wherever it may hide, and nothing else."""

import re
import textwrap
import zipfile
from html import escape

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from nbcourse.classroom import code_forms, leaks
from nbcourse.publishing import search
from tests.checks import masters

MASTER = """\
def mean_of_others(rewards):
    ### BEGIN SOLUTION
    everything = rewards.sum() + 0 * offset_for_later
    return (everything - rewards) / (len(rewards) - 1)
    ### END SOLUTION"""
TEST = """\
sheet.check("mean-of-others", mean_of_others)
### BEGIN HIDDEN TESTS
assert mean_of_others(torch.tensor([2.0, 8.0])).tolist() == [8.0, 2.0]
### END HIDDEN TESTS"""
LINE = "return (everything - rewards) / (len(rewards) - 1)"
HIDDEN_TEST = "assert mean_of_others(torch.tensor([2.0, 8.0])).tolist() == [8.0, 2.0]"


@pytest.fixture
def hidden(tmp_path):
    root = tmp_path / "root"
    for folder in ("book/text", "nbcourse", "solutions"):
        (root / folder).mkdir(parents=True)
    (root / "book" / "text" / "02-x.md").write_text("we add everything up")
    cells = [new_code_cell(MASTER), new_code_cell(TEST)]
    for cell, name in zip(cells, ("mean-of-others", "mean-of-others-check"), strict=True):
        cell.metadata["nbgrader"] = {"grade_id": name}
    nbformat.write(new_notebook(cells=cells), root / "solutions" / "02-x.ipynb")
    return leaks.secrets(root)


def test_secret_is_what_stands_in_the_regions_and_nowhere_else(hidden):
    assert set(hidden.lines.values()) == {"02-x, mean-of-others", "02-x, mean-of-others-check"}
    assert set(hidden.lines) == {
        "everything=rewards.sum()+0*offset_for_later",
        "".join(LINE.split()),
        "".join(HIDDEN_TEST.split()),
    }
    assert set(hidden.words) == {"offset_for_later", "tensor", "tolist"}  # "everything" is public


def test_a_table_of_the_package_is_public(hidden, tmp_path):
    root = tmp_path / "root"
    (root / "nbcourse" / "mistakes.toml").write_text('name.fix = "tolist"')
    (root / "book" / "questions.toml").write_text('"02-x" = ["offset_for_later"]')
    assert set(leaks.secrets(root).words) == {"tensor"}


def as_notebook(line: str) -> bytes:
    return nbformat.writes(new_notebook(cells=[new_code_cell(f"x = 1\n{line}\n")])).encode()


def as_page(line: str) -> bytes:
    spans = "".join(f"<span>{escape(word)}</span> " for word in line.split())
    return f"<html><pre>{spans}</pre></html>".encode()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("notes.txt", str.encode),
        ("indented.py", lambda line: f"if True:\n        {line}  # so\n".encode()),
        ("sheet.ipynb", as_notebook),
        ("page.html", as_page),
        (
            "search-index.bin",
            lambda line: search.packed({"sections": [["offset_for_later tolist"]]}),
        ),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_secret_is_found(tmp_path, hidden, name, write, zipped):
    for line in (LINE, HIDDEN_TEST):
        content = write(line)
        if zipped:
            with zipfile.ZipFile(tmp_path / "inner.zip", "w") as archive:
                archive.writestr(f"folder/{name}", content)
            with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
                archive.write(tmp_path / "inner.zip", "inner.zip")
            place = tmp_path / "outer.zip"
        else:
            place = tmp_path / name
            place.write_bytes(content)
        found = leaks.scan([place], hidden)
        assert found
        assert all(str(place) in leak and name in leak and "02-x" in leak for leak in found)


def test_a_whole_folder_is_searched(tmp_path, hidden):
    (tmp_path / "site" / "deep").mkdir(parents=True)
    (tmp_path / "site" / "deep" / "page.html").write_bytes(as_page(LINE))
    (tmp_path / "site" / "fine.html").write_bytes(as_page("def mean_of_others(rewards):"))
    (found,) = leaks.scan([tmp_path / "site"], hidden)
    assert found.endswith("deep/page.html: a line of 02-x, mean-of-others")


def test_pictures_and_other_bytes_do_no_harm(tmp_path, hidden):
    (tmp_path / "picture.png").write_bytes(bytes(range(256)) * 10)
    assert leaks.scan([tmp_path / "picture.png"], hidden) == []


@masters.needed
def test_the_masters_of_the_book_are_full_of_secrets_and_its_public_texts_hold_none():
    hidden = leaks.secrets()
    assert len(hidden.lines) > 30
    assert len(hidden.code) > 60
    book = leaks.ROOT / "book"  # all of it is searched where a class's repository is made
    assert leaks.scan([book / "exercises", book / "studies", *book.glob("*.md")], hidden) == []
    assert leaks.scan([leaks.ROOT / "solutions" / "text" / "02-sequences.md"], hidden)
    exam = leaks.ROOT / "solutions" / "course" / "exam.md"
    keys = leaks.KEY.findall(exam.read_text(encoding="utf-8"))
    for key in keys:  # as a page has them
        page = f"<p>{escape(re.sub('[*`]', '', key))}</p>".encode()
        assert leaks.scan_bytes("page.html", page, hidden)[0].endswith("the keys of exam"), key
    assert leaks.scan([exam], hidden)


SOLVED = """\
def unequal_groups(rewards, prompts):
    ### BEGIN SOLUTION
    same = prompts[:, None] == prompts[None, :]
    total = torch.where(same, rewards[None, :], 0.0).sum(dim=1)
    others = same.sum(dim=1) - 1
    return torch.where(others > 0, rewards - total / others.clamp(min=1), 0.0)
    ### END SOLUTION"""
DISGUISED = '''\
# My own work.
def answer(r: "Tensor", who: "Tensor"):
    """Each reward less the mean of the others."""
    n = (who[ : ,None] ==
         who[None,:]).sum(dim = 1) - 1  # how many others
    pairs: "Tensor" = who[:, None] == who[None, :]
    s = torch.where(pairs, r[None, :], 0).sum(dim=1)
    result = torch.where(
        n > 0,
        r - s / n.clamp(min=1),
        0,
    )
    return result
'''
ANOTHER = """\
def answer(r, who):
    found = torch.zeros_like(r)
    for prompt in who.unique():
        mine = who == prompt
        if mine.sum() > 1:
            found[mine] = r[mine] - (r[mine].sum() - r[mine]) / (mine.sum() - 1)
    return found
"""


@pytest.fixture
def solved(tmp_path):
    """What is secret of the solution above; the chapter teaches one of its lines."""
    root = tmp_path / "root"
    for folder in ("book/text", "nbcourse/checks", "solutions"):
        (root / folder).mkdir(parents=True)
    text = "So\n\n```{code-cell}\n:tags: [x]\nothers = same.sum(dim=1) - 1\n```\n\nit is."
    (root / "book" / "text" / "02-x.md").write_text(text)
    (root / "nbcourse" / "checks" / "x.py").write_text(DISGUISED)  # which makes nothing public
    cell = new_code_cell(SOLVED)
    cell.metadata["nbgrader"] = {"grade_id": "unequal-groups"}
    nbformat.write(new_notebook(cells=[cell]), root / "solutions" / "02-x.ipynb")
    return leaks.secrets(root)


def test_no_line_of_the_disguised_solution_is_one_of_the_master_s(solved):
    assert len(solved.lines) == 3
    assert not any(line in "".join(DISGUISED.split()) for line in solved.lines)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("answer.py", DISGUISED),
        ("tests.py", f"WRONG = {{'none': '''\n{textwrap.indent(DISGUISED, '  ')}'''}}"),
        ("notes.md", f"For *you*:\n\n```python\n{DISGUISED}```\n\nThat is all."),
        ("page.html", f"<p>So:</p><pre class=x><span>{escape(DISGUISED)}</span></pre>"),
        ("sheet.ipynb", nbformat.writes(new_notebook(cells=[new_code_cell(DISGUISED)]))),
        ("sheet.ipynb", nbformat.writes(new_notebook(cells=[new_markdown_cell(DISGUISED)]))),
        ("flat.txt", "\n".join(line.strip() for line in DISGUISED.splitlines()[3:5])),
        ("session.md", textwrap.indent("s = torch.where(a == b, r[None, :], 0).sum(dim=1)", ">>> ")
            + "\nx"),
    ],
)  # fmt: skip
def test_a_solution_in_disguise_is_found(solved, name, content):
    found = leaks.scan_bytes(name, content.encode(), solved)
    if name in ("flat.txt", "session.md"):  # one of the statements, and not much of it
        assert found == []
    else:
        assert found == [f"{name}: the code of 02-x, unequal-groups"]


@pytest.mark.parametrize(
    "code",
    [
        ANOTHER,
        SOLVED.partition("\n")[0] + "\n    raise NotImplementedError",
        "groups = rewards.view(-1, group_size)\nothers = same.sum(dim=1) - 1\nreturn others",
        "x = 1\n\nthis is no Python at all\n\ny = (",
        "",
    ],
)
def test_another_solution_and_short_fragments_are_no_alarm(solved, code):
    assert leaks.scan_bytes("answer.py", code.encode(), solved) == []


@pytest.mark.parametrize(
    ("code", "same"),
    [
        ("total += x", "t = t + y"),
        ("return x.sum(dim=1) * 2", "doubled = scores.sum(dim=1) * 2.0"),
        ("for i, (a, b) in enumerate(rows): use(a, b)", "for k,(u,v) in enumerate(q):\n  f(u, v)"),
        ("f = lambda a: a.exp() - g(a)", "h = lambda z: z.exp() - other(z)"),
    ],
)
def test_forms_are_of_what_is_computed(code, same):
    assert code_forms.pieces(code) == code_forms.pieces(same)
    assert code_forms.pieces(code) != code_forms.pieces(code.replace("sum", "max") + " + a(b, c)")


def test_forms_tell_programs_apart():
    sums = ["a.sum() - b.sum()", "a.sum() - a.sum()", "a.sum() + b.sum()", "a.max() - b.sum()"]
    calls = ["f(a, b, k=1)", "f(a, b, k=2)", "f(a, b, m=1)", "f(b, a, 1)", "f(a, b, '1')"]
    programs = sums + calls
    forms = [code_forms.pieces(program) for program in programs]
    assert len(set(map(str, forms))) == len(programs)
