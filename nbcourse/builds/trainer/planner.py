"""Build 8, after chapter 15: what a run needs, before it is started.

Difficulty ●○○ · 25 minutes · five functions, about 16 lines · given: nothing

A shape is a dict of integers: parameters, layers, heads (of the queries), kv_heads (of keys and
values), head_width. A machine is a dict: speed in operations/s, bandwidth in bytes/s. All numbers
are float32: 4 bytes.
"""

Shape = dict[str, int]
Machine = dict[str, float]


def static_bytes(shape: Shape, critic: bool) -> int:
    """Bytes that are held throughout.

    The policy's weights, gradients and AdamW's two moments; the reference's weights; and, with
    `critic`, a critic of its own that is as large as the policy and learns, too. See section L.1.
    """
    ### BEGIN SOLUTION
    learns = 4 + 4 + 2 * 4
    return shape["parameters"] * (learns + 4 + (learns if critic else 0))
    ### END SOLUTION


def cache_bytes(shape: Shape, rows: int, columns: int) -> int:
    """Bytes of the keys and values of `columns` tokens in each of `rows` responses.

    See section L.2.
    """
    ### BEGIN SOLUTION
    return 2 * shape["layers"] * rows * columns * shape["kv_heads"] * shape["head_width"] * 4
    ### END SOLUTION


def rows_that_fit(shape: Shape, memory: int, columns: int, critic: bool) -> int:
    """How many responses of `columns` tokens can be sampled at once in `memory` bytes; 0 if none.

    What is not static is for keys and values. See section L.3.
    """
    ### BEGIN SOLUTION
    left = memory - static_bytes(shape, critic)
    return max(0, left // cache_bytes(shape, 1, columns))
    ### END SOLUTION


def at_least(operations: float, moved: float, machine: Machine) -> float:
    """Seconds by the roofline: the machine computes and moves bytes at once. See section L.4."""
    ### BEGIN SOLUTION
    return max(operations / machine["speed"], moved / machine["bandwidth"])
    ### END SOLUTION


def step_seconds(
    shape: Shape, rows: int, prompt: int, response: int, epochs: int, machine: Machine
) -> dict[str, float]:
    """Seconds of a step's parts by the roofline: {"sample": …, "reference": …, "learn": …}.

    Each of `rows` sequences has `prompt` tokens and `response` more, N is the number of parameters.
    sample      token by token, t = 0 … response − 1, a roofline for each: 2N operations for each
                row; all weights are read once, and the keys and values of prompt + t tokens
    reference   2N operations for each token of all sequences; nothing to move
    learn       6N operations for each of these tokens, in each epoch; nothing to move
    See section L.4.
    """
    ### BEGIN SOLUTION
    N, tokens = shape["parameters"], rows * (prompt + response)
    drawn = [
        at_least(2 * N * rows, 4 * N + cache_bytes(shape, rows, prompt + t), machine)
        for t in range(response)
    ]
    return {
        "sample": sum(drawn),
        "reference": at_least(2 * N * tokens, 0, machine),
        "learn": at_least(6 * N * tokens * epochs, 0, machine),
    }
    ### END SOLUTION


if __name__ == "__main__":
    small = {"parameters": 494_032_768, "layers": 24, "heads": 14, "kv_heads": 2, "head_width": 64}
    card = {"speed": 67e12, "bandwidth": 3.35e12}  # an H100's float32 and memory
    print(f"static: {static_bytes(small, critic=False) / 1e9:.1f} GB")
    print(f"responses of 720 tokens in 80 GB: {rows_that_fit(small, 80 * 10**9, 720, False):,}")
    for part, seconds in step_seconds(small, 512, 320, 400, 1, card).items():
        print(f"{part:<10} {seconds:6.1f} s, at least")
