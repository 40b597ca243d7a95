"""How a question becomes a prompt."""

import pytest

from nbcourse.lm import prompts, tiny
from nbcourse.lm.rollouts import encode
from tests import hub

QUESTION = "Tom has 3 apples. How many?\n"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(hub.checkpoint(tmp_path_factory.mktemp("hub") / "qwen"))


def test_a_plain_question_is_asked_as_it_stands(tokenizer):
    """Its last line is complete, and so is the instruction's."""
    assert prompts.render(tokenizer, QUESTION, style="plain") == QUESTION
    told = prompts.render(tokenizer, QUESTION, style="plain", instruction="Be brief.")
    assert told == f"Be brief.\n\n{QUESTION}"


def test_a_message_is_what_the_template_makes_of_it(tokenizer):
    """The question without the end of its line, the instruction behind it."""
    asked = prompts.render(tokenizer, QUESTION, style="chat")
    assert asked == hub.rendered("Tom has 3 apples. How many?")
    told = prompts.render(tokenizer, QUESTION, style="chat", instruction="Be brief.")
    assert told == hub.rendered("Tom has 3 apples. How many? Be brief.")
    assert isinstance(told, str)


EXAMPLES = [("Two and two?", "4"), ("Three and three?\n", "6\n")]


def test_examples_stand_before_a_plain_question_as_texts(tokenizer):
    told = prompts.render(
        tokenizer, QUESTION, style="plain", instruction="Be brief.", examples=EXAMPLES
    )
    assert told == f"Be brief.\n\nTwo and two?\n4\n\nThree and three?\n6\n\n{QUESTION}"


def test_a_chat_has_a_system_message_and_examples_as_turns(tokenizer):
    """The system message takes the place of the template's own."""
    told = prompts.render(
        tokenizer,
        QUESTION,
        style="chat",
        instruction="Be brief.",
        system="You add.",
        examples=EXAMPLES[:1],
    )
    assert told == (
        "<|im_start|>system\nYou add.<|im_end|>\n"
        "<|im_start|>user\nTwo and two? Be brief.<|im_end|>\n"
        "<|im_start|>assistant\n4<|im_end|>\n"
        "<|im_start|>user\nTom has 3 apples. How many? Be brief.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_marks_of_a_message_are_one_token_each(tokenizer):
    """Also on the way into the model, where no further mark is put around them."""
    prompt_ids, mask = encode(tokenizer, [prompts.render(tokenizer, QUESTION, style="chat")])
    assert mask.all()
    found = prompt_ids[0].tolist()
    end, start = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|im_start|>"])
    assert (found.count(start), found.count(end)) == (3, 2)
    assert found[0] == start
    assert tokenizer.decode(found) == hub.rendered(QUESTION.strip())


def test_without_a_template_there_are_no_messages():
    with pytest.raises(ValueError, match=r"the tokenizer has no chat template: .* style = 'plain'"):
        prompts.render(tiny.tokenizer(), "1+1=", style="chat")
    assert prompts.render(tiny.tokenizer(), "1+1=", style="plain") == "1+1="


@pytest.mark.parametrize("style", ["Chat", "", "system"])
def test_an_unknown_style_is_refused(tokenizer, style):
    with pytest.raises(ValueError, match=rf"style is '{style}', expected 'plain' or 'chat'"):
        prompts.render(tokenizer, QUESTION, style=style)
