"""What people call the arguments of a loss, how they lay them out, and what they return.

Each kind has near misses: names that are not guessed at, and shapes that are no layout's.
"""

from types import SimpleNamespace

import pytest
import torch

from nbcourse.errors import UserError
from nbcourse.examine import Subject, examine, source
from nbcourse.examine.batches import MIXED, UNEVEN, batch
from nbcourse.examine.script_names import LAYOUTS, all_meant, meant, table
from tests.examine.parts import clipped, codes, k3, mean_of_sums, mistakes, token_mean

NAMES = {
    "log_probs": "log_probs logprobs logp lp log_prob policy_logps log_pi_theta trainer_logprobs "
    "per_token_logps logprobs_per_token batch_log_probs log_probabilities actor_log_probs",
    "new": "new_logps logprobs_current log_probs_new curr_log_prob current_token_logps",
    "old_log_probs": "old_log_probs logprobs_old prev_logps old_policy_logprob policy_old_lp",
    "ref_log_probs": "ref_logp log_pi_ref reference_logprobs ref_per_token_logps log_probs_ref",
    "sampler_log_probs": "rollout_log_probs inference_logprobs behavior_logps vllm_logprobs",
    "advantages": "advantages adv advantage",
    "rewards": "rewards raw_rewards reward scores reward_score",
    "mask": "mask resp_mask token_mask attention_mask action_mask loss_masks",
    "entropy": "entropies token_entropy entropy",
    "group_size": "group_size num_generations n_samples samples_per_prompt",
    "groups": "group_ids group_index",
    "lengths": "seq_lengths response_lengths lengths",
    "batch": "batch minibatch experience rollout_batch",
    "": "teacher_logps chosen_logps full_log_probs all_logprobs neg_logprobs mean_logps logits "
    "log_ratio probs padding_mask causal_mask group_rewards old_rewards kl_coef lp_norm "
    "reward_fn advantage_eps masked score_fn max_length logps_sum",
}


@pytest.mark.parametrize("ours", NAMES)
def test_a_name_is_read_by_its_words_or_not_at_all(ours):
    assert {name: meant(name) for name in NAMES[ours].split()} == dict.fromkeys(
        NAMES[ours].split(), ours
    )


@pytest.mark.parametrize(
    ("names", "ours"),
    [
        ("new_logprobs logprobs", "log_probs old_log_probs"),
        ("logprobs old_logprobs", "log_probs old_log_probs"),
        ("trainer_logps rollout_logps", "log_probs old_log_probs"),
        ("new_logps rollout_logps", "log_probs old_log_probs"),
        ("logps old_logps rollout_logps", "log_probs old_log_probs sampler_log_probs"),
        ("new_logps logps rollout_logps", "log_probs old_log_probs sampler_log_probs"),
        ("logps action_logps mask", "mask"),  # one policy twice: which is which?
        ("loss_mask attention_mask", "mask mask"),
    ],
)
def test_whose_log_probs_they_are_is_read_side_by_side(names, ours):
    assert [*all_meant(names.split()).values()] == ours.split()


# ---------------------------------------------------------------- layouts


def by_row(current_logps, old_logps, adv, resp_mask):
    losses = clipped((current_logps - old_logps).exp(), adv[:, None])
    return token_mean(losses, resp_mask.bool())


def by_token(logprobs_new, logprobs_old, advantages, mask):
    return token_mean(clipped((logprobs_new - logprobs_old).exp(), advantages), mask.bool())


def by_sum(log_prob, rewards):
    """Leave-one-out over the batch."""
    others = (rewards.sum() - rewards) / (len(rewards) - 1)
    return -(log_prob * (rewards - others)).mean()


def by_mean(logprobs_new_sum, logprobs_old_sum, seq_lengths, adv):
    """GSPO of sums, which are divided by the lengths."""
    return clipped(((logprobs_new_sum - logprobs_old_sum) / seq_lengths).exp(), adv).mean()


def by_group(logp, rewards, response_mask):
    """(P, G, T) and (P, G)."""
    advantages = (rewards - rewards.mean(dim=1, keepdim=True))[..., None]
    return -(logp * advantages * response_mask).sum(dim=-1).mean()


def by_id(logps, rewards, mask, group_ids):
    """Prompts by their numbers."""
    means = torch.zeros_like(rewards).index_add(0, group_ids, rewards)
    means = means / torch.bincount(group_ids, minlength=len(rewards)).clamp(min=1)
    return mean_of_sums(-logps * (rewards - means[group_ids])[:, None], mask.bool())


def of_an_object(experience):
    ratio = (experience.log_probs - experience.action_old_log_probs).exp()
    return token_mean(clipped(ratio, experience.advantages[:, None]), experience.action_mask.bool())


def of_a_batch_within(data):
    batch = data.batch.to("cpu")
    return mean_of_sums(-batch["logps"] * batch["adv"][:, None], batch["response_mask"].bool())


def of_a_dictionary(policy_logps, batch):
    adv, reference = batch["adv"], batch.get("ref_logps", policy_logps)
    beta = batch.get("kl_coef", 0.1)
    losses = -policy_logps * adv[:, None] + beta * k3(policy_logps - reference)
    assert "labels" not in batch
    assert "loss_mask" in batch
    return mean_of_sums(losses, batch["loss_mask"].bool())


LAID_OUT = {
    by_row: ("scripts", {"token-mean"}),
    by_token: ("scripts-by-token", {"token-mean"}),
    by_sum: ("scripts-by-sum", {"batch-baseline"}),
    by_mean: ("scripts-by-sum", {"sequence-ratio", "seq-mean-token-mean"}),
    by_group: ("scripts-by-group", {"own-reward-in-baseline"}),
    by_id: ("scripts", {"own-reward-in-baseline"}),
    of_an_object: ("scripts", {"token-mean"}),
    of_a_batch_within: ("scripts", set()),
    of_a_dictionary: ("scripts", {"kl-forward"}),
}


@pytest.mark.parametrize("loss", LAID_OUT)
def test_a_loss_in_each_layout_is_judged_rightly(loss):
    layout, choices = LAID_OUT[loss]
    report = examine(Subject.of(loss, convention=layout))
    assert not mistakes(report), str(report)
    assert codes(report, "choice") == choices


def test_log_probs_of_whole_responses_are_sums_or_means():
    one = batch(UNEVEN, MIXED, group_size=3)
    lengths = one.mask.sum(dim=1, keepdim=True)
    whole, mean = (
        Subject.of(by_sum, convention=layout).weights(one)
        for layout in ("scripts-by-sum", "scripts-by-mean")
    )
    assert whole[0, 0] != 0
    torch.testing.assert_close(mean * lengths, whole)


def test_a_name_that_says_sum_or_mean_is_one_of_its_layout_alone():
    for name, layout in (("logps_sum", "scripts-by-sum"), ("mean_logps", "scripts-by-mean")):
        read = {one for one in LAYOUTS if name in table(one, [name])}
        assert read == {layout}
    assert [*table("scripts-by-sum", ["logps", "mask", "values"])] == ["logps"]  # one of each


def test_what_a_batch_is_not_known_to_have_is_said():
    def of_teachers(batch):
        return (batch.log_probs - batch.teacher_logps).sum()

    subject = Subject.of(of_teachers, convention="scripts")
    with pytest.raises(UserError, match="a batch is not known to have 'teacher_logps'"):
        examine(subject)
    with pytest.raises(UserError, match=r"KeyError: .*not known to have 'teacher_logps'"):
        examine(Subject.of(lambda batch: batch["teacher_logps"].sum(), convention="scripts"))


def test_a_layout_that_does_not_fit_names_those_that_do(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def loss(logps, rewards):\n    return -(logps * (rewards - rewards.mean())).mean()\n"
    )
    fit = "it runs with --as scripts-by-sum or scripts-by-mean$"
    with pytest.raises(UserError, match=fit):
        source.load(f"{file}:loss", convention="scripts")
    assert source.load(f"{file}:loss", convention="scripts-by-mean").takes
    file.write_text("def loss(logps, rewards):\n    raise RuntimeError('never')\n")
    assert source.load(f"{file}:loss", convention="scripts")  # and is refused when it is asked


# ---------------------------------------------------------------- what is returned, and what is not


def a_step(policy_log_probs, advantages, response_mask, gradient_accumulation_steps=1):
    """One of a course: it calls backward() itself."""
    loss = token_mean(-policy_log_probs * advantages, response_mask.bool())
    (loss / gradient_accumulation_steps).backward()
    return loss


def detached(policy_log_probs, advantages, response_mask):
    return a_step(policy_log_probs, advantages, response_mask).detach(), {"clipped": 0.0}


def nothing(policy_log_probs, advantages, response_mask):
    a_step(policy_log_probs, advantages, response_mask)


def in_two_parts(policy_log_probs, advantages, response_mask):
    losses = (-policy_log_probs * advantages).masked_fill(~response_mask.bool(), 0.0)
    for part in losses.split(1):
        (part.sum() / response_mask.sum()).backward(retain_graph=True)
    return {"steps": len(losses)}


def under_total(policy_log_probs, advantages, response_mask):
    loss = token_mean(-policy_log_probs * advantages, response_mask.bool())
    return {"kl": 0.0, "total_loss": loss, "policy_loss": loss.item()}


def as_an_object(policy_log_probs, advantages, response_mask):
    return SimpleNamespace(total=a_step(policy_log_probs, advantages, response_mask), kl=0.0)


@pytest.mark.parametrize(
    "loss", [a_step, detached, nothing, in_two_parts, under_total, as_an_object]
)
def test_the_loss_is_what_backward_is_called_of_or_what_is_named_so(loss):
    one = batch(UNEVEN, MIXED, group_size=3)
    expected = Subject.of(
        lambda log_probs, advantages, mask: token_mean(-log_probs * advantages, mask)
    )
    subject = Subject.of(loss, convention="scripts-by-token")
    torch.testing.assert_close(subject.weights(one), expected.weights(one))
    (after := torch.ones(1, requires_grad=True)).sum().backward()
    assert after.grad is not None  # torch's is back


def test_a_step_of_a_course_has_a_report():
    report = examine(Subject.of(detached, convention="scripts-by-token"))
    assert not mistakes(report)
    assert codes(report, "choice") == {"token-mean"}


# ---------------------------------------------------------------- what is switched off, or kept


class Penalised:
    def __init__(self, beta):
        self.beta = beta

    def __call__(self, log_probs, ref_log_probs, advantages, mask):
        kl = k3(log_probs - ref_log_probs) if self.beta else 0.0
        return mean_of_sums(-log_probs * advantages + self.beta * kl, mask)


def by_default(log_probs, ref_log_probs, advantages, mask, kl_coef=0.0):
    return Penalised(kl_coef)(log_probs, ref_log_probs, advantages, mask)


def forgotten(log_probs, ref_log_probs, advantages, mask, kl_coef=0.1):
    return Penalised(0.0)(log_probs, ref_log_probs, advantages, mask)


def test_a_penalty_whose_factor_is_0_is_not_forgotten():
    for loss in (Penalised(0.0), Penalised(0.0).__call__, by_default):
        assert not mistakes(examine(loss))
    for loss, given in ((forgotten, {}), (by_default, {"kl_coef": 0.1})):
        report = examine(Subject.of(loss, given=given))
        assert mistakes(report) == ({"reference-ignored"} if loss is forgotten else set())


class RunningMean:
    def __init__(self):
        self.mean = 0.0

    def loss(self, log_probs, rewards, mask):
        advantages, self.mean = rewards - self.mean, 0.9 * self.mean + 0.1 * rewards.mean().item()
        return mean_of_sums(-log_probs * advantages[:, None], mask)

    def logged(self, log_probs, rewards, mask):
        self.mean = 0.9 * self.mean + 0.1 * rewards.mean().item()
        return mean_of_sums(-log_probs * rewards[:, None], mask)


def test_what_goes_by_earlier_batches_is_refused_and_a_number_for_a_log_is_not():
    with pytest.raises(UserError, match="keeps something, such as a running mean"):
        examine(RunningMean().loss)
    assert not mistakes(examine(RunningMean().logged))
