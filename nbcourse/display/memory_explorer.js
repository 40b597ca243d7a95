// Memory of a run by owner and phase. Every number comes with the page; it only selects and adds.

const LABELS = {
  "model": "model", "algorithm": "algorithm", "model.precision": "products in",
  "model.gradient_checkpointing": "recomputation", "optimiser.prompts_at_once": "prompts learned from at once",
  "rollouts.prompts_at_once": "prompts sampled at once", "rollouts.max_new_tokens": "longest answer, tokens",
};
const COLORS = ["#0072B2", "#56B4E9", "#9ecae1", "#bdbdbd", "#636363",
  "#CC79A7", "#E69F00", "#D55E00", "#009E73", "#f0e442"];
const [BAR, FROM, TO] = [38, 78, 392];
const gigabytes = megabytes => megabytes / 1000;

function explore(root, { keys, positions, start, cards, phases, owners, standing, passing }) {
  root.classList.add("nb-numbers");
  const settings = keys.map((key, i) => ({
    name: key, label: LABELS[key], min: 0, max: positions[i].length - 1, start: start[i],
    shown: n => positions[i][n],
  }));
  settings.push({ name: "card", label: "card", min: 0, max: cards.length - 1, start: 1,
    shown: n => cards[n][0] });
  // Where a phase's numbers stand in a list over all positions of what it depends on.
  const index = (numbers, which) => which.reduce((index, key) =>
    index * positions[keys.indexOf(key)].length + numbers[key], 0);

  sliders(root, "memory", settings, numbers => {
    const [card, room] = cards[numbers.card];
    const stay = standing[index(numbers, ["model", "algorithm"])];
    const parts = Object.entries(phases).map(([phase, which]) =>
      [phase, [...stay, ...passing[phase][index(numbers, which)]]]);
    const totals = parts.map(([, bytes]) => gigabytes(sum(bytes)));
    const most = roundUp(1.02 * Math.max(room, ...totals));
    const x = value => FROM + value / most * (TO - FROM);
    const bars = parts.map(([phase, bytes], row) => {
      let from = 0;
      return `<text x="4" y="${BAR * row + 34}">${phase}</text>` + bytes.map((part, i) => {
        const left = x(from);
        from += gigabytes(part);
        return `<rect x="${left}" y="${BAR * row + 18}" width="${x(from) - left}" height="26"
          fill="${COLORS[i]}"/>`;
      }).join("");
    });
    const bottom = BAR * parts.length + 14;
    const legend = owners.map((owner, i) => {
      const [left, top] = [4 + 196 * (i % 2), bottom + 30 + 20 * Math.floor(i / 2)];
      return `<rect x="${left}" y="${top}" width="14" height="14" fill="${COLORS[i]}"/>
        <text x="${left + 20}" y="${top + 12}">${owner}</text>`;
    });
    const picture = `${bars.join("")}<line x1="${x(room)}" x2="${x(room)}" y1="17" y2="${bottom}"
      stroke="#222" stroke-width="2" stroke-dasharray="2 3"/>
      <text x="${Math.min(x(room), TO - 60)}" y="13" text-anchor="middle">${card}</text>
      <text x="${FROM}" y="${bottom + 16}">0</text>
      <text x="${TO}" y="${bottom + 16}" text-anchor="end">${most} GB</text>${legend.join("")}`;

    const rows = owners.map((owner, i) => `<tr><th scope="row">${owner}</th>${parts.map(
      ([, bytes]) => `<td>${bytes[i] ? fixed(gigabytes(bytes[i]), 2) : ""}</td>`).join("")}</tr>`);
    const worst = Math.max(...totals);
    const words = `<p>At most <b>${fixed(worst, 2)} GB</b>, in phase
      “${parts[totals.indexOf(worst)][0]}”: that ${worst <= room ? "fits" : "does not fit"} into
      the ${room} GB of this card.</p>
      <table><tr><td>GB</td>${parts.map(([phase]) => `<th scope="col">${phase}</th>`).join("")}</tr>
      ${rows.join("")}<tr><th scope="row">all</th>${
      totals.map(total => `<td>${fixed(total, 2)}</td>`).join("")}</tr></table>`;
    return { picture, words };
  });
}
