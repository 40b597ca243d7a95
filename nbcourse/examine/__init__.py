"""Bring your own loss, and learn exactly what it does.

`examine(function)` lists every batch of several small worlds, so its verdicts are sums and not
samples; probes then find what a loss does by changing one thing about a batch at a time. A mistake
is told by what it does, and not by comparison with a reference implementation. Appendix B shows
readers how.
"""

from collections.abc import Callable
from typing import Any

from nbcourse.examine import decode, facts, known
from nbcourse.examine.conventions import NAMES, OFFERED
from nbcourse.examine.pinned import assert_gradient
from nbcourse.examine.remembered import Remembered
from nbcourse.examine.report import REQUIREMENTS, Report
from nbcourse.examine.subject import Subject

__all__ = [
    "NAMES",
    "OFFERED",
    "REQUIREMENTS",
    "Report",
    "Subject",
    "assert_gradient",
    "assert_loss",
    "examine",
]


def examine(
    loss: Callable[..., Any] | Subject | str, *, tell: Callable[[str], None] = lambda _: None
) -> Report:
    """Examine a loss.

    Args:
        loss: a function that takes some of `OFFERED` by name and returns a scalar to minimise, or
            losses of tokens (B, T); a `Subject`, such as `Subject.of(function, convention="trl")`;
            or the name of a row of the table of algorithms.
        tell: is told what is done next.

    Raises:
        ValueError: in one line, if the function needs what is not offered, raises, or returns
            something else than a loss.

    Book: appendix B, "Examine a loss of your own".
    """
    if isinstance(loss, str):
        loss = known.row(loss)
    subject = Remembered.by(loss if isinstance(loss, Subject) else Subject.of(loss))
    measured = facts.gather(subject, tell)
    tell("the rows of the table")
    nearest = known.nearest(subject, [measured.fresh, measured.stale, measured.far])
    return Report(subject.name, decode.findings(measured), measured, nearest)


def assert_loss(loss: Callable[..., Any] | Subject | str, *requirements: str) -> Report:
    """For tests: examine a loss, and fail with the report if a requirement is not met.

    Args:
        loss: as for `examine`.
        requirements: of `REQUIREMENTS`; "no-mistake" if none is given.

    Raises:
        AssertionError: naming the requirements that are not met.
    """
    report = examine(loss)
    missing = report.missing(list(requirements or ("no-mistake",)))
    assert not missing, f"{report.name} is not {', not '.join(missing)}\n\n{report}"
    return report
