"""Style sheets and scripts of the pages, joined, less what no page uses."""

import re
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import pytest
from fontTools.ttLib import TTFont

from nbcourse.publishing import bundles, mathematics

WORDS = {"kept", "also", "an-id", "main"}


@pytest.mark.parametrize(
    ("css", "needed"),
    [
        (".kept{a:b}.gone{a:b}", ".kept{a:b}"),
        (".gone .kept,.also>p{a:b}", ".also>p{a:b}"),
        ("p{a:b}", "p{a:b}"),
        ("#an-id{a:b}#other{a:b}", "#an-id{a:b}"),
        (".kept:not(.gone){a:b}", ".kept:not(.gone){a:b}"),  # it applies where nothing is .gone
        (":is(.gone,.kept){a:b}", ":is(.gone,.kept){a:b}"),
        ('a[href=".gone"]{a:b}', 'a[href=".gone"]{a:b}'),
        ("@media print{.gone{a:b}}", ""),
        ("@media print{.gone{a:b}.kept{a:b}}", "@media print{.kept{a:b}}"),
        ("@font-face{src:url(x)}", "@font-face{src:url(x)}"),
        ("/* why */.kept{a:b}", ".kept{a:b}"),
    ],
)
def test_a_rule_stays_if_anything_could_need_it(css, needed):
    assert bundles.needed(css, WORDS) == needed


def test_a_page_gets_one_sheet_and_a_script_for_its_head_and_its_body():
    page = """<head><link rel="stylesheet" href="../_static/a.css?v=1" />
<link rel="stylesheet" href="../_static/styles/b.css" /><link rel="icon" href="../_static/i.svg" />
<script src="../_static/c.js"></script><script>let needed = 1;</script>
<script src="../_static/d.js?v=2"></script>
</head><body><script src="../_static/f.js"></script><script src="../index.js"></script></body>"""
    joined = bundles.joined(page, lambda files, suffix: f"{'+'.join(files)}.{suffix}")
    assert re.findall(r'(?:src|href)="([^"]+)"|(let needed)', joined) == [
        ("../_static/a.css+styles/b.css.css", ""),
        ("../_static/i.svg", ""),
        ("", "let needed"),  # before the script that may need it
        ("../_static/c.js+d.js.js", ""),
        ("../_static/f.js.js", ""),
        ("../index.js", ""),
    ]
    assert joined.count("<script defer src=") == 2


def test_a_sheet_brings_what_it_imports_and_leads_where_it_led(tmp_path):
    (tmp_path / "styles").mkdir()
    (tmp_path / "basic.css").write_text("p{background:url(dot.png)}")
    file = tmp_path / "styles" / "theme.css"
    file.write_text('@import "../basic.css";a{b:url(../c.png)}d{e:url(data:f)}g{h:url(i.png)}')
    assert bundles.sheet(file, tmp_path) == (
        "p{background:url(dot.png)}a{b:url(c.png)}d{e:url(data:f)}g{h:url(styles/i.png)}"
    )


def test_a_box_that_may_scroll_is_asked_when_its_size_is_known():
    """The theme of this version has the place, and asks nowhere else."""
    theme = Path(find_spec("pydata_sphinx_theme").origin).parent / "theme/pydata_sphinx_theme"
    script = (theme / "static/scripts/pydata-sphinx-theme.js").read_text(encoding="utf-8")
    told, places = bundles.ASKED.subn(bundles.TOLD, script)
    assert places == 1
    assert told.count(".tabIndex=") == 2  # before its size is known, and after
    assert re.search(
        r"ResizeObserver\(.*tabIndex=e\.scrollWidth>e\.clientWidth.*observe\(e\)", told
    )


@pytest.mark.parametrize(
    ("font", "css", "left"),
    [
        ("Size1-Regular", 'a{content:"/"}b{content:"Q"}', {"/"}),
        ("Zero", 'a{content:"("}', {"\ueffc"}),  # without a glyph it would be no font
    ],
)
def test_a_font_has_the_glyphs_that_are_used_or_stays_whole(font, css, left):
    file = mathematics.folder() / mathematics.FONTS / f"MathJax_{font}.woff"
    few = TTFont(BytesIO(bundles.few_glyphs(file, css)))
    assert {chr(code) for code in few.getBestCmap()} == left


def test_the_letters_of_the_text_are_inside_of_the_sheet(tmp_path):
    (tmp_path / "fonts").mkdir()
    for name in ("a.woff2", "a.woff"):
        (tmp_path / "fonts" / name).write_bytes(b"letters")
    css = "a{src:url(fonts/a.woff2)}a{src:url(fonts/a.woff)}"
    css += "b{src:url(mathjax/fonts/b.woff)}c{d:url(webfonts/c.woff2)}"
    expected = css
    for kind in ("woff2", "woff"):
        letters = f"url(data:font/{kind};base64,bGV0dGVycw==)"
        expected = expected.replace(f"url(fonts/a.{kind})", letters)
    assert bundles.with_letters(css, tmp_path) == expected
