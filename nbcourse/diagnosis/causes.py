"""The causes that a diagnosis can name: what each is, how it is seen, how to mend it, and where
the book has it.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Cause:
    """One way in which a run goes wrong.

    Attributes:
        sentence: what is wrong, in a sentence.
        mend: what to do instead.
        section: of the book, as it is headed.
        evidence: what shows it, by the confidence with which it does; the numbers are put into the
            braces.
    """

    sentence: str
    mend: str
    section: str
    evidence: Mapping[str, str]


def _read() -> dict[str, Cause]:
    content = files("nbcourse.diagnosis").joinpath("causes.toml").read_text("utf-8")
    return {
        name: Cause(row.pop("sentence"), row.pop("mend"), row.pop("section"), row)
        for name, row in tomllib.loads(content).items()
    }


CAUSES = _read()
