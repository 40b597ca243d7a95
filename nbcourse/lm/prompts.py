"""How a question is put to a model: as it stands, or as a message in the model's chat format."""

from typing import TYPE_CHECKING

from nbcourse.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STYLES = ("plain", "chat")


def render(
    tokenizer: "PreTrainedTokenizerBase", question: str, *, style: str, instruction: str = ""
) -> str:
    """The text that a model is to continue.

    Args:
        tokenizer: for its chat template.
        question: what is asked.
        style: "plain", which is `question` with the instruction above it; or "chat", a message of
            the user in the tokenizer's chat template, up to where the assistant begins to speak.
        instruction: how to answer, or examples of it; "" for none.

    Raises:
        ValueError: if the style is unknown, or the tokenizer has no chat template.
    """
    if style not in STYLES:
        raise UserError(f"style is {style!r}, expected 'plain' or 'chat'")
    if style == "plain":
        return f"{instruction}\n\n{question}" if instruction else question
    if not tokenizer.chat_template:
        raise UserError(
            "style is 'chat', but the tokenizer has no chat template: is the model a base model? "
            "Then say style = 'plain'"
        )
    message = {"role": "user", "content": f"{question.strip()} {instruction}".strip()}
    return str(tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True))
