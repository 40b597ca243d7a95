// Many steps on one batch of samples, with PPO's clip and Adam: where the ratios go, and what four
// numbers say of the KL. The policy is a table, in which `share` samples have a row of logits.

const [BINS, WIDEST] = [40, 2]; // of the histogram
const [TOP, LEVEL, BOTTOM] = [40, 160, 236];
const [BETA1, BETA2, EPSILON] = [0.9, 0.999, 1e-8]; // of Adam

function logSoftmax(logits) {
  const most = Math.max(...logits);
  let total = 0;
  for (const logit of logits) total += Math.exp(logit - most);
  return logits.map(logit => logit - most - Math.log(total));
}

const isCut = (ratio, advantage, clip) => clip !== null
  && (advantage > 0 ? ratio > 1 + clip : advantage < 0 && ratio < 1 - clip);

// After each step: the ratios of both kinds of samples, and the exact KL in the mean over states.
function trained({ logits, rewards, drawn, spare }, steps, rate, clip, share) {
  const old = logSoftmax(logits);
  const oldProbs = old.map(Math.exp);
  const [mean, certain] = [dot(oldProbs, rewards), dot(oldProbs, old)];
  const zeros = logits.map(() => 0);
  const states = Array.from({ length: drawn.length / share }, () => (
    { logits: [...logits], log: old, first: [...zeros], second: [...zeros] }));
  const ratiosOf = samples => samples.map((action, i) =>
    Math.exp(states[Math.floor(i / share)].log[action] - old[action]));
  const path = [];
  for (let step = 1; step <= steps; step += 1) {
    const [pace, grown] = [rate / (1 - BETA1 ** step), 1 - BETA2 ** step];
    states.forEach((state, row) => {
      const probs = state.log.map(Math.exp);
      const slopes = [...zeros]; // of the loss
      for (let i = row * share; i < (row + 1) * share; i += 1) {
        const action = drawn[i];
        const [ratio, advantage] = [probs[action] / oldProbs[action], rewards[action] - mean];
        if (isCut(ratio, advantage, clip)) continue;
        const push = ratio * advantage / drawn.length;
        for (let other = 0; other < probs.length; other += 1) slopes[other] += push * probs[other];
        slopes[action] -= push;
      }
      for (let k = 0; k < slopes.length; k += 1) {
        state.first[k] = BETA1 * state.first[k] + (1 - BETA1) * slopes[k];
        state.second[k] = BETA2 * state.second[k] + (1 - BETA2) * slopes[k] ** 2;
        state.logits[k] -= pace * state.first[k] / (Math.sqrt(state.second[k] / grown) + EPSILON);
      }
      state.log = logSoftmax(state.logits);
    });
    const exact = sum(states.map(({ log }) => certain - dot(oldProbs, log))) / states.length;
    path.push({ exact, trained: ratiosOf(drawn), spare: ratiosOf(spare) });
  }
  return { path, advantages: drawn.map(action => rewards[action] - mean) };
}

const mean = values => sum(values) / values.length;
const k3 = ratios => mean(ratios.map(ratio => ratio - 1 - Math.log(ratio)));
const NUMBERS = {
  "exact KL": ({ exact }) => exact,
  "k3, spare": ({ spare }) => k3(spare),
  "k3, trained": ({ trained }) => k3(trained),
  "k1, trained": ({ trained }) => -mean(trained.map(Math.log)),
};

function counted(ratios) {
  const counts = Array(BINS).fill(0);
  ratios.forEach(ratio => { counts[Math.min(BINS - 1, Math.floor(ratio / WIDEST * BINS))] += 1; });
  return counts;
}

// Above the line the samples that were trained on, below it the spare ones.
function histogram({ trained, spare }, advantages, clip) {
  const x = ratio => 12 + ratio / WIDEST * (RIGHT - 12);
  const [up, down] = [value => value > 0, value => value <= 0].map(wanted =>
    counted(trained.filter((_, i) => wanted(advantages[i]))));
  const below = counted(spare);
  const most = Math.max(...up.map((count, i) => count + down[i]));
  const unit = Math.min((LEVEL - TOP) / most, (BOTTOM - LEVEL) / Math.max(...below));
  const wide = x(WIDEST / BINS) - x(0) - 1;
  const piece = (i, from, height, fill) => (height ? `<rect x="${x(i * WIDEST / BINS) + 0.5}" y="${from}"
    width="${wide}" height="${height}" fill="${fill}"/>` : "");
  const columns = below.map((count, i) =>
    piece(i, LEVEL - unit * up[i], unit * up[i], "#0072B2")
    + piece(i, LEVEL - unit * (up[i] + down[i]), unit * down[i], "#D55E00")
    + piece(i, LEVEL, unit * count, "#8a8a8a"));
  const inside = clip === null ? "" : `<rect x="${x(1 - clip)}" width="${x(1 + clip) - x(1 - clip)}"
    y="${TOP - 12}" height="${BOTTOM - TOP + 12}" fill="#e8f1fa"/>`;
  const ticks = [0.5, 1, 1.5].map(tick => `<line x1="${x(tick)}" x2="${x(tick)}" y1="${BOTTOM}"
    y2="${BOTTOM + 5}" stroke="#777"/><text x="${x(tick)}" y="${BOTTOM + 20}" text-anchor="middle">${
    tick}</text>`);
  const legend = ["trained, A > 0", "trained, A < 0", "spare (downwards)"].map((name, i) => `<rect
    x="${4 + 200 * (i % 2)}" y="${BOTTOM + 40 + 24 * Math.floor(i / 2)}" width="14" height="14"
    fill="${["#0072B2", "#D55E00", "#8a8a8a"][i]}"/><text x="${26 + 200 * (i % 2)}"
    y="${BOTTOM + 52 + 24 * Math.floor(i / 2)}">${name}</text>`);
  return `<text x="4" y="16">samples, by their ratio ρ</text>${inside}${columns.join("")}
    <line x1="${x(0)}" x2="${RIGHT}" y1="${LEVEL}" y2="${LEVEL}" stroke="#222"/>
    <line x1="${x(0)}" x2="${RIGHT}" y1="${BOTTOM}" y2="${BOTTOM}" stroke="#777"/>${ticks.join("")}
    <text x="${x(0)}" y="${BOTTOM + 20}">0</text>
    <text x="${RIGHT}" y="${BOTTOM + 20}" text-anchor="end">2 or more</text>${legend.join("")}`;
}

function explore(root, batch, { rates, clips, most, limit }, [rate, clip, steps, doublings]) {
  root.classList.add("nb-numbers", "nb-apart");
  const settings = [
    { name: "rate", label: "learning rate", min: 0, max: rates.length - 1, start: rate,
      shown: n => rates[n] },
    { name: "clip", label: "clip ε", min: 0, max: clips.length - 1, start: clip,
      shown: n => clips[n] ?? "none" },
    { name: "steps", label: "steps", min: 1, max: most, start: steps },
    { name: "share", label: "samples in a state", min: 0, max: Math.log2(batch.drawn.length),
      start: doublings, shown: n => 2 ** n },
  ];
  let known = {}; // more steps of the same training need no new one

  sliders(root, "ratios", settings, numbers => {
    const [chosen, share] = [clips[numbers.clip], 2 ** numbers.share];
    const key = [numbers.rate, numbers.clip, numbers.share].join();
    if (known.key !== key) known = { key, ...trained(batch, most, rates[numbers.rate], chosen, share) };
    const { path, advantages } = known;
    const now = path[numbers.steps - 1];
    const clipped = mean(now.trained.map((ratio, i) => Number(isCut(ratio, advantages[i], chosen))));
    const rows = Object.entries(NUMBERS).map(([name, number]) => {
      const acts = path.findIndex(after => number(after) > limit) + 1;
      return `<tr><th scope="row">${name}</th><td>${fixed(number(now), 4)}</td>
        <td>${acts || "never"}</td></tr>`;
    });
    const words = `<p>Clipped: <b>${fixed(100 * clipped, 0)} %</b> of the trained samples. Mean
      ratio <b>${fixed(mean(now.trained))}</b>, of the spare ones <b>${fixed(mean(now.spare))}</b>;
      largest ratio <b>${fixed(Math.max(...now.trained), 2)}</b>.</p>
      <table><tr><td></td><th scope="col">now</th><th scope="col">above ${limit}<br>after step</th>
      </tr>${rows.join("")}</table>`;
    return { picture: histogram(now, advantages, chosen), words };
  });
}
