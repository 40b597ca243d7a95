"""A cell of IPython's is plain Python, in which magics and shell commands do nothing."""

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from nbcourse.confined.cells import WithoutIPython, plain_python, writable
from tests.effort import examples


def test_magics_do_nothing_but_cells_that_are_only_timed_are_run():
    names = {}
    names["get_ipython"] = lambda: WithoutIPython(names)
    for source in ("%matplotlib inline\n!rm -rf /\na = 1", "%%time\nb = 2", "%%bash\nc = 3"):
        exec(plain_python(source), names)
    assert (names["a"], names["b"], "c" in names) == (1, 2, False)


def test_lines_keep_their_numbers():
    assert plain_python("%time\nx = 1\n").splitlines()[1] == "x = 1"


PIECES = [*"%!?,;/=()x1 #\"'\\\n\t\f\v\r:", "\x1c", "\u2028", "%%", "??", ">>> ", "In [1]: ", '"""']


@pytest.mark.filterwarnings("ignore:`make_tokens_by_line` received")
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@examples(400)
def test_a_cell_is_read_as_ipython_reads_it(source):
    try:
        theirs = TransformerManager().transform_cell(source)
    except IndexError:  # IPython's own, of a magic without a name in front of an open string
        reject()
    assert plain_python(source) == theirs.removesuffix("\n")


def test_every_text_can_be_written_to_a_file():
    assert writable("a\ud800ö") == "a?ö"
