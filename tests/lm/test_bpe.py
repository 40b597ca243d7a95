"""The learned tokenizer: nothing is lost, digits stand alone, and it is the same every time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.lm import bpe, tiny
from nbcourse.lm.rollouts import from_texts
from nbcourse.tasks import word_problems
from tests.effort import examples

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)  # surrogates are no text
# Spaces, marker lines and what a text may say about tokens are rare in random text.
MIXED = st.lists(
    st.sampled_from(
        [" ", "  ", "\n", "\n\n", "#### ", "<<3*4=12>>", "<eos>", " .", " n't", "١", "²"]
    )
    | TEXT
).map("".join)


@pytest.fixture(scope="module")
def texts():
    drawn = word_problems.problems(300, split="train", generator=torch.Generator().manual_seed(0))
    return [problem.prompt + problem.solution for problem in drawn]


@pytest.fixture(scope="module")
def learned(texts):
    return bpe.train_tokenizer(texts, vocabulary=500)


def ids(tokenizer, text):
    return tokenizer(text, add_special_tokens=False).input_ids


@given(text=MIXED)
@examples(300)
def test_every_text_comes_back_as_it_was(learned, text):
    assert learned.decode(ids(learned, text)) == text


@given(text=MIXED)
@examples(200)
def test_every_digit_is_a_token_of_its_own(learned, text):
    pieces = [learned.decode([token]) for token in ids(learned, "12" + text + "345")]
    assert pieces[:2] == ["1", "2"]
    assert pieces[-3:] == ["3", "4", "5"]
    for piece in pieces:
        assert len(piece) == 1 or not any(c in "0123456789" for c in piece)


def test_no_merge_holds_a_digit(texts, learned):
    """Whatever the texts: here every number is seen a thousand times."""
    numbers = bpe.train_tokenizer(
        [f"{n} costs ${n}.{n} 7{n}" for n in range(100, 120)] * 50, vocabulary=400
    )
    for tokenizer in (learned, numbers):
        longer = [token for token in tokenizer.get_vocab() if len(token) > 1]
        assert longer
        assert not [token for token in longer if any(c.isdecimal() for c in token)]


def test_a_response_after_a_prompt_is_read_as_in_the_whole_text(texts, learned):
    """Pre-training sees prompt and solution as one text, answering sees one after the other."""
    drawn = word_problems.problems(50, split="test", generator=torch.Generator().manual_seed(1))
    for problem in drawn:
        whole = ids(learned, problem.prompt + problem.solution)
        assert whole == ids(learned, problem.prompt) + ids(learned, problem.solution)


def test_the_same_texts_give_the_same_tokenizer(texts, learned):
    again = bpe.train_tokenizer(iter(texts), vocabulary=500)
    assert again.backend_tokenizer.to_str() == learned.backend_tokenizer.to_str()
    other = bpe.train_tokenizer([text.upper() for text in texts], vocabulary=500)
    assert other.get_vocab() != learned.get_vocab()


@pytest.mark.parametrize("vocabulary", [257, 258, 400, 3_000])
def test_the_vocabulary_is_kept_to(texts, vocabulary):
    tokenizer = bpe.train_tokenizer(texts[:30], vocabulary=vocabulary)
    assert 257 <= len(tokenizer) <= vocabulary
    if vocabulary < 3_000:  # there is enough to merge
        assert len(tokenizer) == vocabulary
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))
    assert tokenizer.decode(ids(tokenizer, "é 12\x00")) == "é 12\x00"


def test_more_tokens_make_shorter_sequences(texts):
    """Or nothing was learned."""
    small, large = (bpe.train_tokenizer(texts, vocabulary=size) for size in (300, 800))
    lengths = [sum(len(ids(t, text)) for text in texts[:50]) for t in (small, large)]
    assert lengths[1] < 0.7 * lengths[0]
    assert lengths[0] < sum(len(text.encode()) for text in texts[:50])


def test_the_end_is_one_token_that_no_text_makes_by_itself(texts, learned):
    assert learned.eos_token == learned.pad_token == tiny.EOS
    assert ids(learned, tiny.EOS) == [learned.eos_token_id]
    assert learned.unk_token_id is None
    assert not any(learned.eos_token_id in ids(learned, text) for text in texts)
    ended = from_texts(learned, ["How many?\n"], ["Two.\n#### 2"])
    assert ended.tokens[0, -1] == learned.eos_token_id
    assert ended.texts(learned) == ["Two.\n#### 2"]


@pytest.mark.parametrize("vocabulary", [256, 0, -1])
def test_a_vocabulary_that_cannot_hold_the_bytes_is_refused(vocabulary):
    with pytest.raises(ValueError, match=rf"vocabulary is {vocabulary}, expected more than 256"):
        bpe.train_tokenizer(["text"], vocabulary=vocabulary)
