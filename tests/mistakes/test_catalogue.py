"""One name, one meaning: every row of the catalogue has a section, a chapter and a detector."""

import re
import tomllib
from collections import Counter
from typing import ClassVar

import pytest

from nbcourse.diagnosis.suspects import CAUSES
from nbcourse.errors import UserError
from nbcourse.mistakes.catalogue import CATALOGUE, current
from nbcourse.mistakes.findings import (
    CHOICE,
    CONFIDENCES,
    KINDS,
    Finding,
    Report,
    Requirements,
    paragraph,
    seen,
)
from nbcourse.publishing import errata
from nbcourse.repository import ROOT

SOURCE = tomllib.loads((ROOT / "nbcourse/mistakes/catalogue.toml").read_text("utf-8"))


def test_every_section_is_in_the_book_once():
    headings = Counter(
        line.lstrip("# ").replace("○ ", "").strip()  # what goes deeper has a mark
        for path in (ROOT / "book" / "text").glob("*.md")
        for line in path.read_text("utf-8").splitlines()
        if line.startswith("## ")
    )
    named = [section["heading"] for section in SOURCE.values()]
    assert len(set(named)) == len(named) > 40
    assert not {name for name in named if headings[name] != 1}


def test_every_erratum_is_in_the_appendix():
    named = {row.erratum for row in CATALOGUE.values() if row.erratum}
    assert len(named) > 15
    assert named <= {entry.id for entry in errata.read()}


def test_no_name_has_two_meanings():
    """Neither are two rows one name, nor is a former name of one that of another."""
    names = [name for section in SOURCE.values() for name in section if name != "heading"]
    names += [name for row in CATALOGUE.values() for name in row.former]
    assert not {name for name, count in Counter(names).items() if count > 1}
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


def test_no_two_rows_say_the_same():
    said = Counter(row.sentence for row in CATALOGUE.values())
    assert not {sentence for sentence, count in said.items() if count > 1}


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_row_has_what_it_needs(name):
    row = CATALOGUE[name]
    kinds = {how.partition(":")[0] for how in row.evidence}
    assert row.sentence[0].isupper() or row.sentence[0] in "`λk"
    assert row.sentence.rstrip("”)").endswith((".", "?"))
    assert "{" not in row.sentence + row.fix
    assert kinds <= set(KINDS)
    assert row.fix or kinds <= {CHOICE} or not kinds or name in WITHOUT_A_FIX
    assert (name in CAUSES) == bool(kinds & set(CONFIDENCES))


# Notes where nothing is to be done, or where what to do depends on what was meant.
WITHOUT_A_FIX = {
    *("unexplained", "flat-moves", "ratio-ignored", "sampler-ignored", "map-unfitted", "kl-other")
}


def test_an_older_name_is_still_read():
    assert current("wrong-kl-estimator") == "kl-without-gradient"
    assert current("ratio-inverted") == current("ratio-upside-down") == "inverted-ratio"
    assert current("inverted-ratio") == "inverted-ratio"
    assert current("") == ""


# ---------------------------------------------------------------- what is said of a finding


class Strict(Report):
    REQUIREMENTS: ClassVar[Requirements] = {"none": lambda report: not report.findings}


def test_a_finding_is_told_to_people_and_to_machines():
    finding = seen("masked-eos", "certain", step=3, silent=1, ended=2)
    row = CATALOGUE["masked-eos"]
    shown = "the mask leaves out the token that ends the response in 1 of 2 responses that ended"
    assert paragraph([finding]) == [
        f"[certain] masked-eos: {row.sentence}",
        f"    seen: at step 3 {shown}",
        f"    instead: {row.fix}",
        "    see 7.4 Masks by position; appendix B, untrained-end",
    ]
    assert finding.as_dict() == {
        "id": "masked-eos",
        "kind": "certain",
        "evidence": f"at step 3 {shown}",
        "sentence": row.sentence,
        "fix": row.fix,
        "section": "7.4 Masks by position",
        "erratum": "untrained-end",
    }


def test_several_are_said_in_one_breath_and_a_choice_needs_no_fix():
    two = [Finding("padding-nan", "note"), Finding("empty-batch", "note", "one")]
    first, seen_, instead, see = paragraph(two, mark="- ", indent="  ")
    assert first.startswith("- padding-nan, empty-batch: NaN or −∞")
    assert (seen_, instead.count(";")) == ("  seen: one", 1)
    assert see == "  see 7.4 Masks by position"
    assert len(paragraph([Finding("missing-baseline", "choice", "x")])) == 3


def test_a_report_says_which_requirements_are_not_met():
    found = Strict("mine", [Finding("padding-nan", "note")])
    assert (Strict("mine", []).missing(["none"]), found.missing(["none"])) == ([], ["none"])
    assert found.as_dict()["findings"][0]["id"] == "padding-nan"
    assert str(found).startswith("mine\n====\n\n\n[note] padding-nan: ")
    with pytest.raises(UserError, match="a requirement is 'nine', expected some of none; did you"):
        found.missing(["nine"])
