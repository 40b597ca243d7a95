// The best policy under a score and a KL penalty, for a few answers and any β: what it is worth by the
// score and in truth. Sums over the answers, so nothing is sampled.

// A position of the slider is a power of 10^(1/20), from 0.03 to 10.
const POSITIONS = Array.from({ length: 51 }, (_, i) => i);
const strength = position => 10 ** (position / 20 - 1.5);

function optimum(refProbs, scores, beta) {
  const most = Math.max(...scores); // taken off, so that no exponential overflows
  const weights = refProbs.map((prob, i) => prob * Math.exp((scores[i] - most) / beta));
  return weights.map(weight => weight / sum(weights));
}

function worth(probs, { refProbs, rewards }, scores) {
  return {
    kl: sum(probs.map((prob, i) => prob && prob * Math.log(prob / refProbs[i]))),
    gain: dot(probs, scores) - dot(refProbs, scores),
    right: dot(probs, rewards),
  };
}

function explore(root, answers, [beta, score]) {
  root.classList.add("nb-numbers");
  const { names, refProbs, rewards } = answers;
  const last = names.length - 1;
  const settings = [
    { name: "beta", label: "β", min: 0, max: POSITIONS.at(-1), start: beta,
      shown: n => fixed(strength(n), strength(n) < 1 ? 3 : 1) },
    { name: "score", label: `score of ${names[last]}`, min: 0, max: 150, start: score,
      shown: n => fixed(n / 100, 2) },
  ];
  sliders(root, "beta", settings, numbers => {
    const scores = [...answers.scores.slice(0, last), numbers.score / 100];
    const policies = POSITIONS.map(n => optimum(refProbs, scores, strength(n)));
    const found = policies.map(probs => worth(probs, answers, scores));
    const { kl, gain, right } = found[numbers.beta];
    const best = found.reduce((top, { right }, n) => (right > found[top].right ? n : top), 0);
    const picture = curves({
      xLabel: "KL of the best policy, nats", yLabel: "gain in score, and share right", at: kl,
      xTicks: [0, 1, 2, 3, 4],
      lines: [
        { label: "score, above that of the reference", color: "#D55E00", dash: "7 4",
          points: found.map(({ kl, gain }) => [kl, gain]) },
        { label: "share right", color: "#0072B2", points: found.map(({ kl, right }) => [kl, right]) },
      ],
    });
    const rows = names.map((name, i) => `<tr><th scope="row">${name}${rewards[i] ? ", right" : ""}</th>
      <td>${fixed(scores[i], 2)}</td><td>${fixed(refProbs[i])}</td>
      <td>${fixed(policies[numbers.beta][i])}</td></tr>`).join("");
    const words = `<p>KL <b>${fixed(kl)}</b>, score <b>${fixed(gain, 3, "+")}</b>,
      share right <b>${fixed(right)}</b> (reference: ${fixed(dot(refProbs, rewards))}).</p>
      <table><tr><td></td><th scope="col">score</th><th scope="col">reference</th>
      <th scope="col">best policy</th></tr>${rows}</table>
      <p>Most are right with β = ${settings[0].shown(best)}: <b>${fixed(found[best].right)}</b>.</p>`;
    return { picture, words };
  });
}
