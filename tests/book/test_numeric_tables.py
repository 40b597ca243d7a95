"""What the site makes of tables that are written by hand."""

from docutils import nodes
from docutils.utils import new_document

from nbcourse.publishing.numeric_tables import NumericColumns


def row(*cells):
    made = nodes.row()
    for cell in cells:
        entry = nodes.entry(classes=["text-left"])
        entry += nodes.paragraph("", cell)
        made += entry
    return made


def test_a_column_of_numbers_goes_to_the_right_with_its_heading_and_a_minus():
    document, group = new_document("page"), nodes.tgroup()
    group += [nodes.thead(), nodes.tbody()]
    group[0] += row("name-1", "gain", "95 %")
    group[1] += [row("x-1", "-2", "-3 to 4"), row("y", "1", "–")]
    document += group
    NumericColumns(document).apply()
    cells = [(entry.astext(), entry["classes"]) for entry in document.findall(nodes.entry)]
    left, right = ["text-left"], ["nb-number"]
    assert cells == [
        *[("name-1", left), ("gain", right), ("95 %", right)],
        *[("x-1", left), ("−2", right), ("−3 to 4", right)],
        *[("y", left), ("1", right), ("–", right)],
    ]
