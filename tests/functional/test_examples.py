"""Every public function shows a few lines that run, and prints what it says it prints."""

import doctest
import inspect

import pytest

from .contracts import public_functions

FUNCTIONS = sorted(
    public_functions(), key=lambda function: (function.__module__, function.__name__)
)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_the_example_of_a_function_runs_and_says_what_comes_out(function):
    finder = doctest.DocTestFinder(recurse=False)
    module = inspect.getmodule(function)
    (found,) = finder.find(inspect.unwrap(function), module=module, globs=dict(vars(module)))
    assert function.__name__ in "".join(example.source for example in found.examples), (
        f"add an example of {function.__name__} to its docstring, of two to four lines"
    )
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(found, out=report.append)
    assert not report, "".join(report)
