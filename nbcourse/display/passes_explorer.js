// pass@k from n samples: what two estimators say on average, and how much they scatter. Sums over the
// number of right samples, so nothing is sampled.

const MOST = 64;

// 1 − C(n − c, k)/C(n, k): a product, so that no binomial coefficient overflows.
function unbiased(n, c, k) {
  let allWrong = 1;
  for (let i = 0; i < k; i += 1) allWrong *= Math.max(0, n - c - i) / (n - i);
  return 1 - allWrong;
}

const plugIn = (n, c, k) => 1 - (1 - c / n) ** k;

// The probability of c right samples of n, for c = 0 … n.
function binomial(n, p) {
  let probs = [1];
  for (let i = 0; i < n; i += 1) {
    probs = [...probs, 0].map((q, c) => (1 - p) * q + (c ? p * probs[c - 1] : 0));
  }
  return probs;
}

function moments(estimator, n, k, probs) {
  const values = probs.map((_, c) => estimator(n, c, k));
  const mean = dot(probs, values);
  return { mean, deviation: Math.sqrt(dot(probs, values.map(value => (value - mean) ** 2))) };
}

function explore(root, [p, n, k]) {
  const settings = [
    { name: "p", label: "true p", min: 1, max: 99, start: p, shown: value => fixed(value / 100, 2) },
    { name: "n", label: "samples n", min: 1, max: MOST, start: n },
    { name: "k", label: "tries k", min: 1, max: MOST, start: k },
  ];
  sliders(root, "passes", settings, numbers => {
    const probs = binomial(numbers.n, numbers.p / 100);
    const truth = tries => 1 - (1 - numbers.p / 100) ** tries;
    const tries = Array.from({ length: MOST }, (_, i) => i + 1);
    const reached = tries.filter(many => many <= numbers.n);
    const [fair, plugged] = [unbiased, plugIn].map(estimator => moments(
      estimator, numbers.n, numbers.k, probs));
    const picture = curves({
      xLabel: "tries k", yLabel: "pass@k", at: numbers.k, xTicks: [1, 16, 32, 48, 64],
      lines: [
        { label: "truth", color: "#222", points: tries.map(many => [many, truth(many)]) },
        { label: "unbiased estimate, mean (needs k ≤ n)", color: "#0072B2", dash: "7 4",
          points: reached.map(many => [many, moments(unbiased, numbers.n, many, probs).mean]) },
        { label: "plug-in, mean", color: "#D55E00", dash: "2 3",
          points: tries.map(many => [many, moments(plugIn, numbers.n, many, probs).mean]) },
      ],
    });
    const possible = numbers.k <= numbers.n;
    const of = ({ mean, deviation }) => `<b>${fixed(mean)}</b> ± ${fixed(deviation)}`;
    const words = `<p>pass@${numbers.k} of a problem with p = ${fixed(numbers.p / 100, 2)}:
      <b>${fixed(truth(numbers.k))}</b></p>
      <p>Mean ± one deviation, over all that ${numbers.n} samples may be:</p>
      <p>unbiased estimate: ${possible ? of(fair) : `not defined, n is less than ${numbers.k}`}<br>
      plug-in: ${of(plugged)}, bias ${fixed(plugged.mean - truth(numbers.k), 3, "+")}</p>`;
    return { picture, words };
  });
}
