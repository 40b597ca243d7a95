"""Laws of the verifier: what it pays, and what it refuses."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from nbcourse.builds.bench import Bench, Law, blamed
from nbcourse.mistakes.findings import Finding

SECTION = "13.4 The verifier is the reward"


@dataclass(frozen=True)
class Family:
    """Responses that one mistake treats wrongly.

    Attributes:
        mistake: its name among the mistakes.
        sentence: what is asked, in a line.
        paid: response, answer; each has to earn 1.
        refused: the same; each has to earn 0.
    """

    mistake: str
    sentence: str
    paid: tuple[tuple[str, str], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


PLAIN = (("#### 18", "18"), ("9 * 2 = <<9*2=18>>18\n#### 18", "18"), ("so #### 18", "18"))
FAMILIES = (
    Family(
        "number-anywhere",
        "an answer follows a marker",
        refused=(
            ("I refuse. But 18", "18"),
            ("18", "18"),
            (" ".join(map(str, range(1, 101))), "18"),
            ("The answer is 18.", "18"),
            ("### 18", "18"),
            ("", "18"),
        ),
    ),
    Family(
        "hedge-paid",
        "the whole rest of the line is one number",
        refused=(
            ("#### 18 or 20", "18"),
            ("#### 18/3", "18"),
            ("#### 18 apples", "18"),
            ("#### 18#### 20", "18"),
            ("#### 18e0", "18"),
            ("#### 18 18", "18"),
            ("#### 18-20", "18"),
            ("#### 18²", "18"),
        ),
    ),
    Family(
        "one-of-several-claims",
        "two different answers are no answer",
        paid=(("#### 18\nWait.\n#### 18", "18"),),
        refused=(
            ("#### 18\n#### 20", "18"),
            ("#### 20\n#### 18", "18"),
            ("\n".join(f"#### {i}" for i in range(30)), "18"),
            ("\n".join(f"#### {i}" for i in range(30)), "0"),
            ("\n".join(f"#### {i}" for i in range(30)), "29"),
        ),
    ),
    Family(
        "spoiled-claim-passed-over",
        "a malformed claim spoils the others",
        refused=(
            ("#### see below\n#### 18", "18"),
            ("#### 18\n####", "18"),
            ("#### ?\n#### 18", "18"),
        ),
    ),
    Family(
        "five-hashes",
        "the marker has exactly four hashes",
        refused=(("1 + 17\n##### 18", "18"), ("1 + 17\n########18", "18")),
    ),
    Family(
        "loose-commas",
        "commas separate thousands; anything else is not a number",
        refused=(("#### 1,00", "100"), ("#### 10,00", "1000"), ("#### 1,,000", "1000")),
    ),
    Family(
        "commas-refused",
        "thousands may have commas, in the answer as well",
        paid=(("#### 1,000", "1000"), ("#### 1000", "1,000"), ("#### 12,345,678", "12345678")),
    ),
    Family(
        "foreign-digits",
        "digits are 0 to 9",
        refused=(("#### ١٨", "18"), ("#### 1_8", "18"), ("#### nan", "18")),
    ),
    Family(
        "dress-refused",
        "a sign, a dollar, spaces and a full stop change nothing",
        paid=(
            ("#### $18", "18"),
            ("####18", "18"),
            ("####   18  ", "18"),
            ("#### 18.", "18"),
            ("#### −5", "-5"),
            ("#### -5", "-5"),
            ("#### -$5", "-5"),
            ("#### 18\nHope this helps! Ask me 3 more.", "18"),
        ),
        refused=(("#### 5", "-5"), ("#### -5", "5")),
    ),
    Family(
        "compared-as-text",
        "18 is 18.00",
        paid=(("#### 18.00", "18"), ("#### 018", "18"), ("#### 18", "18.0")),
        refused=(("#### 18.01", "18"),),
    ),
)


def _look(family: Family, bench: Bench) -> Finding | None:
    cases = [(*case, 1.0) for case in family.paid] + [(*case, 0.0) for case in family.refused]
    for response, answer, right in cases:
        try:
            found = bench("call", "verifier", "reward", [response, answer])
        except Exception as error:
            return blamed(family.mistake, f"{response[:40]!r} crashes it: {type(error).__name__}")
        if found != right:
            verb = "is refused" if right else "is paid"
            return blamed(family.mistake, f"{response[:40]!r} {verb}, the answer being {answer}")
    return None


def _plain(bench: Bench) -> Finding | None:
    for response, answer in PLAIN:
        found = bench("call", "verifier", "reward", [response, answer])
        if found != 1.0:
            return blamed("", f"{response!r} earns {found!r}, expected 1.0")
        found = bench("call", "verifier", "reward", [response, "19"])
        if found != 0.0:
            return blamed("", f"{response!r} earns {found!r}, the answer being 19")
    return None


def _long(bench: Bench) -> Finding | None:
    """Texts on which a pattern that backtracks, or a loop over all starts, does not come back."""
    for text in (
        "#" * 50_000,
        "#### " * 10_000,
        "#### " + "1" * 50_000 + "x",
        " " * 50_000,
        "9," * 25_000,
    ):
        if bench("call", "verifier", "reward", [text, "18"]) != 0.0:
            return blamed("", f"a text of {len(text)} characters, {text[:8]!r} …, is paid")
    return None


LAWS: Sequence[Law] = (
    Law("verifier", "plain", "a plain answer is paid if it is right", SECTION, (), _plain),
    *(
        Law(
            "verifier", family.mistake, family.sentence, SECTION, ("plain",), partial(_look, family)
        )
        for family in FAMILIES
    ),
    Law("verifier", "long", "long texts take no time", SECTION, ("plain",), _long),
)
