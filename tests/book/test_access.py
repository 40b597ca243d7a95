"""What is mended in the pages of the theme."""

import pytest

from nbcourse.publishing import access


@pytest.mark.parametrize(
    ("theme", "mended"),
    [
        (
            '<div class="pst-scrollable-table-container"><table>',
            '<div class="pst-scrollable-table-container" tabindex="0"><table>',
        ),
        (
            '<div class="cell_output docutils container">\n<img alt="A line" src="x.svg" />',
            '<div class="cell_output docutils container" tabindex="0">\n'
            '<img alt="A line" src="x.svg" />',
        ),
        (
            '<div class="cell_output docutils container">\n<pre>1</pre>',
            '<div class="cell_output docutils container">\n<pre>1</pre>',
        ),
        (
            '<div class="bd-sidebar-primary bd-sidebar hide-on-wide">',
            '<div role="complementary" aria-label="Book" '
            'class="bd-sidebar-primary bd-sidebar hide-on-wide">',
        ),
        ('<tr><th class="head"><p></p></th>', "<tr><td></td>"),
        ('<th class="head nb-number"><p></p></th>', "<td></td>"),
        ('<th class="head"><p>λ</p></th>', '<th class="head"><p>λ</p></th>'),
        ('<script src="_static/vendor/fontawesome/6.5.2/js/all.min.js?digest=1"></script>', ""),
        ('<script src="_static/togglebutton.js"></script>',) * 2,
        (
            'dataset.theme = localStorage.getItem("theme") || "auto";',
            'dataset.theme = localStorage.getItem("theme") || '
            '(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");',
        ),
        ('<summary aria-label="Toggle hidden content">\n<p>Show', "<summary>\n<p>Show"),
        ('<span class="n">x</span><span class="p">[</span>', "x["),
        ('<span class="n">x</span> <span class="o">+=</span> ', "x += "),
        ('<span class="nb">len</span>', '<span class="nb">len</span>'),
    ],
)
def test_a_page_is_mended_where_the_theme_needs_it(theme, mended):
    assert access.mended(theme) == mended
