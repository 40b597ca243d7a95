// What explorers of curves share: sliders that do not depend on each other, and lines over an axis.

// The explorer. Each of `settings` has a name, a label, a range, where it starts, how its whole number
// is shown, and, if it does not always count, when it is `idle`; `draw` is given the numbers by name,
// and says what the picture and the words are.
function sliders(root, name, settings, draw) {
  root.innerHTML = `<div class="nb-curves"><div>
    ${settings.map(({ label, name, min, max }) => control(label, name, min, max)).join("")}
    <output class="nb-readout" aria-live="polite"></output>${FOOT}</div>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" aria-hidden="true"></svg></div>`;
  const inputs = [...root.querySelectorAll("input")];
  const link = linked(root, name, numbers => {
    const fits = ({ min, max }, i) => Number.isInteger(numbers[i])
      && numbers[i] >= min && numbers[i] <= max;
    if (numbers.length !== settings.length || !settings.every(fits)) return false;
    show(numbers);
    return true;
  });

  function show(numbers) {
    const named = Object.fromEntries(settings.map(({ name }, i) => [name, numbers[i]]));
    settings.forEach(({ shown = String, idle = () => false }, i) => {
      place(inputs[i], numbers[i], shown(numbers[i]));
      inputs[i].disabled = idle(named);
    });
    const { picture, words } = draw(named);
    root.querySelector("svg").innerHTML = picture;
    root.querySelector(".nb-readout").innerHTML = words;
    link(numbers);
  }

  const restart = () => show(settings.map(({ start }) => start));
  inputs.forEach(input => input.addEventListener("input", () =>
    show(inputs.map(({ value }) => Number(value)))));
  root.querySelector("button").addEventListener("click", restart);
  restart();
}

const [WIDTH, HEIGHT] = [400, 332];
const [LEFT, RIGHT, CEILING, FLOOR] = [46, 388, 26, 220];

// A scale with 0 in the middle that reaches `most` up and down, and its lines and numbers.
function aroundZero(most, roof, ground, right = RIGHT) {
  const step = roundUp(most / 2.5);
  const many = Math.ceil(most / step - 1e-9);
  const y = value => (roof + ground) / 2 - value / (many * step) * (ground - roof) / 2;
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const lines = Array.from({ length: 2 * many + 1 }, (_, i) => (i - many) * step).map(tick => `<line
    x1="${LEFT}" x2="${right}" y1="${y(tick)}" y2="${y(tick)}" stroke="${tick ? "#e3e3e3" : "#777"}"/>
    <text x="${LEFT - 4}" y="${y(tick) + 4}" text-anchor="end">${fixed(tick, decimals)}</text>`);
  return { y, lines: lines.join("") };
}

// From 0 to a value on such a scale: blue upwards, orange downwards.
const bar = (y, left, wide, value) => `<rect x="${left}" width="${wide}"
  y="${Math.min(y(0), y(value))}" height="${Math.abs(y(0) - y(value))}"
  fill="${value < 0 ? "#D55E00" : "#0072B2"}"/>`;

// Lines over a common axis: { label, color, dash, points: [[x, y], …] }; `at` is marked on it.
function curves({ lines, xLabel, yLabel, xTicks, at }) {
  const all = lines.flatMap(({ points }) => points.map(([, y]) => y));
  const step = roundUp(Math.max(...all, 1e-9) / 5);
  const most = step * Math.ceil(Math.max(...all, 1e-9) / step - 1e-9);
  const [first, last] = [xTicks[0], xTicks.at(-1)];
  const x = value => LEFT + (value - first) / (last - first) * (RIGHT - LEFT);
  const y = value => FLOOR - value / most * (FLOOR - CEILING);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const parts = [];
  for (let tick = 0; tick <= most + step / 2; tick += step) {
    parts.push(`<line x1="${LEFT}" y1="${y(tick)}" x2="${RIGHT}" y2="${y(tick)}" stroke="#e3e3e3"/>
      <text x="${LEFT - 4}" y="${y(tick) + 4}" text-anchor="end">${fixed(tick, decimals)}</text>`);
  }
  xTicks.forEach(tick => parts.push(
    `<text x="${x(tick)}" y="${FLOOR + 18}" text-anchor="middle">${tick}</text>`));
  parts.push(`<text x="${(LEFT + RIGHT) / 2}" y="${FLOOR + 36}" text-anchor="middle">${
    xLabel}</text><line x1="${LEFT}" y1="${FLOOR}" x2="${RIGHT}" y2="${FLOOR}" stroke="#777"/>`);
  if (at !== undefined) {
    parts.push(`<line x1="${x(at)}" y1="${CEILING}" x2="${x(at)}" y2="${FLOOR}" stroke="#777"
      stroke-dasharray="2 3"/>`);
  }
  lines.forEach(({ label, color, dash = "", points }, row) => {
    const places = points.map(([px, py]) => `${x(px).toFixed(1)},${y(py).toFixed(1)}`).join(" ");
    const stroke = `stroke="${color}" stroke-width="2.5" stroke-dasharray="${dash}"`;
    const legend = FLOOR + 56 + 18 * row;
    parts.push(`<polyline points="${places}" fill="none" ${stroke} data-line="${row}"/>
      <line x1="${LEFT}" y1="${legend - 4}" x2="${LEFT + 34}" y2="${legend - 4}" ${stroke}/>
      <text x="${LEFT + 42}" y="${legend}">${label}</text>`);
    const here = points.find(([px]) => px === at);
    if (here) {
      parts.push(`<circle cx="${x(at)}" cy="${y(here[1])}" r="4.5" fill="${color}"
        stroke="#fff"/>`);
    }
  });
  return `<text x="4" y="12">${yLabel}</text>${parts.join("")}`;
}
