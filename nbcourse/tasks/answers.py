r"""Read the final answer out of a response, and compare it with the gold answer.

The verifier *is* the reward: whatever it accepts by mistake, training will find. It must also cost
next to nothing, for it reads every response, the degenerate ones first of all. So there is no
``eval`` here, no time-out, and no pattern that can backtrack: every loop below is possessive
(``*+``, ``++``) or bounded, and no unbounded one opens a pattern that is searched for, hence the
time grows linearly with the text.

**Strict** is the format asked for, and the mode to train on: ``####``, then on the same line one
number. Beside it only spaces, a currency sign, ``%`` and one closing full stop are allowed.

==========================================  ===================================================
accepted                                    no answer
==========================================  ===================================================
``#### 42``  ``####42``  ``so #### 42``     ``#### 42 or 43``  ``#### 42 apples``  ``#### **42**``
``#### 42.``  ``#### 42.0``  ``#### 042``   ``#### 42#### 43``  ``#### 42 ####``  ``##### 42``
``#### $42``  ``#### 42 €``  ``#### 42%``   ``#### 1e5``  ``#### 1/2``  ``#### nan``  ``#### ,``
``#### -5``  ``#### −5``  ``#### -$5``      ``#### –5`` (a dash)  ``#### --5``  ``#### ±5``
``#### 1,000``  ``#### .5``  ``#### ４２``  ``#### 1,00``  ``#### 0,001``  ``#### 1 000``
==========================================  ===================================================

Every marker in the text must hold a number, and all of them the same one: two answers are none,
and neither is a good marker beside a broken one. A zero-width, bidirectional or combining
character next to a number disqualifies it, because what a reader sees is then not what is written.

**Lenient** is for measuring what a model knows before it has learned the format. The first rule
that finds a claim decides, and a claim that is not one plain number is no answer; it never falls
through to a weaker rule, or a hedge would be paid by the back door.

1. The strict answer.
2. Marker lines that open with a number, or hold an answer phrase or a box. Each must hold exactly
   one number, and all the same: ``#### 42 apples`` is 42, ``#### 42 or 43`` and ``#### 1e5`` are
   nothing. A line that opens with "N/A" or "unknown" says that there is no answer. Other marker
   lines are headings (``#### Step 1``, and ``#### 1. Add``, ``#### 2. …``).
3. The ``\boxed{…}`` that closes last, if it holds a digit. An unclosed box is no box. A number
   right after a later "final answer is" replaces that of the box, if the box holds one number.
4. The first number after the last "answer is" or "answer:". Of an equation, its one plain number.
5. The last number in the text.

In rules 4 and 5 a number joined to a different one by "or" is no answer. In all of them a number is
read with what touches it, so that ``1e5``, ``1/2``, ``12:30``, ``40-42`` and ``1,00`` are not
numbers, while ``18cm`` is 18 and ``H2O`` holds none. Nor is a part of something longer ever read:
``2 1/4``, ``40 - 42`` and ``\frac{1}{2}`` are nothing, ``18 500`` and ``8{,}500`` are thousands.
These rules know positions, not English: "the answer is not 5" is 5, and so is "the answer is 5. No,
wait: 7".
"""

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice

MAX_DIGITS = 50
"""A longer number is no number: no question needs it, and a parser must not be fed a million."""

_FULL_WIDTH = str.maketrans("０１２３４５６７８９＋－﹣−．，：％＄￠￡￥", "0123456789+---.,:%$¢£¥")

_CURRENCY = "$¢-¥\u20a0-\u20c0"
_SPACE = "[ \t\u00a0\u2000-\u200a\u202f\u205f\u3000]*+"
# Grouping that starts with 0 is refused: 0,001 is one thousandth to half of the world.
_NUMBER = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})++|[0-9]++)(?:\.[0-9]++)?|\.[0-9]++"
_EXACT = re.compile(
    rf"{_SPACE}(?:(?P<outer>[+-]){_SPACE})?(?:[{_CURRENCY}]{_SPACE}(?:(?P<inner>[+-]){_SPACE})?)?"
    rf"(?P<number>{_NUMBER}){_SPACE}(?:[{_CURRENCY}%]{_SPACE})?\.?{_SPACE}\r?"
)

# Five hashes are a heading of Markdown's fifth level, so a marker has exactly four.
_MARKER = re.compile(r"(?<!#)####(?!#)([^\n]*+)")
_BRACE = re.compile(r"\\boxed\s*+\{|\\[{}]|[{}]")
_PHRASE = re.compile(r"\banswer[\s*_]*+(?:is\b|:)", re.IGNORECASE)
_FINAL = re.compile(r"\bfinal answer[\s*_]*+(?:is\b|:)", re.IGNORECASE)
_NO_ANSWER = re.compile(
    r"[\W_]*+(?:n/?a|none|unknown|undefined|no answer|cannot be determined)\b", re.IGNORECASE
)
_OR = re.compile(r"\bor\b", re.IGNORECASE)
_EQUALS = re.compile(rf"[ \t{_CURRENCY}]*+=[ \t{_CURRENCY}]*+")
_OPENING_SIGN = re.compile(r"^([ \t]*+[+-])[ \t]++")

# Superscripts, fractions and foreign digits cannot be read here, but must not be overlooked either:
# 5² is not 5.
_FRACTIONS = "¼-¾⅐-↉"
_DIGIT = rf"\d²³¹{_FRACTIONS}⁰-⁹₀-₉"
# Up to three characters between two digits tie them into one run, whatever they are, except for
# those of GSM8K's calculator notes (<<9*2=18>>18) and of equations; it is judged as a whole.
_RUN = re.compile(
    rf"(?:(?P<name>[A-Za-z_^])|(?<![\w)\]}}.+-])[+-]?(?:[{_CURRENCY}] ?[+-]?)?\.?)?"
    rf"[{_DIGIT}]++(?:[^\s=<>{_DIGIT}]{{1,3}}+[{_DIGIT}]++)*+"
)
_OPENS_WITH_DIGIT = re.compile(rf"[\W_]*+[{_DIGIT}]")
# What is written in several pieces and is one number, or is more than a number: each with what to
# put in its place, so that the pieces are one run. "±" makes that no number, as a fraction does.
_GAP = " \u00a0\u2009\u202f"
_PIECES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"(?<=[0-9])(?:\{\\?,\}|,\\!|\\[,;: ])(?=[0-9]{3}(?![0-9]))"), ","),  # of TeX
    (
        re.compile(
            rf"(?<![\w.,])(?<![0-9][{_GAP}])[1-9][0-9]{{0,2}}(?:[{_GAP}][0-9]{{3}})++"
            rf"(?![\w{_DIGIT}]|[{_GAP}][0-9])"
        ),
        lambda match: re.sub(rf"[{_GAP}]", ",", match[0]),
    ),
    (re.compile(r"(?<=[0-9])( ?(?:[cdkm]?m|ft|in|yd|mi))(?:[²³]|\^\{?[23]\}?)(?!\w)"), r"\1"),
    (re.compile(r"[ \t]?\\(?:[cdt]?frac|sqrt)[ \t]*+\{?[ \t]*+"), "±"),
    (re.compile(r"[ \t]{0,3}+\}[ \t]{0,3}+\{[ \t]{0,3}+"), "}{"),
    (re.compile(rf"(?<=[0-9]) (?:(?:and|&) )?(?=[0-9]++ ?/ ?[0-9]|[{_FRACTIONS}])"), "+"),
    (re.compile(r"(?<=[0-9]) and (?:a|one) (?:half|third|quarter)\b"), "½"),
    (
        re.compile(rf"(?<=[0-9%]) ?([-+*/:^×·÷–]|x(?= )) ?(?=[{_CURRENCY}]?[0-9])"),
        lambda match: match[1].replace("x", "×"),
    ),
]
_NUMBERED_HEADING = re.compile(r"[\W_]*+([0-9]{1,2})[.)]\s++[^\W\d_]")
# What may or may not have been meant as a sign; the number behind it is then not known.
_DOUBTFUL_SIGN = frozenset({*"‐‑‒–±∓", "--", "-+", "+-", "++", "}{"})  # the last of a TeX fraction
_UNSEEN = frozenset({"Cf", "Mn", "Me"})  # formatting and combining characters


def extract(text: str, *, strict: bool) -> Decimal | None:
    """Return the answer that `text` gives, or None; the module's docstring has the rules.

    The number comes back exactly as written, as a Decimal: "18.00" gives Decimal("18.00"), which
    equals Decimal(18). `text` is the response alone: without the prompt, without special tokens.
    """
    if not isinstance(text, str):
        raise ValueError(f"text must be a str, got {type(text).__name__}")
    text = _plain(text)
    return _strict(text) if strict else _lenient(text)


def is_correct(text: str, gold: Decimal | int | str, *, strict: bool) -> bool:
    """Say whether `text` answers with `gold`, as exact decimals: 18 = 18.0, and 1,000 = 1000.

    `gold` is a number or, as a str, either a number as a marker line may hold it ("1,000") or a
    whole solution that ends in its marker line. A gold answer that cannot be read raises a
    ValueError rather than mark every response wrong.
    """
    expected = number_of(gold)
    return extract(text, strict=strict) == expected


def number_of(gold: Decimal | int | str) -> Decimal:
    """The number of a right answer, as `is_correct` takes it.

    Raises:
        ValueError: if there is none.
    """
    if isinstance(gold, str):
        answer = extract(gold, strict=True) if "####" in gold else _exact(_plain(gold.strip()))
        if answer is not None:
            return answer
    elif isinstance(gold, Decimal):
        if gold.is_finite():
            return gold
    elif isinstance(gold, int) and not isinstance(gold, bool) and abs(gold) < 10**MAX_DIGITS:
        return Decimal(gold)
    raise ValueError(
        f"gold must be a finite Decimal, an int of at most {MAX_DIGITS} digits, or a str with one "
        f"number or a solution ending in '#### number', got {_short(gold)}"
    )


def _short(value: object) -> str:
    # Python refuses to print an int of more than 4,300 digits.
    too_long = isinstance(value, int) and abs(value) >= 10**MAX_DIGITS
    shown = "a longer int" if too_long else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:40]} … {shown[-37:]}"


def _plain(text: str) -> str:
    return text if text.isascii() else text.translate(_FULL_WIDTH)


def _exact(line: str) -> Decimal | None:
    """Return the number that is all there is on `line`, or None."""
    match = _EXACT.fullmatch(line)
    if match is None or (match["outer"] and match["inner"]):
        return None
    digits = match["number"].replace(",", "")
    if len(digits.replace(".", "")) > MAX_DIGITS:
        return None
    # The sign goes in with the digits: negating a Decimal would round it to 28 places.
    return Decimal((match["outer"] or match["inner"] or "") + digits)


def _strict(text: str) -> Decimal | None:
    return _agreed(_MARKER.findall(text), _exact)


def _agreed(lines: list[str], read: Callable[[str], Decimal | None]) -> Decimal | None:
    """Return the number that all lines hold, or None if they differ or one of them holds none."""
    answer = None
    for line in lines:
        number = read(line)
        if number is None or answer not in (None, number):
            return None
        answer = number
    return answer


def _lenient(text: str) -> Decimal | None:
    answer = _strict(text)
    if answer is not None:
        return answer
    for pattern, together in _PIECES:
        text = pattern.sub(together, text)
    if any(_NO_ANSWER.match(line) for line in _MARKER.findall(text)):
        return None
    claims = _marker_claims(text)
    if claims:
        return _agreed(claims, _only_number)
    box = _last_box(text)
    if box is not None and _holds_number(text[box]):
        answer, final = _only_number(text[box]), deque(_FINAL.finditer(text, box.stop), maxlen=1)
        if answer is None or not final:
            return answer
        rest = text[final[0].end() :]
        return _first_number(rest) if _OPENS_WITH_DIGIT.match(rest) else answer
    phrase = deque(_PHRASE.finditer(text), maxlen=1)
    if phrase:
        rest = text[phrase[0].end() :]
        if _holds_number(rest):
            return _first_number(rest)
    return _last_number(text)


def _marker_claims(text: str) -> list[str]:
    """Return the marker lines that claim an answer, leaving out headings."""
    claims, next_heading = [], 1
    for line in dict.fromkeys(_MARKER.findall(text)):
        if _OPENS_WITH_DIGIT.match(line):
            heading = _NUMBERED_HEADING.match(line)
            if heading and int(heading[1]) == next_heading:
                next_heading += 1
            else:
                claims.append(line)
        elif ("\\boxed" in line or _PHRASE.search(line)) and _holds_number(line):
            claims.append(line)
    return claims


def _last_box(text: str) -> slice | None:
    r"""Return what the ``\boxed{…}`` whose brace closes last holds, the outermost if nested."""
    starts: list[int | None] = []
    span = None
    for match in _BRACE.finditer(text):
        brace = match[0]
        if brace == "{":
            starts.append(None)
        elif brace == "}":
            start = starts.pop() if starts else None
            if start is not None:
                span = slice(start, match.start())
        elif brace[1] == "b":
            starts.append(match.end())
    return span


def _runs(text: str) -> Iterator[re.Match[str]]:
    """Yield whatever looks like a number, read with all that touches it; names are left out."""
    return (match for match in _RUN.finditer(text) if not match["name"])


def _value(run: re.Match[str]) -> Decimal | None:
    text, start, end = run.string, run.start(), run.end()
    before, after = text[max(start - 2, 0) : start], text[end : end + 1]
    if not _DOUBTFUL_SIGN.isdisjoint({before, before[-1:]}):
        return None
    if any(unicodedata.category(neighbour) in _UNSEEN for neighbour in before[-1:] + after):
        return None
    return _exact(run[0])


def _holds_number(piece: str) -> bool:
    return next(_runs(piece), None) is not None


def _only_number(piece: str) -> Decimal | None:
    exact = _exact(piece)
    if exact is not None:
        return exact
    runs = list(islice(_runs(_attach_sign(piece)), 2))
    return _value(runs[0]) if len(runs) == 1 else None


def _first_number(rest: str) -> Decimal | None:
    runs = _runs(_attach_sign(rest))
    equal, after = [next(runs)], None
    for after in runs:
        if not _EQUALS.fullmatch(after.string, equal[-1].end(), after.start()):
            break
        equal.append(after)
    if after is not None and after is not equal[-1] and _joined_by_or(equal[-1], after):
        return None
    plain = {value for run in equal if (value := _value(run)) is not None}
    return plain.pop() if len(plain) == 1 else None


def _last_number(text: str) -> Decimal | None:
    runs = deque(_runs(text), maxlen=2)
    if not runs or (len(runs) == 2 and _joined_by_or(*runs)):
        return None
    return _value(runs[-1])


def _attach_sign(piece: str) -> str:
    """Join a sign that opens a piece to its number: "answer is - 5" is -5, not 5."""
    return _OPENING_SIGN.sub(r"\1", piece)


def _joined_by_or(first: re.Match[str], second: re.Match[str]) -> bool:
    between = first.string[first.end() : second.start()]
    joined = len(between) <= 40 and _OR.search(between) is not None
    return joined and _value(first) != _value(second)
