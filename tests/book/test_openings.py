"""Every chapter names a figure of its own to open with; test_site_build.py has what is shown."""

import re

import pytest

from nbcourse.publishing import chapters, numbering, openings, stored

CHAPTERS = [notebook for notebook in chapters.notebooks() if notebook.stem[0].isdigit()]

# As a notebook has it, where a label has become a link; JupyterLab shows it below the box.
OPENING = re.compile(
    r"^> .+\[(?P<number>figure [\d.]+)\]\(#(?P<label>fig-[a-z0-9-]+)\).*$(?=\n\n|\Z)", re.M
)


@pytest.mark.parametrize("notebook", CHAPTERS, ids=lambda notebook: notebook.stem)
def test_a_chapter_opens_with_a_figure_of_its_own(notebook):
    prose = [cell.source for cell in stored.read(notebook).cells if cell.cell_type == "markdown"]
    box, _, after = prose[0].partition("\n:::\n\n")
    assert "# " in box
    assert f":::{{admonition}} {openings.BOX}\n" in box
    found = OPENING.match(after)
    assert found, "no picture is named behind the box with the question"
    place = numbering.places()[found["label"]]
    assert (place.chapter, f"figure {place.number}") == (notebook.stem, found["number"])
    assert sum(len(OPENING.findall(text)) for text in prose) == 1
