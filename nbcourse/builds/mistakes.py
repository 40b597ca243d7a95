"""The mistakes that are known: what each is, where the book has it, and the edit that makes it.

A law names one of them; planted into the book's piece, it is what a reader's tests have to
catch. So one table is the key of both, and a test sees that each is named for what it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from nbcourse.builds import pieces


@dataclass(frozen=True)
class Mistake:
    """One way in which a piece is wrong.

    Attributes:
        piece: which one.
        sentence: what is wrong, in a line.
        section: of the book.
        edits: what of the book's text is replaced, and by what.
    """

    piece: str
    sentence: str
    section: str
    edits: tuple[tuple[str, str], ...]

    def text(self) -> str:
        """The book's piece with the mistake in it.

        Raises:
            ValueError: if the book's text does not hold what the edit replaces, just once.
        """
        return edited(self.piece, self.edits)


def edited(piece: str, edits: tuple[tuple[str, str], ...]) -> str:
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


def _in(piece: str, section: str, *rows: tuple[str, str, str, str]) -> dict[str, Mistake]:
    return {
        name: Mistake(piece, sentence, section, ((old, new),)) for name, sentence, old, new in rows
    }


LOSS = "return -(advantages.detach() * responses).mean()"
MISTAKES: Mapping[str, Mistake] = {
    **_in(
        "estimator",
        "2.8 The same thing with padding",
        (
            "climbed",
            "The loss has the wrong sign: losses are minimised.",
            "return -(",
            "return (",
        ),
        (
            "short-answers-first",
            "A response's log-prob is divided by its length; it is a sum.",
            "torch.where(mask, log_probs, 0.0).sum(dim=1)",
            "torch.where(mask, log_probs, 0.0).sum(dim=1) / mask.sum(dim=1)",
        ),
        (
            "mean-of-tokens",
            "The loss is a mean over tokens; it is a mean over responses of sums.",
            LOSS,
            "return -(advantages.detach() * responses).sum() / mask.sum()",
        ),
        (
            "summed-responses",
            "Responses are summed; the loss is their mean.",
            LOSS,
            LOSS.replace("mean", "sum"),
        ),
        (
            "padding-counts",
            "Places outside the mask have a gradient.",
            "torch.where(mask, log_probs, 0.0)",
            "log_probs",
        ),
        (
            "last-token-left-out",
            "The last token of a response, its EOS, has no gradient.",
            "torch.where(mask, log_probs, 0.0)",
            "torch.where(mask.long().cumsum(1) < mask.sum(1, keepdim=True), log_probs, 0.0)",
        ),
        (
            "poisoned",
            "NaN outside the mask reaches the loss: multiply by no mask, choose with torch.where.",
            "torch.where(mask, log_probs, 0.0)",
            "(mask * log_probs)",
        ),
        (
            "trained-advantages",
            "A gradient flows into the advantages, which are constants.",
            "advantages.detach() *",
            "advantages *",
        ),
    ),
    **_in(
        "estimator",
        "2.5 Which baseline?",
        (
            "own-reward-in-baseline",
            "The baseline is the mean of the whole group, the own reward included.",
            "(groups.sum(dim=1, keepdim=True) - groups) / (group_size - 1)",
            "groups.mean(dim=1, keepdim=True)",
        ),
        (
            "divided-by-group-size",
            "The others are summed and divided by G; there are G − 1 of them.",
            "/ (group_size - 1)",
            "/ group_size",
        ),
        (
            "interleaved-groups",
            "Groups are taken from every P-th row; the rows of a group follow each other.",
            "groups = rewards.view(-1, group_size)\n"
            "    others = (groups.sum(dim=1, keepdim=True) - groups) / (group_size - 1)\n"
            "    return (groups - others).flatten()",
            "groups = rewards.view(group_size, -1)\n"
            "    others = (groups.sum(dim=0, keepdim=True) - groups) / (group_size - 1)\n"
            "    return (groups - others).flatten()",
        ),
        (
            "batch-baseline",
            "The baseline is taken over the whole batch, and not over the group.",
            "groups = rewards.view(-1, group_size)\n"
            "    others = (groups.sum(dim=1, keepdim=True) - groups) / (group_size - 1)",
            "groups = rewards\n    others = (groups.sum() - groups) / (len(groups) - 1)",
        ),
        (
            "inverted-advantages",
            "The advantages have the wrong sign.",
            "(groups - others)",
            "(others - groups)",
        ),
    ),
    **_in(
        "gae",
        "3.6 GAE: all of them at once",
        (
            "no-bootstrap",
            "The TD error lacks the value of the next place.",
            "rewards + gamma * after - values",
            "rewards - values",
        ),
        (
            "undiscounted-recursion",
            "The recursion multiplies by λ alone; it is γλ.",
            "gamma * lam * running",
            "lam * running",
        ),
        (
            "one-step-only",
            "The advantages are the TD errors: the recursion is missing.",
            "errors[:, t] + gamma * lam * running",
            "errors[:, t]",
        ),
        (
            "value-behind-the-end",
            "The value behind the last token is used; there it is 0.",
            "rewards, values = (torch.where(mask, x, 0.0) for x in (rewards, values))",
            "rewards = torch.where(mask, rewards, 0.0)",
        ),
        (
            "returns-without-values",
            "The returns are the advantages; they are advantages + values.",
            "return A, A + values",
            "return A, A",
        ),
    ),
    **_in(
        "clip",
        "5.6 PPO-clip: the six cases",
        (
            "max-of-objectives",
            "The larger objective is taken; it is the smaller one.",
            "minimum",
            "maximum",
        ),
        (
            "clipped-on-both-sides",
            "The clipped ratio alone is used; what moved the wrong way has to be pulled back.",
            "torch.minimum(ratio * A, ratio.clamp(1 - clip, 1 + clip) * A)",
            "ratio.clamp(1 - clip, 1 + clip) * A",
        ),
        (
            "no-clip",
            "Nothing is clipped.",
            "torch.minimum(ratio * A, ratio.clamp(1 - clip, 1 + clip) * A)",
            "ratio * A",
        ),
        (
            "ratio-upside-down",
            "The ratio is old over new; it is new over old.",
            "(log_probs - old_log_probs.detach())",
            "(old_log_probs.detach() - log_probs)",
        ),
        ("clip-climbed", "The losses have the wrong sign.", "return -torch", "return torch"),
        (
            "trained-old-log-probs",
            "A gradient flows into the old log-probs, which are constants.",
            "old_log_probs.detach()",
            "old_log_probs",
        ),
    ),
    **_in(
        "reinforce",
        "7.5 The sampler",
        (
            "mask-by-value",
            "The mask is False on the EOS that ends a response: built from token values, perhaps.",
            '"mask": mask[:, P:]',
            '"mask": mask[:, P:] & (tokens[:, P:] != EOS)',
        ),
        (
            "endless-mask",
            "The mask is True behind the end of a response.",
            '"mask": mask[:, P:]',
            '"mask": torch.ones_like(mask[:, P:])',
        ),
        (
            "finished-by-last-column",
            "`finished` does not say which responses ended themselves.",
            '"finished": ~running',
            '"finished": tokens[:, -1] == EOS',
        ),
        (
            "cold-sampler",
            "Tokens are too likely to be drawn from the policy: another temperature, or top-p?",
            "torch.multinomial(distribution.exp(), 1, generator=generator)",
            "torch.multinomial((1.5 * distribution).softmax(dim=-1), 1, generator=generator)",
        ),
        (
            "sampler-gap",
            "The log-probs that the sampler reports are not those of the tokens that it drew.",
            "chosen = torch.multinomial(distribution.exp(), 1, generator=generator)\n"
            "        log_probs.append(distribution.gather(1, chosen))",
            "log_probs.append(distribution.max(dim=-1, keepdim=True).values)\n"
            "        chosen = torch.multinomial(distribution.exp(), 1, generator=generator)",
        ),
    ),
    **_in(
        "reinforce",
        "7.3 The log-probability of a token",
        (
            "shifted-log-probs",
            "Log-probs are shifted by one: logits at place s are about the token at s + 1.",
            "[:, -T - 1 : -1]",
            "[:, -T:]",
        ),
        (
            "attended-padding",
            "The model is shown the padding of the prompts: its mask is True there.",
            "mask = torch.cat([rollout[\"prompt_mask\"], rollout[\"mask\"]], dim=1)",
            "mask = torch.ones_like(tokens, dtype=torch.bool)",
        ),
        (
            "logits-for-log-probs",
            "Logits are returned; log-probs are their log_softmax.",
            "distribution = model(tokens, mask)[:, -T - 1 : -1].log_softmax(dim=-1)",
            "distribution = model(tokens, mask)[:, -T - 1 : -1]",
        ),
        (
            "tempered-log-probs",
            "Log-probs are taken at another temperature than 1.",
            "distribution = model(tokens, mask)[:, -T - 1 : -1].log",
            "distribution = (model(tokens, mask)[:, -T - 1 : -1] / 0.7).log",
        ),
    ),
    **_in(
        "reinforce",
        "16.4 What counts, and what it earns",
        (
            "cut-off-paid",
            "A response that was cut off is paid if its text is right; it did not end itself.",
            "float(end and decode(t[m]) == answer)",
            "float(decode(t[m]) == answer)",
        ),
        (
            "prefix-paid",
            "A response that only begins with the answer is paid.",
            "decode(t[m]) == answer",
            "decode(t[m]).startswith(answer)",
        ),
        (
            "padding-read",
            "What stands behind the end of a response is read as part of it.",
            "decode(t[m])",
            "decode(t)",
        ),
    ),
    **_in(
        "reinforce",
        "7.7 REINFORCE on a transformer",
        (
            "untrained-eos",
            "No EOS is trained: the last token of each response has no gradient.",
            'advantages[rows], part["mask"])',
            'advantages[rows], part["mask"] & (part["tokens"] != EOS))',
        ),
        (
            "trained-padding",
            "Tokens behind the end of a response are trained.",
            'advantages[rows], part["mask"])',
            'advantages[rows], torch.ones_like(part["mask"]))',
        ),
        (
            "mean-of-micro-batches",
            "Each micro-batch counts the same, whatever its size: the split matters.",
            "loss * len(rows) / len(advantages)",
            "loss / -(-len(advantages) // micro_batch)",
        ),
        (
            "sum-of-micro-batches",
            "The means of the micro-batches are added up: the gradient grows with their number.",
            "(loss * len(rows) / len(advantages)).backward()",
            "loss.backward()",
        ),
        (
            "last-micro-batch-only",
            "Only the last micro-batch has a gradient: the others are forgotten.",
            "        (loss * len(rows)",
            "        optimiser.zero_grad()\n        (loss * len(rows)",
        ),
        (
            "left-over-gradient",
            "Gradients of the step before are still there: zero_grad is missing.",
            "    optimiser.zero_grad()\n    for rows",
            "    for rows",
        ),
    ),
    **_in(
        "reinforce",
        "16.5 Whose credit it is",
        (
            "no-baseline",
            "There is no baseline: a group whose rewards are all equal moves the weights.",
            "advantages = leave_one_out(rewards, group_size)",
            "advantages = rewards",
        ),
        (
            "mixed-groups",
            "The rows of a group do not have the same prompt.",
            "rows = [row for row in draw(prompts, generator) for _ in range(group_size)]",
            "rows = draw(prompts, generator) * group_size",
        ),
        (
            "other-rewards",
            "The rewards are not what `score` gives for these rows, or not of these answers.",
            "rewards = score(rollout, answers)",
            "rewards = score(rollout, answers[1:] + answers[:1])",
        ),
        (
            "stale-sampler",
            "The second step was sampled by the policy of the first.",
            "        rollout = sample(model, *encode",
            "        if 'old' not in locals():\n            from copy import deepcopy\n\n"
            "            old = deepcopy(model)\n"
            "        rollout = sample(old, *encode",
        ),
        (
            "same-draws",
            "Every step draws the same problems and the same responses.",
            "    for _ in range(steps):\n",
            "    state = generator.get_state()\n    for _ in range(steps):\n"
            "        generator.set_state(state)\n",
        ),
        (
            "idle",
            "The weights do not move as the batch says.",
            "        update(model, optimiser, rollout, advantages, micro_batch=len(rows))\n",
            "",
        ),
    ),
    **_in(
        "grpo",
        "10.2 The group baseline",
        (
            "population-deviation",
            "The standard deviation has the denominator G; the unbiased one has G − 1.",
            "groups.std(dim=1, keepdim=True)",
            "groups.std(dim=1, keepdim=True, correction=0)",
        ),
        (
            "not-divided",
            "Distances from the mean are not divided by the standard deviation.",
            "z = centred / (groups.std(dim=1, keepdim=True) + eps)",
            "z = centred",
        ),
        (
            "divided-by-variance",
            "Distances from the mean are divided by the variance.",
            "groups.std(dim=1, keepdim=True)",
            "groups.var(dim=1, keepdim=True)",
        ),
        (
            "z-scores-of-the-batch",
            "The mean and the deviation are those of the whole batch.",
            "groups = rewards.view(-1, group_size)",
            "groups = rewards.view(1, -1)",
        ),
        (
            "groups-of-every-pth-row",
            "Groups are taken from every P-th row; the rows of a group follow each other.",
            "groups = rewards.view(-1, group_size)",
            "groups = rewards.view(group_size, -1).T",
        ),
        (
            "amplified-rounding",
            "A group whose rewards are all equal has advantages: its rounding error is divided.",
            "return torch.where(spread, z, 0.0).flatten()",
            "return z.flatten()",
        ),
    ),
    **_in(
        "grpo",
        "10.7 The mean over tokens",
        (
            "tokens-of-the-batch",
            'Mode "sequence" weighs every token the same; each response counts the same.',
            '"sequence": len(mask) * tokens',
            '"sequence": mask.sum()',
        ),
        (
            "averages-of-averages",
            'Mode "token" is the mean of the responses\' means; it is one mean over all tokens.',
            '"token": mask.sum()',
            '"token": len(mask) * tokens',
        ),
        (
            "own-length",
            'Mode "length" divides by a response\'s own length; it divides by `longest`.',
            '"length": len(mask) * longest',
            '"length": len(mask) * tokens',
        ),
        (
            "weights-of-padding",
            "Places outside the mask have a weight.",
            "torch.where(mask, 1.0 / denominators[mode], 0.0)",
            "(1.0 / denominators[mode]) * torch.ones_like(mask)",
        ),
    ),
    **_in(
        "grpo",
        "10.6 PPO's clip, without a critic",
        (
            "average-of-each-micro-batch",
            "The averages are taken over each micro-batch: the gradient depends on the split.",
            "losses * every[rows]",
            'losses * weights(part["mask"], mode, part["mask"].shape[1])',
        ),
        (
            "fresh-old-log-probs",
            "The ratio is always 1: old log-probs are taken anew at each update.",
            "ppo_clip(log_probs, old_log_probs[rows], A)",
            "ppo_clip(log_probs, log_probs.detach(), A)",
        ),
        (
            "untrained-ends",
            "No EOS is trained: the last token of each response has no gradient.",
            'torch.where(part["mask"], losses',
            'torch.where(part["mask"] & (part["tokens"] != 0), losses',
        ),
        (
            "kept-gradient",
            "Gradients of the step before are still there: zero_grad is missing.",
            "    optimiser.zero_grad()\n",
            "",
        ),
    ),
    **_in(
        "grpo",
        "16.5 Whose credit it is",
        (
            "scattered-groups",
            "The rows of a group do not have the same prompt.",
            "rows = [row for row in draw(prompts, generator) for _ in range(group_size)]",
            "rows = draw(prompts, generator) * group_size",
        ),
        (
            "rewards-for-advantages",
            "Rewards stand where advantages should: a flat group moves the weights.",
            "advantages = group_advantages(rewards, group_size)",
            "advantages = rewards",
        ),
        (
            "old-log-probs-too-late",
            "The old log-probs are not those of the learner before its first update.",
            "        with torch.no_grad():\n"
            "            old_log_probs = response_log_probs(model, rollout)\n"
            "        for _ in range(epochs):\n",
            "        for _ in range(epochs):\n"
            "            with torch.no_grad():\n"
            "                old_log_probs = response_log_probs(model, rollout)\n",
        ),
        (
            "one-epoch",
            "The weights do not move as the batch says: as many updates as `epochs`?",
            "for _ in range(epochs):",
            "for _ in range(1):",
        ),
    ),
    **_in(
        "verifier",
        "13.4 The verifier is the reward",
        (
            "hedge-paid",
            "A line with more than a number is a claim: “#### 18 or 20” is paid.",
            "re.fullmatch(number, claim)",
            "re.match(number, claim)",
        ),
        (
            "one-of-several-claims",
            "Of claims that contradict each other one is taken; two answers are none.",
            "return found.pop() if len(found) == 1 else None",
            "return found.pop()",
        ),
        (
            "spoiled-claim-passed-over",
            "A claim that is no number is passed over, and another one is paid.",
            "    if not good or not all(good):\n        return None\n",
            "    good = [m for m in good if m]\n    if not good:\n        return None\n",
        ),
        (
            "loose-commas",
            "Commas that do not separate thousands are accepted: 1,00 is no number.",
            "[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+",
            "[0-9][0-9,]*",
        ),
        (
            "foreign-digits",
            "Digits of other scripts, or superscripts, are read as digits.",
            "(?:,[0-9]{3})+|[0-9]+)",
            r"(?:,[0-9]{3})+|\d+)",
        ),
        (
            "commas-refused",
            "Thousands with commas are refused, or stop the program: 1,000 is a number.",
            "[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+",
            "[0-9]+",
        ),
        (
            "dress-refused",
            "A right answer is refused for its dress: a $, a sign, a full stop or a space.",
            r"[ \t]*([-−]?)[ \t]*\$?({digits})[ \t]*\.?[ \t]*",
            r"[ \t]*()({digits})[ \t]*",
        ),
        (
            "compared-as-text",
            "Answers are compared as texts; 18.00 is 18.",
            "float(claimed is not None and claimed == Decimal(answer.replace(",
            "float(str(claimed) == str(answer.replace(",
        ),
        (
            "five-hashes",
            "A line with five hashes is a claim; the marker has exactly four.",
            "(?<!#)####(?!#)",
            "#{4,}",
        ),
        (
            "number-anywhere",
            "A number without a marker is an answer.",
            "    good = [",
            '    claims = claims or re.findall("[0-9]+", response)\n    good = [',
        ),
    ),
}  # fmt: skip
