"""The tree from symptom to suspect: complete, without doubles, and in the order of a step."""

import re
from collections import Counter

from nbcourse.diagnosis.suspects import CAUSES, CHECKS, SYMPTOMS
from nbcourse.display import show_suspects


def test_each_cause_stands_in_the_tree_exactly_once():
    placed = Counter(cause for check in CHECKS.values() for cause in check.causes)
    assert placed == Counter(list(CAUSES))


def test_each_symptom_begins_at_checks_that_are_there_and_at_none_twice():
    for symptom, first in SYMPTOMS.items():
        assert first, symptom
        assert set(first) <= set(CHECKS), symptom
        assert len(set(first)) == len(first), symptom


def test_the_page_has_each_cause_once_with_its_sentence_and_folds_each_check():
    shown = show_suspects().data
    assert re.findall(r"<li><b>([a-z0-9-]+)</b>: ", shown) == [
        cause for check in CHECKS.values() for cause in check.causes
    ]
    assert shown.count("<details>") == shown.count("</details>") == len(CHECKS)


def test_a_symptom_shows_the_numbers_under_which_its_checks_stand():
    shown = show_suspects().data
    for symptom, first in SYMPTOMS.items():
        numbers = re.search(re.escape(symptom) + r": <b>([\d, ]+)</b>", shown)[1].split(", ")
        assert [list(CHECKS)[int(number) - 1] for number in numbers] == list(first)
