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
