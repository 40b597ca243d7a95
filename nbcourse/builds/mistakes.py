"""The mistakes that are known of the pieces: for each the edit of the book's text that makes it.

A law names one of them; planted into the book's piece, it is what a reader's tests have to
catch. So one table is the key of both, and a test sees that each is named for what it is. Several
edits may make one mistake of the catalogue.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files

from nbcourse.builds import pieces

Edits = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Way:
    """One way to write a piece: with a mistake in it, or as right as the book's.

    Attributes:
        piece: which one.
        edits: what of the book's text is replaced, and by what.
    """

    piece: str
    edits: Edits

    def text(self) -> str:
        """The piece, written so.

        Raises:
            ValueError: if the book's text does not hold what an edit replaces, just once.
        """
        text = pieces.solution(self.piece)
        for old, new in self.edits:
            if text.count(old) != 1:
                raise ValueError(
                    f"{self.piece}.py holds {old!r} {text.count(old)} times, expected once"
                )
            text = text.replace(old, new)
        return text


@dataclass(frozen=True)
class Wrong(Way):
    """One way in which a piece is wrong.

    Attributes:
        id: of the mistake, in the catalogue.
    """

    id: str


# In `edits.txt` a heading names the piece. Below it stands each edit: its name, after a colon the
# mistake that it makes if that is not its name, what is taken out of the book's text, and what is
# put there.
EDITS = files("nbcourse.builds").joinpath("edits.txt").read_text("utf-8")
ENTRY = re.compile(r"^([\w-]+)(?:: ([\w-]+))?\n((?:[-+].*\n)+)", re.MULTILINE)


def _read(edits: str) -> Iterator[tuple[str, Wrong]]:
    for part in re.split(r"^# ", edits, flags=re.MULTILINE)[1:]:
        piece, _, entries = part.partition("\n")
        for name, mistake, edit in ENTRY.findall(entries):
            lines = edit.splitlines()
            old, new = ("\n".join(x[1:] for x in lines if x[0] == sign) for sign in "-+")
            yield name, Wrong(piece, ((old, new),), mistake or name)


MISTAKES: Mapping[str, Wrong] = dict(_read(EDITS))
