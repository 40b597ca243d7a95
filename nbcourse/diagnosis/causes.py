"""The causes that a diagnosis can name: what each is, how to mend it, and where the book has it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """One way in which a run goes wrong.

    Attributes:
        sentence: what is wrong, in a sentence.
        mend: what to do instead.
        section: of the book, as it is headed.
    """

    sentence: str
    mend: str
    section: str


CAUSES: dict[str, Cause] = {
    # ---------------------------------------------------------------- who sampled, who scores
    "stale-sampler": Cause(
        "The sampler does not have the learner's weights.",
        "hand the new weights to the sampler after every step, and compare fingerprints there",
        "7.8 When the sampler is not the learner",
    ),
    "sampler-temperature": Cause(
        "The sampler draws at another temperature than the one that the learner scores at.",
        "divide the learner's logits by the sampler's temperature",
        "7.8 When the sampler is not the learner",
    ),
    "sampler-truncation": Cause(
        "The sampler cuts off the tail of its distribution (top-p, top-k), the learner does not.",
        "train with top_p = 1 and top_k off",
        "7.8 When the sampler is not the learner",
    ),
    "sampler-rounding": Cause(
        "The sampler computes in a lower precision than the learner.",
        "take old log-probs on the learner's path, and weigh tokens by π_old/π_sampler, capped",
        "15.6 Precision, and how this fails silently",
    ),
    "sampler-mismatch": Cause(
        "The sampler's log-probs are not those of the weights that it claims to have.",
        "score a handful of responses by both, token by token, and look where they part",
        "7.8 When the sampler is not the learner",
    ),
    "re-tokenised": Cause(
        "The text was decoded and tokenised again: the learner's tokens are not the sampler's.",
        "hand token ids from the sampler to the learner, and text to the verifier alone",
        "7.3 The log-probability of a token",
    ),
    "shifted-log-probs": Cause(
        "The learner scores each token by the logits after it, not by those that chose it.",
        "the logits that chose token t are one position before it: logits[:, :-1], tokens[:, 1:]",
        "7.3 The log-probability of a token",
    ),
    "learner-temperature": Cause(
        "The learner scores at another temperature than the sampler draws at.",
        "divide the learner's logits by the sampler's temperature",
        "7.3 The log-probability of a token",
    ),
    "left-padding": Cause(
        "The learner reads the padding on the left of a prompt.",
        "give the model the attention mask, and positions that begin at the prompt's first token",
        "7.4 Masks by position",
    ),
    "learner-mismatch": Cause(
        "The learner's log-probs are not those that a plain forward pass gives.",
        "compare them with one response by itself: no padding, no cache, no dropout",
        "7.3 The log-probability of a token",
    ),
    "stale-old-log-probs": Cause(
        "The old log-probs are not those of the policy before its first update on the batch.",
        "take them anew for each batch, before its first update",
        "5.9 One step for each batch: nothing is clipped",
    ),
    "following-old-log-probs": Cause(
        "The old log-probs are taken anew at each update, so every ratio is 1.",
        "take them once for each batch, before its first update, and keep them",
        "6.1 Many steps for each batch",
    ),
    "reference-moves": Cause(
        "The reference changes as the policy learns.",
        "copy the weights of the reference, or switch the adapter off for it",
        "8.2 Four networks",
    ),
    "reference-noise": Cause(
        "The reference answers differently each time it is asked: dropout is on.",
        "put the reference into evaluation mode",
        "8.2 Four networks",
    ),
    "reference-mismatch": Cause(
        "The reference's log-probs are not those that a plain forward pass gives.",
        "score the reference as the policy is scored: same positions, mask and temperature",
        "8.2 Four networks",
    ),
    # ---------------------------------------------------------------- what was sampled
    "same-samples": Cause(
        "The responses to a prompt are all drawn with the same random numbers.",
        "one generator for the whole batch, not one seed for each response",
        "7.5 Sampling with a KV cache",
    ),
    "same-seed": Cause(
        "Two processes draw the same prompts and the same responses: they have one seed.",
        "let the seed depend on the rank",
        "15.9 Several processes",
    ),
    "no-signal": Cause(
        "Nearly all groups have no spread and no right answer, so there is nothing to learn from.",
        "begin with a warm start, or with easier problems, or take larger groups",
        "10.4 Zero-variance groups",
    ),
    "all-truncated": Cause(
        "Nearly every response is cut off before it ends.",
        "raise the limit of new tokens, or teach the model to end its answers first",
        "7.5 Sampling with a KV cache",
    ),
    # ---------------------------------------------------------------- what counts
    "masked-eos": Cause(
        "The token that ends a response is not in the mask, so stopping is never learned.",
        "build the mask from lengths, the end of sequence included",
        "7.4 Masks by position",
    ),
    "trained-padding": Cause(
        "What comes after the end of a response is trained.",
        "build the mask from lengths; give padding no weight in the loss",
        "7.4 Masks by position",
    ),
    # ---------------------------------------------------------------- what it earns
    "lenient-verifier": Cause(
        "Responses are paid that do not give the answer in the form that was asked for.",
        "train on the strict reading; hedging and lists of numbers earn nothing",
        "13.5 How this fails silently: a verifier that pays too much",
    ),
    "silent-verifier": Cause(
        "Right answers earn nothing: the verifier fails and says 0.",
        "let the verifier raise, and watch the share of right answers among those it refuses",
        "13.4 The verifier is the reward",
    ),
    "paid-truncation": Cause(
        "Responses that were cut off are paid.",
        "a response that did not end itself is wrong",
        "7.4 Masks by position",
    ),
    "shifted-rewards": Cause(
        "Each response gets the reward of a neighbour.",
        "hand prompts, responses and answers to the verifier in one order, and test it on one row",
        "13.4 The verifier is the reward",
    ),
    "wrong-scores": Cause(
        "The score of a response is not the verdict less the penalties that the recipe states.",
        "recompute one row by hand",
        "13.4 The verifier is the reward",
    ),
    "misplaced-reward": Cause(
        "The score of a response is not on its last token.",
        "write it at the last position of the mask",
        "8.5 Credit for each token",
    ),
    "kl-sign": Cause(
        "The KL to the reference is rewarded, not charged.",
        "the reward loses β (log π − log π_ref); the loss gains β k",
        "8.4 The KL penalty",
    ),
    "inverted-kl": Cause(
        "The KL estimate has policy and reference the wrong way round.",
        "with d = log π − log π_ref, k3 is exp(−d) − 1 + d",
        "11.2 Estimating the KL: k1, k2 and k3",
    ),
    "wrong-kl-estimator": Cause(
        "The KL in the loss is another estimate than the recipe states.",
        "k1 in the loss has no gradient on average: use k3, or the exact surrogate",
        "11.4 What automatic differentiation makes of an estimate",
    ),
    "wrong-kl": Cause(
        "The KL penalty is not the one that the recipe states.",
        "recompute it on one response by hand",
        "8.4 The KL penalty",
    ),
    # ---------------------------------------------------------------- whose credit it is
    "mixed-groups": Cause(
        "Responses to different prompts are compared as one group.",
        "with rows sorted by prompt, view(-1, group_size), and one group along each row",
        "10.2 The group baseline",
    ),
    "missing-baseline": Cause(
        "The advantage is the return itself: nothing is subtracted.",
        "subtract the baseline of the algorithm",
        "2.5 Which baseline?",
    ),
    "amplified-flat-groups": Cause(
        "Groups whose responses all earned the same have advantages: a rounding error was divided "
        "by the spread.",
        "set the advantages of such groups to exactly 0",
        "10.4 Zero-variance groups",
    ),
    "padded-whitening": Cause(
        "Advantages are whitened with the mean and spread of a table that holds padding.",
        "take both over the mask",
        "8.6 Whitening",
    ),
    "value-target-rewards": Cause(
        "The critic is trained to predict the rewards of tokens, not the returns.",
        "its targets are advantages + values, taken before whitening",
        "8.7 What the critic learns",
    ),
    "wrong-value-targets": Cause(
        "The critic's targets are not those of the recipe.",
        "its targets are advantages + values, taken before whitening",
        "8.7 What the critic learns",
    ),
    "wrong-advantages": Cause(
        "The advantages do not follow from the rewards.",
        "recompute one group by hand",
        "10.1 Two prompts, four answers each, by hand",
    ),
    # ---------------------------------------------------------------- what is minimised
    "inverted-ratio": Cause(
        "The importance ratio is the wrong way up: old over new.",
        "exp(log π − log π_old)",
        "5.2 Importance sampling, the right way up",
    ),
    "inverted-clip": Cause(
        "For negative advantages the clip takes the better of the two sides.",
        "the minimum of ρA and clip(ρ)A for either sign: the maximum of the two losses",
        "5.7 Why the max of losses is the min of objectives",
    ),
    "flipped-loss": Cause(
        "The loss has the wrong sign: what was good becomes rarer.",
        "minimise −A log π",
        "1.4 The loss means nothing",
    ),
    "micro-batch-means": Cause(
        "Each micro-batch is divided by its own size, and the means are averaged.",
        "divide every micro-batch by the tokens of the whole batch, and add",
        "10.7 The mean over tokens",
    ),
    "padding-in-denominator": Cause(
        "Padding is counted in the number that the loss is divided by.",
        "divide by the tokens under the mask",
        "10.7 The mean over tokens",
    ),
    "dropped-micro-batches": Cause(
        "Some micro-batches leave no gradient.",
        "clear the gradients once for each update, not once for each micro-batch",
        "10.7 The mean over tokens",
    ),
    "wrong-loss": Cause(
        "The derivative of the loss is not the one that the algorithm has on these tokens.",
        "`nbcourse examine` says what a loss function does",
        "10.9 One table",
    ),
    # ---------------------------------------------------------------- how the weights move
    "idle-optimiser": Cause(
        "The optimiser does not move the policy's weights.",
        "build the optimiser from the parameters of the model that is trained, after it was moved",
        "15.6 Precision, and how this fails silently",
    ),
    "lost-moments": Cause(
        "The optimiser has forgotten its moments: it has counted fewer updates than were made.",
        "save and load the optimiser's state with the weights",
        "15.7 One command",
    ),
    "rounded-updates": Cause(
        "The weights are kept in bfloat16, in which most updates round away.",
        "keep float32 weights, and take only the products in bfloat16",
        "15.6 Precision, and how this fails silently",
    ),
}
