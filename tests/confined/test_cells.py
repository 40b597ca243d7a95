"""A cell of IPython's is plain Python, in which magics and shell commands do nothing."""

import pytest
from hypothesis import given
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


@pytest.mark.parametrize("source", ['=%"""', "\t%\n %", "x = %\n  1\n !ls"])
def test_a_cell_of_which_ipython_can_make_nothing_stays_as_it_is(source):
    with pytest.raises((SyntaxError, IndexError)):
        TransformerManager().transform_cell(source)
    assert plain_python(source) == source
    with pytest.raises(SyntaxError):
        compile(plain_python(source), "cell", "exec")


@pytest.mark.parametrize("prompt", ["", ">>> ", "In [1]: "])
def test_what_is_called_without_brackets_is_called_behind_a_prompt_too(prompt):
    assert plain_python(f"{prompt},print a") == 'print("a")'


def test_lines_keep_their_numbers():
    assert plain_python("%time\nx = 1\n").splitlines()[1] == "x = 1"


PIECES = [*"%!?,;/=()x1 #\"'\\\n\t\f\v\r:", "\x1c", "\u2028", "%%", "??", ">>> ", "In [1]: ", '"""']


@pytest.mark.filterwarnings("ignore:`make_tokens_by_line` received")
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@examples(400)
def test_a_cell_is_read_as_ipython_reads_it(source):
    try:
        expected = TransformerManager().transform_cell(source).removesuffix("\n")
    except (SyntaxError, IndexError):
        expected = source
    assert plain_python(source) == expected


def test_every_text_can_be_written_to_a_file():
    assert writable("a\ud800ö") == "a?ö"
