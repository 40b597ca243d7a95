"""Small Markov chains and decision processes in which the error of every estimator is exact.

In a chain the actions are already averaged out: it is what a fixed policy makes of a decision
process. A state s is followed by s' with probability P(s, s'), which pays a reward of mean r(s, s')
and variance σ²(s, s'), independent of all else, until a terminal state ends the episode. Chapter 3
measures its estimators here: of values on a chain, of the policy gradient on a decision process.
"""

from dataclasses import dataclass, field
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from nbcourse.functional.arguments import Axes, Share, check_fields, checked

SS = Annotated[Tensor, Axes("S S")]
Ends = Annotated[Tensor, Axes("S", "bools")]


@dataclass(frozen=True, eq=False)
class Chain:
    """A finite Markov reward process, in float64.

    Args:
        transitions: (S, S), P(s, s') in row s. The rows of terminal states are not read but
            kept as zeros, since nothing follows.
        rewards: (S, S), mean reward of each transition; not read where its probability is 0.
        terminal: (S,) bool, the states in which the episode is over: worth 0, never left.
        gamma: discount γ in [0, 1].
        reward_variances: (S, S), variance of each reward; None for rewards without noise.

    Attributes:
        noise: (S, S), the variances, zeros if none were given.

    Raises:
        ValueError: if shapes differ, terminal is not boolean, a row is no distribution, a variance
            is negative, gamma is outside [0, 1], or gamma is 1 and some state never ends.
    """

    transitions: SS
    rewards: SS
    terminal: Ends
    gamma: Share = 1.0
    reward_variances: SS | None = None
    noise: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        variances = self.reward_variances
        variances = torch.zeros_like(self.rewards) if variances is None else variances
        transitions = torch.where(self.terminal[:, None], 0.0, self.transitions.double())
        sums = transitions.sum(dim=1)
        for state in range(len(transitions)):
            row_is_fine = (transitions[state] >= 0).all() and abs(sums[state] - 1) < 1e-6
            if not (self.terminal[state] or row_is_fine):
                raise ValueError(
                    f"transitions has the row {transitions[state].tolist()} for state {state}, "
                    "expected probabilities that sum to 1"
                )
        rewards, noise = (
            torch.where(transitions > 0, x.double(), 0.0) for x in (self.rewards, variances)
        )
        if not (noise >= 0).all():
            raise ValueError(f"reward_variances goes down to {noise.min()}, expected at least 0")
        transitions = transitions / torch.where(self.terminal, 1.0, sums)[:, None]
        for name, tensor in (
            ("transitions", transitions),
            ("rewards", rewards),
            ("noise", noise),
        ):
            object.__setattr__(self, name, tensor)
        if self.gamma == 1:
            _require_an_end(self)


def _require_an_end(chain: Chain) -> None:
    ends = chain.terminal
    for _ in range(len(ends)):
        ends = ends | ((chain.transitions > 0) & ends).any(dim=1)
    if not ends.all():
        raise ValueError(
            f"state {int((~ends).nonzero()[0])} never reaches a terminal state: what is summed "
            "without a discount (gamma is 1, or the score of each step) has no bound"
        )


def random_walk(size: int) -> Chain:
    """A walk over `size` states in a row, left or right by a coin, that pays 1 for leaving right.

    State 0 and state size + 1 are the terminal ends. There is no discount, so the value of state i
    is i / (size + 1), the chance to leave on the right.

    Args:
        size: number of states that are not terminal, at least 1.

    Raises:
        ValueError: if size is below 1.

    Book: chapter 3. Source: Sutton & Barto 2018, example 6.2.
    """
    if size < 1:
        raise ValueError(f"size is {size}, expected at least 1")
    transitions = torch.zeros(size + 2, size + 2, dtype=torch.float64)
    inner = torch.arange(1, size + 1)
    transitions[inner, inner - 1] = transitions[inner, inner + 1] = 0.5
    rewards = torch.zeros_like(transitions)
    rewards[size, size + 1] = 1.0
    terminal = torch.ones(size + 2, dtype=torch.bool)
    terminal[inner] = False
    return Chain(transitions, rewards, terminal)


@dataclass(frozen=True, eq=False)
class DecisionProcess:
    """A finite Markov decision process (MDP), in float64.

    Args:
        transitions: (A, S, S), P(s' | s, a) in row s of matrix a.
        rewards: (S, S), mean reward of each transition.
        terminal: (S,) bool, as in `Chain`.
        gamma: discount γ in [0, 1].

    Raises:
        ValueError: if shapes differ, terminal is not boolean or gamma is outside [0, 1].
    """

    transitions: Annotated[Tensor, Axes("A S S")]
    rewards: SS
    terminal: Ends
    gamma: Share = 1.0

    def __post_init__(self) -> None:
        check_fields(self)

    def under(self, policy: Tensor) -> Chain:
        """The chain that a policy makes of it, differentiable in the policy.

        Args:
            policy: (S, A), π(a | s); the rows of terminal states are not read.

        Raises:
            ValueError: if policy is not (S, A), or the chain is none.
        """
        actions, size, _ = self.transitions.shape
        if policy.shape != (size, actions):
            raise ValueError(f"policy has shape {tuple(policy.shape)}, expected {(size, actions)}")
        transitions = torch.einsum("sa,ast->st", policy.double(), self.transitions.double())
        return Chain(transitions, self.rewards, self.terminal, self.gamma)

    def action_values(self, following: Tensor) -> Tensor:
        """(S, A): Σ_{s'} P(s' | s, a) [r(s, s') + γ V(s')] for values V of what follows, (S,).

        Book: equation (eq-bellman).
        """
        worth = self.rewards + self.gamma * _on_states(self, following)
        found = torch.einsum("ast,st->sa", self.transitions.double(), worth)
        return torch.where(self.terminal[:, None], 0.0, found)


def values(chain: Chain) -> Tensor:
    """What each state is worth, from the linear system that the values obey.

        V(s) = Σ_{s'} P(s, s') [r(s, s') + γ V(s')],      V(terminal) = 0

    Args:
        chain: S states.

    Returns:
        (S,) float64.

    Book: chapter 3. Source: Sutton & Barto 2018, equation 4.4 without the choice of action.
    """
    return _solve(chain, chain.gamma, (chain.transitions * chain.rewards).sum(dim=1))


@dataclass(frozen=True, eq=False)
class Moments:
    """How far an estimator is off, from each state.

    Attributes:
        bias: (S,), mean of the estimated value minus the true value.
        variance: (S,).
    """

    bias: Tensor
    variance: Tensor

    @property
    def mean_squared_error(self) -> Tensor:
        """(S,): bias² + variance."""
        return self.bias.square() + self.variance


def k_step_estimator(chain: Chain, critic: Tensor, *, k: int) -> Moments:
    """Exact bias and variance of k rewards followed by the critic's estimate.

        Ĝₜ⁽ᵏ⁾ = rₜ + γ rₜ₊₁ + … + γᵏ⁻¹ rₜ₊ₖ₋₁ + γᵏ V̂(sₜ₊ₖ),      Âₜ⁽ᵏ⁾ = Ĝₜ⁽ᵏ⁾ − V̂(sₜ)

    It is the λ-estimator with λ = 1 in an episode cut off after k steps, so it obeys the same
    recursion. With the critic's error e = V̂ − V the bias is γᵏ Pᵏ e: it shrinks as the
    rewards reach further and the critic has less to say.

    Args:
        chain: S states.
        critic: (S,), V̂; its entries at terminal states are not read.
        k: number of rewards, at least 1.

    Returns:
        The moments of Ĝ⁽ᵏ⁾. Those of Â⁽ᵏ⁾ differ by the number V̂(s), a baseline: the same variance,
        and a bias that no policy gradient feels.

    Raises:
        ValueError: if critic is not (S,) or k is below 1.

    Book: equation (eq-n-step). Source: Schulman et al. 2016, equations 11–15.
    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    return lambda_estimator(chain, critic, lam=1.0, steps=k)


@checked
def lambda_estimator(
    chain: Chain,
    critic: Tensor,
    *,
    lam: Share,
    steps: Annotated[int, Ge(1)] | None = None,
    bootstrap: bool = True,
) -> Moments:
    """Exact bias and variance of generalised advantage estimation.

    The estimate is Âₜ = Σₗ (γλ)ˡ δₜ₊ₗ with δₜ = rₜ + γ V̂(sₜ₊₁) − V̂(sₜ), hence Âₜ = δₜ + γλ Âₜ₊₁.
    Given the next state s', Â(s') has nothing to do with the reward that led there. So with
    d(s, s') = r(s, s') + γ V̂(s') − V̂(s), V̂ and Â being 0 in terminal states, the means m obey

        m(s) = Σ_{s'} P(s, s') [d(s, s') + γλ m(s')]

    and the variances w, by the law of total variance (noise once s' is known, plus the spread over
    s' of what is then expected),

        w(s) = Σ_{s'} P(s, s') [σ²(s, s') + (γλ)² w(s') + (d(s, s') + γλ m(s') − m(s))²].

    Both are linear, with matrices 1 − γλ P and 1 − (γλ)² P. In an episode cut off by a clock they
    are the recursion itself, run `steps` times from m = w = 0.

    Writing d in terms of the critic's error e = V̂ − V gives the bias without a cut in closed form,
    γ(1 − λ) (1 − γλ P)⁻¹ P e: zero for λ = 1 or a perfect critic, γ P e for λ = 0.

    Args:
        chain: S states.
        critic: (S,), V̂; its entries at terminal states are not read.
        lam: λ in [0, 1].
        steps: after how many steps a clock truncates the episode, at least 1; None: never.
        bootstrap: whether the state in which the clock stopped counts for V̂, as it should. False
            mistakes the truncation for a termination and counts 0, which adds the bias
            −γ(γλ)ⁿ⁻¹ Pⁿ V̂ with n = steps; for λ = 1 the total is −γⁿ Pⁿ V, whatever the critic.

    Returns:
        The moments of Â + V̂(s) as an estimate of V(s). Those of Â alone differ by the number V̂(s),
        a baseline: the same variance, and a bias that no policy gradient feels.

    Raises:
        ValueError: if a shape or number is not as above, or bootstrap is False without a cut.

    Book: equation (eq-gae). Source: Schulman et al. 2016, equation 16; Sobel 1982 for variances.
    """
    critic = _on_states(chain, critic)
    if steps is None and not bootstrap:
        raise ValueError("bootstrap is False but steps is None: without a cut nothing can go wrong")
    decay = chain.gamma * lam
    residuals = _residuals(chain, critic)
    mean = variance = torch.zeros_like(critic)
    if steps is None:
        mean = _solve(chain, decay, (chain.transitions * residuals).sum(dim=1))
        _, first_step = _one_step_earlier(chain, residuals, decay, mean, variance)
        variance = _solve(chain, decay**2, first_step)
    else:
        at_the_cut = residuals if bootstrap else chain.rewards - critic[:, None]
        for d in [at_the_cut, *[residuals] * (steps - 1)]:
            mean, variance = _one_step_earlier(chain, d, decay, mean, variance)
    return Moments(bias=mean + critic - values(chain), variance=variance)


@dataclass(frozen=True, eq=False)
class GradientMoments:
    """How far an estimate of the policy gradient from one episode is off.

    Attributes:
        gradient: (S, A), what it estimates, with respect to the logits of the policy.
        bias: (S, A), mean of the estimate minus that.
        variance: summed over all entries.
    """

    gradient: Tensor
    bias: Tensor
    variance: float

    def mean_squared_error(self, episodes: int = 1) -> float:
        """E‖ĝ − ∇J‖² of the mean over independent episodes: bias² + variance / episodes."""
        return self.bias.square().sum().item() + self.variance / episodes


@checked
def gradient_estimator(
    process: DecisionProcess, policy: Tensor, critic: Tensor, *, start: int, lam: Share
) -> GradientMoments:
    """Exact bias and variance of the policy gradient that one episode yields with GAE.

    The estimate is Ĝ₀ with Ĝₜ = Âₜ gₜ + Ĝₜ₊₁, where gₜ = ∇ log π(aₜ | sₜ) for a softmax over the
    logits of each state and Âₜ = δₜ + γλ Âₜ₊₁. The noise of one Â is in those before it, so the
    variance of the sum is not the sum of variances. But (Â, Ĝ) depends on the past through the
    state alone, so its second moments obey linear equations like those of `lambda_estimator`:
    with κ = γλ and everything on the right given s,

        E[Â²]  = E[δ² + 2κ δ Â' + κ² Â'²]
        E[ÂĜ]  = E[Â² g + δ Ĝ' + κ Â'Ĝ']
        E‖Ĝ‖²  = E[Â² ‖g‖² + 2 g · (δ Ĝ' + κ Â'Ĝ') + ‖Ĝ'‖²].

    Args:
        process: S states, A actions.
        policy: (S, A), π(a | s).
        critic: (S,), V̂; its entries at terminal states are not read.
        start: the state in which episodes begin.
        lam: λ in [0, 1].

    Returns:
        The moments. `gradient` is Σ_s d(s) Σ_a π(a|s) A(s, a) ∇ log π(a|s) with undiscounted visits
        d: for γ = 1 that is ∇J, for γ < 1 what agents take for it.

    Raises:
        ValueError: if a shape or number is not as above, start is terminal, or no end is sure.

    Book: equation (eq-gradient-error).
    """
    chain = process.under(policy)
    critic = _on_states(chain, critic)
    _require_an_end(chain)
    if not 0 <= start < len(critic) or chain.terminal[start]:
        raise ValueError(f"start is {start}, expected a state that is not terminal")
    policy = torch.where(chain.terminal[:, None], 0.0, policy.double())
    joint = torch.einsum("sa,ast->sat", policy, process.transitions.double())
    score = torch.eye(policy.shape[1], dtype=torch.float64) - policy[:, None, :]  # (S, A, A)
    decay, delta = chain.gamma * lam, _residuals(chain, critic)  # (S, S)
    mean = _solve(chain, decay, (chain.transitions * delta).sum(dim=1))  # E[Â]
    known = delta.square() + 2 * decay * delta * mean
    square = _solve(chain, decay**2, (chain.transitions * known).sum(dim=1))  # E[Â²]
    advantage = (joint * (delta + decay * mean)[:, None]).sum(dim=2)  # π(a|s) E[Â | s, a]
    squares = (joint * (known + decay**2 * square)[:, None]).sum(dim=2)  # π(a|s) E[Â² | s, a]

    whole = _solve(chain, 1.0, _own_row(advantage, score))  # E[Ĝ], (S, S, A)
    later = torch.einsum("st,st,tub->sub", chain.transitions, delta, whole)  # E[δ Ĝ']
    both = _solve(chain, decay, _own_row(squares, score) + later)  # E[ÂĜ]
    crossed = torch.einsum("sat,st,tsb,sab->s", joint, delta, whole, score)
    crossed = crossed + decay * torch.einsum("sat,tsb,sab->s", joint, both, score)
    total = _solve(chain, 1.0, (squares * score.square().sum(dim=2)).sum(dim=1) + 2 * crossed)

    exact = policy * (process.action_values(values(chain)) - values(chain)[:, None])
    gradient = _solve(chain, 1.0, _own_row(exact, score))[start]
    return GradientMoments(
        gradient=gradient,
        bias=whole[start] - gradient,
        variance=(total[start] - whole[start].square().sum()).item(),
    )


def _residuals(chain: Chain, critic: Tensor) -> Tensor:
    """(S, S): d(s, s') = r(s, s') + γ V̂(s') − V̂(s)."""
    return chain.rewards + chain.gamma * critic - critic[:, None]


def _own_row(weights: Tensor, score: Tensor) -> Tensor:
    """(S, A) → (S, S, A): Σ_a weight(s, a) ∇ log π(a|s), which has entries in row s alone."""
    rows = torch.einsum("sa,sab->sb", weights, score)
    return torch.diag_embed(rows.T).permute(1, 2, 0)


def sample(
    chain: Chain, starts: Tensor, *, steps: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Walk along the chain; noisy rewards are normal.

    Args:
        chain: S states.
        starts: (B,) the state in which each episode begins, not a terminal one.
        steps: T, after which the episodes that still go on are cut off.
        generator: of the randomness.

    Returns:
        states (B, T+1), the last one being where the clock stopped; rewards (B, T) float64, 0 once
        the episode is over; mask (B, T) bool, True on the steps that were made.

    Raises:
        ValueError: if steps is below 1 or an episode would start where it is over.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}, expected at least 1")
    if chain.terminal[starts].any():
        raise ValueError(f"starts has the terminal state {starts[chain.terminal[starts]][0]}")
    staying = torch.diag(chain.terminal.double())
    states, rewards = [starts], []
    for _ in range(steps):
        now = states[-1]
        to = torch.multinomial((chain.transitions + staying)[now], 1, generator=generator)[:, 0]
        luck = torch.randn(len(now), generator=generator, dtype=torch.float64)
        rewards.append(chain.rewards[now, to] + luck * chain.noise[now, to].sqrt())
        states.append(to)
    walked = torch.stack(states, dim=1)
    return walked, torch.stack(rewards, dim=1), ~chain.terminal[walked[:, :-1]]


def _one_step_earlier(
    chain: Chain, residuals: Tensor, decay: float, mean: Tensor, variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance of δ + decay · Â(s') from those of Â(s')."""
    expected = residuals + decay * mean  # once the next state is known
    earlier = (chain.transitions * expected).sum(dim=1)
    spread = (expected - earlier[:, None]).square()
    within_each = chain.noise + decay**2 * variance
    return earlier, (chain.transitions * (within_each + spread)).sum(dim=1)


def _solve(chain: Chain, decay: float, first_step: Tensor) -> Tensor:
    """x = first_step + decay · P x."""
    identity = torch.eye(len(first_step), dtype=torch.float64)
    flat = first_step.reshape(len(first_step), -1)
    return torch.linalg.solve(identity - decay * chain.transitions, flat).view_as(first_step)


@checked
def _on_states(chain: Chain | DecisionProcess, critic: Annotated[Tensor, Axes("S")]) -> Tensor:
    if critic.shape != chain.terminal.shape:
        raise ValueError(
            f"critic has shape {tuple(critic.shape)}, expected {tuple(chain.terminal.shape)}, "
            "one entry for each state"
        )
    return torch.where(chain.terminal, 0.0, critic.double())
