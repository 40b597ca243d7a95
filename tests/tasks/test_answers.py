r"""The answer parser: golden and exploit cases, an independent oracle, and texts without end."""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import groupby, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nbcourse.tasks.answers import MAX_DIGITS, extract, is_correct
from tests.effort import examples, swept
from tests.tasks.growth import SIZES, USUAL, assert_linear

# (response, strict answer, lenient answer, what the case is about)
CASES = [
    # The format, with the freedom it gives.
    ("#### 42", "42", "42", "the format"),
    ("6 * 7 = <<6*7=42>>42 eggs\n#### 42", "42", "42", "a whole GSM8K solution"),
    ("####42", "42", "42", "no space"),
    ("####   -5", "-5", "-5", "several spaces"),
    ("####\t42", "42", "42", "tab"),
    ("####\u00a042\u00a0", "42", "42", "no-break spaces"),
    ("#### 42   \n", "42", "42", "trailing spaces"),
    ("#### 42\r\nBye\r\n", "42", "42", "CRLF line ends"),
    ("#### 42\r", "42", "42", "half a CRLF, cut off"),
    ("So it is #### 42", "42", "42", "marker inside the line"),
    ("#### 42\nHope this helps! Ask me 3 more.", "42", "42", "text after the marker line"),
    ("#### $42", "42", "42", "currency before"),
    ("#### $ 42", "42", "42", "currency and space"),
    ("#### 42€", "42", "42", "currency after"),
    ("#### $42$", "42", "42", "TeX's math mode looks like two currency signs"),
    ("#### 42%", "42", "42", "percent"),
    ("#### 42.", "42", "42", "closing full stop"),
    ("#### 42 %.", "42", "42", "percent, full stop"),
    ("#### 42.0", "42", "42", "decimal zero"),
    ("#### $1,234.50.", "1234.5", "1234.5", "everything at once"),
    ("#### 1,000", "1000", "1000", "thousands"),
    ("#### 12,345,678", "12345678", "12345678", "millions"),
    ("#### 1000", "1000", "1000", "four digits without a separator"),
    ("#### 007", "7", "7", "leading zeros"),
    ("#### .5", "0.5", "0.5", "no zero before the point"),
    ("#### -.5", "-0.5", "-0.5", "sign and bare point"),
    ("#### -0", "0", "0", "minus zero is zero"),
    ("#### +5", "5", "5", "plus"),
    ("#### −5", "-5", "-5", "Unicode minus"),
    ("#### -$5", "-5", "-5", "sign before the currency"),
    ("#### $-5", "-5", "-5", "sign after the currency"),
    ("#### - 5", "-5", "-5", "space after the sign"),
    ("#### - $ 5", "-5", "-5", "spaces around the currency"),
    ("#### ４２", "42", "42", "full-width digits"),
    ("#### －１，０００．５", "-1000.5", "-1000.5", "full-width punctuation"),
    ("#### ＄４２％", "42", "42", "full-width signs"),
    ("#### " + "9" * 50, "9" * 50, "9" * 50, "fifty digits"),
    ("#### 18\n#### 18.00", "18", "18", "two markers that agree"),
    # Markers that are no answer in either mode.
    ("#### 42 or 43", None, None, "hedge on the line"),
    ("#### 42, 43", None, None, "hedge by comma"),
    ("#### 42,43", None, None, "hedge by comma without space"),
    ("#### 42/43", None, None, "hedge by slash"),
    ("#### 42 43", None, None, "hedge by space"),
    ("#### 42\n#### 43", None, None, "two markers that disagree"),
    ("#### 42#### 43", None, None, "two markers on one line"),
    ("#### 42 #### 42", None, None, "two markers on one line, equal"),
    ("#### 42\r#### 43", None, None, "a bare carriage return hides the first"),
    ("#### 42\u2028#### 43", None, None, "a line separator is not a line end"),
    ("#### 42\n#### 43 apples", None, None, "a good marker and a broken one that disagree"),
    ("#### 42 apples\n#### 43 apples", None, None, "two broken markers that disagree"),
    ("#### 42 or 43\n\\boxed{42}", None, None, "no fall-through from a hedge to a box"),
    ("#### 42 or 43\nThe answer is 42", None, None, "no fall-through to a phrase"),
    ("#### 42. yes\n#### 43. no", None, None, "hedge dressed as numbered headings"),
    ("#### Answer: 42\n#### Answer: 43", None, None, "hedge by phrases in marker lines"),
    ("#### \\boxed{42}\n#### \\boxed{43}", None, None, "hedge by boxes in marker lines"),
    ("#### 1e5", None, None, "exponent form"),
    ("#### 1E+05", None, None, "exponent with sign"),
    ("#### 10^3", None, None, "power"),
    ("#### 10³", None, None, "superscript"),
    ("#### 5 × 10^3", None, None, "scientific notation"),
    ("#### 1/2", None, None, "fraction"),
    ("#### 5½", None, None, "mixed fraction"),
    ("#### 40 + 2", None, None, "a sum is no answer"),
    ("#### 40+2", None, None, "a sum without spaces"),
    ("#### 0x2A", None, None, "hexadecimal"),
    ("#### 4_2", None, None, "Python's underscore"),
    ("#### 1,00", None, None, "group of two"),
    ("#### 1,0000", None, None, "group of four"),
    ("#### 1000,000", None, None, "first group of four"),
    ("#### ,100", None, "100", "no first group"),
    ("#### 0,001", None, None, "group after zero: thousandth or one?"),
    ("#### 1,000,00", None, None, "last group of two"),
    ("#### 1,,000", None, None, "two commas"),
    ("#### 1 000", None, "1000", "space as separator"),
    ("#### 1.2.3", None, None, "two points"),
    ("#### 12:30", None, None, "time of day"),
    ("#### --5", None, None, "two signs"),
    ("#### -$-5", None, None, "two signs around a currency"),
    ("#### –5", None, None, "en dash: sign or dash?"),
    ("#### ±5", None, None, "both signs"),
    ("#### 4\u200b2", None, None, "zero-width space inside"),
    ("#### 42\u200b", None, None, "zero-width space behind"),
    ("#### \u202e24", None, None, "right-to-left override shows 42"),
    ("#### 4\u03362\u0336", None, None, "struck out"),
    ("#### 42\u0336", None, None, "half struck out"),
    ("#### 42\u20e3", None, None, "combining keycap"),
    ("#### -\u200b5", None, None, "zero-width space behind the sign"),
    ("#### ٤٢", None, None, "Arabic-Indic digits"),
    ("#### 4٢", None, None, "mixed scripts"),
    ("#### " + "9" * 51, None, None, "one digit too many"),
    ("#### ,", None, None, "comma alone"),
    ("#### .", None, None, "point alone"),
    ("#### -", None, None, "sign alone"),
    ("#### $", None, None, "currency alone"),
    ("#### %", None, None, "percent alone"),
    ("####", None, None, "marker alone"),
    ("#### nan", None, None, "not a number"),
    ("#### Infinity", None, None, "infinity"),
    ("#### -inf", None, None, "minus infinity"),
    ("#### forty-two", None, None, "words"),
    ("#### \ud800", None, None, "lone surrogate"),
    # Broken markers that lenient mode can still read.
    ("#### 42 apples", None, "42", "trailing unit"),
    ("#### 42cm", None, "42", "unit without space"),
    ("#### 42..", None, "42", "two full stops"),
    ("#### 42!", None, "42", "exclamation mark"),
    ("#### **42**", None, "42", "Markdown bold"),
    ("#### 42 ####", None, "42", "closed heading"),
    ("#### 42</s>", None, "42", "special token left in"),
    ("#### x = 42", None, "42", "equation"),
    ("#### $\\boxed{42}$", None, "42", "box behind a marker"),
    ("#### The answer is 42", None, "42", "phrase behind a marker"),
    ("#### Answer:\n42", None, "42", "phrase in a heading, number on the next line"),
    ("####\n42", None, "42", "number on the next line"),
    ("##### 42", None, "42", "five hashes are no marker"),
    ("### 42", None, "42", "three hashes are no marker"),
    ("##\u200b## 42", None, "42", "broken run of hashes"),
    ("＃＃＃＃ 42", None, "42", "full-width hashes are no marker"),
    ("##### 43\n#### 42", "42", "42", "five hashes do not contradict a marker"),
    ("#### 42\n####", None, "42", "a good marker and an empty one"),
    ("#### Step 1: 2 + 2\n#### 42", None, "42", "heading of words, then the answer"),
    ("#### 1. Add\n#### 2. Halve\n#### 42", None, "42", "numbered headings, then the answer"),
    ("#### 1. Add 40 to 2\nThe answer is 42", None, "42", "numbered heading, then a phrase"),
    # Boxes.
    ("\\boxed{42}", None, "42", "box"),
    ("\\boxed {42} in 3 steps", None, "42", "box with a space"),
    ("$\\boxed{\\$1,000.50}$", None, "1000.5", "escaped currency"),
    ("\\boxed{42\\%}", None, "42", "escaped percent"),
    ("\\boxed{42 \\text{ dollars}}", None, "42", "unit in a box"),
    ("\\boxed{ - 5 }", None, "-5", "space after the sign in a box"),
    ("\\boxed{$ - 5}", None, "-5", "currency and detached sign in a box"),
    ("\\boxed{\\boxed{42}}", None, "42", "nested boxes"),
    ("\\boxed{42 \\boxed{43}}", None, None, "hedge by nesting"),
    ("\\boxed{41} then \\boxed{42}", None, "42", "several boxes: the last"),
    ("\\boxed{42}. Check: 40 + 2 = 50", None, "42", "a box outranks the last number"),
    ("The answer is 41. \\boxed{42}", None, "42", "a box outranks a phrase"),
    ("\\boxed{42 or 43}", None, None, "hedge in a box"),
    ("\\boxed{42, 43}", None, None, "list in a box"),
    ("\\boxed{\\frac{1}{2}}", None, None, "TeX fraction"),
    ("\\boxed{1{,}000}", None, "1000", "TeX's protected comma"),
    ("\\boxed{10^{3}}", None, None, "TeX power"),
    ("\\boxed{42 or 43} The answer is 42", None, None, "no fall-through from a hedged box"),
    ("\\boxed{42", None, "42", "an unclosed box is plain text"),
    ("\\boxed{41\\} is 42", None, "42", "an escaped brace does not close"),
    ("\\boxed{41} \\boxed{42", None, "41", "closed, then unclosed"),
    ("\\boxed{\\boxed{42}", None, "42", "closed inside unclosed"),
    ("}}{\\boxed{42}", None, "42", "stray braces"),
    ("7 \\boxed{}", None, "7", "an empty box claims nothing"),
    # Phrases.
    ("The answer is 42.", None, "42", "phrase"),
    ("ANSWER IS: $1,000!", None, "1000", "capitals, colon, currency"),
    ("**Answer:** 42", None, "42", "bold phrase"),
    ("**Answer**: 42 in 3 steps", None, "42", "bold phrase, colon outside"),
    ("Final answer：４２", None, "42", "full-width colon"),
    ("Answer:\n\n42 apples and 3 pears", None, "42", "the first number after it"),
    ("Answer:\n- 5 apples", None, "5", "a bullet is no sign"),
    ("The answer is - 5", None, "-5", "a detached sign"),
    ("The answer is 41. No, the answer is 42", None, "42", "the last phrase"),
    ("The answer is 5. No, wait: 7", None, "5", "the phrase outranks the last number"),
    ("The answer is not 5", None, "5", "positions, not English"),
    ("The answer is 42 or 43", None, None, "hedge after a phrase"),
    ("The answer is 42, or maybe 43", None, None, "longer hedge"),
    ("The answer is 42 or 42.0", None, "42", "no hedge: the same number"),
    ("The answer is 42/43", None, None, "slash after a phrase"),
    ("The answer is 1e5, not 7", None, None, "no fall-through from a broken number"),
    ("It is 42. I hope the answer is right", None, "42", "a phrase without a number"),
    ("answers: 3\n42", None, "42", "a longer word"),
    ("a nonanswer is 3\n42", None, "42", "the end of a word"),
    # The last number.
    ("She has 18 eggs.", None, "18", "last number"),
    ("3 days, 9 * 2 = $<<9*2=18>>18 a day", None, "18", "calculator note"),
    ("It costs 1,000 dollars", None, "1000", "thousands in prose"),
    ("She has 2*9=18 a day", None, "18", "equation without spaces"),
    ("x=-5", None, "-5", "sign behind an equals sign"),
    ("(-5)", None, "-5", "sign in brackets"),
    ("the rest is −5", None, "-5", "Unicode minus in prose"),
    ("the rest is -$ 5", None, "-5", "sign, currency, space"),
    ("a share of .5", None, "0.5", "bare point in prose"),
    ("option A-5", None, "5", "a hyphen is no sign"),
    ("see Rs.500", None, "500", "an abbreviation's stop is no point"),
    ("so...5", None, "5", "an ellipsis is no point"),
    ("It is 42 or 43", None, None, "hedge at the end"),
    ("3 eggs on each day of the week or, in a long sentence, 42", None, "42", "a distant or"),
    ("7 apples weigh 1,00", None, None, "a broken last number is not skipped"),
    ("between 40-42", None, None, "range"),
    ("for $40-$42", None, None, "range of prices"),
    ("40...42", None, None, "range by ellipsis"),
    ("between 40–42", None, None, "range with an en dash"),
    ("7 to 5²", None, None, "superscript in prose"),
    ("7 times ½", None, None, "fraction character"),
    ("42 in H2O", None, "42", "a digit in a name"),
    # One number, or none: never a part of what is written.
    ("The answer is 2 1/4 miles", None, None, "mixed number"),
    ("The answer is 2 ½", None, None, "mixed number with a fraction character"),
    ("It takes 2 and 1/4 hours", None, None, "mixed number with and"),
    ("The answer is 2 and a half", None, None, "mixed number in words"),
    ("The answer is $2\\frac{1}{4}$", None, None, "mixed number in TeX"),
    ("The answer is $2 \\dfrac{1}{4}$", None, None, "mixed number in TeX with a space"),
    ("The answer is 1 / 2", None, None, "fraction with spaces"),
    ("The answer is \\frac{ 1 }{ 2 }", None, None, "TeX fraction with spaces"),
    ("The answer is \\frac12", None, None, "TeX fraction without braces"),
    ("So it is \\frac{72 eggs}{4 days}", None, None, "TeX fraction with units"),
    ("\\boxed{\\sqrt{18}}", None, None, "root"),
    ("The answer is 40 - 42", None, None, "range with spaces"),
    ("for $40 - $42", None, None, "range of prices with spaces"),
    ("The answer is 3 : 4", None, None, "ratio"),
    ("The answer is 5 x 10^3", None, None, "scientific notation after a phrase"),
    ("That is 40 + 2", None, None, "a sum in prose"),
    ("The answer is 9 * 2 = 18", None, "18", "equation after a phrase"),
    ("The answer is 18 = 9 * 2 dollars", None, "18", "equation the other way round"),
    ("The answer is 2 = 3", None, None, "equation that is none"),
    ("The answer is 9*2 = 18 or 19", None, None, "hedge after an equation"),
    ("The answer is 18 500 dollars", None, "18500", "spaced thousands after a phrase"),
    ("It costs 1 000", None, "1000", "spaced thousands in prose"),
    ("It costs $1\u202f234\u202f567.50.", None, "1234567.5", "narrow spaces, decimals"),
    ("It costs 1 000 42", None, "42", "numbers in a row"),
    ("It costs 1000 500", None, "500", "four digits and a number"),
    ("The answer is $8{,}500$", None, "8500", "TeX's protected comma after a phrase"),
    ("\\boxed{14{,}916}", None, "14916", "TeX's protected comma, five digits"),
    ("\\boxed{8{,}50}", None, None, "TeX's protected comma, group of two"),
    ("\\boxed{16,\\!386.20}", None, "16386.2", "TeX's negative space"),
    ("\\boxed{16\\,386}", None, "16386", "TeX's thin space"),
    ("It has 1,000.99m²", None, "1000.99", "unit with an exponent"),
    ("The answer is 18 cm^2.", None, "18", "unit with TeX's exponent"),
    ("The answer is 18x²", None, None, "a power of a variable"),
    ("#### N/A (18)", None, None, "no answer, with a number"),
    ("#### Unknown\nThe answer is 18", None, None, "no answer, then a phrase"),
    ("\\boxed{19}. Wait. The final answer is $18$.", None, "18", "final answer after a box"),
    ("\\boxed{19}. **Final answer:** 18 or 20", None, None, "final answer that hedges"),
    ("\\boxed{19 or 20}. Final answer: 19", None, None, "final answer after a hedged box"),
    ("Final answer: 18. \\boxed{19}", None, "19", "final answer before a box"),
    ("\\boxed{18} is the final answer: see step 2", None, "18", "final answer, then words"),
    ("\\boxed{18}. The final answer is x5", None, "18", "final answer that is a name"),
    ("\\boxed{18}. The final answer is -\\sqrt{18}", None, None, "final answer that is a root"),
    ("\\boxed{18}. The final answer is: -5", None, "-5", "final answer with a sign"),
    ("no number", None, None, "nothing"),
    ("", None, None, "empty"),
    ("NaN, inf, ,,, ...", None, None, "nothing like a number"),
    ("__import__('os').getpid()", None, None, "code is text"),
]


def test_case():
    for text, *answers, name in CASES:
        expected = [None if answer is None else Decimal(answer) for answer in answers]
        assert [extract(text, strict=True), extract(text, strict=False)] == expected, name


def test_corpus_is_large_and_without_repeats():
    assert len({case[0] for case in CASES}) == len({case[3] for case in CASES}) == len(CASES) >= 60


# --- comparing with the gold answer ---------------------------------------------------------------


@pytest.mark.parametrize(
    "gold",
    [1000, Decimal(1000), Decimal("1E+3"), "1000", "1,000.00", " $1,000\n", "10 * 100\n#### 1,000"],
    ids=repr,
)
def test_every_kind_of_gold(gold):
    assert is_correct("#### 1,000.0", gold, strict=True)
    assert is_correct("It is 1000", gold, strict=False)
    assert not is_correct("It is 1000", gold, strict=True)
    assert not is_correct("#### 1000.001", gold, strict=True)
    assert not is_correct("#### -1000", gold, strict=True)
    assert not is_correct("", gold, strict=False)


def test_numbers_compare_exactly():
    near = "0." + "3" * 40
    assert is_correct(f"#### {near}", Decimal(near), strict=True)
    assert not is_correct(f"#### {near}3", Decimal(near), strict=True)
    assert not is_correct("#### 9007199254740993", 9007199254740992, strict=True)


def test_the_callers_decimal_context_does_not_matter():
    with localcontext(prec=2):
        assert extract("#### -1,234.5678", strict=True) == Decimal("-1234.5678")
        assert is_correct("#### 1234", 1234, strict=True)
        assert not is_correct("#### 1234", 1235, strict=True)


@pytest.mark.parametrize(
    ("gold", "named"),
    [
        ("forty-two", "'forty-two'"),
        ("", "''"),
        ("42 or 43", "'42 or 43'"),
        ("#### 42\n#### 43", "####"),
        ("a solution that ends in 42", "ends in 42"),
        ("1e5", "'1e5'"),
        (Decimal("NaN"), "NaN"),
        (Decimal("sNaN"), "sNaN"),
        (Decimal("-Infinity"), "-Infinity"),
        (42.0, "42.0"),
        (True, "True"),
        (None, "None"),
        (10**50, "int"),
        (10**5000, "int"),
        (10**300_000, "int"),
        ("x" * 10_000 + " end", " end"),
    ],
    ids=lambda value: type(value).__name__,  # Python refuses to print the longest int
)
def test_bad_gold_is_named_on_one_short_line(gold, named):
    with pytest.raises(ValueError, match=r"^gold must be") as caught:
        is_correct("#### 42", gold, strict=True)
    message = str(caught.value)
    assert named in message
    assert "\n" not in message
    assert len(message) < 250


@pytest.mark.parametrize("text", [None, 42, b"#### 42", ["#### 42"]], ids=repr)
@pytest.mark.parametrize("strict", [True, False])
def test_text_must_be_text(text, strict):
    with pytest.raises(ValueError, match=f"^text must be a str, got {type(text).__name__}$"):
        extract(text, strict=strict)


# --- an independent oracle for the strict format --------------------------------------------------


def oracle_number(line):
    """Read a marker line one character at a time; a Fraction, or None."""
    sign, currency, body, tail = "", "", "", ""
    for char in line.removesuffix("\r"):
        if "！" <= char <= "～":  # full-width forms lie at a fixed distance from ASCII
            char = chr(ord(char) - 0xFEE0)
        char = "-" if char == "−" else char
        if char in " \t\u00a0":
            tail += " " if body else ""
        elif body and (tail or char not in "0123456789.,"):
            tail += char
        elif char in "0123456789.,":
            body += char
        elif char in "+-" and not sign:
            sign = char
        elif char in "$€" and not currency:
            currency = char
        else:
            return None
    if body.endswith("."):
        body, tail = body[:-1], "." + tail
    if tail.replace(" ", "") not in ("", ".", "$", "€", "%", "$.", "€.", "%."):
        return None
    return oracle_value(sign, body)


def oracle_value(sign, body):
    whole, point, decimals = body.partition(".")
    first, *groups = whole.split(",")
    if groups and (not 1 <= len(first) <= 3 or first[0] == "0"):
        return None
    if any(len(group) != 3 for group in groups):
        return None
    digits = "".join([first, *groups, decimals])
    if not set(digits) <= set("0123456789") or not 1 <= len(digits) <= 50:
        return None
    if (point and not decimals) or (not point and not whole):
        return None
    value = Fraction(int(digits), 10 ** len(decimals))
    return -value if sign == "-" else value


def oracle(text):
    values = set()
    for line in text.split("\n"):
        position = 0
        for char, run in groupby(line):
            length = len(list(run))
            position += length
            if char == "#" and length == 4:
                values.add(oracle_number(line[position:]))
                break
    return values.pop() if len(values) == 1 else None


def as_fraction(answer):
    return None if answer is None else Fraction(answer)


def test_the_oracle_agrees_with_the_corpus():
    expected = {name: as_fraction(strict) for _, strict, _, name in CASES}
    assert {name: oracle(text) for text, _, _, name in CASES} == expected


marker_lines = st.builds(
    "{}####{}{}".format,
    st.sampled_from(["", "", "so ", "#", "42"]),
    st.sampled_from(["", " ", "  ", " $", "-", " - $", "$-", "#"]),
    st.text("0123456789019,,..  -+−$€%#\r\t５．，e/", max_size=12),
)


@given(st.lists(marker_lines, min_size=1, max_size=2).map("\n".join))
@examples(200)
def test_oracle_agrees_on_random_marker_lines(text):
    assert as_fraction(extract(text, strict=True)) == oracle(text)


@given(st.lists(st.text("ab .,\n", max_size=4), min_size=1), st.lists(st.integers(-(10**6), 10**6)))
@examples(100)
def test_last_number_of_plain_prose(words, numbers):
    pieces = [f"{word} {number}" for word, number in zip(words, numbers, strict=False)]
    expected = numbers[len(pieces) - 1] if pieces else None
    assert extract(" ".join(pieces), strict=False) == expected


# --- properties -----------------------------------------------------------------------------------

FRAGMENTS = [
    "####", "#", " ", "\n", "\r\n", "42", "43", "42.0", "1,000", "0", "-", "−", "–", "$", "€", "%",
    ".", ",", "/", "e", "or", " or ", "apples", "\\boxed{", "{", "}", "\\", "\\}", "answer is ",
    "Answer:", "Step ", "1. a", "2. b", "\u200b", "\u202e", "\u0336", "４", "²", "½", "٤", "\ud800",
    "\x00", "=", "<<", ">>", "(", ")",
]  # fmt: skip
texts = st.lists(st.sampled_from(FRAGMENTS)).map("".join) | st.text(st.characters())


@given(texts)
@examples(100)
def test_never_raises_and_returns_a_finite_decimal(text):
    for strict in (True, False):
        answer = extract(text, strict=strict)
        assert answer is None or (type(answer) is Decimal and answer.is_finite())


@given(texts)
@example("#### - $ 5")
@examples(100)
def test_a_strict_answer_is_also_the_lenient_one(text):
    answer = extract(text, strict=True)
    if answer is not None:
        assert extract(text, strict=False) == answer


@given(texts, st.integers(0, 99), st.integers(0, 99))
@examples(100)
def test_two_different_markers_never_pay(text, first, second):
    hedged = f"#### {first}\n{text}\n#### {second}"
    for strict in (True, False):
        answer = extract(hedged, strict=strict)
        assert answer in ({None} if first != second else {None, Decimal(first)})


@given(
    st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([" or ", ", ", "/", " ", "; "])
)
@examples(100)
def test_two_different_numbers_on_a_marker_line_never_pay(first, second, between):
    for strict in (True, False):
        assert extract(f"#### {first}{between} {second}", strict=strict) is None


PLACES = st.sampled_from(
    [
        "The answer is {} dollars",
        "It costs {}.",
        "\\boxed{{{}}}",
        "Final answer: ${}$",
        "#### {} eggs",
    ]
)
PARTED = {  # how a number is written in pieces → what it is
    "{0} {1}/{2}": lambda a, b, c: None,
    "{0} {1} / {2}": lambda a, b, c: None,
    "{0} and {1}/{2}": lambda a, b, c: None,
    "{0}\\frac{{{1}}}{{{2}}}": lambda a, b, c: None,
    "\\dfrac{{ {1} }}{{ {2} }}": lambda a, b, c: None,
    "{0} + {1}": lambda a, b, c: None,
    "{0} × {1}": lambda a, b, c: None,
    "{0} - {1}": lambda a, b, c: None,
    "{0} {1:03}": lambda a, b, c: 1000 * a + b,
    "{0}{{,}}{1:03}": lambda a, b, c: 1000 * a + b,
    "{0}\\,{1:03}": lambda a, b, c: 1000 * a + b,
    "{0}\u202f{1:03}\u202f{2:03}": lambda a, b, c: 10**6 * a + 1000 * b + c,
    "{0},\\!{1:03}.{2}": lambda a, b, c: Decimal(f"{1000 * a + b}.{c}"),
}


@given(PLACES, st.sampled_from([*PARTED]), st.tuples(*[st.integers(1, 999)] * 3))
@examples(300)
def test_a_number_in_pieces_is_read_whole_or_not_at_all(place, form, numbers):
    """Never as one of its pieces."""
    assert extract(place.format(form.format(*numbers)), strict=False) == PARTED[form](*numbers)


@st.composite
def decimals(draw):
    digits = draw(st.lists(st.integers(0, 9), min_size=1, max_size=MAX_DIGITS))
    places = draw(st.integers(0, len(digits) - 1))
    return Decimal((draw(st.integers(0, 1)), tuple(digits), -places))


def to_full_width(text):
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)


@given(st.data(), decimals())
@examples(100)
def test_every_allowed_way_of_writing_a_number(data, value):
    def choose(*options):
        return data.draw(st.sampled_from(options))

    sign = choose("-", "−", "－") if value.is_signed() else choose("", "+")
    digits = format(value.copy_abs(), choose("f", ",f"))
    space, currency = choose("", " ", "\t", "\u00a0", "   "), choose("", "$", "€", "£", "¥")
    front = choose(sign + space + currency, currency + space + sign)
    number = front + space + choose(digits, to_full_width(digits))
    line = space + number + space + choose("", "%", "€") + choose("", ".") + space
    text = choose("", "so ", "2 + 2 = 5\n") + "####" + line + choose("", "\n", "\r\n", "\nBye 7")
    assert extract(text, strict=True) == value
    assert is_correct(text, value, strict=False)
    assert is_correct(text, number, strict=True)


@given(st.integers(51, 10_000), st.booleans())
@examples(100)
def test_too_many_digits_are_no_number(length, pointed):
    digits = "7" * length
    text = digits[:9] + "." + digits[9:] if pointed else digits
    assert extract(f"#### {text}", strict=True) is None
    assert extract(f"5 apples or\n{text}", strict=False) is None


# --- texts without end ----------------------------------------------------------------------------


def fill(unit, *, start="", end=""):
    """A text of any size, nearly all of which is one unit again and again."""
    return lambda size: start + unit * ((size - len(start) - len(end)) // len(unit)) + end


ADVERSARIES = {
    "spaces": fill(" "),
    "line ends": fill("\n"),
    "hashes": fill("#"),
    "markers on one line": fill("#### "),
    "empty markers": fill("####\n"),
    "good markers": fill("#### 1\n"),
    "headings": fill("#### Step\n"),
    "numbered headings": lambda size: "".join(
        f"#### {i % 100}. a{i}\n" for i in range(1, size // 16)
    ),
    "different claims": lambda size: "".join(f"#### 1 x{i}z\n" for i in range(size // 16)),
    "marker, spaces": fill(" ", start="#### 5", end="x"),
    "marker, digits": fill("7", start="#### "),
    "marker, groups": fill(",000", start="#### 1", end="0"),
    "marker, numbers": fill(" 1", start="####"),
    "digits": fill("7"),
    "commas": fill(","),
    "groups": fill(",000", start="1", end=","),
    "points": fill("1."),
    "numbers": fill("1 "),
    "equations": fill("1=="),
    "hedges": fill("1 or "),
    "signs": fill("-"),
    "currencies": fill("-$"),
    "names": fill("x5 "),
    "full-width digits": fill("４"),
    "fractions": fill("½"),
    "spaced groups": fill(" 111", start="1", end="x"),
    "spaced fractions": fill(" 1 / 2"),
    "TeX fractions": fill("\\frac{1}{2}"),
    "spaced equations": fill("1 = ", start="answer is "),
    "final answers": fill("final answer is 1 ", start="\\boxed{1}"),
    "final answer, stars": fill("*", start="\\boxed{1} final answer is"),
    "zero-width": fill("4\u200b"),
    "open boxes": fill("\\boxed{"),
    "box, spaces": fill(" ", start="\\boxed"),
    "box, digits": fill("7", start="\\boxed{", end="}"),
    "nested boxes": lambda size: "\\boxed{" * (size // 8) + "7" + "}" * (size // 8),
    "many boxes": fill("\\boxed{5}"),
    "braces": fill("{}", start="\\boxed{5}"),
    "closing braces": fill("}"),
    "backslashes": fill("\\"),
    "phrases": fill("answer is "),
    "phrases with numbers": fill("answer: 5 "),
    "phrase, spaces": fill(" ", start="answer"),
    "phrase, stars": fill("* ", start="answer"),
    "phrase, numbers": fill(" 1", start="answer is"),
    "answer tags": fill(" ", start="<answer>"),
}


@pytest.mark.parametrize(
    ("name", "reading", "largest"),
    swept(
        product(ADVERSARIES, ["strict", "lenient"], [USUAL, SIZES[-1]]),
        keep=[*product(ADVERSARIES, ["strict", "lenient"], [USUAL])],
    ),
)
def test_time_grows_linearly_with_the_text(name, reading, largest):
    text_of = ADVERSARIES[name]
    assert 0.8 * largest < len(text_of(largest)) < 1.2 * largest
    assert_linear(lambda text: extract(text, strict=reading == "strict"), text_of, largest=largest)


@pytest.mark.parametrize(
    "text_of", [fill("7"), fill(" ", start="#### 5", end="x")], ids=["digits", "spaces"]
)
def test_a_long_gold_is_refused_in_linear_time(text_of):
    def refuse(gold):
        with pytest.raises(ValueError, match=r"^gold must be"):
            is_correct("#### 5", gold, strict=True)

    assert_linear(refuse, text_of)
