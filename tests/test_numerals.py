"""Which columns are numbers, and what their minus is."""

import pytest

from nbcourse import numerals


@pytest.mark.parametrize(
    ("cells", "numeric"),
    [
        (["1", "-2.5", "−3", "1,319", "1e-5", "12 %"], True),
        (["1", ""], True),
        (["nan", "2"], True),
        (["", "—"], False),
        (["1", "x"], False),
        (["1.2.3"], False),
        (["(1, 2)"], False),
        (["1", "**2**"], True),
        (["1 to 2", "3"], True),
        (["1, 2"], False),
    ],
)
def test_a_column_is_one_of_numbers_if_every_cell_is(cells, numeric):
    assert numerals.is_numeric(cells) == numeric


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("-0.5", "−0.5"),
        ("+0.1 (-2e-3 to 0.2%)", "+0.1 (−2e−3 to 0.2%)"),
        ("(0.5, -0.5)", "(0.5, −0.5)"),
        ("4-6", "4-6"),
        ("9=-8", "9=-8"),
        ("-a", "-a"),
        ("x-1", "x-1"),
    ],
)
def test_a_hyphen_becomes_a_minus_where_all_are_numbers(cell, written):
    assert numerals.with_minus(cell) == written
    assert numerals.has_hyphen(cell) == (cell != written)
    assert not numerals.has_hyphen(written)
