"""What stands for `nbcourse.checks` where a submission runs."""

import subprocess
import sys

from nbcourse.confined import sheet_numbers

TRIES = """
from nbcourse.confined import sheet_numbers
sheet_numbers.install("02-sequences", 7, {"by-hand": {"rewards": [1, 2]}})
from nbcourse.checks import Sheet
sheet = Sheet("02-sequences", variant=7)
print(sheet.numbers("by-hand"), sheet.check("by-hand", None))
for wrong in (
    lambda: Sheet("03-critics"),
    lambda: Sheet("02-sequences").numbers("by-hand"),
    lambda: sheet.numbers("other"),
    lambda: __import__("nbcourse.checks.sheet"),
):
    try:
        print(wrong())
    except (ValueError, ModuleNotFoundError) as error:
        print(error)
"""


def test_it_knows_the_numbers_of_one_sheet_and_variant_and_no_check():
    assert sheet_numbers.install.__doc__  # in a process of its own, since it hides this package
    ran = subprocess.run([sys.executable, "-c", TRIES], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        "{'rewards': [1, 2]} None",
        "chapter is '03-critics', expected the sheet's own, '02-sequences'",
        "variant is 0, and you are graded by variant 7",
        "exercise 'other' has no numbers of its own",
        "No module named 'nbcourse.checks.sheet'; 'nbcourse.checks' is not a package",
    ]
