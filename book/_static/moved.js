// What moved to another page is found by links to where it was: page, new page, and its anchors.
const MOVED = {
  "10-grpo": {
    "appendix-i-family": [
      "eq-cispo", "eq-gspo", "eq-overlong", "eq-process-supervision", "eq-truncated-importance",
      "fig-grpo-clips", "fig-grpo-means",
      "tab-all-rows", "tab-clip-higher", "tab-dynamic-sampling", "tab-no-groups",
      "tab-process", "tab-sampler-rounding", "tab-three-ratios", "tab-three-rows", "tab-trl",
      "tab-truncated-weights", "tab-walk-changes",
      "cispo-clip-the-weight-keep-the-gradient", "dapo-first-clip-higher",
      "dapo-second-dynamic-sampling", "dapo-third-token-mean-and-a-soft-limit-on-length",
      "gspo-one-ratio-for-the-answer", "one-batch", "reinforce-no-groups-at-all",
      "the-same-update-as-trl", "token-by-token", "two-programs-one-policy-the-sampler-s-rounding"
    ]
  },
  "14-measuring": {
    "appendix-j-from-scratch": [
      "fig-base-model", "fig-four-algorithms",
      "tab-four-algorithms", "tab-more-wordings", "tab-shown-stories", "tab-tiny-gsm8k",
      "tab-twelve-gains", "tab-wordings",
      "a-binary-outcome-reward", "in-seconds-here", "more-wordings", "new-words-or-new-numbers",
      "the-base-model", "the-same-on-gsm8k-at-toy-size", "the-tokenizer"
    ]
  },
  "15-gpu-runs": {
    "appendix-j-from-scratch": [
      "fig-half-on-a-card", "fig-small-on-a-card",
      "tab-half-by-kind", "tab-half-four", "tab-half-on-a-card", "tab-small-on-a-card",
      "a-base-that-does-not-know-every-story", "from-scratch-on-an-h100"
    ],
    "appendix-l-budgets": [
      "eq-kv-cache", "eq-lora", "eq-memory", "eq-roofline",
      "fig-kernels-of-learning", "fig-rooflines",
      "tab-adapter", "tab-decoding", "tab-engines-on-a-card", "tab-five-cards",
      "tab-h100-smollm2", "tab-h100-trial", "tab-held-memory", "tab-largest-phase",
      "tab-nan-gradient", "tab-parts-of-a-step", "tab-plan-and-run", "tab-shared-heads",
      "tab-smollm2-minutes", "tab-standing-bytes", "tab-two-processes", "tab-two-savings",
      "counting-operations", "decoding-waits-for-memory", "learning-less-adapters", "the-logits",
      "predicted-and-measured", "smollm2-on-five-cards", "starting-kernels",
      "time-and-memory-on-an-h100", "two-numbers-of-a-machine", "when-the-card-is-wrong",
      "while-learning-activations", "while-sampling-keys-and-values"
    ]
  }
};

function follow() {
  const anchor = location.hash.slice(1);
  const page = location.pathname.split("/").pop().replace(/\.html$/, "");
  for (const [to, anchors] of Object.entries(MOVED[page] ?? {})) {
    if (anchors.includes(anchor)) location.replace(`${to}.html#${anchor}`);
  }
}
follow();
addEventListener("hashchange", follow);
