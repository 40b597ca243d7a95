"""The tree from a symptom to its suspects, as text that folds: readable on a phone and on paper."""

from html import escape

from IPython.display import HTML

from nbcourse.diagnosis.suspects import CAUSES, CHECKS, SYMPTOMS

STYLE = """<style>
.nb-tree { max-width: 46rem; overflow-wrap: anywhere; }
.nb-tree ul, .nb-tree ol { margin: 0; padding-left: 1.3em; }
.nb-tree ol { list-style: none; padding-left: 0; counter-reset: check; }
.nb-tree ol > li { counter-increment: check; }
.nb-tree summary { min-height: 44px; padding: 10px 0; cursor: pointer; }
.nb-tree summary::before { content: counter(check) ". "; font-weight: 600; }
.nb-tree details > div { border-left: 3px solid #777; padding-left: .9em; margin-bottom: .6em; }
.nb-tree p { margin: .2em 0; }
html[data-theme="dark"] .text_html:has(.nb-tree) {
  background: none !important; color: inherit !important;
}
</style>"""


def show_suspects() -> HTML:
    """Symptoms with the checks to begin with, and each check with its causes, all of `CAUSES`.

    Made of `SYMPTOMS`, `CHECKS` and `CAUSES`, and of nothing that is typed here.

    Book: section 16.8.
    """
    number = {name: place for place, name in enumerate(CHECKS, start=1)}
    symptoms = "".join(
        f"<li>{escape(symptom)}: <b>{', '.join(str(number[name]) for name in first)}</b></li>"
        for symptom, first in SYMPTOMS.items()
    )
    checks = "".join(
        f"<li><details><summary>{escape(check.question)}</summary><div>"
        f"<p><i>Look at</i> {escape(check.look)}.</p><ul>{_causes(check.causes)}</ul>"
        "</div></details></li>"
        for check in CHECKS.values()
    )
    return HTML(
        f'{STYLE}<div class="nb-tree"><p><b>The curve, and the checks to begin with</b></p>'
        f"<ul>{symptoms}</ul><p><b>The checks: is it so that…</b></p><ol>{checks}</ol></div>"
    )


def _causes(names: tuple[str, ...]) -> str:
    known = [(name, CAUSES[name]) for name in names]
    return "".join(
        f"<li><b>{name}</b>: {escape(cause.sentence)} (§ {escape(cause.section)})</li>"
        for name, cause in known
    )
