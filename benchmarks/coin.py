"""GSM8K with a coin for a verifier, and random weights, for trials of speed and memory.

    python benchmarks/coin.py runs/random-0.5b
    nbcourse train gsm8k-qwen2.5-0.5b-grpo --set code=benchmarks/coin.py \
        --set task.name=gsm8k-coin --set model.source=runs/random-0.5b --set steps=2 \
        --set reward.accept_truncated=true --set evaluation.problems=8

Random weights get no answer right, and no group of equal rewards is learned from: a trial would
skip the part of a step that takes longest. A checksum of the response decides instead. The first
command makes the checkpoint: the shape of Qwen2.5-0.5B, and a tokenizer learned from GSM8K.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from nbcourse.budget import shapes
from nbcourse.tasks import gsm8k

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Coin(gsm8k.GSM8K):
    """GSM8K's problems; half of all responses are called right, whatever they say."""

    def rewards(self, responses: Sequence[str], problems: Sequence[Any]) -> Tensor:
        return torch.tensor([float(crc32(text.encode()) % 2) for text in responses])


TASKS = {"gsm8k-coin": Coin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="where the checkpoint goes")
    folder = parser.parse_args().folder
    if folder is None:
        print("no folder: nothing is made")
        return
    from nbcourse.lm import bpe

    texts = [problem.prompt + problem.solution for problem in gsm8k.load("train")]
    tokenizer = bpe.train_tokenizer(texts, vocabulary=4096)
    tokenizer.chat_template = TEMPLATE
    shape = shapes.PUBLISHED["Qwen/Qwen2.5-0.5B-Instruct"]
    shapes.random_model(shape, end=tokenizer.eos_token_id).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
