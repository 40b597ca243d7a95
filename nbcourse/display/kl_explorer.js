// The KL explorer: two policies whose bars are dragged; what that does to k1, k2, k3 as values and
// as losses. Everything is a sum over the tokens, so nothing is sampled and no kernel is needed.

// Probabilities are whole hundredths, at least one: what is shown is what is computed with.
const UNITS = 100;
const NOTHING = 1e-12; // below it there is only rounding
const ROW = 88; // of the two lower drawings, whose rows stand side by side
const TOP = 22; // below their headings
const REF = 'π<tspan dy="3" font-size="10">ref</tspan><tspan dy="-3">&#8203;</tspan>';

// Each estimator of KL(π‖π_ref) at a token, a function of d = log π − log π_ref, and its slope.
const ESTIMATORS = [
  { name: "k1", formula: "k1 = d", value: d => d, slope: () => 1 },
  { name: "k2", formula: "k2 = d²/2", value: d => d * d / 2, slope: d => d },
  { name: "k3", formula: "k3 = e⁻ᵈ − 1 + d", value: d => Math.expm1(-d) + d,
    slope: d => 1 - Math.exp(-d) },
];

// ---- mathematics

function study(probs, refProbs) {
  const logRatios = probs.map((p, i) => Math.log(p) - Math.log(refProbs[i]));
  const kl = dot(probs, logRatios);
  // Σₐ π(a) slope(a) ∇log π(a), with ∇log π(a) = onehot(a) − π for logits.
  const scored = slopes => probs.map((p, i) => p * (slopes[i] - dot(probs, slopes)));
  const exact = scored(logRatios);
  const estimators = ESTIMATORS.map(estimator => {
    const values = logRatios.map(estimator.value);
    const mean = dot(probs, values);
    const deviation = Math.sqrt(dot(probs, values.map(value => (value - mean) ** 2)));
    const gradient = scored(logRatios.map(estimator.slope));
    return {
      ...estimator, values, mean, deviation, gradient,
      vanishes: norm(gradient) < NOTHING,
      cosine: dot(gradient, exact) / (norm(gradient) * norm(exact)),
      length: norm(gradient) / norm(exact),
    };
  });
  return { probs, kl, exact, estimators };
}

// Give one token `hundredths`; the others share the rest in the proportions they had (in what they
// have above the least), rounded so that the sum stays 1.
function withToken(origin, token, hundredths) {
  const others = origin.map((_, i) => i).filter(i => i !== token);
  const excess = others.map(i => origin[i] - 1);
  const weights = sum(excess) > 0 ? excess : others.map(() => 1);
  const rest = UNITS - hundredths - others.length;
  const shares = weights.map(weight => rest * weight / sum(weights));
  const whole = shares.map(Math.floor);
  const byRemainder = others.map((_, i) => i)
    .sort((i, j) => shares[j] - whole[j] - (shares[i] - whole[i]) || i - j);
  byRemainder.slice(0, rest - sum(whole)).forEach(i => { whole[i] += 1; });
  const result = [...origin];
  result[token] = hundredths;
  others.forEach((other, i) => { result[other] = 1 + whole[i]; });
  return result;
}

// ---- drawing

// Three decimals, or more where that leaves fewer than two digits.
function decimal(number) {
  const leading = number ? Math.floor(Math.log10(Math.abs(number))) : 0;
  return fixed(number, Math.max(3, 1 - leading));
}

function attributes(settings) {
  return Object.entries(settings).map(([name, value]) =>
    ` ${name}="${typeof value === "number" ? Math.round(value * 100) / 100 : value}"`).join("");
}

const text = (x, y, content, settings = {}) =>
  `<text${attributes({ x, y, ...settings })}>${content}</text>`;
const line = (x1, y1, x2, y2, settings = {}) =>
  `<line${attributes({ x1, y1, x2, y2, stroke: "#222", ...settings })}/>`;
const rect = (x, y, width, height, settings) =>
  `<rect${attributes({ x, y, width, height, ...settings })}/>`;
const bold = { style: "font-weight:bold" };
const small = { class: "nb-small" };
const centred = { ...small, "text-anchor": "middle" };
const atEnd = { "text-anchor": "end" };
const truth = { stroke: "#D55E00", "stroke-width": 2 };
const stem = { stroke: "#0072B2", "stroke-width": 3 };

// Places for labels between low and high, in order and without overlap: each neighbourhood that
// collides is centred on the mean of its wishes.
function spread(wishes, widths, low, high) {
  const order = wishes.map((_, i) => i).sort((i, j) => wishes[i] - wishes[j] || i - j);
  const blocks = [];
  for (const i of order) {
    let block = { members: [i], width: widths[i], left: wishes[i] - widths[i] / 2 };
    while (blocks.length && blocks.at(-1).left + blocks.at(-1).width > block.left) {
      const before = blocks.pop();
      const members = [...before.members, ...block.members];
      const left = (before.left * before.members.length
        + (block.left - before.width) * block.members.length) / members.length;
      block = { members, width: before.width + block.width, left };
    }
    blocks.push(block);
  }
  const total = sum(widths);
  const result = [];
  let passed = 0;
  for (const { members, left } of blocks) {
    let edge = left;
    for (const i of members) {
      const least = low + passed;
      passed += widths[i];
      result[i] = Math.min(Math.max(edge, least), high - total + passed - widths[i])
        + widths[i] / 2;
      edge += widths[i];
    }
  }
  return result;
}

function meanMark(x, low, high, y) {
  const whisker = { stroke: "#0072B2", "stroke-width": 1.5 };
  return line(low, y, high, y, whisker)
    + [low, high].map(end => line(end, y - 4, end, y + 4, whisker)).join("")
    + `<polygon points="${x - 6},${y} ${x},${y - 6} ${x + 6},${y} ${x},${y + 6}"
       fill="#0072B2" stroke="#fff"/>`;
}

function drawValues({ probs, kl, estimators }, names) {
  const [left, right] = [22, 378];
  const reached = estimators.flatMap(({ values, mean, deviation }) =>
    [...values, mean - deviation, mean + deviation]);
  const [least, most] = [Math.min(0, ...reached), Math.max(0, ...reached)];
  const step = roundUp(Math.max(most - least, 0.01) / 6);
  // Half steps: narrow enough to waste no room, wide enough to stand still while a bar moves.
  const low = step / 2 * Math.floor(2 * least / step - 0.2);
  const high = step / 2 * Math.ceil(2 * most / step + 0.2);
  const x = value => left + (value - low) / (high - low) * (right - left);
  const bottom = TOP + 3 * ROW + 74;
  const parts = [
    text(4, 16, "As a value: what each token gives", bold),
    line(left + 8, TOP + 20, left + 8, TOP + 6, stem),
    `<circle cx="${left + 8}" cy="${TOP + 8}" r="4" fill="#0072B2"/>`,
    text(left + 30, TOP + 18, "one token, as high as its probability π"),
    meanMark(left + 8, left - 6, left + 22, TOP + 36),
    text(left + 30, TOP + 40, "mean ± one standard deviation"),
    line(left + 8, TOP + 48, left + 8, TOP + 68, { ...truth, "stroke-dasharray": "5 3" }),
    text(left + 30, TOP + 63, `exact KL = ${decimal(kl)}`),
  ];
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i += 1) ticks.push(i * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  ticks.forEach(tick => parts.push(text(x(tick), bottom + 26, fixed(tick, digits), centred)));
  parts.push(text((left + right) / 2, bottom + 44, "value of the estimator, in nats",
    { "text-anchor": "middle" }));
  const widths = names.map(name => 9 * name.length + 6);
  estimators.forEach(({ name, formula, values, mean, deviation }, row) => {
    const y = TOP + (row + 1) * ROW;
    const labels = spread(values.map(x), widths, left - 18, right + 18);
    parts.push(
      `<g data-estimator="${name}">`,
      ...ticks.map(tick => line(x(tick), y + 38, x(tick), y + 74,
        { stroke: Math.abs(tick) < step / 2 ? "#999" : "#e3e3e3" })),
      line(x(kl), y + 20, x(kl), y + 88, { ...truth, "stroke-dasharray": "5 3" }),
      text(4, y + 14, formula, bold),
      text(396, y + 14, `mean ${decimal(mean)}, deviation ${decimal(deviation)}`, atEnd),
      line(left, y + 74, right, y + 74, { stroke: "#777" }),
    );
    values.forEach((value, i) => {
      // Tokens of one value stand on each other: together they are as high as the value is likely.
      const below = probs.filter((_, j) => j < i && Math.abs(x(values[j]) - x(value)) < 1.5);
      const foot = y + 74 - 32 * sum(below);
      const tip = foot - 32 * probs[i];
      parts.push(
        line(x(value), tip - 5, labels[i], y + 34, { stroke: "#999" }),
        line(x(value), foot, x(value), tip, stem),
        `<circle cx="${x(value)}" cy="${tip}" r="4" fill="#0072B2"/>`,
        text(labels[i], y + 32, names[i], { "text-anchor": "middle", class: "nb-small nb-halo" }),
      );
    });
    parts.push(meanMark(x(mean), x(mean - deviation), x(mean + deviation), y + 81), "</g>");
  });
  return parts.join("");
}

function drawGradients({ exact, estimators }, names) {
  const [left, right] = [42, 326];
  const column = (right - left) / names.length;
  const width = Math.min(40, 0.6 * column);
  const digits = names.length > 4 ? 2 : 3; // what fits
  const centre = i => left + (i + 0.5) * column;
  const largest = Math.max(...[exact, ...estimators.map(({ gradient }) => gradient)].flat()
    .map(Math.abs));
  const scale = largest > NOTHING ? roundUp(largest) : 1;
  const parts = [text(4, 16, "As a loss: its gradient in each logit", bold)];
  const outline = { fill: "none", ...truth };
  const bars = (gradient, zero, settings, inset) => gradient.map((slope, i) => {
    const height = Math.abs(slope) / scale * 22;
    return rect(centre(i) - width / 2 + inset, zero - (slope > 0 ? height : 0),
      width - 2 * inset, height, settings);
  }).join("");
  const row = (index, name, remark, gradient) => {
    const y = TOP + index * ROW;
    const zero = y + 46;
    parts.push(`<g data-gradient="${name}">`, text(4, y + 14, name, bold),
      text(right, y + 14, remark, atEnd));
    for (const end of [-1, 1]) {
      const height = zero - 22 * end;
      parts.push(
        line(left, height, right, height, { stroke: "#e3e3e3" }),
        text(left - 6, height + 4, fixed(end * scale, scale < 0.1 ? 2 : 1, "+"),
          { ...small, ...atEnd }),
      );
    }
    if (name !== "exact") parts.push(bars(gradient, zero, { fill: "#0072B2" }, 4));
    parts.push(bars(exact, zero, outline, 0), line(left, zero, right, zero, { stroke: "#777" }));
    gradient.forEach((slope, i) => parts.push(text(centre(i), y + 83, fixed(slope, digits, "+"),
      centred)));
    parts.push("</g>");
  };
  row(0, "exact", `∇KL(π‖${REF}), outlined below`, exact);
  estimators.forEach((estimator, i) =>
    row(i + 1, estimator.name, comparison(estimator), estimator.gradient));
  names.forEach((name, i) => parts.push(text(centre(i), TOP + 4 * ROW + 14, name, centred)));
  parts.push(text((left + right) / 2, TOP + 4 * ROW + 30, "logit of the token",
    { "text-anchor": "middle" }));
  return parts.join("");
}

// ---- words

function comparison({ vanishes, cosine, length }) {
  if (vanishes) return "no gradient";
  return `cosine ${fixed(cosine, 2)}, ${fixed(length, 2)} times as long`;
}

function words({ kl, exact, estimators }, names) {
  const [, k2, k3] = estimators;
  const title = `<b>KL(π‖π<sub>ref</sub>) = ${decimal(kl)}</b> nats`;
  if (kl < NOTHING) {
    return `<p>${title}</p><p>The policies are equal: every estimator is 0 at every token, and
      every gradient is 0.</p>`;
  }
  const bias = fixed(100 * (k2.mean / kl - 1), 1, "+");
  const deviations = estimators.map(({ name, deviation }) => `${name}&nbsp;${decimal(deviation)}`);
  const angle = Math.round(Math.acos(Math.min(1, k3.cosine)) * 180 / Math.PI);
  const direction = angle === 0 ? "in the same direction" : `${angle}° away`;
  const opposite = names.filter((_, i) => k3.gradient[i] * exact[i] < -NOTHING);
  const tokens = opposite.map(name => `<i>${name}</i>`).join(", ");
  const signs = tokens
    && ` and of opposite sign for token${opposite.length > 1 ? "s" : ""} ${tokens}`;
  return `<p>${title}</p>
    <p><b>As a value:</b> k1 and k3 have this mean; k2 has ${decimal(k2.mean)} (${bias} %).
    Standard deviations: ${deviations.join(", ")}.</p>
    <p><b>As a loss:</b> k1 has no gradient on average. k2 has the gradient of this KL. k3 has the
    gradient of the other one, KL(π<sub>ref</sub>‖π): ${direction} (cosine
    ${fixed(k3.cosine, 2)}), ${fixed(k3.length, 2)} times as long${signs}.</p>`;
}

// ---- the explorer

function explore(root, names, probs, refProbs) {
  const count = names.length;
  const most = UNITS - count + 1;
  const [floor, height] = [186, 140]; // of the bars
  const column = 340 / count;
  const width = Math.min(40, 0.44 * column);
  const policies = [
    { who: "policy", start: probs, shift: -width - 1, fill: "#0072B2", stroke: "#0072B2" },
    { who: "reference policy", start: refProbs, shift: 1, fill: "#fff", stroke: "#222" },
  ];
  const bars = policies.flatMap(({ who, shift, fill, stroke }) => names.map((name, token) => {
    const x = 10 + (token + 0.5) * column + shift;
    const bar = {
      role: "slider", tabindex: 0, "aria-orientation": "vertical", "aria-valuemin": 1 / UNITS,
      "aria-valuemax": most / UNITS, "aria-label": `${who}, token ${name}`,
    };
    return `<g${attributes(bar)}>
      ${rect(x, 24, width, floor - 24, { fill: "#fff", class: "nb-track" })}
      ${rect(x + 1, floor, width - 2, 0, { fill, stroke, "stroke-width": 2, class: "nb-bar" })}
      <circle cx="${x + width / 2}" r="5" fill="#fff" stroke="${stroke}" stroke-width="2"/>
      ${text(x + width / 2, floor, "", centred)}
      </g>`;
  })).join("");
  const tokens = names.map((name, token) =>
    text(10 + (token + 0.5) * column, floor + 18, name, { "text-anchor": "middle" })).join("");
  root.innerHTML = `<div class="nb-panels">
    <div class="nb-bars"><svg viewBox="0 0 360 210" role="group" aria-label="two policies">
      ${text(4, 16, "Two policies: drag a bar", bold)}
      ${rect(250, 6, 10, 10, { fill: "#0072B2" })}${text(265, 16, "π")}
      ${rect(295, 7, 9, 9, { fill: "#fff", stroke: "#222", "stroke-width": 2 })}
      ${text(310, 16, REF)}
      ${bars}${line(6, floor, 354, floor)}${tokens}</svg>
    ${control("", "bar", 1, most)}</div>
    <div><output class="nb-readout"></output>${FOOT}</div>
    <svg class="nb-values" viewBox="0 0 400 412" aria-hidden="true"></svg>
    <svg class="nb-gradients" viewBox="0 0 330 412" aria-hidden="true"></svg></div>`;
  const sliders = [...root.querySelectorAll("[role=slider]")];
  const fine = root.querySelector("input"); // moves the bar that was chosen last
  const held = i => policies[Math.floor(i / count)].hundredths[i % count];
  let chosen = 0; // a bar
  let origin = null; // its policy when it was chosen
  const link = linked(root, "kl", numbers => {
    const both = [numbers.slice(0, count), numbers.slice(count)];
    const fits = hundredths => hundredths.length === count && sum(hundredths) === UNITS
      && hundredths.every(p => Number.isInteger(p) && p >= 1);
    if (!both.every(fits)) return false;
    policies.forEach((policy, i) => { policy.hundredths = both[i]; });
    choose(0);
    return true;
  });

  function choose(i) {
    chosen = i;
    origin = policies[Math.floor(i / count)].hundredths;
    draw();
  }

  // The others keep the proportions they had when the bar was chosen, so that moving it back restores
  // them.
  function set(hundredths) {
    const whole = Math.min(most, Math.max(1, Math.round(hundredths)));
    policies[Math.floor(chosen / count)].hundredths = withToken(origin, chosen % count, whole);
    draw();
  }

  function draw() {
    link(policies.flatMap(({ hundredths }) => hundredths));
    sliders.forEach((slider, i) => {
      const value = held(i) / UNITS;
      slider.setAttribute("aria-valuenow", value.toFixed(2));
      const top = floor - height * value;
      const bar = slider.querySelector(".nb-bar");
      bar.setAttribute("y", top);
      bar.setAttribute("height", height * value);
      slider.querySelector("circle").setAttribute("cy", top);
      const label = slider.querySelector("text");
      label.setAttribute("y", top - 9);
      label.textContent = value.toFixed(2).slice(count > 4 ? 1 : 0); // what fits
      slider.querySelector(".nb-track").classList.toggle("nb-chosen", i === chosen);
    });
    const { who } = policies[Math.floor(chosen / count)];
    const name = names[chosen % count];
    fine.parentElement.firstChild.textContent = `${who === "policy" ? "π" : "π ref"}(${name}) `;
    fine.setAttribute("aria-label", `${who}, token ${name}: the bar that was chosen`);
    place(fine, held(chosen), (held(chosen) / UNITS).toFixed(2));
    const [now, ref] = policies.map(({ hundredths }) => hundredths.map(p => p / UNITS));
    const studied = study(now, ref);
    root.querySelector(".nb-values").innerHTML = drawValues(studied, names);
    root.querySelector(".nb-gradients").innerHTML = drawGradients(studied, names);
    root.querySelector(".nb-readout").innerHTML = words(studied, names);
  }

  sliders.forEach((slider, i) => {
    let grabbed = null;
    slider.addEventListener("focus", () => choose(i));
    slider.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      slider.focus();
      if (event.pointerType === "touch") return; // a finger scrolls, and moves the slider below
      slider.setPointerCapture(event.pointerId);
      grabbed = { y: event.clientY, value: held(i) };
      event.preventDefault(); // no selection of text
    });
    slider.addEventListener("pointermove", event => {
      if (!grabbed) return;
      const pixels = slider.ownerSVGElement.getScreenCTM().d; // of one unit of the drawing
      set(grabbed.value + (grabbed.y - event.clientY) / pixels / height * UNITS);
    });
    slider.addEventListener("lostpointercapture", () => { grabbed = null; });
    slider.addEventListener("keydown", event => {
      const value = held(i);
      const targets = {
        ArrowUp: value + 1, ArrowRight: value + 1, ArrowDown: value - 1, ArrowLeft: value - 1,
        PageUp: value + 10, PageDown: value - 10, Home: 1, End: most,
      };
      if (!(event.key in targets)) return;
      event.preventDefault();
      set(targets[event.key]);
    });
  });

  fine.addEventListener("focus", () => choose(chosen));
  fine.addEventListener("input", () => set(Number(fine.value)));
  const restart = () => {
    policies.forEach(policy => { policy.hundredths = policy.start; });
    choose(0);
  };
  root.querySelector("button").addEventListener("click", restart);
  restart();
}
