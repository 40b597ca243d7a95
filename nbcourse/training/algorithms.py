"""Every algorithm is a row of one table: how credit is given, which surrogate is minimised, how
tokens are averaged, and where the KL goes.

A row holds functions, and their signatures say what they need (`nbcourse.rows`). A keyword
*without* a default, such as `group_size` or `values`, is something the loop has to offer; a keyword
*with* a default, such as `clip_low` or `lam`, is a setting that a recipe may change, within the
bounds of its annotation. Nothing else in the package asks which algorithm it is running.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nbcourse import rows
from nbcourse.functional import advantages, kl, returns, surrogates
from nbcourse.functional.aggregation import MODES, aggregate
from nbcourse.functional.arguments import NonNegative, Share, one_of
from nbcourse.functional.masking import masked_whiten
from nbcourse.rows import Row

KL_PLACEMENTS = ("none", "reward", "advantage", "loss", "surrogate")
SURROGATE_ESTIMATORS = ("k1", "k3", "exact")
ROW = "row"  # the weight of a penalty in the advantage: whatever the row's surrogate gives it


@dataclass(frozen=True)
class Estimate:
    """What an advantage function gives back.

    Attributes:
        advantages: (B, T).
        returns: (B, T) targets for the critic, where there is one.
        average: the running mean of rewards to hand in next time, where one is kept.
    """

    advantages: Tensor
    returns: Tensor | None = None
    average: float | None = None


# ---------------------------------------------------------------- how credit is given
# rewards: (B, T), the KL penalty included where it belongs there. Without a critic the whole
# response is one action, and every token of it gets the same advantage.


def per_response(advantage: Callable[..., Tensor], **fixed: Any) -> Callable[..., Estimate]:
    """The advantage function of a row, of one that knows a single reward for each response.

    Args:
        advantage: (rewards (B,), *, what it needs, its settings) → (B,), such as
            `functional.advantages.leave_one_out`. It is given what each response earned in all.
        fixed: settings of it that a recipe may not change.
    """
    rewards, *others = signature(advantage).parameters.values()

    @wraps(advantage)
    def of_tokens(rewards: Tensor, mask: Tensor, **given: Any) -> Estimate:
        return Estimate(_on_tokens(advantage(rewards.sum(dim=1), **given, **fixed), mask))

    asked = [parameter for parameter in others if parameter.name not in fixed]
    of_tokens.__signature__ = Signature(  # type: ignore[attr-defined]  # read by `nbcourse.rows`
        [rewards, rewards.replace(name="mask"), *asked]
    )
    return of_tokens


def _on_tokens(per_response: Tensor, mask: Tensor) -> Tensor:
    return per_response[:, None].expand(mask.shape).masked_fill(~mask, 0.0)


leave_one_out = per_response(advantages.leave_one_out)
group_relative = per_response(advantages.group_relative, scale=True)


@per_response
def group_centred(rewards: Tensor, *, group_size: int) -> Tensor:
    """The distance from the group's mean, not divided by its spread (Dr. GRPO)."""
    return advantages.group_relative(rewards, group_size=group_size, scale=False)


@per_response
def batch_mean(rewards: Tensor) -> Tensor:
    """The distance from the mean of the whole batch, of all prompts. Book: (eq-mean-baseline)."""
    if len(rewards) == 1:
        raise ValueError("the batch has one response, expected at least 2 to compare")
    return advantages.mean_baseline(rewards, group_size=len(rewards))


@per_response
def greedy_baseline(rewards: Tensor, *, greedy_scores: Tensor) -> Tensor:
    """The distance from the score of the greedy response to the same prompt (ReMax)."""
    return rewards - greedy_scores


def moving_average(
    rewards: Tensor, mask: Tensor, *, average: float, decay: Share = 0.9
) -> Estimate:
    """The distance from the running mean of earlier batches. Book: (eq-moving-average)."""
    found, average = advantages.moving_average_baseline(rewards.sum(1), average, decay=decay)
    return Estimate(_on_tokens(found, mask), average=average)


def process_supervised(
    step_rewards: Tensor,
    step_ends: Tensor,
    mask: Tensor,
    *,
    group_size: int,
    eps: NonNegative = 1e-4,
) -> Estimate:
    """The standard scores, within the group, of a token's own step and of all that follow.

    Without steps on the way, the answer is the only one, and this is `group_relative`.
    Book: (eq-process-supervision).
    """
    per_token = advantages.process_supervision(
        step_rewards, step_ends, mask.sum(dim=1), group_size=group_size, eps=eps
    )
    return Estimate(pad(per_token, (0, mask.shape[1] - per_token.shape[1])))


def whitened_returns(rewards: Tensor, mask: Tensor, *, gamma: Share = 1.0) -> Estimate:
    """The return to go of each token, as a standard score over the batch (REINFORCE++)."""
    return Estimate(masked_whiten(returns.discounted_returns(rewards, mask, gamma=gamma), mask))


def gae(
    rewards: Tensor,
    mask: Tensor,
    *,
    values: Tensor,
    gamma: Share = 1.0,
    lam: Share = 0.95,
    whiten: bool = True,
    whiten_rewards: bool = False,
) -> Estimate:
    """Generalised advantage estimation with a critic. Book: (eq-gae), (eq-whiten).

    The critic's targets are taken before the advantages are whitened.
    """
    if whiten_rewards:
        rewards = masked_whiten(rewards, mask, shift_mean=False)
    per_token, targets = returns.token_gae(rewards, values, mask, gamma=gamma, lam=lam)
    return Estimate(masked_whiten(per_token, mask) if whiten else per_token, returns=targets)


# ---------------------------------------------------------------- surrogates, weighed


def for_the_sampler(surrogate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The surrogate of a row, of another one: times `functional.surrogates.importance_weights`.

    The weights, of the old policy over the one that sampled, are constants that no clip touches.

    Args:
        surrogate: (…, its settings) → (B, T), with `old_log_probs` among what it needs.
    """
    own = signature(surrogate).parameters
    _, sampler, mask, *bounds = signature(surrogates.importance_weights).parameters.values()

    @wraps(surrogate)
    def weighed(sampler_log_probs: Tensor, mask: Tensor, **given: Any) -> Tensor:
        chosen = {p.name: given.pop(p.name) for p in bounds if p.name in given}
        weights = surrogates.importance_weights(
            given["old_log_probs"], sampler_log_probs, mask, **chosen
        )
        return surrogate(**given, **({"mask": mask} if "mask" in own else {})) * weights

    asked = {p.name: p for p in (*own.values(), sampler, mask.replace(default=Parameter.empty))}
    parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in (*asked.values(), *bounds)]
    weighed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # see `per_response`
    weighed.__name__ = f"weighed_{surrogate.__name__}"
    weighed.__annotations__ = {p.name: p.annotation for p in parameters}
    return weighed


weighed_ppo_clip = for_the_sampler(surrogates.ppo_clip)


# ---------------------------------------------------------------- a row, and the table


class Tokens(NamedTuple):
    """What a surrogate may be computed from, and a penalty: all (B, T).

    Attributes:
        log_probs: of the policy that learns, with gradient.
        old_log_probs: of the learner before its first update on the batch.
        ref_log_probs: of the reference.
        advantages: what each token is credited with.
        mask: bool, True on the tokens of a response, EOS included.
        values: of the critic, where there is one.
        sampler_log_probs: as the tokens were sampled; the old ones if None.
    """

    log_probs: Tensor
    old_log_probs: Tensor
    ref_log_probs: Tensor
    advantages: Tensor
    mask: Tensor
    values: Tensor | None = None
    sampler_log_probs: Tensor | None = None

    def offered(self) -> dict[str, Tensor | None]:
        """What a surrogate may ask for, by name."""
        sampler = self.sampler_log_probs
        return self._asdict() | {
            "sampler_log_probs": self.old_log_probs if sampler is None else sampler
        }


@dataclass(frozen=True)
class Algorithm(Row):
    """One row.

    Attributes:
        advantage: (rewards, mask, *, what it needs, its settings) → `Estimate`. It may ask for
            `rewards` (B, T), `mask` (B, T), `group_size`, `values` (B, T) of a critic,
            `greedy_scores` (B,), `average`, the running mean of rewards, and `step_rewards` and
            `step_ends` (B, S), as `functional.advantages.process_supervision` takes them: the
            steps that the task sees in a response, and last the score, at the last token.
        surrogate: a function of `functional.surrogates`, or one like it: → (B, T). It may ask for
            whatever there is of `Tokens`, by its name there.
        aggregation: one of `functional.aggregation.MODES`.
        kl: where the KL to the reference goes if a recipe asks for one (beta > 0): into the
            "reward", into the "advantage" after that has been divided or whitened, into the "loss"
            as a published estimator, or into the loss as the "surrogate" whose gradient is right;
            "none" for a method that was published without.
        kl_estimator: the published one, for kl = "loss".
        dynamic_sampling: prompts whose responses all score alike are replaced by others.
        settings: defaults of this row where they are not the functions' own.
        source: the paper.

    Raises:
        ValueError: if a function needs what is not offered, a word is not one of the choices, or a
            setting is none of the functions' or out of its bounds.
    """

    advantage: Callable[..., Estimate]
    surrogate: Callable[..., Tensor]
    aggregation: str
    source: str
    kl: str = "none"
    kl_estimator: str = "k3"
    dynamic_sampling: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    offers = MappingProxyType(
        {
            "advantage": (
                "rewards",
                "mask",
                "group_size",
                "values",
                "greedy_scores",
                "average",
                "step_rewards",
                "step_ends",
            ),
            "surrogate": Tokens._fields,
        }
    )

    def __post_init__(self) -> None:
        one_of(self.aggregation, MODES, name="aggregation")
        one_of(self.kl, KL_PLACEMENTS, name="kl")
        one_of(self.kl_estimator, kl.ESTIMATORS, name="kl_estimator")
        self.check_functions()

    @property
    def has_ratio(self) -> bool:
        """Whether a batch is good for several updates: the surrogate knows an older policy."""
        return self.needs("old_log_probs") or self.needs("sampler_log_probs")

    def estimate(self, settings: Mapping[str, Any], **quantities: Any) -> Estimate:
        """Advantages from the quantities, of which the row takes those it needs."""
        return rows.call(self.advantage, settings, quantities)

    def per_token_loss(self, settings: Mapping[str, Any], **quantities: Any) -> Tensor:
        """(B, T) surrogate losses from the quantities, of which the row takes those it needs."""
        return rows.call(self.surrogate, settings, quantities)


_REINFORCE: dict[str, Any] = {
    "surrogate": surrogates.policy_gradient,
    "aggregation": "seq-mean-token-sum",
    "kl": "reward",
}

ALGORITHMS: dict[str, Algorithm] = {
    "reinforce": Algorithm(advantage=batch_mean, source="Williams 1992", **_REINFORCE),
    "reinforce-ema": Algorithm(advantage=moving_average, source="Williams 1992", **_REINFORCE),
    "remax": Algorithm(advantage=greedy_baseline, source="Li et al. 2023", **_REINFORCE),
    "rloo": Algorithm(advantage=leave_one_out, source="Ahmadian et al. 2024", **_REINFORCE),
    "ppo": Algorithm(
        advantage=gae,
        surrogate=surrogates.ppo_clip,
        aggregation="token-mean",
        kl="reward",
        source="Schulman et al. 2017; Ouyang et al. 2022",
    ),
    "grpo": Algorithm(
        advantage=group_relative,
        surrogate=surrogates.ppo_clip,
        aggregation="seq-mean-token-mean",
        kl="loss",
        source="Shao et al. 2024",
    ),
    "grpo-process": Algorithm(
        advantage=process_supervised,
        surrogate=surrogates.ppo_clip,
        aggregation="seq-mean-token-mean",
        kl="loss",
        source="Shao et al. 2024",
    ),
    "dr-grpo": Algorithm(
        advantage=group_centred,
        surrogate=surrogates.ppo_clip,
        aggregation="seq-mean-token-sum-norm",
        source="Liu et al. 2025",
    ),
    "dapo": Algorithm(
        advantage=group_relative,
        surrogate=surrogates.ppo_clip,
        aggregation="token-mean",
        dynamic_sampling=True,
        settings={"clip_high": 0.28},
        source="Yu et al. 2025",
    ),
    "gspo": Algorithm(
        advantage=group_relative,
        surrogate=surrogates.gspo,
        aggregation="seq-mean-token-mean",
        source="Zheng et al. 2025",
    ),
    "cispo": Algorithm(
        advantage=group_relative,
        surrogate=surrogates.cispo,
        aggregation="token-mean",
        settings={"clip_low": 1.0, "clip_high": 4.0},
        source="MiniMax 2025",
    ),
    "cispo-two-sided": Algorithm(
        advantage=group_relative,
        surrogate=surrogates.cispo,
        aggregation="token-mean",
        settings={"clip_low": 0.2, "clip_high": 0.2},
        source="MiniMax 2025; bounds: verl 2026",
    ),
    "gmpo": Algorithm(
        advantage=group_relative,
        surrogate=surrogates.gmpo,
        aggregation="seq-mean-token-mean",
        source="Zhao et al. 2025",
    ),
    "sapo": Algorithm(
        advantage=group_relative,
        surrogate=surrogates.sapo,
        aggregation="seq-mean-token-mean",
        source="Gao et al. 2025",
    ),
    "dppo": Algorithm(
        advantage=group_relative,
        surrogate=surrogates.dppo,
        aggregation="token-mean",
        source="Qi et al. 2026",
    ),
    "ipo": Algorithm(
        advantage=group_centred,
        surrogate=surrogates.dppo,
        aggregation="token-mean",
        settings={"mask_low": 0.1, "two_sided": True, "cap": None},
        source="Prime Intellect 2026",
    ),
    "icepop": Algorithm(
        advantage=group_relative,
        surrogate=weighed_ppo_clip,
        aggregation="seq-mean-token-mean",
        kl="loss",
        settings={"floor": 0.5, "cap": 5.0, "outside": "mask"},
        source="Ling Team 2025",
    ),
    "grpo-sequence-mask": Algorithm(
        advantage=group_relative,
        surrogate=weighed_ppo_clip,
        aggregation="seq-mean-token-mean",
        kl="loss",
        settings={"cap": 3.0, "level": "sequence", "outside": "mask"},
        source="Liu et al. 2025; TRL 2026",
    ),
    "reinforce++": Algorithm(
        advantage=whitened_returns,
        surrogate=surrogates.ppo_clip,
        aggregation="token-mean",
        kl="reward",
        source="Hu 2025",
    ),
}


@dataclass(frozen=True)
class Penalty:
    """The KL to the reference as a recipe asks for it.

    Attributes:
        placement: one of `KL_PLACEMENTS`.
        estimator: for "loss", one of `functional.kl.ESTIMATORS`; for "surrogate", one of
            `SURROGATE_ESTIMATORS`.
        beta: its strength now; a controller may move it.
        weight: for "surrogate", one of `functional.kl.WEIGHTS`; for "advantage" one of these, with
            which the row's surrogate, its ratio and its clip do not touch the penalty, or `ROW`.
        weight_cap: the largest value of such a weight; None for no limit.
        recomputed: for "advantage": at each update that of the policy that learns, and not that of
            the policy that sampled.
    """

    placement: str = "none"
    estimator: str = "k3"
    beta: float = 0.0
    weight: str = "prefix"
    weight_cap: float | None = None
    recomputed: bool = False

    @property
    def exact(self) -> bool:
        """Whether it is computed from divergences over the whole vocabulary."""
        return self.placement == "surrogate" and self.estimator == "exact"

    def charged(self, tokens: Tokens) -> Tokens:
        """The tokens as the row's surrogate sees them: less the penalty, if it sees that."""
        if self.placement != "advantage" or self.weight != ROW:
            return tokens
        return tokens._replace(advantages=tokens.advantages - self.beta * self._to_go(tokens))

    def per_token(self, tokens: Tokens) -> Tensor | float:
        """(B, T) what is added to the loss of each token."""
        if self.placement == "loss":
            return self.beta * kl.estimate(tokens.log_probs, tokens.ref_log_probs, self.estimator)
        if self.placement == "advantage" and self.weight != ROW:
            return self.beta * surrogates.policy_gradient(tokens.log_probs, -self._to_go(tokens))
        return 0.0

    def of_the_batch(
        self, tokens: Tokens, *, divergences: Tensor | None, batch_mask: Tensor | None
    ) -> Tensor | float:
        """What is added to the mean: a surrogate of ∇KL, never divided by a length."""
        if self.placement != "surrogate":
            return 0.0
        log_probs, ref_log_probs, mask = tokens.log_probs, tokens.ref_log_probs, tokens.mask
        common: dict[str, Any] = {
            "old_log_probs": tokens.old_log_probs,
            "weight_cap": self.weight_cap,
            "batch_mask": batch_mask,
        }
        if not self.exact:
            common |= {"weight": self.weight, "kind": self.estimator}
            return self.beta * kl.gradient_surrogate(log_probs, ref_log_probs, mask, **common)
        if divergences is None:
            raise ValueError("divergences is None, expected (B, T): the estimator is 'exact'")
        return self.beta * kl.exact_surrogate(log_probs, divergences, mask, **common)

    def _to_go(self, tokens: Tokens) -> Tensor:
        return kl.penalty_to_go(
            tokens.log_probs,
            tokens.ref_log_probs,
            tokens.mask,
            old_log_probs=tokens.old_log_probs,
            frozen=not self.recomputed,
            weight=None if self.weight == ROW else self.weight,
            weight_cap=self.weight_cap,
        )


def policy_loss(
    algorithm: Algorithm,
    settings: Mapping[str, Any],
    penalty: Penalty,
    tokens: Tokens,
    *,
    max_length: int,
    divergences: Tensor | None = None,
    sampler_weights: Tensor | None = None,
    batch_mask: Tensor | None = None,
) -> Tensor:
    """The loss of a row on a batch, or on a slice of one: surrogate, KL and average.

        L = aggregate( surrogate(A) )                     no KL, or kl = "reward"
        L = aggregate( surrogate(A − β P) )               kl = "advantage", with the row's weight
        L = aggregate( surrogate(A) + β w P log π )       kl = "advantage", with one of its own
        L = aggregate( surrogate(A) + β k )               kl = "loss", as published
        L = aggregate( surrogate(A) ) + β surrogate of ∇KL   kl = "surrogate"

    Args:
        algorithm: the row.
        settings: its settings, `clip_low` and the like.
        penalty: the KL.
        tokens: of B responses.
        max_length: longest possible response, for `seq-mean-token-sum-norm`.
        divergences: (B, T) of `hidden_divergences`, with gradient, for a penalty that is exact.
        sampler_weights: (B, T) of `surrogates.importance_weights`, by which the loss of
            each token is multiplied; a surrogate of ∇KL has weights of its own, and is not.
        batch_mask: the mask of the whole batch if these rows are a slice of it.

    Returns:
        A scalar to minimise. The losses of slices add up to the loss of the batch.

    Book: chapter 10, "One table"; chapter 11, "The decision card".
    """
    per_token = algorithm.per_token_loss(settings, **penalty.charged(tokens).offered())
    per_token = per_token + penalty.per_token(tokens)
    if sampler_weights is not None:
        per_token = per_token * sampler_weights.masked_fill(~tokens.mask, 0.0)
    loss = aggregate(
        per_token, tokens.mask, algorithm.aggregation, max_length=max_length, batch_mask=batch_mask
    )
    return loss + penalty.of_the_batch(tokens, divergences=divergences, batch_mask=batch_mask)


def moves_without_advantage(algorithm: Algorithm, settings: Mapping[str, Any]) -> bool:
    """Whether the surrogate has a gradient where the advantage is 0.

    No published one has, and then tokens with advantage 0 need not be computed. A row of a reader's
    own may hold any function, so it is tried on a few tokens, inside and outside of every clip.
    """
    log_ratio = torch.tensor([[-2.0, -0.1, -1e-5], [1e-5, 0.1, 2.0]])
    old_log_probs = torch.full_like(log_ratio, -3.0)
    log_probs = (old_log_probs + log_ratio).requires_grad_()
    tokens = Tokens(
        log_probs,
        old_log_probs,
        ref_log_probs=old_log_probs - 0.5,
        advantages=torch.zeros_like(log_ratio),
        mask=torch.ones_like(log_ratio, dtype=torch.bool),
        values=torch.ones_like(log_ratio),
    )
    per_token = algorithm.per_token_loss(settings, **tokens.offered())
    (gradient,) = torch.autograd.grad(per_token.sum(), log_probs)
    return bool((gradient != 0).any())
