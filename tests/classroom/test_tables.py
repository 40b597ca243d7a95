"""Tables as spreadsheets of all countries save them, and nothing in them that one would run."""

import csv
import re
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.classroom import marks, tables, times
from nbcourse.errors import UserError
from tests.effort import examples

ROWS = (("student", "remark"), ("ada", "a, b; c\td"), ("bob", 'he said "=1"'), ("zoë", ""))


def saved(rows, separator, *, quoting=csv.QUOTE_MINIMAL, line="\r\n"):
    text = StringIO(newline="")
    csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=line).writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line", ["\n", "\r\n"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL], ids=["some", "all"])
@pytest.mark.parametrize("told", ["", "sep={}\n", '"sep={}"\r\n'], ids=["", "sep", "quoted sep"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_is_read_however_it_was_saved(tmp_path, separator, told, quoting, line, encoding):
    content = told.format(separator) + saved(ROWS, separator, quoting=quoting, line=line)
    (tmp_path / "table.csv").write_bytes(content.encode(encoding))
    table = tables.read(tmp_path / "table.csv")
    assert (table.columns, table.rows) == (ROWS[0], ROWS[1:])


def test_a_separator_in_quotes_is_none(tmp_path):
    (tmp_path / "table.csv").write_text('"Doe; Jane; Mary","x"\n"a","b"\n')
    assert tables.read(tmp_path / "table.csv").columns == ("Doe; Jane; Mary", "x")


def test_a_cell_may_be_long_and_lines_are_those_of_the_file(tmp_path):
    long = "x" * 200_000
    (tmp_path / "table.csv").write_text(f'sep=;\n\na;b\n1;"{long}"\n\n"2\n3";4\n5\n')
    table = tables.read(tmp_path / "table.csv")
    assert table.rows == (("1", long), ("2\n3", "4"), ("5", None))
    assert table.lines == (4, 6, 8)
    assert csv.field_size_limit() == 131_072  # other readers keep theirs


def test_what_is_no_table_is_named(tmp_path):
    (tmp_path / "table.csv").write_bytes("student\nJürgen\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"table\.csv is not text in UTF-8"):
        tables.read(tmp_path / "table.csv")


@pytest.mark.parametrize(
    ("text", "points"),
    [("1.5", 1.5), ("1,5", 1.5), (" 2 ", 2.0), ("0,25", 0.25), ("nan", None), ("inf", None),
     ("1,000.5", None), ("two", None), ("", None)],
)  # fmt: skip
def test_a_decimal_comma_is_a_decimal_point(text, points):
    assert tables.number(text) == points


def test_marks_may_have_decimal_commas(tmp_path):
    (tmp_path / "marks.csv").write_text(
        "student;exercise;criterion;points;comment\nada;essay;answer;1,5;good\n"
    )
    assert [mark.points for mark in marks.read_marks(tmp_path / "marks.csv")] == [1.5]


CELLS = st.text(st.sampled_from("=+-@＝a;,|\t\n\"' 1"), max_size=12)


@given(st.lists(CELLS, min_size=1, max_size=3))
@examples(300)
def test_no_way_of_splitting_a_line_begins_a_formula(cells):
    """A spreadsheet may take another separator for that of the file, and not know the quotes."""
    text = tables.as_csv([["x", *cells, "y"]])
    for separator in ",;\t|":
        (parts,) = csv.reader(StringIO(text), delimiter=separator)
        for part in parts:
            begins = part.lstrip(" " if separator == "," else ' "')
            assert not begins.startswith(tuple("=+-@＝＋－＠")), (separator, text)


@given(CELLS)
def test_what_is_inert_stays_as_it_is(cell):
    assert tables.inert(tables.inert(cell)) == tables.inert(cell)


@pytest.mark.parametrize(
    "text",
    [
        "2027-03-14 23:58", "2027-03-14T23:58:00", "Sunday, 14 March 2027, 11:58 PM",
        "Sunday, March 14, 2027, 11:58 PM", "Sunday, 14 March 2027, 23:58",
        "Sonntag, 14. März 2027, 23:58", "dimanche 14 mars 2027, 23:58",
        "domingo, 14 de marzo de 2027, 23:58", "domenica, 14 marzo 2027, 23:58",
        "domingo, 14 de março de 2027, 23:58", "zondag, 14 maart 2027, 23:58",
        "søndag den 14. marts 2027, 23:58", "niedziela, 14 marca 2027, 23:58",
        "sunnuntai, 14. maaliskuuta 2027, 23.58", "14 Mart 2027, Pazar, 23:58",
        "воскресенье, 14 марта 2027, 23:58", "2027年03月14日 星期日 23:58",
        "neděle, 14. března 2027, 23.58", "Sunday, 14 March 2027, 11:58 p.m.",
    ],
)  # fmt: skip
def test_moodle_s_times_are_read_in_its_languages(text):
    assert str(times.read(text)) == "2027-03-14 23:58:00"


@pytest.mark.parametrize("text", ["", "-", "yesterday", "14 March", "14 Mrch 2027, 11:58", "23:58"])
def test_a_time_that_is_none_is_not_guessed(text):
    assert times.read(text) is None


def test_midnight_and_noon_are_told_apart():
    hours = [times.read(f"Sunday, 14 March 2027, 12:05 {half}").hour for half in ("AM", "PM")]
    assert hours == [0, 12]


def test_every_language_has_twelve_months():
    assert len(times.MONTHS) % 12 == 0
    assert all(re.fullmatch(r"[^\W\d_]+", month) for month in times.MONTHS)
