"""How a question is put to a model: as it stands, or as a message in the model's chat format."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nbcourse.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STYLES = ("plain", "chat")


def render(
    tokenizer: "PreTrainedTokenizerBase",
    question: str,
    *,
    style: str,
    instruction: str = "",
    system: str = "",
    examples: Sequence[tuple[str, str]] = (),
) -> str:
    """The text that a model is to continue.

    Args:
        tokenizer: for its chat template.
        question: what is asked.
        style: "plain", which is `question` with the instruction above it; or "chat", a message of
            the user in the tokenizer's chat template, up to where the assistant begins to speak.
        instruction: how to answer; "" for none. In a chat it stands behind each question.
        system: the system message of a chat; "" leaves what the template says without one.
        examples: questions and answers to them, put before: as turns of a chat, or as text.

    Raises:
        ValueError: if the style is unknown, or the tokenizer has no chat template.
    """
    if style not in STYLES:
        raise UserError(f"style is {style!r}, expected 'plain' or 'chat'")
    if style == "plain":
        shown = [f"{asked.strip()}\n{answer.strip()}" for asked, answer in examples]
        return "\n\n".join([*([instruction] if instruction else []), *shown, question])
    if not tokenizer.chat_template:
        raise UserError(
            "style is 'chat', but the tokenizer has no chat template: is the model a base model? "
            "Then say style = 'plain'"
        )
    said = messages(question, instruction=instruction, system=system, examples=examples)
    return str(tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True))


def messages(
    question: str,
    *,
    instruction: str = "",
    system: str = "",
    examples: Sequence[tuple[str, str]] = (),
) -> list[dict[str, str]]:
    """The messages of a chat, up to where the assistant begins to speak; see `render`.

    >>> messages("2+2?", system="Be brief.", examples=[("1+1?", "2")])[-2:]
    [{'role': 'assistant', 'content': '2'}, {'role': 'user', 'content': '2+2?'}]
    """

    def asked(text: str) -> dict[str, str]:
        return {"role": "user", "content": f"{text.strip()} {instruction}".strip()}

    found = [{"role": "system", "content": system}] if system else []
    for text, answer in examples:
        found += [asked(text), {"role": "assistant", "content": answer}]
    return [*found, asked(question)]
