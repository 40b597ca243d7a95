"""A tokenizer learned from the texts that a model will read, where no checkpoint brings one."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nbcourse.lm.importing import without_collection
from nbcourse.lm.tiny import EOS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BYTES = 256


@without_collection()
def train_tokenizer(texts: Iterable[str], *, vocabulary: int) -> "PreTrainedTokenizerBase":
    """Byte-pair encoding in which every digit is a token of its own.

    A model that reads 1234 as one token, and 123 as another, has to learn by heart what every pair
    of numbers adds up to; digit by digit, it can learn to add. Every text can be encoded and comes
    back as it was, since the single bytes are tokens too.

    Args:
        texts: to learn from; the same texts in the same order give the same tokenizer.
        vocabulary: tokens at most, the 256 bytes and the end-of-sequence token included.

    Returns:
        A tokenizer that pads on the left, with the end-of-sequence token.

    Raises:
        ValueError: if the vocabulary cannot hold the bytes.

    Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units".
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    if vocabulary <= BYTES:
        raise ValueError(f"vocabulary is {vocabulary}, expected more than {BYTES}")
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[EOS],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=EOS, pad_token=EOS, padding_side="left"
    )
