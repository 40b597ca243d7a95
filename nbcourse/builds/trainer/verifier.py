r"""Build 7, after chapter 13: a verifier that is not fooled.

Difficulty ●●○ · 30 minutes · two functions, about 16 lines · given: nothing
"""

import re
from decimal import Decimal


def read(response: str) -> Decimal | None:
    """The number that a response claims, or None.

    A claim is a line with `####`, exactly four of them, and after it one number: the whole rest of
    the line. The number may have a sign (`-` or `−`), a leading `$`, thousands separated by commas
    (1,000 and never 1,00), a decimal part, and one closing full stop; spaces around it do not
    matter. Digits are 0 to 9. Every claim of a response has to be good, and all have to agree;
    otherwise, and without any, there is no answer. See section 13.4.
    """
    ### BEGIN SOLUTION
    digits = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?"
    number = rf"[ \t]*([-−]?)[ \t]*\$?({digits})[ \t]*\.?[ \t]*"
    claims = re.findall(r"(?<!#)####(?!#)([^\n]*)", response)
    good = [re.fullmatch(number, claim) for claim in claims]
    if not good or not all(good):
        return None
    found = {Decimal(m[1].replace("−", "-") + m[2].replace(",", "")) for m in good}
    return found.pop() if len(found) == 1 else None
    ### END SOLUTION


def reward(response: str, answer: str) -> float:
    """1.0 if the response claims the answer, such as "1,000" or "18", as a number; else 0.0."""
    ### BEGIN SOLUTION
    claimed = read(response)
    return float(claimed is not None and claimed == Decimal(answer.replace(",", "")))
    ### END SOLUTION
