"""A small checkpoint as the hub keeps Qwen2.5's: chat template, two ways to end, spare rows."""

import json
from pathlib import Path

import torch

from nbcourse.tasks import word_problems

# As published with Qwen2.5-0.5B-Instruct, without the part that is about tools.
TEMPLATE = (
    "{%- if messages[0]['role'] == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}"
    "{%- else %}"
    "{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. "
    "You are a helpful assistant.<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{%- if (message.role == 'user') or (message.role == 'system' and not loop.first) or "
    "(message.role == 'assistant') %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n' }}"
    "{%- endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END, PADDING = "<|im_end|>", "<|endoftext|>"
SPARE = 40  # rows of the embedding that belong to no token; Qwen2.5-0.5B has 271


def rendered(content: str) -> str:
    """What the template makes of one question, by hand."""
    return (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. "
        "You are a helpful assistant.<|im_end|>\n"
        f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
    )


def checkpoint(folder: Path, *, vocabulary: int = 400, width: int = 32, seed: int = 0) -> Path:
    """Write a randomly initialised Qwen2 with its tokenizer into a folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import Qwen2Config, Qwen2ForCausalLM

    source = torch.Generator().manual_seed(0)
    texts = [
        p.prompt + p.solution for p in word_problems.problems(200, split="train", generator=source)
    ]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    folder.mkdir(parents=True)
    core.save(str(folder / "tokenizer.json"))
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "additional_special_tokens": list(SPECIAL[1:]),
        "bos_token": None,
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "pad_token": PADDING,
        "model_max_length": 131072,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    end, padding = core.token_to_id(END), core.token_to_id(PADDING)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=core.get_vocab_size() + SPARE,
                hidden_size=width,
                intermediate_size=2 * width,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=512,
                tie_word_embeddings=True,
                bos_token_id=padding,
                eos_token_id=end,
            )
        )
    model.to(torch.bfloat16).save_pretrained(folder)
    generation = {
        "bos_token_id": padding,
        "do_sample": True,
        "eos_token_id": [end, padding],
        "pad_token_id": padding,
        "repetition_penalty": 1.1,
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.8,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    return folder


def data(folder: Path, *, train: int = 60, test: int = 8) -> Path:
    """A data set in GSM8K's form: word problems of our own."""
    folder.mkdir(parents=True)
    source = torch.Generator().manual_seed(0)
    for split, count in (("train", train), ("test", test)):
        drawn = word_problems.problems(count, split=split, generator=source, max_steps=2)
        lines = [json.dumps({"question": p.question, "answer": p.solution}) + "\n" for p in drawn]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder
