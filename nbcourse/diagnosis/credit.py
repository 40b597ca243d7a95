"""From responses to advantages: is each step what follows from the one before it?

Every rule takes what the run had as given and recomputes the next quantity from it, so that a fault
is found where it is, and not again in all that follows.
"""

from typing import Any

import torch
from torch import Tensor

from nbcourse.diagnosis.report import UNTOLD, Answer
from nbcourse.diagnosis.stated import (
    SAME,
    certain,
    close,
    penalty_of,
    row_of,
    token_rewards_of,
    whole,
)
from nbcourse.diagnosis.witness import Witness
from nbcourse.functional.kl import rewards_with_kl
from nbcourse.functional.rewards import overlong_penalty
from nbcourse.mistakes.findings import Finding
from nbcourse.training.algorithms import Estimate

FLAT = 1e-6  # a spread within which rewards were meant to be equal
FAINT = 1e-2  # an advantage below which a flat group's rounding error over an eps of 1e-4 stays


def masks(witness: Witness) -> Answer:
    """Whether the mask holds tokens at all, and the one that ends the response."""
    if not witness.has("tokens", "mask", "lengths"):
        return UNTOLD
    if not witness["mask"].any():
        return certain("empty-mask", witness, count=int(witness["lengths"].sum()))
    last = witness["lengths"][:, None].long() - 1
    ended = torch.isin(witness["tokens"], torch.tensor(witness.facts["ends"]))
    ends = ended.gather(1, last).squeeze(1)
    silent = ends & ~witness["mask"].gather(1, last).squeeze(1)
    if not silent.any():
        return None
    return certain("masked-eos", witness, silent=int(silent.sum()), ended=int(ends.sum()))


def padding(witness: Witness) -> Answer:
    """Whether the mask ends where the response does."""
    if not witness.has("tokens", "mask", "lengths"):
        return UNTOLD
    columns = torch.arange(witness["mask"].shape[1])
    beyond = witness["mask"] & (columns >= witness["lengths"][:, None])
    if not beyond.any():
        return None
    return certain("trained-padding", witness, beyond=int(beyond.sum()))


def verdicts(witness: Witness) -> Answer:
    """Whether verdicts are those of a strict reading, and scores follow from verdicts."""
    needed = ("scores", "verdicts", "truncated", "lengths")
    if not witness.has(*needed) or "reward" not in witness.facts:
        return UNTOLD
    if witness.has("verified") and (finding := _strict(witness)):
        return finding
    reward = witness.facts["reward"]
    stated = reward["source"] == "verifier"
    stated = stated and not (reward.get("shuffled") or reward.get("lenient"))
    if stated and (finding := _scores(witness)):
        return finding
    return None if witness.has("verified") else UNTOLD


def _strict(witness: Witness) -> Finding | None:
    """Whether verdicts are those of a strict reading."""
    said, cut, read = witness["verdicts"], witness["truncated"], witness["verified"].float()
    right = read if witness.facts["reward"]["accept_truncated"] else read.masked_fill(cut, 0.0)
    if close(said, right):
        return None
    if shifted := _shifted(witness, said, right):
        return shifted
    paid, unpaid = (said > right), (said < right)
    if unpaid.any() and not paid.any():
        return certain("silent-verifier", witness, unpaid=int(unpaid.sum()), right=int(right.sum()))
    if not (paid & ~cut).any():
        return certain("paid-truncation", witness, paid=int(paid.sum()))
    example = int((paid & ~cut).nonzero()[0])
    return certain(
        "lenient-verifier",
        witness,
        paid=int(paid.sum()),
        count=int(said.sum()),
        response=witness.facts["responses"][example],
        answer=witness.facts["answers"][example // witness.facts["group_size"]],
    )


def _scores(witness: Witness) -> Finding | None:
    """Whether scores are the verdicts less the penalties that the recipe states."""
    reward, cut, scores = witness.facts["reward"], witness["truncated"], witness["scores"]
    expected = witness["verdicts"] - reward["truncation_penalty"] * cut.float()
    if buffer := reward["overlong_buffer"]:
        # of what was sampled: a mask that is wrong about the end has a name of its own
        lengths, limit = witness["lengths"].long(), witness.facts["max_new_tokens"]
        expected = expected + overlong_penalty(lengths, max_length=limit, buffer=buffer)
    if close(scores, expected):
        return None
    if shifted := _shifted(witness, scores, expected):
        return shifted
    if (scores[cut] > expected[cut]).any() and close(scores[~cut], expected[~cut]):
        return certain("paid-truncation", witness, paid=int((scores > expected)[cut].sum()))
    off = (scores - expected).abs()
    return certain(
        "wrong-scores", witness, off=int((off > SAME).sum()), count=len(scores), size=off.max()
    )


def _shifted(witness: Witness, numbers: Tensor, expected: Tensor) -> Finding | None:
    """Whether numbers that are not the expected ones are a neighbour's."""
    for side, turn, inner in (("above", 1, slice(1, None)), ("below", -1, slice(None, -1))):
        if close(numbers[inner], expected.roll(turn)[inner]):
            return certain("shifted-rewards", witness, count=len(numbers), side=side)
    return None


def token_rewards(witness: Witness) -> Answer:
    """Whether the score stands on the last token, and the KL is charged where it belongs."""
    penalty = penalty_of(witness)
    if not witness.has("token_rewards"):
        return UNTOLD if penalty.placement == "reward" else None
    if not witness.has("scores", "mask", "sampler_log_probs"):
        return None
    mask = witness["mask"]
    paid, sampled = witness["token_rewards"], witness["sampler_log_probs"]
    charged = penalty.placement == "reward" and witness.has("ref_log_probs")
    ref = witness["ref_log_probs"] if charged else sampled
    beta = penalty.beta if charged else 0.0
    if not mask.any(dim=1).all():
        return None
    expected = rewards_with_kl(witness["scores"], sampled, ref, mask, beta=beta)
    if close(paid, expected, mask):
        return None
    scores = rewards_with_kl(witness["scores"], sampled, sampled, mask, beta=0.0)
    if close(paid, 2 * scores - expected, mask):
        return certain("kl-sign", witness, beta=beta)
    kl = expected - scores
    if close((paid - kl).sum(dim=1), witness["scores"]):
        moved = ((paid - kl - scores).abs() > SAME).any(dim=1)
        return certain("misplaced-reward", witness, moved=int(moved.sum()))
    off = (paid - expected)[mask].abs().max()
    return (
        certain("wrong-kl", witness, size=off)
        if charged
        else certain("wrong-scores", witness, way=":tokens", size=off)
    )


def advantages(witness: Witness) -> Answer:
    """Whether the advantages are the row's estimate from the rewards of tokens."""
    expected = estimate(witness)
    if expected is None:
        return UNTOLD
    credited, group = witness["advantages"], witness.facts["group_size"]
    paid = token_rewards_of(witness).masked_fill(~witness["mask"], 0.0).sum(dim=1)
    spread = paid.view(-1, group)
    flat = (spread.amax(dim=1) - spread.amin(dim=1) <= FLAT).repeat_interleave(group)
    # what an eps of 1e-4 leaves of a rounding error is no fault
    faint = flat[:, None] & (expected.advantages == 0) & (credited.abs() <= FAINT)
    mask = witness["mask"] & ~faint
    if close(credited, expected.advantages, mask):
        return None
    if mixed := _mixed(witness, expected, mask):
        return mixed
    if close(credited, paid[:, None].expand_as(credited), mask):
        return certain("missing-baseline", witness, mean=credited[mask].mean())
    if close(credited, -expected.advantages, mask):
        return certain("flipped-loss", witness)
    by_group = row_of(witness).needs("group_size")  # type: ignore[union-attr]
    if by_group and close(credited[~flat], expected.advantages[~flat], mask[~flat]) and flat.any():
        return certain("amplified-flat-groups", witness, size=credited[flat].abs().max())
    if badly := _badly_whitened(witness, mask):
        return badly
    size = (credited - expected.advantages)[mask].abs().max()
    return certain("wrong-advantages", witness, size=size)


def _mixed(witness: Witness, expected: Estimate, mask: Tensor) -> Finding | None:
    """Whether groups were taken across prompts."""
    credited, group = witness["advantages"], witness.facts["group_size"]
    if not whole(witness) or not 1 < group < len(credited):
        return None
    other = estimate(witness, order=torch.arange(len(credited)).view(group, -1).T.flatten())
    if other is None or not close(credited, other.advantages, mask):
        return None
    size, prompts = (credited - expected.advantages)[mask].abs().max(), len(credited) // group
    return certain("mixed-groups", witness, prompts=prompts, mixed=min(group, prompts), size=size)


def _badly_whitened(witness: Witness, mask: Tensor) -> Finding | None:
    """Whether advantages lie on a line with those before whitening, but not on the right one."""
    if "whiten" not in witness.facts["settings"]:
        return None
    raw = estimate(witness, whiten=False)
    credited = witness["advantages"][mask]
    if raw is None or not _on_a_line(credited, raw.advantages[mask]):
        return None
    return certain("padded-whitening", witness, mean=credited.mean(), spread=credited.std())


def _on_a_line(credited: Tensor, raw: Tensor) -> bool:
    ours, theirs = credited - credited.mean(), raw - raw.mean()
    slope = (ours * theirs).sum() / theirs.square().sum()
    return bool(slope > 0) and close(ours, slope * theirs)


def value_targets(witness: Witness) -> Answer:
    """Whether the critic's targets are the row's returns; without a critic there are none."""
    if not witness.has("values"):
        return None
    expected = estimate(witness) if witness.has("returns") else None
    if expected is None:
        return UNTOLD
    if expected.returns is None:
        return None
    mask, targets = witness["mask"], witness["returns"]
    if close(targets, expected.returns, mask):
        return None
    if close(targets, token_rewards_of(witness), mask):
        return certain("value-target-rewards", witness, share=(targets[mask] == 0).float().mean())
    off = (targets - expected.returns)[mask].abs().max()
    return certain("wrong-value-targets", witness, size=off)


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
    settings = witness.facts["settings"] | ({} if whiten is None else {"whiten": whiten})
    made = row.estimate(settings, **given)
    if order is None:
        return made
    back = order.argsort()
    returns = None if made.returns is None else made.returns[back]
    return Estimate(made.advantages[back], returns)
