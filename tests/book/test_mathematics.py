"""The file of MathJax that the pages load, without a browser."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from nbcourse.publishing import mathematics

MATHJAX = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static/mathjax"


@pytest.mark.parametrize(
    ("module", "without"),
    [
        (
            "var n,o=this&&this.__extends||(n=function(t,e){n(t,e)},function(t,e){n(t)}),a=r(1);",
            "var n,o=__extends,a=r(1);",
        ),
        (
            "var n=this&&this.__assign||function(){return n=f([1,2],{}),n.apply(this)};e.x=n;",
            "var n=__assign;e.x=n;",
        ),
        ("var a=this&&this.__read||function(){},b=this&&this.__values||function(){};",
         "var a=__read,b=__values;"),
        ("var o=this&&this.__other||function(){};", "var o=this&&this.__other||function(){};"),
    ],
)  # fmt: skip
def test_a_module_calls_the_helpers_and_brings_none(module, without):
    assert mathematics.without_copies(module) == without


def test_the_file_has_every_helper_once():
    program = mathematics.bundle(MATHJAX)
    assert not mathematics.COPY.search(program)
    for name in mathematics.HELPERS:
        assert len(re.findall(rf"\b{name} = ", program)) == 1
        assert program.count(name) > 20
