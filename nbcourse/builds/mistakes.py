"""The mistakes that are known: what each is, where the book has it, and the edit that makes it.

A law names one of them; planted into the book's piece, it is what a reader's tests have to
catch. So one table is the key of both, and a test sees that each is named for what it is.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nbcourse.builds import pieces

Edits = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Way:
    """One way to write a piece: with a mistake in it, or as right as the book's.

    Attributes:
        piece: which one.
        edits: what of the book's text is replaced, and by what.
    """

    piece: str
    edits: Edits

    def text(self) -> str:
        """The piece, written so.

        Raises:
            ValueError: if the book's text does not hold what the edit replaces, just once.
        """
        return edited(self.piece, self.edits)


@dataclass(frozen=True)
class Mistake(Way):
    """One way in which a piece is wrong.

    Attributes:
        sentence: what is wrong, in a line.
        section: of the book.
    """

    sentence: str
    section: str


def edited(piece: str, edits: Edits) -> str:
    """The book's text of a piece, edited.

    Raises:
        ValueError: if the text does not hold what an edit replaces, just once.
    """
    text = pieces.solution(piece)
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{piece}.py holds {old!r} {text.count(old)} times, expected once")
        text = text.replace(old, new)
    return text


# A heading names the piece and where the book has it. Below it stands each mistake's name and what
# is wrong, and the edit that makes it: what is taken out of the book's text, and what is put there.
CATALOGUE = r"""
# estimator: 2.8 Padding, masks and loss aggregation
climbed: The loss has the wrong sign: losses are minimised.
-return -(
+return (
short-answers-first: A response's log-prob is divided by its length; it is a sum.
-torch.where(mask, log_probs, 0.0).sum(dim=1)
+torch.where(mask, log_probs, 0.0).sum(dim=1) / mask.sum(dim=1)
mean-of-tokens: The loss is a mean over tokens; it is a mean over responses of sums.
-return -(advantages.detach() * responses).mean()
+return -(advantages.detach() * responses).sum() / mask.sum()
summed-responses: Responses are summed; the loss is their mean.
-return -(advantages.detach() * responses).mean()
+return -(advantages.detach() * responses).sum()
padding-counts: Places outside the mask have a gradient.
-torch.where(mask, log_probs, 0.0)
+log_probs
last-token-left-out: The last token of a response, its EOS, has no gradient.
-torch.where(mask, log_probs, 0.0)
+torch.where(mask.long().cumsum(1) < mask.sum(1, keepdim=True), log_probs, 0.0)
poisoned: NaN outside the mask reaches the loss: multiply by no mask, choose with torch.where.
-torch.where(mask, log_probs, 0.0)
+(mask * log_probs)
trained-advantages: A gradient flows into the advantages, which are constants.
-advantages.detach() *
+advantages *

# estimator: 2.5 Which baseline?
own-reward-in-baseline: The baseline is the mean of the whole group, its own reward included.
-(groups.sum(dim=1, keepdim=True) - groups) / (group_size - 1)
+groups.mean(dim=1, keepdim=True)
divided-by-group-size: The others are summed and divided by G; there are G − 1 of them.
-/ (group_size - 1)
+/ group_size
interleaved-groups: Groups are taken from every P-th row; the rows of a group follow each other.
-groups = rewards.view(-1, group_size)
-    others = (groups.sum(dim=1, keepdim=True) - groups) / (group_size - 1)
-    return (groups - others).flatten()
+groups = rewards.view(group_size, -1)
+    others = (groups.sum(dim=0, keepdim=True) - groups) / (group_size - 1)
+    return (groups - others).flatten()
batch-baseline: The baseline is taken over the whole batch, and not over the group.
-groups = rewards.view(-1, group_size)
-    others = (groups.sum(dim=1, keepdim=True) - groups) / (group_size - 1)
+groups = rewards
+    others = (groups.sum() - groups) / (len(groups) - 1)
inverted-advantages: The advantages have the wrong sign.
-(groups - others)
+(others - groups)

# gae: 3.6 GAE: all of them at once
no-bootstrap: The TD error lacks the value of the next place.
-rewards + gamma * after - values
+rewards - values
undiscounted-recursion: The recursion multiplies by λ alone; it is γλ.
-gamma * lam * running
+lam * running
one-step-only: The advantages are the TD errors: the recursion is missing.
-errors[:, t] + gamma * lam * running
+errors[:, t]
value-behind-the-end: The value after the last token is read; it is 0 there.
-rewards, values = (torch.where(mask, x, 0.0) for x in (rewards, values))
+rewards = torch.where(mask, rewards, 0.0)
returns-without-values: The returns are the advantages; they are advantages + values.
-return A, A + values
+return A, A

# clip: 5.6 PPO-clip: the clipped surrogate in six cases
max-of-objectives: The larger objective is taken; it is the smaller one.
-minimum
+maximum
clipped-on-both-sides: The clipped ratio alone is used; what moved the wrong way has to be pulled
    back.
-torch.minimum(ratio * A, ratio.clamp(1 - clip, 1 + clip) * A)
+ratio.clamp(1 - clip, 1 + clip) * A
no-clip: Nothing is clipped.
-torch.minimum(ratio * A, ratio.clamp(1 - clip, 1 + clip) * A)
+ratio * A
ratio-upside-down: The ratio is old over new; it is new over old.
-(log_probs - old_log_probs.detach())
+(old_log_probs.detach() - log_probs)
clip-climbed: The losses have the wrong sign.
-return -torch
+return torch
trained-old-log-probs: A gradient flows into the old log-probs, which are constants.
-old_log_probs.detach()
+old_log_probs

# reinforce: 7.5 Sampling with a KV cache
mask-by-value: The mask is False on the EOS that ends a response: built from token values, perhaps.
-"mask": mask[:, P:]
+"mask": mask[:, P:] & (tokens[:, P:] != EOS)
endless-mask: The mask is True after the end of a response.
-"mask": mask[:, P:]
+"mask": torch.ones_like(mask[:, P:])
finished-by-last-column: `finished` does not say which responses ended themselves.
-"finished": ~running
+"finished": tokens[:, -1] == EOS
cold-sampler: Tokens are too likely to be drawn from the policy: another temperature, or top-p?
-torch.multinomial(distribution.exp(), 1, generator=generator)
+torch.multinomial((1.5 * distribution).softmax(dim=-1), 1, generator=generator)
sampler-gap: The log-probs that the sampler reports are not those of the tokens that it drew.
-chosen = torch.multinomial(distribution.exp(), 1, generator=generator)
-        log_probs.append(distribution.gather(1, chosen))
+log_probs.append(distribution.max(dim=-1, keepdim=True).values)
+        chosen = torch.multinomial(distribution.exp(), 1, generator=generator)

# reinforce: 7.3 The log-probability of a token
shifted-log-probs: Log-probs are shifted by one: logits at place s are about the token at s + 1.
-[:, -T - 1 : -1]
+[:, -T:]
attended-padding: The model is shown the padding of the prompts: its mask is True there.
-mask = torch.cat([rollout["prompt_mask"], rollout["mask"]], dim=1)
+mask = torch.ones_like(tokens, dtype=torch.bool)
logits-for-log-probs: Logits are returned; log-probs are their log_softmax.
-distribution = model(tokens, mask)[:, -T - 1 : -1].log_softmax(dim=-1)
+distribution = model(tokens, mask)[:, -T - 1 : -1]
tempered-log-probs: Log-probs are taken at another temperature than 1.
-distribution = model(tokens, mask)[:, -T - 1 : -1].log
+distribution = (model(tokens, mask)[:, -T - 1 : -1] / 0.7).log

# reinforce: 16.4 Masks and rewards: what counts, and what it earns
cut-off-paid: A response that was cut off is paid if its text is right; it did not end itself.
-float(end and decode(t[m]) == answer)
+float(decode(t[m]) == answer)
prefix-paid: A response that only begins with the answer is paid.
-decode(t[m]) == answer
+decode(t[m]).startswith(answer)
padding-read: What comes after the end of a response is read as part of it.
-decode(t[m])
+decode(t)

# reinforce: 7.7 REINFORCE on a transformer
untrained-eos: No EOS is trained: the last token of each response has no gradient.
-advantages[rows], part["mask"])
+advantages[rows], part["mask"] & (part["tokens"] != EOS))
trained-padding: Tokens after the end of a response are trained.
-advantages[rows], part["mask"])
+advantages[rows], torch.ones_like(part["mask"]))
mean-of-micro-batches: Each micro-batch counts the same, whatever its size: the split matters.
-loss * len(rows) / len(advantages)
+loss / -(-len(advantages) // micro_batch)
sum-of-micro-batches: The means of the micro-batches are added up: the gradient grows with their
    number.
-(loss * len(rows) / len(advantages)).backward()
+loss.backward()
last-micro-batch-only: Only the last micro-batch has a gradient: the others are forgotten.
-        (loss * len(rows)
+        optimiser.zero_grad()
+        (loss * len(rows)
left-over-gradient: Gradients of the step before are still there: zero_grad is missing.
-    optimiser.zero_grad()
-    for rows
+    for rows

# reinforce: 16.5 Advantages: whose credit it is
no-baseline: There is no baseline: a group whose rewards are all equal moves the weights.
-advantages = leave_one_out(rewards, group_size)
+advantages = rewards
mixed-groups: The rows of a group do not have the same prompt.
-rows = [row for row in draw(prompts, generator) for _ in range(group_size)]
+rows = draw(prompts, generator) * group_size
other-rewards: The rewards are not what `score` gives for these rows, or not of these answers.
-return rollout, answers, score(rollout, answers)
+return rollout, answers, score(rollout, answers[1:] + answers[:1])
stale-sampler: The second step was sampled by the policy of the first.
-        rollout, answers, rewards = collect(model,
+        if 'old' not in locals():
+            from copy import deepcopy
+
+            old = deepcopy(model)
+        rollout, answers, rewards = collect(old,
same-draws: Every step draws the same problems and the same responses.
-    for _ in range(steps):
-
+    state = generator.get_state()
+    for _ in range(steps):
+        generator.set_state(state)
+
idle: The weights do not move as the batch says.
-        update(model, optimiser, rollout, advantages, micro_batch=len(rewards))
-

# ppo: 8.3 Actor and critic
critic-starts-anywhere: The head does not start at zero: before any step, values are not 0.
-torch.zeros_like(self.trunk
+torch.ones_like(self.trunk
one-trunk: The critic's trunk is the policy itself; it is a copy with weights of its own.
-self.trunk = Policy(policy.weights())
+self.trunk = policy
values-one-place-late: A value is read after its token; it belongs to the state in which that was
    chosen.
-[:, -T - 1 : -1] @ self.head
+[:, -T:] @ self.head
critic-sees-padding: The critic is shown the padding of the prompts.
-mask = torch.cat([rollout["prompt_mask"], rollout["mask"]], dim=1)
+mask = torch.ones_like(tokens, dtype=torch.bool)

# ppo: 8.4 The KL penalty
score-in-the-last-column: The score is in the last column; it belongs to the last token of the
    response.
-mask.sum(dim=1, keepdim=True) - 1
+mask.shape[1] - 1
score-on-every-token: Every token has the score; only the last one has it.
-torch.where(last, scores
+torch.where(mask, scores
drift-rewarded: The penalty has the wrong sign: leaving the reference is rewarded.
--beta * (log_probs - ref_log_probs)
+beta * (log_probs - ref_log_probs)
penalty-on-padding: Places outside the mask have a reward.
-torch.where(mask, -beta * (log_probs - ref_log_probs), 0.0)
+-beta * (log_probs - ref_log_probs)
penalty-at-the-end: The whole penalty is paid at the last token; each token pays its own.
-last = torch.arange(mask.shape[1]) == mask.sum(dim=1, keepdim=True) - 1
-    return rewards +
+last = torch.arange(mask.shape[1]) == mask.sum(dim=1, keepdim=True) - 1
+    rewards = torch.where(last, rewards.sum(dim=1, keepdim=True), 0.0)
+    return rewards +
k3-in-the-reward: The penalty is k3; in a reward, only k1 has the gradient of the KL.
--beta * (log_probs - ref_log_probs), 0.0)
+-beta * ((ref_log_probs - log_probs).expm1() + log_probs - ref_log_probs), 0.0)
moving-reference: There is no penalty: is the reference the policy itself, which moves?
-reference = Policy(model.weights())
+reference = model

# ppo: 8.6 Whitening
whitened-with-padding: Mean and variance count the zeros outside the mask.
-kept = advantages[mask]
+kept = torch.where(mask, advantages, 0.0)
padding-in-the-mean: Mean and variance count values outside the mask.
-kept = advantages[mask]
+kept = advantages
whitened-by-response: Each response is whitened by itself; mean and variance are those of the batch.
-    white = (advantages - kept.mean()) / (kept.var() + 1e-8).sqrt()
-
+    rows = [(a - a[m].mean()) / (a[m].var() + 1e-8).sqrt() if m.sum() > 1 else a * 0
+            for a, m in zip(advantages, mask)]
+    white = torch.stack(rows)
+
scaled-only: The mean is not subtracted.
-(advantages - kept.mean())
+advantages
centred-only: Nothing is divided by the standard deviation.
- / (kept.var() + 1e-8).sqrt()
targets-after-whitening: The critic's targets are made of whitened advantages: their mean is 0 in
    each batch.
-advantages = whiten(advantages, mask)
-
+advantages = whiten(advantages, mask)
+        returns = advantages + values
+
never-whitened: The advantages are not whitened.
-        advantages = whiten(advantages, mask)
-

# ppo: 8.7 What the critic learns
untrained-critic: The critic has no gradient.
-(critic(part) - returns[rows])
+(critic(part).detach() - returns[rows])
critic-learns-advantages: The critic learns advantages; its targets are returns.
-(critic(part) - returns[rows])
+(critic(part) - advantages[rows])
error-not-squared: The critic's error is absolute: it learns a median, and a value is a mean.
-0.5 * (critic(part) - returns[rows]).square()
+(critic(part) - returns[rows]).abs()
rewards-as-targets: The critic learns the rewards of the tokens; its targets are returns.
-advantages, returns = gae(rewards, values, mask, 1.0, lam)
+advantages, returns = gae(rewards, values, mask, 1.0, lam)[0], rewards
no-critic: The values are 0: the critic is not asked.
-values = critic(rollout)
+values = torch.zeros_like(old_log_probs)

# ppo: 8.9 The training loop
token-means-of-micro-batches: Each micro-batch is divided by its own tokens: the gradient depends on
    the split.
-.sum() / count)
+.sum() / part["mask"].sum())
padding-in-the-loss: Places outside the mask are trained.
-torch.where(part["mask"], losses, 0.0)
+losses
ratio-of-one: The ratio is always 1: old log-probs are taken anew at each update.
-ppo_clip(log_probs, old_log_probs[rows]
+ppo_clip(log_probs, log_probs.detach()
gradient-of-before: Gradients of the step before are still there: zero_grad is missing.
-    optimiser.zero_grad()
-
whole-returns: λ is 1, whatever `lam` says.
-1.0, lam)
+1.0, 1.0)
one-pass: The weights do not move as the batch says: as many updates as `epochs`?
-for _ in range(epochs):
+for _ in range(1):

# grpo: 10.2 The group baseline
population-deviation: The standard deviation has the denominator G; the unbiased one has G − 1.
-groups.std(dim=1, keepdim=True)
+groups.std(dim=1, keepdim=True, correction=0)
not-divided: Distances from the mean are not divided by the standard deviation.
-z = centred / (groups.std(dim=1, keepdim=True) + eps)
+z = centred
divided-by-variance: Distances from the mean are divided by the variance.
-groups.std(dim=1, keepdim=True)
+groups.var(dim=1, keepdim=True)
z-scores-of-the-batch: The mean and the deviation are those of the whole batch.
-groups = rewards.view(-1, group_size)
+groups = rewards.view(1, -1)
groups-of-every-pth-row: Groups are taken from every P-th row; the rows of a group follow each
    other.
-groups = rewards.view(-1, group_size)
+groups = rewards.view(group_size, -1).T
amplified-rounding: A group whose rewards are all equal has advantages: its rounding error is
    divided.
-return torch.where(spread, z, 0.0).flatten()
+return z.flatten()

# grpo: 10.7 The mean over tokens
tokens-of-the-batch: Mode "sequence" weighs every token the same; each response counts the same.
-"sequence": len(mask) * tokens
+"sequence": mask.sum()
averages-of-averages: Mode "token" is the mean of the responses' means; it is one mean over all
    tokens.
-"token": mask.sum()
+"token": len(mask) * tokens
own-length: Mode "length" divides by a response's own length; it divides by `longest`.
-"length": len(mask) * longest
+"length": len(mask) * tokens
weights-of-padding: Places outside the mask have a weight.
-torch.where(mask, 1.0 / denominators[mode], 0.0)
+(1.0 / denominators[mode]) * torch.ones_like(mask)

# grpo: 10.6 PPO's clip, without a critic
average-of-each-micro-batch: The averages are taken over each micro-batch: the gradient depends on
    the split.
-losses * every[rows]
+losses * weights(part["mask"], mode, part["mask"].shape[1])
fresh-old-log-probs: The ratio is always 1: old log-probs are taken anew at each update.
-ppo_clip(log_probs, old_log_probs[rows], A)
+ppo_clip(log_probs, log_probs.detach(), A)
untrained-ends: No EOS is trained: the last token of each response has no gradient.
-torch.where(part["mask"], losses
+torch.where(part["mask"] & (part["tokens"] != 0), losses
kept-gradient: Gradients of the step before are still there: zero_grad is missing.
-    optimiser.zero_grad()
-

# grpo: 16.5 Advantages: whose credit it is
scattered-groups: The rows of a group do not have the same prompt.
-collect(model, prompts, group_size, generator)
+collect(model, prompts * group_size, 1, generator)
rewards-for-advantages: Rewards are used as advantages: a flat group moves the weights.
-advantages = group_advantages(rewards, group_size)
+advantages = rewards
old-log-probs-too-late: The old log-probs are not those of the learner before its first update.
-        with torch.no_grad():
-            old_log_probs = response_log_probs(model, rollout)
-        for _ in range(epochs):
-
+        for _ in range(epochs):
+            with torch.no_grad():
+                old_log_probs = response_log_probs(model, rollout)
+
one-epoch: The weights do not move as the batch says: as many updates as `epochs`?
-for _ in range(epochs):
+for _ in range(1):

# verifier: 13.4 The verifier is the reward
hedge-paid: A line with more than a number is a claim: “#### 18 or 20” is paid.
-re.fullmatch(number, claim)
+re.match(number, claim)
one-of-several-claims: Of claims that contradict each other one is taken; they count as no answer.
-return found.pop() if len(found) == 1 else None
+return found.pop()
spoiled-claim-passed-over: A claim that is not a number is ignored, and another one is paid.
-    if not good or not all(good):
-        return None
-
+    good = [m for m in good if m]
+    if not good:
+        return None
+
loose-commas: Commas that do not separate thousands are accepted: 1,00 is not a number.
-[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+
+[0-9][0-9,]*
foreign-digits: Digits of other scripts, or superscripts, are read as digits.
-(?:,[0-9]{3})+|[0-9]+)
+(?:,[0-9]{3})+|\d+)
commas-refused: Thousands with commas are refused, or stop the program: 1,000 is a number.
-[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+
+[0-9]+
dress-refused: A right answer is refused for its formatting: a $, a sign, a full stop or a space.
-[ \t]*([-−]?)[ \t]*\$?({digits})[ \t]*\.?[ \t]*
+[ \t]*()({digits})[ \t]*
compared-as-text: Answers are compared as texts; 18.00 is 18.
-float(claimed is not None and claimed == Decimal(answer.replace(
+float(str(claimed) == str(answer.replace(
five-hashes: A line with five hashes is a claim; the marker has exactly four.
-(?<!#)####(?!#)
+#{4,}
number-anywhere: A number without a marker is an answer.
-    good = [
+    claims = claims or re.findall("[0-9]+", response)
+    good = [

# planner: 15.2 Static memory
missing-moment: A parameter that learns has 12 bytes: a moment, or the gradient, is missing.
-4 + 4 + 2 * 4
+4 + 4 + 4
no-moments: A parameter that learns has 8 bytes: AdamW's two moments are missing.
-4 + 4 + 2 * 4
+4 + 4
reference-forgotten: The reference takes no memory.
-(learns + 4 + (
+(learns + (
reference-that-learns: The reference has a gradient and moments; it is frozen.
-(learns + 4 + (
+(learns + learns + (
frozen-critic: The critic is given weights only; it learns, too.
-(learns if critic else 0)
+(4 if critic else 0)
critic-for-nothing: A critic of its own takes no memory.
- + (learns if critic else 0))
+)

# planner: 15.3 Activation memory
keys-without-values: Half of the bytes: keys and values are two tensors, and a number has 4 bytes.
-return 2 * shape["layers"]
+return shape["layers"]
key-for-each-query: Every query head has a key and a value of its own; kv_heads are shared.
-shape["kv_heads"]
+shape["heads"]
one-layer: Only one layer has keys and values; each has its own.
-2 * shape["layers"] * rows
+2 * rows
one-row: The bytes do not grow with the number of responses.
-* rows * columns
+* columns
cache-in-bits: Eight times too much: bits, and not bytes.
-shape["head_width"] * 4
+shape["head_width"] * 32

# planner: 15.4 What each setting saves in memory and costs in time
less-than-none: Where not even the static bytes fit, a negative number of responses does.
-max(0, left // cache_bytes(shape, 1, columns))
+left // cache_bytes(shape, 1, columns)
one-too-many: The number is rounded up: the last response does not fit.
-max(0, left // cache_bytes(shape, 1, columns))
+max(0, -(-left // cache_bytes(shape, 1, columns)))
fraction-of-a-row: The number is not whole.
-left // cache_bytes
+left / cache_bytes
static-forgotten: All of the memory is given to keys and values: the static bytes need room, too.
-memory - static_bytes(shape, critic)
+memory

# planner: 15.5 Time
one-after-the-other: The times are added up; a machine computes and moves bytes at once.
-max(operations / machine["speed"], moved / machine["bandwidth"])
+operations / machine["speed"] + moved / machine["bandwidth"]
faster-than-it-can: The shorter time is taken; what takes longer decides.
-return max(operations
+return min(operations
arithmetic-alone: Moving bytes takes no time.
-max(operations / machine["speed"], moved / machine["bandwidth"])
+operations / machine["speed"]
weights-for-each-row: The weights are read anew for each response; they are read once for all.
-4 * N + cache_bytes(
+4 * N * rows + cache_bytes(
forgotten-prompt: The keys and values of the prompt are not read.
-rows, prompt + t)
+rows, t)
one-pass-for-all-tokens: All tokens are drawn in one pass; each waits for the one before it.
-"sample": sum(drawn)
+"sample": at_least(2 * N * rows * response,
+                4 * N + cache_bytes(shape, rows, prompt + response), machine)
reference-backwards: The reference is learned from; it only goes forward.
-at_least(2 * N * tokens, 0
+at_least(6 * N * tokens, 0
unread-prompts: The reference reads the responses alone; their prompts come first.
-at_least(2 * N * tokens, 0
+at_least(2 * N * rows * response, 0
forward-only: Learning costs a forward pass only; the backward pass costs twice as much again.
-at_least(6 * N * tokens * epochs
+at_least(2 * N * tokens * epochs
one-epoch-planned: Learning takes the same time for any number of epochs.
-6 * N * tokens * epochs
+6 * N * tokens
prompts-not-learned: Learning passes over the responses alone; their prompts are read, too.
-6 * N * tokens * epochs
+6 * N * rows * response * epochs

# gate: 17.4 Before you pay
all-right-is-mixed: A group of right answers counts as mixed; nothing in it differs.
-0 < sum(group) < len(group)
+0 < sum(group)
all-wrong-is-mixed: A group of wrong answers counts as mixed; nothing in it differs.
-0 < sum(group) < len(group)
+sum(group) < len(group)
answers-for-groups: That is the share of right answers; it is groups that teach.
-sum(mixed) / len(groups)
+sum(map(sum, groups)) / sum(map(len, groups))
luck-without-all-right: Luck makes groups that are all right as well; they are not mixed.
-return 1 - (1 - chance) ** size - chance**size
+return 1 - (1 - chance) ** size
luck-of-one-answer: That is the chance of a right answer, and does not know how large a group is.
-return 1 - (1 - chance) ** size - chance**size
+return chance
luck-of-a-pair: That is what luck mixes in groups of two.
-return 1 - (1 - chance) ** size - chance**size
+return 2 * chance * (1 - chance)
product-for-cosine: The lengths are not divided out: a long gradient is no better a direction.
-return product / lengths if lengths else 0.0
+return product
lengths-unrooted: The product is divided by squared lengths; a cosine divides by the lengths.
-lengths = sqrt(sum(a * a for a in first) * sum(b * b for b in second))
+lengths = sum(a * a for a in first) * sum(b * b for b in second)
cut-passed-over: Answers that were cut off are not asked for; the verdict is about their stumps.
-measured["cut"] > 0.25
+measured["cut"] > 1
chance-passed-over: An accuracy at the chance level is taken for knowledge.
-measured["lenient"] <= 2 * measured["chance"]
+measured["lenient"] <= 0
strict-against-chance: A form that is missing is taken for ignorance: chance is for lenient reading.
-measured["lenient"] <= 2 * measured["chance"]
+measured["strict"] <= 2 * measured["chance"]
form-passed-over: Strict and lenient reading are not compared.
-measured["strict"] < measured["lenient"] / 2
+measured["strict"] < 0
luck-passed-over: Groups that luck mixes count as a reason to train.
-measured["mixed"] <= measured["luck"]
+measured["mixed"] <= 0

# gate: 17.1 How many questions?
unpaired-gain: The variances of two examinations are added, as if each had its own questions.
-variance = sum((c - gain) ** 2 for c in change) / (n - 1)
+variance = sum((x - sum(e) / n) ** 2 for e in (before, after) for x in e) / (n - 1)
spread-by-all-questions: The variance divides by all questions, and not by one less.
-for c in change) / (n - 1)
+for c in change) / n
spread-of-a-question: That is the spread of one question's difference; a mean of n has 1/√n of it.
-sqrt(variance / n)
+sqrt(variance)
one-standard-error: That is one standard error to either side; 95 % takes 1.96 of them.
-radius = 1.96 * sqrt
+radius = sqrt
gain-backwards: Before and after are exchanged.
-b - a for a, b in
+a - b for a, b in
losses-left-out: Questions that were lost are not counted.
-b - a for a, b in
+max(0, b - a) for a, b in
sign-for-interval: That is how often the gain is positive; its interval is to lie above zero.
-gain / error - 1.96
+gain / error
error-function-unscaled: The normal distribution is Φ(z) = (1 + erf(z/√2))/2; the root is missing.
-(gain / error - 1.96) / sqrt(2)
+gain / error - 1.96
mean-square-for-variance: The square of the gain belongs to its mean, and not to its spread.
-(changed - gain**2) / questions
+changed / questions
"""
ENTRY = re.compile(r"^([\w-]+): (.+(?:\n    .+)*)\n((?:[-+].*\n)+)", re.MULTILINE)


def _read(catalogue: str) -> Iterator[tuple[str, Mistake]]:
    for part in re.split(r"^# ", catalogue, flags=re.MULTILINE)[1:]:
        heading, _, entries = part.partition("\n")
        piece, _, section = heading.partition(": ")
        for name, sentence, edit in ENTRY.findall(entries):
            lines = edit.splitlines()
            old, new = ("\n".join(x[1:] for x in lines if x[0] == sign) for sign in "-+")
            yield name, Mistake(piece, ((old, new),), " ".join(sentence.split()), section)


MISTAKES: Mapping[str, Mistake] = dict(_read(CATALOGUE))
