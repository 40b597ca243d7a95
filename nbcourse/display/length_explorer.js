// The weight of a token under the four averages over tokens, for answers of lengths to choose.

const WAYS = {
  "token-mean": (length, lengths) => 1 / sum(lengths),
  "seq-mean-token-mean": (length, lengths) => 1 / (lengths.length * length),
  "seq-mean-token-sum": (length, lengths) => 1 / lengths.length,
  "seq-mean-token-sum-norm": (length, lengths, limit) => 1 / (lengths.length * limit),
};
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"];
const [ROW, HIGHEST, GAP] = [82, 48, 6];

// An answer is as wide as it has tokens and as high as each of them weighs: its area is its weight.
function drawn(weights, lengths, name, top) {
  const unit = (WIDTH - 8 - GAP * (lengths.length - 1)) / sum(lengths);
  const most = Math.max(...weights);
  let left = 4;
  const parts = lengths.map((length, i) => {
    const [wide, high] = [unit * length, HIGHEST * weights[i] / most];
    const x = left;
    left += wide + GAP;
    const tokens = Array.from({ length: length - 1 }, (_, t) => `<line stroke="#fff"
      x1="${x + unit * (t + 1)}" x2="${x + unit * (t + 1)}" y1="${top + ROW - high}" y2="${top + ROW}"/>`);
    return `<rect x="${x}" y="${top + ROW - high}" width="${wide}" height="${high}"
      fill="${COLORS[i]}"/>${tokens.join("")}`;
  });
  return `<text x="4" y="${top + 22}" style="font-weight:bold">${name}</text>${parts.join("")}`;
}

function explore(root, lengths, limit, users) {
  root.classList.add("nb-numbers");
  const settings = lengths.map((start, i) => (
    { name: `answer${i}`, label: `answer ${i + 1}, tokens`, min: 1, max: limit, start }));
  sliders(root, "lengths", settings, numbers => {
    const chosen = Object.values(numbers);
    const ways = Object.entries(WAYS).map(([name, weight]) => [
      name, chosen.map(length => weight(length, chosen, limit))]);
    const picture = ways.map(([name, weights], row) => drawn(weights, chosen, name, ROW * row));
    const rows = ways.map(([name, weights]) => `<tr><th scope="row">${name}<br>
      <small>${users[name]}</small></th>${
      weights.map(weight => `<td>${fixed(weight, 4)}</td>`).join("")}</tr>`);
    const heads = chosen.map((length, i) => `<th scope="col">answer ${i + 1}</th>`);
    const words = `<p>Weight of one token (the longest answer allowed has ${limit}):</p>
      <table><tr><td></td>${heads.join("")}</tr>${rows.join("")}</table>`;
    return { picture: picture.join(""), words };
  });
}
