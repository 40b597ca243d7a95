"""Every chapter names a figure of its own to open with; test_site_build.py has what is shown."""

import pytest

from nbcourse.publishing import chapters, numbering, openings, stored

CHAPTERS = [notebook for notebook in chapters.notebooks() if notebook.stem[0].isdigit()]


@pytest.mark.parametrize("notebook", CHAPTERS, ids=lambda notebook: notebook.stem)
def test_a_chapter_opens_with_a_figure_of_its_own(notebook):
    prose = [cell.source for cell in stored.read(notebook).cells if cell.cell_type == "markdown"]
    box, _, after = prose[0].partition("\n:::\n\n")
    assert "# " in box
    assert ":::{admonition} The question of this chapter\n" in box
    found = openings.OPENING.match(after)
    assert found, "no picture is named behind the box with the question"
    place = numbering.places()[found["label"]]
    assert (place.chapter, f"figure {place.number}") == (notebook.stem, found["number"])
    assert sum(len(openings.OPENING.findall(text)) for text in prose) == 1
