"""Weights out of all proportion, irregular batches, and what a report says of them."""

import math

import pytest
import torch

from nbcourse.errors import UserError
from nbcourse.examine import Subject, direction, examine, size, source
from tests.examine.parts import (
    advantages_of,
    centred,
    clipped,
    codes,
    k3,
    mean_of_sums,
    mistakes,
    ratio_of,
    report_of,
    safe,
    token_mean,
    with_kl,
)

# ---------------------------------------------------------------- the outcomes of a group


def divided_by_the_others(log_probs, rewards, mask, group_size):
    """The standard deviation without the answer itself is 0 where the others agree."""
    groups = rewards.view(-1, group_size)
    others = (
        groups[:, None, :]
        .expand(-1, group_size, -1)[:, ~torch.eye(group_size, dtype=torch.bool)]
        .view(len(groups), group_size, group_size - 1)
    )
    scaled = (groups - others.mean(dim=2)) / (others.std(dim=2, unbiased=False) + 1e-6)
    return mean_of_sums(-log_probs * scaled.view(-1, 1), mask)


def divided_by_the_variance(log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    scaled = centred(rewards, group_size) / (groups.var(dim=1, keepdim=True) + 1e-6)
    return mean_of_sums(-log_probs * scaled.view(-1, 1), mask)


def divided_by_the_whole_group(log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    scaled = centred(rewards, group_size) / (groups.std(dim=1, keepdim=True) + 1e-4)
    return mean_of_sums(-log_probs * scaled.view(-1, 1), mask)


def divided_by_the_mean(log_probs, rewards, mask, group_size):
    """MaxRL: bounded by the size of the group."""
    groups = rewards.view(-1, group_size)
    scaled = centred(rewards, group_size) / groups.mean(dim=1, keepdim=True).clamp(min=1e-6)
    return mean_of_sums(-log_probs * scaled.view(-1, 1), mask)


@pytest.mark.parametrize(
    ("loss", "explodes"),
    [
        (divided_by_the_others, True),
        (divided_by_the_variance, True),
        (divided_by_the_whole_group, False),
        (divided_by_the_mean, False),
    ],
)
def test_a_weight_that_one_outcome_makes_enormous_is_a_mistake(loss, explodes):
    found = size.largest(Subject.of(loss))
    assert (found.times > size.MANY) is explodes
    if loss is divided_by_the_others:
        assert "weight-explodes" in mistakes(report_of(loss))


def unscaled_where_the_others_agree(log_probs, rewards, mask, group_size):
    """Which .95, .95 and .95 do not, quite: their variance is a difference of rounded squares."""
    groups = rewards.view(-1, group_size)
    mean = (groups.sum(1, keepdim=True) - groups) / (group_size - 1)
    squares = (groups.square().sum(1, keepdim=True) - groups.square()) / (group_size - 1)
    std = (squares - mean.square()).clamp(min=0).sqrt()
    scaled = torch.where(std > 0, (groups - mean) / (std + 1e-6), groups - mean)
    return mean_of_sums(-log_probs * scaled.view(-1, 1), mask)


def test_a_spread_that_is_rounding_noise_is_a_note():
    subject = Subject.of(unscaled_where_the_others_agree)
    assert size.largest(subject).times < size.MANY < size.noisy(subject).times
    report = report_of(unscaled_where_the_others_agree)
    assert not mistakes(report)
    assert "rounding-explodes" in codes(report, "note")
    assert "rewards-rescaled" in codes(report, "choice")  # what turns it in the worst world


def with_a_term_of_its_own(log_probs, advantages, mask):
    """An "entropy" of the tokens that were drawn: no reward is in it."""
    return mean_of_sums(0.01 * log_probs.exp() * log_probs - log_probs * advantages, mask)


def minus_twice(log_probs, old_log_probs, advantages, mask):
    ratio = (log_probs - old_log_probs).exp()
    return -token_mean(clipped(ratio, advantages), mask)


def test_neither_a_term_that_needs_no_reward_nor_a_sign_rescales_rewards():
    for loss in (with_a_term_of_its_own, minus_twice):
        assert "rewards-rescaled" not in codes(report_of(loss), "choice")
    assert mistakes(report_of(minus_twice)) == {"flipped-loss"}
    assert direction.worst(Subject.of(with_a_term_of_its_own)).cosine < 0.999


# ---------------------------------------------------------------- far off


def held(log_probs, old_log_probs, advantages, mask):
    ratio = (log_probs - old_log_probs).clamp(-10, 10).exp()
    return mean_of_sums(clipped(ratio, advantages), mask)


def unheld(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


def mean_that_is_unheld(log_probs, old_log_probs, advantages, mask):
    change = safe(log_probs - old_log_probs, mask).sum(1, True) / mask.sum(1, True).clamp(min=1)
    return mean_of_sums(clipped(change.exp(), advantages), mask)


def reference_that_is_unheld(log_probs, ref_log_probs, advantages, mask):
    return with_kl(log_probs, advantages, mask, k3(safe(log_probs - ref_log_probs.detach(), mask)))


@pytest.mark.parametrize(
    ("loss", "policies"),
    [
        (held, set()),
        (unheld, {"old_log_probs"}),
        (mean_that_is_unheld, {"old_log_probs"}),
        (reference_that_is_unheld, {"ref_log_probs"}),
    ],
)
def test_a_token_a_hundred_nats_off_is_told(loss, policies):
    assert {case.policy for case in size.far(Subject.of(loss))} == policies


# ---------------------------------------------------------------- a batch is not a row


def whitened_over_tokens(log_probs, rewards, mask, group_size):
    """REINFORCE++-baseline: the group's mean goes, and then the spread of the batch's tokens."""
    advantages = centred(rewards, group_size).view(-1, 1).expand(mask.shape)
    mean = (advantages * mask).sum() / mask.sum()
    variance = ((advantages - mean).square() * mask).sum() / mask.sum()
    return token_mean(-log_probs * (advantages - mean) / (variance + 1e-8).sqrt(), mask)


def test_what_a_prompt_counts_is_read_in_a_batch_of_both():
    report = report_of(whitened_over_tokens)
    assert report.facts.hard_beside_middle == pytest.approx(0.845, abs=0.002)
    assert "in a batch of both" in str(report)
    assert not mistakes(report)


def length_weighted_baseline(log_probs, rewards, mask, group_size):
    lengths, groups = mask.sum(dim=1).view(-1, group_size), rewards.view(-1, group_size)
    baseline = (lengths * groups).sum(1, keepdim=True) / lengths.sum(1, keepdim=True)
    return mean_of_sums(-log_probs * (groups - baseline).view(-1, 1), mask)


def test_a_baseline_that_goes_by_length_is_the_cause_that_is_named():
    report = report_of(length_weighted_baseline)
    assert not mistakes(report)
    assert "lengths-in-advantages" in codes(report, "choice")


def likely_tokens_left_out(log_probs, advantages, mask):
    """The third of the tokens that are likeliest is left out: nothing else is strange about it."""
    bar = log_probs.detach()[mask].quantile(0.67)
    return mean_of_sums(-log_probs * advantages * (log_probs.detach() <= bar), mask)


def test_a_step_that_nothing_explains_is_no_verdict():
    report = report_of(likely_tokens_left_out)
    assert report.facts.fresh.cosine_min < 0.999
    assert mistakes(report) or "unexplained" in codes(report, "note"), str(report)
    if not mistakes(report):
        assert "no verdict" in report.verdict()[2]


def test_a_bias_is_divided_among_what_makes_it():
    def loss(log_probs, rewards, mask, group_size):
        groups = rewards.view(-1, group_size)
        scaled = centred(rewards, group_size) / (groups.std(dim=1, keepdim=True) + 1e-4)
        rows = safe(-log_probs * scaled.view(-1, 1), mask).sum(dim=1)
        return (rows / mask.sum(dim=1).clamp(min=1)).mean()

    shares = report_of(loss).facts.shares
    assert shares.unexplained < 1e-6
    assert shares.average < 0.999


# ---------------------------------------------------------------- what a loss may take, and return


def sum_of_exponentials(log_probs, sampler_log_probs, advantages, mask):
    weight = safe((log_probs.detach() - sampler_log_probs).exp(), mask).sum(dim=1, keepdim=True)
    return token_mean(-log_probs * advantages * torch.where(weight <= 2.5, weight, 0.0), mask)


def test_a_weight_that_is_a_sum_of_weights_is_called_that():
    assert mistakes(report_of(sum_of_exponentials)) == {"weight-by-length"}


@pytest.mark.parametrize(
    "form",
    [
        lambda loss, rows: {"loss": loss, "kl": 0.0},
        lambda loss, rows: (loss, {"kl": 0.0}),
        lambda loss, rows: rows,
        lambda loss, rows: source.Settings(loss=loss),
    ],
)
def test_a_loss_comes_back_in_several_forms(form):
    def loss(log_probs, advantages, mask):
        rows = safe(-log_probs * advantages, mask).sum(dim=1)
        return form(rows.mean(), rows)

    assert examine(loss).facts.fresh.verdict == "exact"


def test_a_setting_can_be_given():
    def loss(log_probs, old_log_probs, advantages, mask, config):
        low, high = 1 - config.clip_low, 1 + config["clip_high"]
        return mean_of_sums(
            clipped(ratio_of(log_probs, old_log_probs), advantages, low, high), mask
        )

    given = source.settings(["config.clip_low=0.3", "config.clip_high=0.4"])
    found = examine(Subject.of(loss, given=given)).facts.clip.bounds
    assert found == pytest.approx((0.7, 1.4), rel=1e-4)
    with pytest.raises(UserError, match="--given config=VALUE"):
        Subject.of(loss)
    with pytest.raises(UserError, match="takes no eps, which --given has"):
        Subject.of(loss, given={"config": given["config"], "eps": 1})
    with pytest.raises(UserError, match="expected NAME=VALUE"):
        source.settings(["eps"])


@pytest.mark.parametrize("name", ["sampling_per_token_logps", "behaviour_log_probs"])
def test_one_policy_is_never_suggested_for_another(name):
    scope = {}
    exec(f"def loss(log_probs, {name}, mask):\n    return log_probs.sum()", scope)
    with pytest.raises(UserError) as refused:
        Subject.of(scope["loss"])
    assert "did you mean" not in str(refused.value)


def counted_though_cut_off(log_probs, advantages, mask, truncated):
    return safe(-log_probs * advantages, mask & ~truncated[:, None]).sum() / mask.sum()


def left_out_when_cut_off(log_probs, advantages, mask, truncated):
    return token_mean(-log_probs * advantages, mask & ~truncated[:, None])


def test_flags_of_truncation_say_what_is_left_of_an_answer():
    assert "truncated-counted" in codes(report_of(counted_though_cut_off), "note")
    assert "truncated-dropped" in codes(report_of(left_out_when_cut_off), "choice")


def entropy_added(log_probs, advantages, mask, entropy):
    return mean_of_sums(-log_probs * advantages + 0.01 * entropy, mask)


def entropy_subtracted(log_probs, advantages, mask, entropy):
    return mean_of_sums(-log_probs * advantages - 0.01 * entropy, mask)


@pytest.mark.parametrize(("loss", "named"), [(entropy_added, True), (entropy_subtracted, False)])
def test_an_entropy_that_is_added_makes_the_policy_sharper(loss, named):
    report = report_of(loss)
    assert ("entropy-penalty" in codes(report, "choice")) is named
    assert not mistakes(report)


def entropy_for_a_log(log_probs, advantages, mask, entropy):
    _logged = safe(entropy, mask).sum()
    return mean_of_sums(-log_probs * advantages, mask)


def uncertain_tokens_only(log_probs, advantages, mask, entropy):
    chosen = mask & (entropy > safe(entropy, mask).sum() / mask.sum() - 1e-6)
    return mean_of_sums(-log_probs * advantages, chosen)


@pytest.mark.parametrize("loss", [entropy_for_a_log, uncertain_tokens_only, entropy_subtracted])
def test_an_entropy_that_is_logged_or_chosen_by_is_no_bonus_without_a_gradient(loss):
    assert "entropy-without-gradient" not in mistakes(report_of(loss))


def tokens_drawn(log_probs, advantages, mask):
    """A third of the tokens is left out by lot."""
    return mean_of_sums(-log_probs * advantages * (torch.rand(mask.shape) > 0.33), mask)


def test_a_loss_that_draws_lots_is_told_so_and_its_order_is_not_blamed():
    state = torch.get_rng_state()
    report = report_of(tokens_drawn)
    assert "random" in codes(report, "note")
    assert "order" not in mistakes(report)
    assert torch.equal(torch.get_rng_state(), state)


def padding_in_the_mean(log_probs, old_log_probs, advantages, mask):
    """The mean log-ratio of a response takes in its padding, and decides whether it is left out."""
    far = (old_log_probs - log_probs.detach()).sum(1, True) / mask.sum(1, True).clamp(min=1) > 0.01
    bad = safe(advantages, mask).sum(dim=1, keepdim=True) < 0
    losses = clipped(ratio_of(log_probs, old_log_probs), advantages)
    return mean_of_sums(losses * ~(far & bad), mask)


def test_padding_that_decides_about_a_response_is_read():
    assert "padding-read" in mistakes(report_of(padding_in_the_mean))


def test_the_kl_of_whole_responses_is_called_by_its_name():
    def loss(log_probs, ref_log_probs, rewards, mask, group_size):
        d = safe(log_probs - ref_log_probs.detach(), mask).sum(dim=1)
        losses = -log_probs * advantages_of(rewards, group_size, mask)
        return mean_of_sums(losses, mask) + 0.1 * k3(d).mean()

    report = report_of(loss)
    assert report.facts.descent.descends == "forward of responses"
    assert report.facts.descent.beta == pytest.approx(0.1)
    assert not math.isnan(report.facts.descent.cosine)


def test_a_loss_that_knows_the_tokens_of_the_batch_adds_up():
    def loss(log_probs, advantages, mask, batch_tokens):
        return safe(-log_probs * advantages, mask).sum() / batch_tokens

    report = report_of(loss)
    assert not codes(report, "note") & {"micro-batch-means", "sum-of-batch"}, str(report)
    assert not report.missing(["microbatch-invariant"])
