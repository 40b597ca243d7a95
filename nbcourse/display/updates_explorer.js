// A sampled update beside the expected one, for two rows of the table of algorithms. The package
// has computed the updates of all groups, and mean and deviation of batches of them; here groups
// are drawn and averaged.

const BAR = 14;
const LINES = ["cosine, this batch", "cosine, expected", "size, this batch", "size, expected",
  "bias", "scatter", "error"];

// Numbers from 0 to 1 that follow from a seed: mulberry32, by Tommy Ettinger, in the public domain.
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6D2B79F5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// The first `count` groups of a batch, by their numbers: a larger batch begins with a smaller one.
function groupsOf(batch, count, probs) {
  const next = random(batch);
  let total = 0;
  const ends = probs.map(prob => { total += prob; return total; });
  return Array.from({ length: count }, () => {
    const place = next() * total;
    return ends.findIndex(end => place < end);
  });
}

// The mean of the groups' updates, each with its weight.
function averaged({ updates, weights }, groups) {
  const weight = sum(groups.map(group => weights[group]));
  return updates[0].map((_, s) =>
    sum(groups.map(group => weights[group] * updates[group][s])) / weight);
}

// Groups without spread may leave an update of 0, which has no direction.
const cosine = (one, two) => (norm(one) ? dot(one, two) / (norm(one) * norm(two)) : null);

// A row on a batch: as it is, and in a unit in which its expected update is as long as the gradient.
function studied(kind, groups, which, gradient) {
  const [mean, deviation] = [kind.means[which], kind.deviations[which]];
  const sampled = averaged(kind, groups);
  const unit = norm(mean) / norm(gradient);
  const scaled = vector => vector.map(value => value / unit);
  const bias = norm(scaled(mean).map((value, s) => value - gradient[s])) / norm(gradient);
  const scatter = norm(deviation) / norm(mean);
  return {
    drawn: { sampled: scaled(sampled), mean: scaled(mean), deviation: scaled(deviation) },
    numbers: [cosine(sampled, gradient), cosine(mean, gradient),
      norm(sampled) / norm(gradient), unit, bias, scatter, Math.hypot(bias, scatter)],
  };
}

// The update that a row makes of this batch: the first row's filled, the second one's hollow.
function barOf(which, x, from, to) {
  const color = ["#0072B2", "#D55E00"][which];
  const high = Math.abs(to - from);
  const inset = which * Math.min(1, high / 2); // half the stroke, which is within the bar
  return `<rect x="${x + inset}" y="${Math.min(from, to) + inset}" width="${BAR - 2 * inset}"
    height="${high - 2 * inset}" fill="${which ? "#fff" : color}" stroke="${color}"
    stroke-width="${2 * inset}"/>`;
}

const line = (x1, y1, x2, y2, looks = 'stroke="#222"') =>
  `<line x1="${x1}" x2="${x2}" y1="${y1}" y2="${y2}" ${looks}/>`;
const gradientLine = (x1, x2, y) =>
  line(x1, y, x2, y, 'stroke="#009E73" stroke-width="2.5" stroke-dasharray="5 3"');

// Where an update is expected, and one deviation to either side.
const mark = (x, middle, top, bottom) =>
  line(x - 7, middle, x + 7, middle, 'stroke="#222" stroke-width="3.5"')
  + line(x, top, x, bottom) + [top, bottom].map(end => line(x - 4, end, x + 4, end)).join("");

function picture(rows, { gradient, states, axis }) {
  const reach = rows.flatMap(({ drawn: { sampled, mean, deviation } }) => [
    ...sampled, ...mean.flatMap((value, s) => [value - deviation[s], value + deviation[s]])]);
  const { y, lines } = aroundZero(Math.max(...reach.concat(gradient).map(Math.abs)), CEILING, FLOOR);
  const slot = (RIGHT - LEFT) / states.length;
  const places = states.map((state, s) => {
    const centre = LEFT + slot * (s + 0.5);
    const updates = rows.map(({ drawn: { sampled, mean, deviation } }, which) => {
      const x = centre + [-36, 4][which];
      return barOf(which, x, y(0), y(sampled[s]))
        + mark(x + BAR + 10, ...[0, 1, -1].map(k => y(mean[s] + k * deviation[s])));
    });
    return `${gradientLine(centre - 39, centre + 39, y(gradient[s]))}${updates.join("")}
      <text x="${centre}" y="${FLOOR + 18}" text-anchor="middle">${state}</text>`;
  });
  const legend = (column, row) => [4 + 196 * column, FLOOR + 62 + 24 * row];
  const keys = rows.map(({ name }, which) => {
    const [x, ground] = legend(which, 0);
    return `${barOf(which, x + 5, ground, ground - 14)}
      <text x="${x + 32}" y="${ground - 2}">${name}</text>`;
  });
  const [[left, ground], [right]] = [legend(0, 1), legend(1, 1)];
  return `<text x="4" y="12">update, all rows brought to one size</text>${lines}${places.join("")}
    <text x="${(LEFT + RIGHT) / 2}" y="${FLOOR + 36}" text-anchor="middle">${axis}</text>
    ${keys.join("")}${mark(left + 12, ground - 7, ground - 16, ground + 2)}
    <text x="${left + 32}" y="${ground - 2}">expected ± deviation</text>
    ${gradientLine(right, right + 26, ground - 7)}
    <text x="${right + 32}" y="${ground - 2}">exact gradient</text>`;
}

function explore(root, data, [one, two, count]) {
  root.classList.add("nb-numbers", "nb-apart", "nb-updates");
  const { counts, most, rows, kinds, probs } = data;
  const row = (name, label, start) => ({
    name, label, min: 0, max: rows.length - 1, start, shown: n => rows[n][0] });
  const settings = [
    row("one", "compare", one), row("two", "and", two),
    { name: "groups", label: "groups", min: 0, max: counts.length - 1, start: count,
      shown: n => counts[n] },
    { name: "batch", label: "batch no.", min: 1, max: most, start: 1 },
  ];
  sliders(root, "updates", settings, numbers => {
    const groups = groupsOf(numbers.batch, counts[numbers.groups], probs);
    const found = [numbers.one, numbers.two].map(i => ({
      name: rows[i][0], ...studied(kinds[rows[i][1]], groups, numbers.groups, data.gradient) }));
    const heads = found.map(({ name }) => `<th scope="col">${name}</th>`);
    const said = (number, digits) => (number === null ? "–" : fixed(number, digits));
    const body = LINES.map((label, i) => `<tr><th scope="row">${label}</th>${found.map(of =>
      `<td>${said(of.numbers[i], i < 2 ? 4 : 3)}</td>`).join("")}</tr>`);
    return {
      picture: picture(found, data),
      words: `<table><tr><td></td>${heads.join("")}</tr>${body.join("")}</table>`,
    };
  });
}
