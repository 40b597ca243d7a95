"""Given: a policy, the sums that it is asked, and the tokens in between. Nothing to fill in.

The policy is a causal transformer of the Qwen2 architecture, in plain torch and without a cache.
The weights beside this file belong to a model that can add and mostly forgets to carry.
"""

from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

EOS = 0  # ends a response; it also pads
CHARACTERS = "0123456789+-*= "  # tokens 2, 3, …; token 1 is never used
LONGEST = 5  # tokens of a response, its EOS included
WEIGHTS = Path(__file__).with_name("warm.safetensors")


def encode(texts: list[str]) -> tuple[Tensor, Tensor]:
    """Texts → (B, P) tokens, padded on the left, and a (B, P) mask that is True on the texts."""
    rows = [[2 + CHARACTERS.index(character) for character in text] for text in texts]
    width = max(map(len, rows))
    tokens = torch.tensor([[EOS] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return tokens, mask


def decode(tokens: Tensor) -> str:
    """(n,) tokens of one response → its text; what is no character is left out."""
    return "".join(CHARACTERS[token - 2] for token in tokens.tolist() if token >= 2)


def draw(count: int, generator: torch.Generator) -> list[tuple[str, str]]:
    """`count` sums to train on, as ("17+25=", "42"). A tenth of all sums is held out."""
    problems: list[tuple[str, str]] = []
    while len(problems) < count:
        left, right = torch.randint(100, (2,), generator=generator).tolist()
        prompt = f"{left}+{right}="
        if crc32(prompt.encode()) >= 0.1 * 2**32:
            problems.append((prompt, str(left + right)))
    return problems


class Policy(nn.Module):
    """`policy(tokens, mask)` → (B, S, V) logits; those at place s are about the token at s + 1.

    `tokens` (B, S) may be padded anywhere: nothing attends to a place where `mask` (B, S) is False,
    and positions count the places where it is True.
    """

    def __init__(self, weights: dict[str, Tensor]):
        super().__init__()
        names = sorted(weights)
        self.names = {name: f"weight_{i}" for i, name in enumerate(names)}
        for name, attribute in self.names.items():
            self.register_parameter(attribute, nn.Parameter(weights[name].clone()))

    def weights(self) -> dict[str, Tensor]:
        """Name in the file → weights, a copy."""
        return {name: getattr(self, key).detach().clone() for name, key in self.names.items()}

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return self.read_out(self.hidden(tokens, mask))

    def read_out(self, hidden: Tensor) -> Tensor:
        """(B, S, 64) hidden states → (B, S, V) logits."""
        return linear(hidden, self["model.embed_tokens.weight"])

    def hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B, S, 64) hidden states, of which `read_out` makes logits."""
        places = (mask.long().cumsum(dim=1) - 1).clamp(min=0)
        before = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        # A padded place sees itself: a softmax over nothing would be NaN.
        seen = before & (mask[:, None, :] | torch.eye(tokens.shape[1], dtype=torch.bool))
        x = self["model.embed_tokens.weight"][tokens]
        for i in range(2):
            x = x + self.attention(f"model.layers.{i}.", x, places, seen[:, None])
            x = x + self.feed_forward(f"model.layers.{i}.", x)
        return self.norm("model.norm", x)

    def __getitem__(self, name: str) -> Tensor:
        return getattr(self, self.names[name])

    def norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x, (64,), self[name + ".weight"], 1e-6)

    def feed_forward(self, layer: str, x: Tensor) -> Tensor:
        x = self.norm(layer + "post_attention_layernorm", x)
        gate, up, down = (self[f"{layer}mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        return linear(silu(linear(x, gate)) * linear(x, up), down)

    def attention(self, layer: str, x: Tensor, places: Tensor, seen: Tensor) -> Tensor:
        x = self.norm(layer + "input_layernorm", x)
        heads = []
        for name in "qkv":
            key = f"{layer}self_attn.{name}_proj."
            projected = linear(x, self[key + "weight"], self[key + "bias"])
            heads.append(projected.unflatten(2, (16, 4)).transpose(1, 2))
        q, k, v = heads
        mixed = scaled_dot_product_attention(rotated(q, places), rotated(k, places), v, seen)
        return linear(mixed.transpose(1, 2).flatten(2), self[layer + "self_attn.o_proj.weight"])


def rotated(x: Tensor, places: Tensor) -> Tensor:
    """Rotary positions for heads of width 4."""
    angles = places[:, None, :, None] * torch.tensor([1.0, 0.01, 1.0, 0.01], dtype=x.dtype)
    return x * angles.cos() + torch.cat([-x[..., 2:], x[..., :2]], dim=-1) * angles.sin()


def warm() -> Policy:
    """The policy that training begins with."""
    from safetensors.torch import load_file

    return Policy(load_file(WEIGHTS))
