// The downhill explorer: a bandit whose probabilities and rewards are moved, and the direction of
// the advantage that is divided by the group's standard deviation. The expectation is a sum over
// all groups, so nothing is sampled and no kernel is needed.

const UNITS = 100; // probabilities are whole hundredths, at least one
const EPS = 1e-4; // added to the standard deviation, as `group_relative` does
const NOTHING = 1e-12; // below it there is only rounding
const BLUE = "#0072B2";
const ORANGE = "#D55E00";

// ---- mathematics

const factorial = n => (n < 2 ? 1 : n * factorial(n - 1));

// How often each arm comes in a group: every possibility, with its probability.
function groups(probs, size) {
  const found = [];
  for (let i = 0; i <= size; i += 1) {
    for (let j = 0; i + j <= size; j += 1) {
      const counts = [i, j, size - i - j];
      const ways = factorial(size) / counts.reduce((product, n) => product * factorial(n), 1);
      found.push({ counts, prob: ways * counts.reduce((p, n, arm) => p * probs[arm] ** n, 1) });
    }
  }
  return found;
}

function study(probs, rewards, size) {
  const mean = dot(probs, rewards);
  const exact = probs.map((p, arm) => p * (rewards[arm] - mean));
  const divided = [0, 0, 0];
  groups(probs, size).forEach(({ counts, prob }) => {
    const centre = dot(counts, rewards) / size;
    const deviations = rewards.map(reward => reward - centre);
    const variance = sum(counts.map((n, arm) => n * deviations[arm] ** 2)) / (size - 1);
    if (variance < NOTHING) return; // all rewards agree: advantages 0
    // The advantages of a group add up to 0, so that of the score only "1 for the arm" is left.
    counts.forEach((n, arm) => {
      divided[arm] += prob * n * deviations[arm] / (Math.sqrt(variance) + EPS) / size;
    });
  });
  const flat = norm(exact) < NOTHING || norm(divided) < NOTHING;
  return { mean, exact, divided, flat, cosine: dot(exact, divided) / norm(exact) / norm(divided) };
}

// Give one arm `hundredths`; the two others share the rest in the proportion they had.
function withArm(origin, arm, hundredths) {
  const others = [0, 1, 2].filter(i => i !== arm);
  const rest = UNITS - hundredths - 2;
  const excess = others.map(i => origin[i] - 1);
  const share = sum(excess) ? excess[0] / sum(excess) : 0.5;
  const result = [...origin];
  result[arm] = hundredths;
  result[others[0]] = 1 + Math.round(rest * share);
  result[others[1]] = UNITS - hundredths - result[others[0]];
  return result;
}

// ---- drawing

// In the plane of all gradients (their components add up to 0) with ∇J upwards: the angle of
// another one, clockwise.
function angle({ exact, divided }) {
  const cross = (exact[0] * (divided[1] - divided[2]) + exact[1] * (divided[2] - divided[0])
    + exact[2] * (divided[0] - divided[1])) / Math.sqrt(3);
  return Math.atan2(cross, dot(exact, divided));
}

function arrow(turn, color, width) {
  const [dx, dy] = [Math.sin(turn), -Math.cos(turn)];
  const at = (along, aside) =>
    `${(180 + along * dx - aside * dy).toFixed(1)},${(130 + along * dy + aside * dx).toFixed(1)}`;
  return `<polyline points="${at(0, 0)} ${at(88, 0)}" stroke="${color}" stroke-width="${width}"/>
    <polygon points="${at(100, 0)} ${at(86, 7)} ${at(86, -7)}" fill="${color}"/>`;
}

function compass(studied) {
  const labels = `<text x="8" y="22">uphill: J rises</text>
    <text x="8" y="248">downhill: J falls</text>`;
  const ground = `<rect x="0" y="130" width="360" height="130" fill="#eee"/>
    <line x1="0" y1="130" x2="360" y2="130" stroke="#777" stroke-dasharray="5 3"/>`;
  if (studied.flat) return ground + labels;
  const turn = angle(studied);
  // Beside the tip, on the side away from the other arrow.
  const side = turn < 0 ? -1 : 1;
  const x = 180 + 100 * Math.sin(turn) + 8 * side;
  const y = 130 - 100 * Math.cos(turn) + 6;
  return `${ground}${labels}${arrow(0, BLUE, 3)}${arrow(turn, ORANGE, 5)}
    <text x="${180 - 8 * side}" y="36" text-anchor="${side > 0 ? "end" : "start"}">∇J</text>
    <text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${side > 0 ? "start" : "end"}"
      >divided</text>`;
}

function words({ mean, exact, divided, flat, cosine }) {
  const list = vector => vector.map(value => fixed(value, 3, "+")).join(", ");
  if (flat) return `<p>J = ${fixed(mean, 3)}. All arms pay the same: nothing to learn.</p>`;
  const degrees = Math.round(Math.acos(Math.max(-1, Math.min(1, cosine))) * 180 / Math.PI);
  const effect = cosine < 0
    ? "<b>downhill</b>: a small step lowers J" : "uphill: a small step raises J";
  return `<p>J = ${fixed(mean, 3)}</p><p>∇J = (${list(exact)})</p>
    <p>divided by the deviation: (${list(divided)})</p>
    <p>cosine ${fixed(cosine, 3, "+")}, ${degrees}° from ∇J: ${effect}.</p>`;
}

// ---- the explorer

function explore(root, start) {
  const arms = [0, 1, 2].map(arm => `<fieldset><legend>arm ${arm + 1}</legend>
    ${control("probability", `p${arm}`, 1, UNITS - 2, `arm ${arm + 1}, `)}
    ${control("pays", `r${arm}`, 0, 100, `arm ${arm + 1}, `)}
    </fieldset>`).join("");
  root.innerHTML = `<div class="nb-downhill"><div>${arms}
    ${control("group size G", "size", 2, 8)}
    ${FOOT}</div>
    <div><svg viewBox="0 0 360 260" aria-hidden="true"></svg>
    <output class="nb-readout" aria-live="polite"></output></div></div>`;
  const sliders = Object.fromEntries(
    [...root.querySelectorAll("input")].map(input => [input.dataset.name, input]));
  let state = start;
  const link = linked(root, "downhill", numbers => {
    const [probs, rewards, [size]] = [[0, 3], [3, 6], [6]].map(part => numbers.slice(...part));
    const whole = (value, least, most) => Number.isInteger(value) && value >= least && value <= most;
    if (numbers.length !== 7 || sum(probs) !== UNITS || !probs.every(p => whole(p, 1, UNITS))
      || !rewards.every(r => whole(r, 0, 100)) || !whole(size, 2, 8)) return false;
    state = { probs, rewards, size };
    draw();
    return true;
  });

  function draw() {
    state.probs.forEach((hundredths, arm) => {
      place(sliders[`p${arm}`], hundredths, fixed(hundredths / UNITS, 2));
      place(sliders[`r${arm}`], state.rewards[arm], state.rewards[arm]);
    });
    place(sliders.size, state.size, state.size);
    link([...state.probs, ...state.rewards, state.size]);
    const studied = study(state.probs.map(p => p / UNITS), state.rewards, state.size);
    root.querySelector("svg").innerHTML = compass(studied);
    root.querySelector(".nb-readout").innerHTML = words(studied);
  }

  [0, 1, 2].forEach(arm => {
    // The others keep the proportion they had when the slider was taken, so that moving it back
    // restores them.
    let origin = null;
    const take = () => { origin = state.probs; };
    ["pointerdown", "focus"].forEach(event => sliders[`p${arm}`].addEventListener(event, take));
    sliders[`p${arm}`].addEventListener("input", event => {
      state = { ...state, probs: withArm(origin ?? state.probs, arm, Number(event.target.value)) };
      draw();
    });
    sliders[`r${arm}`].addEventListener("input", event => {
      const rewards = [...state.rewards];
      rewards[arm] = Number(event.target.value);
      state = { ...state, rewards };
      draw();
    });
  });
  sliders.size.addEventListener("input", event => {
    state = { ...state, size: Number(event.target.value) };
    draw();
  });
  root.querySelector("button").addEventListener("click", () => { state = start; draw(); });
  draw();
}
