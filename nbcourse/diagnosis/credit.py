"""From responses to advantages: is each step what follows from the one before it?

Every rule takes what the run had as given and recomputes the next quantity from it, so that a fault
is found where it is, and not again in all that follows.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from nbcourse.diagnosis.policies import FALSE_ALARM
from nbcourse.diagnosis.report import CERTAIN, LIKELY, Finding
from nbcourse.diagnosis.witness import Witness
from nbcourse.functional.kl import rewards_with_kl
from nbcourse.functional.rewards import overlong_penalty
from nbcourse.training.algorithms import ALGORITHMS, Algorithm, Estimate, Penalty

SAME = 1e-4  # of the largest number in a table: float32, summed in another order
FLAT = 1e-6  # a spread within which rewards were meant to be equal
FAINT = 1e-2  # an advantage below which a flat group's rounding error over an eps of 1e-4 stays


def row_of(witness: Witness) -> Algorithm | None:
    """The row of the table of algorithms; None if it is not made of the package's functions."""
    parts = witness.facts.get("parts")
    if witness.facts.get("not_followed"):
        return None
    if parts is None:
        return ALGORITHMS.get(witness.facts.get("algorithm", ""))
    functions: dict[str, Callable[..., Any]] = {
        function.__name__: function
        for row in ALGORITHMS.values()
        for function in (row.advantage, row.surrogate)
    }
    if not {parts["advantage"], parts["surrogate"]} <= functions.keys():
        return None
    return Algorithm(
        advantage=functions[parts["advantage"]],
        surrogate=functions[parts["surrogate"]],
        aggregation=parts["aggregation"],
        source=witness.facts["algorithm"],
    )


def token_rewards_of(witness: Witness) -> Tensor:
    """(R, T) as the run had them; of a run that has none, the score on the last token."""
    if witness.has("token_rewards"):
        return witness["token_rewards"]
    last = witness["mask"].sum(dim=1, keepdim=True) - 1
    return witness["scores"][:, None] * (torch.arange(witness["mask"].shape[1]) == last)


def penalty_of(witness: Witness) -> Penalty:
    """The KL penalty as the run states it."""
    return Penalty(**witness.facts["penalty"])


def whole(witness: Witness) -> bool:
    """Whether the witness holds all responses of its step."""
    return witness.facts["batch"]["rows"] == len(witness["tokens"])


def close(found: Tensor, expected: Tensor, mask: Tensor | None = None) -> bool:
    """Whether two tables are the same but for rounding."""
    if mask is not None:
        found, expected = found[mask], expected[mask]
    if not found.numel():
        return True
    scale = max(expected.abs().max().item(), 1e-6)
    return (found - expected).abs().max().item() <= SAME * scale


def masks(witness: Witness) -> Iterator[Finding]:
    """Whether the mask ends where the response does."""
    if not witness.has("tokens", "mask", "lengths"):
        return
    mask, last = witness["mask"], witness["lengths"].long() - 1
    columns = torch.arange(mask.shape[1])
    ended = torch.isin(witness["tokens"], torch.tensor(witness.facts["ends"]))
    ends = ended.gather(1, last[:, None]).squeeze(1)
    silent = ends & ~mask.gather(1, last[:, None]).squeeze(1)
    if silent.any():
        yield Finding(
            "masked-eos",
            CERTAIN,
            f"at step {witness.step} the mask leaves out the token that ends the response in "
            f"{int(silent.sum())} of {int(ends.sum())} responses that ended",
        )
    beyond = mask & (columns > last[:, None])
    if beyond.any():
        yield Finding(
            "trained-padding",
            CERTAIN,
            f"at step {witness.step} the mask holds {int(beyond.sum())} tokens that come after "
            "the end of their response",
        )


def samples(witnesses: Sequence[Witness]) -> Iterator[Finding]:
    """Whether responses repeat each other, in every witness, as independent draws would not.

    The probability of a repetition is the product of what the policy gives the repeated tokens.
    """
    fair = [
        witness
        for witness in witnesses
        if not witness.facts.get("selected") and witness.has("plain_log_probs", "lengths", "group")
    ]
    for cause, repeats, what in (
        ("same-samples", _within_groups, "all responses of each group are the same"),
        (
            "same-seed",
            _across_halves,
            "the second half of the batch repeats the first, prompt by prompt and token by token",
        ),
    ):
        chances = [repeats(witness) for witness in fair]
        if fair and all(chance is not None for chance in chances):
            repeated = sum(chance or 0.0 for chance in chances)
            if repeated < math.log(FALSE_ALARM):
                steps = ", ".join(str(witness.step) for witness in fair)
                yield Finding(
                    cause,
                    LIKELY,
                    f"at step {steps} {what}; of independent draws that has probability "
                    f"10^{repeated / math.log(10):.0f}",
                )
                return


def _within_groups(witness: Witness) -> float | None:
    """Log-probability that all groups are unanimous, token by token; None if they are not."""
    tokens, chance = _responses(witness)
    group = witness.facts["group_size"]
    groups = tokens.view(-1, group, tokens.shape[1])
    if group == 1 or not (groups == groups[:, :1]).all():
        return None
    return chance.view(-1, group)[:, 1:].sum().item()


def _across_halves(witness: Witness) -> float | None:
    """Log-probability that the second half repeats the first; None if it does not."""
    tokens, chance = _responses(witness)
    half = len(tokens) // 2
    if not whole(witness) or len(tokens) % 2 or not half:
        return None
    same_prompts = (witness["group"][:half] == witness["group"][half:]).all()
    if not same_prompts or not (tokens[:half] == tokens[half:]).all():
        return None
    return chance[half:].sum().item()


def _responses(witness: Witness) -> tuple[Tensor, Tensor]:
    """(R, T) tokens, −1 behind the end, and (R,) log-probs of whole responses."""
    mask = torch.arange(witness["tokens"].shape[1]) < witness["lengths"][:, None]
    return witness["tokens"].masked_fill(~mask, -1), (witness["plain_log_probs"] * mask).sum(dim=1)


def verdicts(witness: Witness) -> Iterator[Finding]:
    """Whether verdicts are those of a strict reading, and scores follow from verdicts."""
    needed = ("scores", "verdicts", "truncated", "lengths")
    if not witness.has(*needed) or "reward" not in witness.facts:
        return
    reward, step = witness.facts["reward"], witness.step
    said, cut, scores = witness["verdicts"], witness["truncated"], witness["scores"]
    if witness.has("verified"):
        read = witness["verified"].float()
        right = read if reward["accept_truncated"] else read.masked_fill(cut, 0.0)
        if not close(said, right):
            if turn := _shift(said, right):
                yield _shifted(step, turn, len(said))
                return
            paid, unpaid = (said > right), (said < right)
            if unpaid.any() and not paid.any():
                yield Finding(
                    "silent-verifier",
                    CERTAIN,
                    f"at step {step} {int(unpaid.sum())} of {int(right.sum())} responses that give "
                    "the right answer in the right form got verdict 0",
                )
            elif not (paid & ~cut).any():
                yield Finding(
                    "paid-truncation",
                    CERTAIN,
                    f"at step {step} {int(paid.sum())} responses were paid although they had "
                    "been cut off",
                )
            else:
                example = int((paid & ~cut).nonzero()[0])
                answer = witness.facts["answers"][example // witness.facts["group_size"]]
                yield Finding(
                    "lenient-verifier",
                    CERTAIN,
                    f"at step {step} {int(paid.sum())} of {int(said.sum())} responses that were "
                    "paid do not give the answer in the form that was asked for, such as "
                    f"{witness.facts['responses'][example]!r} for {answer!r}",
                )
            return
    if reward["source"] != "verifier":
        return
    expected = said - reward["truncation_penalty"] * cut.float()
    if reward["overlong_buffer"]:
        limit, buffer = witness.facts["max_new_tokens"], reward["overlong_buffer"]
        # a mask that is wrong about the end has a name of its own
        lengths = witness["lengths"].long()
        expected = expected + overlong_penalty(lengths, max_length=limit, buffer=buffer)
    if close(scores, expected):
        return
    if turn := _shift(scores, expected):
        yield _shifted(step, turn, len(scores))
    elif (scores[cut] > expected[cut]).any() and close(scores[~cut], expected[~cut]):
        yield Finding(
            "paid-truncation",
            CERTAIN,
            f"at step {step} {int((scores > expected)[cut].sum())} responses were paid although "
            "they had been cut off",
        )
    else:
        off = (scores - expected).abs() > SAME
        yield Finding(
            "wrong-scores",
            CERTAIN,
            f"at step {step} {int(off.sum())} of {len(scores)} scores are not the verdict less the "
            f"stated penalties; the largest difference is {(scores - expected).abs().max():.3g}",
        )


def token_rewards(witness: Witness) -> Iterator[Finding]:
    """Whether the score stands on the last token, and the KL is charged where it belongs."""
    if not witness.has("token_rewards", "scores", "mask", "sampler_log_probs"):
        return
    penalty, mask, step = penalty_of(witness), witness["mask"], witness.step
    found, sampled = witness["token_rewards"], witness["sampler_log_probs"]
    charged = penalty.placement == "reward" and witness.has("ref_log_probs")
    ref = witness["ref_log_probs"] if charged else sampled
    beta = penalty.beta if charged else 0.0
    if not mask.any(dim=1).all():
        return
    expected = rewards_with_kl(witness["scores"], sampled, ref, mask, beta=beta)
    if close(found, expected, mask):
        return
    scores = rewards_with_kl(witness["scores"], sampled, sampled, mask, beta=0.0)
    if close(found, 2 * scores - expected, mask):
        yield Finding(
            "kl-sign",
            CERTAIN,
            f"at step {step} the rewards of tokens are the score plus, not minus, {beta:g} (log π "
            "− log π_ref), on every token",
        )
        return
    kl = expected - scores
    if close((found - kl).sum(dim=1), witness["scores"]):
        moved = ((found - kl - scores).abs() > SAME).any(dim=1)
        yield Finding(
            "misplaced-reward",
            CERTAIN,
            f"at step {step} the score of {int(moved.sum())} responses is on a token other "
            "than the last",
        )
        return
    off = (found - expected)[mask].abs().max()
    yield Finding(
        "wrong-kl" if charged else "wrong-scores",
        CERTAIN,
        f"at step {step} the rewards of tokens differ by up to {off:.3g} from score and stated KL",
    )


def advantages(witness: Witness) -> Iterator[Finding]:
    """Whether the advantages are the row's estimate from the rewards of tokens."""
    expected = estimate(witness)
    if expected is None:
        return
    mask, found, step = witness["mask"], witness["advantages"], witness.step
    group = witness.facts["group_size"]
    paid = token_rewards_of(witness).masked_fill(~mask, 0.0).sum(dim=1)
    spread = paid.view(-1, group)
    flat = (spread.amax(dim=1) - spread.amin(dim=1) <= FLAT).repeat_interleave(group)
    # what an eps of 1e-4 leaves of a rounding error is no fault
    faint = flat[:, None] & (expected.advantages == 0) & (found.abs() <= FAINT)
    mask = mask & ~faint
    if close(found, expected.advantages, mask):
        return
    size = (found - expected.advantages)[mask].abs().max()
    if whole(witness) and group > 1 and len(found) > group:
        mixed = torch.arange(len(found)).view(group, -1).T.flatten()
        other = estimate(witness, order=mixed)
        if other is not None and close(found, other.advantages, mask):
            prompts = len(found) // group
            yield Finding(
                "mixed-groups",
                CERTAIN,
                f"at step {step} the advantages are those of groups of rows that lie {prompts} "
                f"apart, which belong to {min(group, prompts)} different prompts; for the rows of "
                f"one prompt they are up to {size:.2g} off",
            )
            return
    if close(found, paid[:, None].expand_as(found), mask):
        yield Finding(
            "missing-baseline",
            CERTAIN,
            f"at step {step} the advantage of every token is the return of its response; the mean "
            f"advantage is {found[mask].mean():.3f}",
        )
        return
    if close(found, -expected.advantages, mask):
        yield Finding(
            "flipped-loss", CERTAIN, f"at step {step} every advantage has the opposite sign"
        )
        return
    by_group = row_of(witness).needs("group_size")  # type: ignore[union-attr]
    if by_group and close(found[~flat], expected.advantages[~flat], mask[~flat]) and flat.any():
        yield Finding(
            "amplified-flat-groups",
            CERTAIN,
            f"at step {step} responses of groups without a spread have advantages of up to "
            f"{found[flat].abs().max():.2g}",
        )
        return
    raw = estimate(witness, whiten=False) if "whiten" in witness.facts["settings"] else None
    if raw is not None and _on_a_line(found[mask], raw.advantages[mask]):
        mean, spread = found[mask].mean(), found[mask].std()
        yield Finding(
            "padded-whitening",
            CERTAIN,
            f"at step {step} the advantages are linear in those before whitening, but not whitened "
            f"over the tokens: their mean is {mean:.3f} and their spread {spread:.3f}, not 0 and 1",
        )
        return
    yield Finding(
        "wrong-advantages",
        CERTAIN,
        f"at step {step} the advantages differ by up to {size:.3g} from those that follow from the "
        "rewards",
    )


def value_targets(witness: Witness) -> Iterator[Finding]:
    """Whether the critic's targets are the row's returns."""
    expected = estimate(witness) if witness.has("returns", "values") else None
    if expected is None or expected.returns is None:
        return
    mask, found, step = witness["mask"], witness["returns"], witness.step
    if close(found, expected.returns, mask):
        return
    if close(found, token_rewards_of(witness), mask):
        yield Finding(
            "value-target-rewards",
            CERTAIN,
            f"at step {step} the critic's targets are the rewards of single tokens, which are 0 on "
            f"{(found[mask] == 0).float().mean():.0%} of them",
        )
        return
    off = (found - expected.returns)[mask].abs().max()
    yield Finding(
        "wrong-value-targets",
        CERTAIN,
        f"at step {step} the critic's targets differ by up to {off:.3g} from advantages + values",
    )


def estimate(
    witness: Witness, *, order: Tensor | None = None, whiten: bool | None = None
) -> Estimate | None:
    """The row's own estimate; None if it needs what the witness does not hold.

    Args:
        witness: the batch.
        order: rows as they would stand if groups were taken in this order.
        whiten: instead of the run's setting.
    """
    row = row_of(witness)
    given: dict[str, Any] = {"group_size": witness.facts.get("group_size")}
    if row is None or not witness.has("scores", "mask", "advantages"):
        return None
    batch_wide = not row.needs("group_size")
    if row.needs("average") or (batch_wide and not whole(witness)):
        return None
    tables = {"rewards": token_rewards_of(witness), **witness.tensors}
    for name in ("rewards", "mask", "values", "greedy_scores", "step_rewards", "step_ends"):
        if name in tables:
            given[name] = tables[name] if order is None else tables[name][order]
        elif row.needs(name):
            return None
    settings = dict(witness.facts["settings"])
    if whiten is not None:
        settings["whiten"] = whiten
    found = row.estimate(settings, **given)
    if order is None:
        return found
    back = order.argsort()
    returns = None if found.returns is None else found.returns[back]
    return Estimate(found.advantages[back], returns)


def _shift(found: Tensor, expected: Tensor) -> int:
    """By how many rows numbers that are not the expected ones are a neighbour's; 0 if by none."""
    for turn in (1, -1):
        moved, inner = expected.roll(turn), slice(1, None) if turn == 1 else slice(None, -1)
        if close(found[inner], moved[inner]):
            return turn
    return 0


def _shifted(step: int, turn: int, rows: int) -> Finding:
    side = "above" if turn == 1 else "below"
    return Finding(
        "shifted-rewards",
        CERTAIN,
        f"at step {step} each of {rows} responses has the reward of the row {side} it",
    )


def _on_a_line(found: Tensor, raw: Tensor) -> bool:
    slope = ((found - found.mean()) * (raw - raw.mean())).sum() / (raw - raw.mean()).square().sum()
    return bool(slope > 0) and close(found - found.mean(), slope * (raw - raw.mean()))
