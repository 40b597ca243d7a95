"""A response to type or to choose, and what verifiers make of it."""

from collections.abc import Sequence

from IPython.display import HTML

from nbcourse.display.in_page import in_page
from nbcourse.tasks.answers import is_correct

MOST = 300  # characters of a response: they all stand in the link


def explore_verifiers(examples: Sequence[str], *, gold: int = 18) -> HTML:
    """Type a response: what each verifier of chapter 13 reads in it, and whether it pays.

    Four naive ones, and the two modes of `tasks.answers.extract`, rewritten for the page. A browser
    test compares them with the package's, on every case of the parser's own tests.

    Args:
        examples: responses to choose from; the first one is shown at first.
        gold: the right answer.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if there is no example, or one is too long, or gold is not a whole number.

    Book: section 13.4.
    """
    is_correct("", gold, strict=True)  # or gold is refused
    if not examples or max(map(len, examples)) > MOST:
        raise ValueError(
            f"examples has lengths {[*map(len, examples)]}, expected at least one of them, "
            f"and at most {MOST} characters in each"
        )
    return in_page("verifier", list(examples), str(gold), parts=["numbers"])
