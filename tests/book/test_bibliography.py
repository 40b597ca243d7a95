"""The works that chapters send readers to."""

import pytest

from nbcourse.errors import UserError
from nbcourse.publishing import bibliography

ONE = "- Doe & Roe (2024), [*A title*](https://arxiv.org/abs/2402.03300). Read section 2."
OLD = "- Coe (1992), [*Older*](https://doi.org/10.1007/BF00992696). All of it."


def book(tmp_path, **readings):
    (tmp_path / "text").mkdir()
    for name, lines in readings.items():
        text = f"# Title\n\n{ONE}\n\n## Readings\n\n{lines}\n"
        (tmp_path / "text" / f"{name}.md").write_text(text.replace("_", "-"), encoding="utf-8")
    return tmp_path


def test_works_are_found_in_the_readings_with_all_chapters_that_name_them(tmp_path):
    read = bibliography.works(book(tmp_path, **{"01-one": f"{ONE}\n{OLD}", "02-two": OLD}))
    assert [(work.authors, work.identifier, where) for work, where in read.items()] == [
        ("Coe", "doi:10.1007/BF00992696", ["01-one", "02-two"]),
        ("Doe & Roe", "arXiv:2402.03300", ["01-one"]),
    ]
    assert bibliography.page(read).splitlines()[4] == (
        "- Coe (1992). *Older*. [doi:10.1007/BF00992696](https://doi.org/10.1007/BF00992696). "
        "Chapter [1](../01-one.ipynb), [2](../02-two.ipynb)."
    )


def test_two_titles_for_one_address_are_refused(tmp_path):
    texts = {"01-one": OLD, "02-two": OLD.replace("Older", "Other")}
    with pytest.raises(UserError, match=r"02-two\.md calls .* Other \(1992\), and 01-one Older"):
        bibliography.works(book(tmp_path, **texts))


def test_the_book_has_an_identifier_for_most_works():
    read = bibliography.works()
    with_number = [work for work in read if ":" in work.identifier]
    assert len(read) > 60
    assert len(with_number) > 0.7 * len(read)
