"""How chapters end on the site, and how long they are said to take."""

import nbformat
import pytest
from docutils import nodes
from docutils.utils import new_document

from nbcourse.publishing import chapters, endings, reading_time
from nbcourse.publishing.folds import Fold

SHEETS = sorted((chapters.BOOK / "exercises").glob("*.ipynb"))


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: path.stem)
def test_every_chapter_ends_with_the_first_exercise_of_its_sheet(sheet):
    chapter = nbformat.read(chapters.BOOK / sheet.name, as_version=4)
    before = len(chapter.cells)
    assert endings.add_to(chapter, nbformat.read(sheet, as_version=4), sheet.stem)
    assert len(chapter.cells) == before
    text = "\n".join(cell.source for cell in chapter.cells)
    at = [text.index(one) for one in ("Three things to take along", "\n## Exercises\n")]
    at += [text.index(one) for one in ("### Check yourself: fix the ", endings.HERE)]
    at += [text.index(one) for one in ("Hint 1", 'class="nb-button"', "\n## Readings\n")]
    assert at == sorted(at)
    assert endings.STUB not in text[at[2] :]
    assert "sheet.check" not in text[at[2] :]


def test_a_chapter_without_the_heading_stays_as_it_is():
    chapter = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# 1 · A")])
    assert not endings.add_to(chapter, nbformat.read(SHEETS[0], as_version=4), "01-x")
    assert [cell.source for cell in chapter.cells] == ["# 1 · A"]


def test_what_goes_deeper_is_counted_apart():
    document = new_document("page")
    fold = Fold("", nodes.paragraph("", "word " * 4 * reading_time.WORDS))
    document += [nodes.paragraph("", "word " * 3 * reading_time.WORDS), fold]
    document += nodes.literal_block("", "code " * 9 * reading_time.WORDS)
    assert reading_time.minutes(document) == (3, 4)
