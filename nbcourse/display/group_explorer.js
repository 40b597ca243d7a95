// Group size and variance: two answers, one right; the variance of one rollout's worth of gradient
// under its baselines. Sums over two answers and over pairs of them, so nothing is sampled.

const SIZES = Array.from({ length: 31 }, (_, i) => i + 2);

// Variances are of all logits together: the two have opposite scores, so each is counted twice.
function study(p, wrong) {
  const probs = [p, 1 - p];
  const rewards = [wrong + 1, wrong];
  const scores = [1 - p, -p];
  const variance = (weights, values) =>
    2 * (dot(weights, values.map(value => value ** 2)) - dot(weights, values) ** 2);
  const constant = b => variance(probs, scores.map((score, i) => (rewards[i] - b) * score));
  const pairs = [0, 1].flatMap(i => [0, 1].map(j => [i, j]));
  const h = ([i, j]) => (rewards[i] - rewards[j]) * (scores[i] - scores[j]) / 2;
  const given = [0, 1].map(i => dot(probs, [0, 1].map(j => h([i, j]))));
  const zeta1 = variance(probs, given);
  const zeta2 = variance(pairs.map(([i, j]) => probs[i] * probs[j]), pairs.map(h));
  const best = dot(probs, scores.map((score, i) => rewards[i] * score ** 2))
    / dot(probs, scores.map(score => score ** 2));
  const mean = dot(probs, rewards);
  return {
    mean, best, none: constant(0), atMean: constant(mean), least: constant(best),
    others: size => (4 * (size - 2) * zeta1 + 2 * zeta2) / (size - 1), // times the group size
  };
}

function words({ mean, best, none, atMean, least, others }, size) {
  const from = SIZES.find(G => others(G) < none - 1e-12);
  const pays = from ? `from G = ${from} on` : `for no G up to ${SIZES.at(-1)}`;
  return `<p>Variance of the gradient, times G:</p>
    <p>no baseline: <b>${fixed(none)}</b><br>
    true mean, b = ${fixed(mean, 2)}: <b>${fixed(atMean)}</b><br>
    best constant, b* = ${fixed(best, 2)}: <b>${fixed(least)}</b><br>
    leave-one-out, G = ${size}: <b>${fixed(others(size))}</b></p>
    <p>Leave-one-out beats no baseline ${pays}; the true mean
    ${atMean < none - 1e-12 ? "beats it" : "does not beat it"}.</p>`;
}

function explore(root, [p, wrong, size]) {
  const settings = [
    { name: "p", label: "P(right)", min: 1, max: 99, start: p, shown: n => fixed(n / 100, 2) },
    { name: "wrong", label: "wrong pays", min: 0, max: 40, start: wrong,
      shown: n => fixed(n / 10 - 2, 1) },
    { name: "size", label: "group size G", min: 2, max: SIZES.at(-1), start: size },
  ];
  sliders(root, "group", settings, numbers => {
    const studied = study(numbers.p / 100, numbers.wrong / 10 - 2);
    const flat = value => SIZES.map(G => [G, value]);
    const picture = curves({
      xLabel: "group size G", yLabel: "variance × G", at: numbers.size,
      xTicks: [2, 8, 14, 20, 26, 32],
      lines: [
        { label: "no baseline", color: "#222", dash: "7 4", points: flat(studied.none) },
        { label: "true mean", color: "#009E73", points: flat(studied.atMean) },
        { label: "leave-one-out", color: "#0072B2",
          points: SIZES.map(G => [G, studied.others(G)]) },
      ],
    });
    return { picture, words: words(studied, numbers.size) };
  });
}
