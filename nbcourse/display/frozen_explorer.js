// A penalty in the reward, frozen or recomputed, where all answers can be listed: exact gradients,
// plain steps, several of them on each batch. A path is a list of [state, token].

const BATCHES = 30;
const MOST_UPDATES = 32;

function logSoftmax(logits) {
  const most = Math.max(...logits);
  const total = most + Math.log(sum(logits.map(logit => Math.exp(logit - most))));
  return logits.map(logit => logit - total);
}

// log π of each answer, and of each token in each state.
function logProbs(paths, logits) {
  const table = logits.map(logSoftmax);
  return [paths.map(path => sum(path.map(([state, token]) => table[state][token]))), table];
}

// One step up the gradient of Σ π(y) gain(y).
function stepped(paths, logits, rate, gains) {
  const [answers, table] = logProbs(paths, logits);
  const weights = answers.map((answer, y) => Math.exp(answer) * gains(answer, y));
  const slopes = logits.map(row => row.map(() => 0));
  const through = logits.map(() => 0);
  paths.forEach((path, y) => path.forEach(([state, token]) => {
    slopes[state][token] += weights[y];
    through[state] += weights[y];
  }));
  return logits.map((row, state) => row.map((logit, token) =>
    logit + rate * (slopes[state][token] - through[state] * Math.exp(table[state][token]))));
}

// KL to the reference before each batch and at the end, and to the optimum at the end.
function trained({ paths, refLogits, rewards, beta }, rate, updates, recomputed) {
  const [reference] = logProbs(paths, refLogits);
  const optimum = logSoftmax(reference.map((answer, y) => answer + rewards[y] / beta));
  const divergence = (answers, from) =>
    dot(answers.map(Math.exp), answers.map((answer, y) => answer - from[y]));
  let logits = refLogits;
  const curve = [0];
  for (let batch = 0; batch < BATCHES; batch += 1) {
    const [old] = logProbs(paths, logits);
    for (let update = 0; update < updates; update += 1) {
      logits = stepped(paths, logits, rate, (answer, y) =>
        rewards[y] - beta * ((recomputed ? answer : old[y]) - reference[y]));
    }
    curve.push(divergence(logProbs(paths, logits)[0], reference));
  }
  return {
    curve, left: divergence(logProbs(paths, logits)[0], optimum), best: divergence(optimum, reference),
  };
}

function said(product) {
  if (product > 2) return "each batch overshoots farther than the last one";
  return product > 1 ? "each batch overshoots, less and less" : "no batch overshoots";
}

function explore(root, problem, [rate, updates]) {
  const settings = [
    { name: "rate", label: "step size η", min: 1, max: 40, start: rate, shown: n => fixed(n / 10, 1) },
    { name: "updates", label: "updates n", min: 1, max: MOST_UPDATES, start: updates },
  ];
  sliders(root, "frozen", settings, numbers => {
    const [frozen, recomputed] = [false, true].map(again =>
      trained(problem, numbers.rate / 10, numbers.updates, again));
    const product = numbers.rate / 10 * numbers.updates * problem.beta * problem.largest;
    const points = curve => curve.map((kl, batch) => [batch, kl]);
    const picture = curves({
      xLabel: "batch", yLabel: "KL to the reference, nats", xTicks: [0, 10, 20, BATCHES],
      lines: [
        { label: "optimum", color: "#222", dash: "2 3", points: points(Array(BATCHES + 1).fill(frozen.best)) },
        { label: "recomputed", color: "#0072B2", dash: "7 4", points: points(recomputed.curve) },
        { label: "frozen", color: "#D55E00", points: points(frozen.curve) },
      ],
    });
    const words = `<p>nηβλ = <b>${fixed(product, 2)}</b>: near the optimum, with a frozen penalty,
      ${said(product)}.</p>
      <p>KL to the optimum after ${BATCHES} batches:<br>
      frozen <b>${fixed(frozen.left, 4)}</b>, recomputed <b>${fixed(recomputed.left, 4)}</b></p>`;
    return { picture, words };
  });
}
