"""What goes back to Canvas and Moodle, in the files that their importers read.

A file for a platform has a row for each student of the class who has a grade, and no other row:
both importers clear a grade where a cell is empty (Canvas: `no_change_to_value?` in
`lib/gradebook_importer.rb`; Moodle: `update_grade_item` in `gradeimport_csv`), and Canvas takes a
row whose ids it does not know for the student of that name. Rows keep the cells of the export that
the class list is, so that the platform finds the students by its own numbers.

No cell begins a formula (`tables`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nbcourse.classroom.class_list import ClassList, Kind, Student
from nbcourse.classroom.tables import as_csv, written


@dataclass(frozen=True)
class Grade:
    """The grade of a student of the class.

    Args:
        points: what is decided.
        remark: a line of text for the student.
    """

    points: float
    remark: str = ""


def uploads(
    assignment: str, most: float, listed: ClassList, grades: Mapping[str, Grade]
) -> dict[str, str]:
    """The file for the platform that the class list comes from, as name → text; {} if none.

    Args:
        assignment: title of the column of grades.
        most: what the assignment is worth.
        listed: the class.
        grades: key of a student → grade. A student without one is not in the file.
    """
    graded = [(s, grades[s.key]) for s in listed.students if s.key in grades]
    match listed.kind:
        case Kind.CANVAS:
            return {"canvas.csv": _canvas(assignment, most, listed, graded)}
        case Kind.WORKSHEET:
            return {"moodle-worksheet.csv": _worksheet(listed, graded)}
        case Kind.MOODLE:
            return {"moodle.csv": _moodle(assignment, listed, graded)}
    return {}


Graded = Sequence[tuple[Student, Grade]]


def _canvas(assignment: str, most: float, listed: ClassList, graded: Graded) -> str:
    """For *Grades → Import*: the export's columns up to `Section`, which Canvas insists on.

    Canvas finds the student by `ID`, then by the other ids, then by the name; the assignment by
    its title, and offers to create it where there is none (`lib/gradebook_importer.rb`).
    """
    width = listed.columns.index("Section") + 1
    header = [*listed.columns[:width], assignment]
    possible = ["    Points Possible", *[""] * (width - 1), written(most)]
    return as_csv(
        [header, possible, *([*s.cells[:width], written(grade.points)] for s, grade in graded)]
    )


def _worksheet(listed: ClassList, graded: Graded) -> str:
    """For the assignment's *Upload grading worksheet*: the worksheet with grades and comments.

    Moodle finds the student by `Identifier`, and needs `Grade` and `Last modified (grade)`
    (`mod/assign/feedback/offline/importgradeslib.php`).
    """
    rows = []
    for student, grade in graded:
        new = {"Grade": written(grade.points), "Feedback comments": grade.remark}
        cells = zip(listed.columns, student.cells, strict=True)
        rows.append([new.get(column, cell) for column, cell in cells])
    return as_csv([listed.columns, *rows])


def _moodle(assignment: str, listed: ClassList, graded: Graded) -> str:
    """For *Grades → Import → CSV file*: map the first column to the field of its name.

    Grades and feedback go together: Moodle loses grades where feedback is imported alone
    (https://docs.moodle.org/en/Grade_import).
    """
    rows = [[student.key, written(grade.points), grade.remark] for student, grade in graded]
    return as_csv([[listed.key, assignment, f"{assignment} feedback"], *rows])
