"""A cell of IPython's is plain Python, in which magics and shell commands do nothing."""

from nbcourse.confined.cells import WithoutIPython, plain_python, writable


def test_magics_do_nothing_but_cells_that_are_only_timed_are_run():
    names = {}
    names["get_ipython"] = lambda: WithoutIPython(names)
    for source in ("%matplotlib inline\n!rm -rf /\na = 1", "%%time\nb = 2", "%%bash\nc = 3"):
        exec(plain_python(source), names)
    assert (names["a"], names["b"], "c" in names) == (1, 2, False)


def test_lines_keep_their_numbers():
    assert plain_python("%time\nx = 1\n").splitlines()[1] == "x = 1"


def test_every_text_can_be_written_to_a_file():
    assert writable("a\ud800ö") == "a?ö"
