// The credit of each action of recorded episodes of CartPole, under the four stages of an agent.

const FORMULAS = ["A = G", "A = G − V", "A = Σ γˡδ", "A = Σ (γλ)ˡδ"];
const LATE = 5; // actions at an episode's end
const [PANEL, BARS_END, POLE] = [152, 300, 66];

// Sums from the end, each later one weighed by `decay`.
function scanned(increments, decay) {
  const found = [];
  increments.reduceRight((later, value, t) => {
    found[t] = value + decay * later;
    return found[t];
  }, 0);
  return found;
}

// `values` has one number more than there are steps: of the state after the last one.
function credit({ rewards, values, cut }, stage, gamma, lambda) {
  const followed = rewards.map((_, t) => (t < rewards.length - 1 || cut ? values[t + 1] : 0));
  const toGo = scanned(rewards, gamma);
  const deltas = rewards.map((reward, t) => reward + gamma * followed[t] - values[t]);
  const advantages = stage < 3 ? toGo.map((value, t) => value - (stage > 1 ? values[t] : 0))
    : scanned(deltas, gamma * (stage > 3 ? lambda : 1));
  return { toGo, deltas, advantages };
}

// The cart on its track and the pole, as they were when this action was chosen.
function cart({ positions, angles }, t, ground) {
  const i = Math.min(t, positions.length - 1);
  const x = 350 + positions[i] / 2.4 * 38;
  const [tipX, tipY] = [x + POLE * Math.sin(angles[i]), ground - 12 - POLE * Math.cos(angles[i])];
  return `<line x1="308" x2="392" y1="${ground}" y2="${ground}" stroke="#777"/>
    <rect x="${x - 13}" y="${ground - 12}" width="26" height="12" fill="#222"/>
    <line x1="${x}" y1="${ground - 12}" x2="${tipX}" y2="${tipY}" stroke="#CC79A7" stroke-width="6"
    stroke-linecap="round"/>`;
}

function explore(root, episodes, [stage, gamma, lambda]) {
  root.classList.add("nb-numbers", "nb-apart");
  const longest = Math.max(...episodes.map(({ rewards }) => rewards.length));
  const shown = n => fixed(n / 100, 2);
  const wide = (BARS_END - LEFT) / longest;
  const settings = [
    { name: "stage", label: "stage", min: 1, max: FORMULAS.length, start: stage },
    { name: "gamma", label: "γ", min: 0, max: 100, start: gamma, shown },
    { name: "lambda", label: "λ", min: 0, max: 100, start: lambda,
      shown, idle: numbers => numbers.stage < FORMULAS.length },
    { name: "step", label: "step", min: 1, max: longest, start: 1 },
  ];
  const ending = ({ cut }) => (cut ? "the clock stops it" : "the pole falls");

  sliders(root, "stages", settings, numbers => {
    const t = numbers.step - 1;
    const found = episodes.map(episode =>
      credit(episode, numbers.stage, numbers.gamma / 100, numbers.lambda / 100));
    const most = Math.max(...found.flatMap(({ advantages }) => advantages.map(Math.abs)), 0.01);
    const panels = episodes.map((episode, which) => {
      const [roof, ground] = [30 + PANEL * which, 134 + PANEL * which];
      const { y, lines } = aroundZero(most, roof, ground, BARS_END);
      const x = LEFT + wide * (t + 0.5);
      const bars = found[which].advantages.map((value, i) =>
        bar(y, LEFT + wide * (i + 0.1), wide * 0.8, value));
      return `<text x="4" y="${roof - 14}">A of each action until ${ending(episode)}</text>${lines}
        <line x1="${x}" x2="${x}" y1="${roof}" y2="${ground}" stroke="#222" stroke-dasharray="2 3"/>
        ${bars.join("")}${cart(episode, t, ground)}`;
    });
    const ticks = [1, longest].map(tick => `<text x="${LEFT + wide * (tick - 0.5)}"
      y="${PANEL + 154}" text-anchor="middle">${tick}</text>`);
    const picture = `${panels.join("")}${ticks.join("")}
      <text x="${(LEFT + BARS_END) / 2}" y="${PANEL + 154}" text-anchor="middle">step</text>`;

    const late = found.map(({ advantages }, which) =>
      `<b>${fixed(sum(advantages.slice(-LATE)) / Math.min(LATE, advantages.length), 2)}</b> where ${
        ending(episodes[which])}`);
    const rows = episodes.map((episode, which) => {
      const { toGo, deltas, advantages } = found[which];
      const cells = t < advantages.length
        ? [episode.values, toGo, deltas, advantages].map(of => `<td>${fixed(of[t], 2)}</td>`)
        : ["<td colspan='4'>is over</td>"];
      return `<tr><th scope="row">${episode.cut ? "clock" : "falls"}</th>${cells.join("")}</tr>`;
    });
    const words = `<p>Stage ${numbers.stage}: ${FORMULAS[numbers.stage - 1]}. The last ${LATE}
      actions have on average A = ${late.join(", and ")}.</p>
      <p>At step ${numbers.step}:</p><table><tr><td></td>${["V", "G", "δ", "A"].map(head =>
        `<th scope="col">${head}</th>`).join("")}</tr>${rows.join("")}</table>`;
    return { picture, words };
  });
}
