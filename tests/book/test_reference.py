"""The reference has every public function, as it is."""

import ast
import re

import pytest

from nbcourse import cli
from nbcourse.publishing import chapters, numbering, reference, uses
from nbcourse.publishing.uses import Headings

ROOMS = sorted(reference.ROOMS)
MODULES = [
    *(file for room in ROOMS for file in sorted((reference.PACKAGE / room).glob("*.py"))),
    *(reference.PACKAGE / f"{name}.py" for name in reference.MODULES),
]
ALL_MODULES = pytest.mark.parametrize(
    "module", MODULES, ids=lambda module: f"{module.parent.name}-{module.stem}"
)
# Machinery, and the checks, whose source would tell the answers.
# "cli" has a page of another kind: what its commands say of themselves
NOT_FOR_READERS = {"builds", "checks", "classroom", "cli", "confined", "publishing", "recipes"}


BOOK = reference.Book(
    places=numbering.places(),
    headings=Headings(
        {"03": "03-critics.ipynb", "10": "10-grpo.ipynb", "B": "appendix-b-errata.ipynb"},
        {
            "One table": ["10-grpo.ipynb#sec-10-9"],
            "Exercises": ["03-critics.ipynb", "10-grpo.ipynb"],
            "Actor and critic": ["08-rlhf.ipynb"],
        },
    ),
    used={},
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    book = tmp_path_factory.mktemp("book")
    written = reference.write(book, numbering.places())
    return {name.rpartition("/")[2]: (book / f"{name}.md").read_text("utf-8") for name in written}


def page_of(module):
    return reference.BESIDE if module.parent == reference.PACKAGE else module.parent.name


def section_of(pages, module):
    title = uses.module_name(module).removeprefix("nbcourse.")
    return pages[page_of(module)].partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def entry_of(pages, module, name):
    return section_of(pages, module).partition(f"\n### {name}\n")[2].partition("\n### ")[0]


def test_every_room_that_readers_call_has_a_page(pages):
    folders = {path.parent.name for path in reference.PACKAGE.glob("*/__init__.py")}
    others = {reference.BESIDE, reference.COMMAND_LINE}
    assert set(pages) == (folders - NOT_FOR_READERS) | others


@ALL_MODULES
def test_every_public_name_has_an_entry_with_its_source(pages, module):
    where = module.relative_to(reference.ROOT).as_posix()
    for node in reference.public(module):
        entry = entry_of(pages, module, node.name)
        assert entry.startswith(f"\n```python\n{reference.signature(node)}\n```\n"), node.name
        assert f"{where}, line " in entry


@ALL_MODULES
def test_a_signature_is_the_code_s_own(module):
    for node in reference.public(module):
        if isinstance(node, ast.FunctionDef):
            again = ast.parse(f"def {reference.signature(node)}: ...").body[0]
            assert ast.dump(again.args) == ast.dump(node.args)


@ALL_MODULES
def test_every_public_method_of_a_class_is_listed(pages, module):
    for node in reference.public(module):
        methods = [
            part.name
            for part in node.body
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("_")
        ]
        if isinstance(node, ast.ClassDef):
            listed = entry_of(pages, module, node.name).partition("**Methods**\n\n")[2]
            found = re.findall(r"^- `(\w+)", listed.partition("\n\n")[0], re.M)
            assert found == methods, node.name


def test_a_method_is_shown_as_it_is_called(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        "class C:\n"
        '    def one(self, x: int, /, *, y=2) -> str:\n        """The *first*.\n\n    More."""\n'
        "    def two(self): ...\n"
        '    @property\n    def three(self) -> int:\n        """A number."""\n'
        "    @staticmethod\n    def four(a, b): ...\n"
        "    @classmethod\n    def five(cls, a): ...\n"
        "    def _six(self): ...\n"
    )
    (node,) = reference.public(module)
    assert "\n".join(reference.methods(node, BOOK)).splitlines()[2:] == [
        "- `one(x: int, /, *, y=2) -> str`: The *first*.",
        "- `two()`",
        "- `three`: A number.",
        "- `four(a, b)`",
        "- `five(a)`",
    ]


def test_an_entry_leads_to_its_equation_its_chapter_and_its_tests(pages):
    place = numbering.places()["eq-rloo"]
    entry = pages["functional"].partition("### leave_one_out\n")[2].partition("\n### ")[0]
    assert f"Book: equation [({place.number})](../02-sequences.ipynb#eq-rloo)." in entry
    assert "*Derived in* [chapter 2](../02-sequences.ipynb)." in entry
    assert "*Tested in* `tests/functional/test_advantages.py`, " in entry
    assert "mean reward of the *other* responses" in entry
    assert not any("test_reference.py" in page for page in pages.values())
    assert "- `group_size`: G, at least 2." in entry
    assert "return mean_baseline(rewards, group_size=group_size)" in entry
    assert entry.count("The baseline is independent of response i") == 1


def test_no_label_is_left_over(pages):
    """Neither in what is said nor in the listings, where a number stands for it."""
    for page in pages.values():
        assert not re.search(r"\(eq-", page)
    place = numbering.places()["eq-bellman"]
    chain = entry_of(pages, reference.PACKAGE / "toys" / "chain.py", "DecisionProcess")
    listed, _, source = chain.partition("::::")
    assert f"Equation [({place.number})](../03-critics.ipynb#eq-bellman)." in listed
    assert f"Book: equation ({place.number})." in source
    assert "*Derived in* [chapter 3](../03-critics.ipynb)" in listed


def test_what_markdown_would_take_for_its_own_is_escaped(tmp_path):
    source = 'def f():\n    """a_b <c> [d] *e* 2 * 3, `g_h`."""\n'
    module = tmp_path / "module.py"
    module.write_text(source)
    (node,) = reference.public(module)
    assert reference.docstring(node, BOOK) == r"a\_b \<c\> \[d\] *e* 2 \* 3, `g_h`."


def test_the_reference_is_made_for_the_site_alone():
    assert not (chapters.BOOK / reference.FOLDER).exists()


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ('chapter 10, "One table"', "10-grpo.ipynb#sec-10-9"),
        ('chapter 10, "Exercises"', "10-grpo.ipynb"),
        ('chapter 10, "No such section"', "10-grpo.ipynb"),
        ("chapter 3", "03-critics.ipynb"),
        ("appendix B", "appendix-b-errata.ipynb"),
        ("section 10.9", "10-grpo.ipynb#sec-10-9"),
        ('section "Actor and critic"', "08-rlhf.ipynb"),
    ],
)
def test_what_a_docstring_names_is_a_link(tmp_path, text, link):
    assert f"Book: [{text}](../{link})." in said(tmp_path, f"Book: {text}.")


@pytest.mark.parametrize(
    "text",
    [
        "Source: Schulman et al. 2017, section 4.1.",
        "Source: Shao et al. 2024 (GRPO), section 4.1.2.",
        "More prompts (Yu et al. 2025, DAPO, section 3.2).",
        "Source: derived in chapter 3.",
        'See section "Exercises".',  # of which chapter?
        "See chapter 77.",
    ],
)
def test_what_is_not_of_this_book_is_none(tmp_path, text):
    assert "](" not in said(tmp_path, text)


def said(tmp_path, text):
    module = tmp_path / "module.py"
    module.write_text(f"def f():\n    '''{text}'''\n")
    (node,) = reference.public(module)
    return reference.docstring(node, BOOK)


def test_an_entry_leads_to_the_chapters_whose_code_uses_it(pages):
    table = entry_of(pages, reference.PACKAGE / "display" / "listings.py", "table")
    assert "[chapter 3](../03-critics.ipynb)" in table  # imported there from nbcourse.display
    assert "[appendix B](../appendix-b-errata.ipynb)" in table


def test_other_entries_lead_to_chapters_by_way_of_what_uses_them(pages):
    backward = entry_of(pages, reference.PACKAGE / "training" / "update.py", "backward")
    assert "*Used in*" not in backward
    way = "by way of `training.loop.one_step`."
    assert f"*Reached from* [chapter 8](../08-rlhf.ipynb), {way}" in backward
    found = entry_of(pages, reference.PACKAGE / "examine" / "peers.py", "installed")
    assert "](../appendix-b-errata.ipynb), by way of `studies.field`." in found
    tables = entry_of(pages, reference.PACKAGE / "training" / "recipe_keys.py", "tables")
    assert "*Part of* `nbcourse recipes`." in tables
    plans = entry_of(pages, reference.PACKAGE / "experiments" / "comparison.py", "plan_rows")
    assert "*Its module is used in* [appendix L](../appendix-l-budgets.ipynb)." in plans


def test_every_entry_leads_to_a_chapter_or_else_to_a_command(pages):
    entries = [
        (module.stem, node.name, entry_of(pages, module, node.name))
        for module in MODULES
        for node in reference.public(module)
    ]
    alone = {(stem, name): entry for stem, name, entry in entries if ".ipynb" not in entry}
    assert [name for name, entry in alone.items() if "*Part of* `nbcourse " not in entry] == []
    assert len(alone) < 0.01 * len(entries), list(alone)


def test_where_no_chapter_uses_a_module_its_docstring_says_which_it_belongs_to(pages):
    verdict = entry_of(pages, reference.PACKAGE / "experiments" / "gate.py", "verdict")
    there = '*Its module belongs to* [chapter 17, "Before you pay"](../17-one-gpu.ipynb#sec-17-4).'
    assert there in verdict


def test_uses_are_found_by_every_way_of_importing(tmp_path):
    from nbformat.v4 import new_code_cell, new_notebook

    from nbcourse.publishing import stored

    cells = [
        "%matplotlib inline\nfrom nbcourse.functional import kl, returns as r",
        "kl.estimate(1, 2, 'k1')\nr.token_gae",
        "from nbcourse.display import table\nimport nbcourse.functional.masking as m\ntable()",
        "m.masked_mean(x)\nother.masked_whiten(x)\nprint('kl.exact')",
    ]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    stored.write(notebook, tmp_path / "01-one.ipynb")
    found = {name for name, where in uses.by_chapters(tmp_path).items() if where == ["01-one"]}
    assert {
        "nbcourse.functional.kl.estimate",
        "nbcourse.functional.returns.token_gae",
        "nbcourse.display.listings.table",
        "nbcourse.functional.masking.masked_mean",
    } <= found
    assert not {"nbcourse.functional.masking.masked_whiten", "nbcourse.functional.kl.exact"} & found


def test_what_the_text_of_a_chapter_names_is_found(tmp_path):
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    from nbcourse.publishing import stored

    cells = [
        new_code_cell("from nbcourse.functional import kl\nmask = 1"),
        new_markdown_cell("`kl.estimate(x)` and `nbcourse.lm.sampling`, not kl.exact, not `mask`."),
        new_markdown_cell("`make kl-runs` runs them; we make it so."),
    ]
    stored.write(new_notebook(cells=cells), tmp_path / "01-one.ipynb")
    assert uses.by_prose(tmp_path) == {
        "nbcourse.functional.kl.estimate": ["01-one"],
        "nbcourse.lm.sampling": ["01-one"],
        "studies.kl_sequences": ["01-one"],
    }


def test_callers_are_found_through_helpers_tables_and_programs():
    callers = uses.callers()
    algorithms = "nbcourse.training.algorithms"
    assert f"{algorithms}.ALGORITHMS" in callers[f"{algorithms}.leave_one_out"]
    assert "studies.peers" in callers["studies.peers.main"]
    assert "studies.more_wordings.study" in callers["studies.wordings.ask_apart"]
    assert "nbcourse.cli.verdicts.examine" in callers["nbcourse.examine.examine"]  # in an __init__
    assert not any(name in others for name, others in callers.items())


def test_the_nearest_are_those_of_the_fewest_steps():
    callers = {"a": {"b", "c"}, "b": {"a", "d"}, "c": {"e"}, "e": {"f"}}
    assert uses.nearest("a", {"d", "e", "f"}, callers) == ["d", "e"]
    assert uses.nearest("a", {"f"}, callers) == ["f"]
    assert uses.nearest("a", {"x"}, callers) == []  # although a and b call each other


def test_commands_are_what_is_typed():
    typed = [command.callback for command in cli.app.registered_commands]
    found = uses.commands()
    assert {f"{one.__module__}.{one.__name__}" for one in typed} <= set(found)
    assert found["nbcourse.cli.classroom.publish_class"] == "nbcourse publish-class"
    assert found["nbcourse.cli.builds.hunt_new"] == "nbcourse hunt new"


def test_most_modules_lead_to_the_book(pages):
    """Of themselves or in one of their entries; the others are parts of the command line's work."""
    linked = [".ipynb" in section_of(pages, module) for module in MODULES if module.stem[0] != "_"]
    assert sum(linked) > 0.6 * len(linked)


def test_files_are_links_where_the_book_has_a_repository(tmp_path, monkeypatch):
    """On the page of one room, without what the other tests read of the whole book."""
    monkeypatch.setattr(reference, "ROOMS", {"functional": reference.ROOMS["functional"]})
    monkeypatch.setattr(reference, "command_line", lambda book: "")
    for name in ("by_chapters", "by_prose", "callers"):
        monkeypatch.setattr(uses, name, dict)
    place = "https://github.com/ada/book"
    reference.write(tmp_path, numbering.places(), repository=f"{place}/")
    page = (tmp_path / "reference" / "functional.md").read_text(encoding="utf-8")
    entry = page.partition("### leave_one_out\n")[2].partition("\n### ")[0]
    file = "tests/functional/test_advantages.py"
    assert f"*Tested in* [`{file}`]({place}/blob/main/{file}), " in entry
    source = reference.PACKAGE / "functional" / "advantages.py"
    lines = source.read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines, 1) if line.startswith("def leave_one_out(")]
    first = starts[0] - 1  # its decorator
    assert f"({place}/blob/main/nbcourse/functional/advantages.py#L{first})" in entry


def test_the_command_line_has_every_command_with_its_options(pages):
    page = pages[reference.COMMAND_LINE]
    for command in cli.app.registered_commands:
        name = command.name or command.callback.__name__.replace("_", "-")
        assert f"\n## `nbcourse {name}`\n" in page, name
    compare = page.partition("## `nbcourse compare`\n")[2].partition("\n## ")[0]
    assert "* `--figure <path>`: Draw the learning curves into this file" in compare
    assert "**Commands**" not in page  # typer's overview cuts its sentences
    assert "[Appendix E](../appendix-e-build.md) is its guide." in page
