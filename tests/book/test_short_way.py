"""The main line of a chapter can be read by a newcomer, and needs nothing that goes deeper."""

import re

import pytest

from nbcourse.publishing import chapters, execution, twins
from tests.book import main_text

TEXTS = [text for text in chapters.texts(chapters.BOOK) if text.stem[:2].isdigit()]
each_chapter = pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.stem)
REFERENCE = re.compile(r"\b(?i:chapter|section|appendix)s?\s+\[?(?:\d|[A-L]\b)|§")


@each_chapter
def test_something_learns_or_fails_within_seven_hundred_words(text):
    words, opening, shown = 0, [], None
    for cell in main_text.main(text):
        if cell.cell_type == "markdown":
            words += len(main_text.prose(cell.source).split())
        elif "opening" in cell.metadata.get("tags", []):
            opening.append(cell)
            shown = words
    assert 1 <= len(opening) <= 2
    assert shown is not None
    assert shown <= 700
    assert all(len(cell.source.splitlines()) <= 25 for cell in opening)


@each_chapter
def test_the_main_line_has_at_most_three_thousand_words(text):
    assert len(main_text.running_text(text).split()) <= 3000


@each_chapter
def test_few_letters_are_new(text):
    """Letters of earlier chapters are known; a chapter adds twelve, and five per 1,000 words."""
    known = set().union(
        *(main_text.letters(other) for other in chapters.texts(chapters.BOOK) if other < text)
    )
    new = main_text.letters(text) - known
    words = len(main_text.running_text(text).split())
    assert len(new) <= max(12, round(5 * words / 1000)), sorted(new)


@each_chapter
def test_sentences_are_short_and_plain(text):
    running = main_text.running_text(text)
    long = [s for s in main_text.sentences(running) if len(s.split()) > 35]
    assert not long, long
    words = len(running.split()) / 1000
    assert main_text.argued(running).count(";") <= max(1, 1.5 * words)
    brackets = [b for b in re.findall(r"\([^()]*\)", running) if len(b.split()) >= 4]
    assert len(brackets) <= max(1, words), brackets


@each_chapter
def test_it_refers_to_little_and_never_ahead_before_its_end(text):
    running = main_text.running_text(text)
    assert len(REFERENCE.findall(running)) <= 3 * len(running.split()) / 1000
    body, _, _ = running.strip().rpartition("\n\n")
    number = int(text.stem[:2])
    ahead = [
        found[0]
        for found in re.finditer(r"\b(?:chapters?|sections?)\s+\[?(\d+)", body)
        if int(found[1]) > number
    ]
    assert not ahead


@each_chapter
def test_a_gist_states_the_result_in_forty_words(text):
    for cell, _ in main_text.cells(text):
        if "deeper" in cell.metadata.get("tags", []):
            shown = re.sub(r"^<div .*></div>\s*", "", cell.source.strip())  # a section's anchor
            title, _, gist = shown.partition("\n\n")
            assert re.match(r"#+ (\d+\.\d+ )?○ ", title), title
            assert gist, f"{title}: what is the result?"
            assert "\n\n" not in gist, f"{title}: one paragraph"
            assert len(main_text.prose(gist).split()) <= 40, title
        elif cell.cell_type == "markdown":
            headings = re.findall(r"^#.*○.*$", cell.source, re.M)
            assert not headings, f"{headings}: tag the cell"


@each_chapter
def test_what_ends_a_deeper_section_has_a_cell_of_its_own(text):
    """JupyterLab folds whole cells: a summary that shares one with a footnote is not seen."""
    inside = [cell for cell, deeper in main_text.cells(text) if deeper]
    headings = [
        heading
        for cell in inside
        if cell.cell_type == "markdown"
        for heading in main_text.HEADING.finditer(cell.source)
    ]
    assert not [h[0] for h in headings if h[2].endswith(main_text.NOT_READ_ON)]


@each_chapter
def test_no_main_cell_needs_a_name_of_a_deeper_one(text):
    """A name that is bound again on the main line before it is used is the main line's own."""
    deeper_names: set[str] = set()
    for cell, deeper in main_text.cells(text):
        if cell.cell_type != "code":
            continue
        if deeper:
            deeper_names |= main_text.defined(cell.source)
        else:
            needed = main_text.used(cell.source) & deeper_names
            own = main_text.defined(cell.source)
            assert not needed - own, f"{sorted(needed)} of a deeper cell in: {cell.source[:80]}"
            deeper_names -= own


@each_chapter
def test_no_main_sentence_refers_to_a_deeper_equation_figure_or_section(text):
    deeper = "\n".join(cell.source for cell, folded in main_text.cells(text) if folded)
    main = "\n".join(main_text.running_cells(text))
    anchors = set(re.findall(r'<div id="([a-z0-9-]+)"></div>', deeper))
    referred = set(re.findall(r"\]\(#([a-z0-9-]+)\)", main))
    assert not anchors & referred


@pytest.mark.sweep  # in every run the names are compared, above
@each_chapter
def test_the_main_line_runs_by_itself(text):
    notebook = twins.read_text(text)
    notebook.cells = main_text.main(text)
    execution.execute(notebook, folder=chapters.notebook_of(text).parent)
