// The credit of each token of one answer: KL penalties and a score, TD errors, and their sum under λ.

const [ROOF, GROUND] = [34, 226]; // of the bars

function credit({ logRatios, values, score }, beta, lambda, gamma) {
  const rewards = logRatios.map((d, t) => -beta * d + (t === logRatios.length - 1 ? score : 0));
  const deltas = rewards.map((reward, t) => reward + gamma * (values[t + 1] ?? 0) - values[t]);
  const advantages = deltas.slice();
  for (let t = deltas.length - 2; t >= 0; t -= 1) {
    advantages[t] += gamma * lambda * advantages[t + 1];
  }
  return { rewards, deltas, advantages };
}

// A bar for each advantage, and a ring where the token's own TD error is.
function bars(names, { deltas, advantages }) {
  const { y, lines } = aroundZero(
    Math.max(...[...deltas, ...advantages].map(Math.abs), 0.01), ROOF, GROUND);
  const wide = (RIGHT - LEFT) / names.length;
  const columns = names.map((name, t) => {
    const x = LEFT + wide * (t + 0.5);
    return `${bar(y, x - wide * 0.35, wide * 0.7, advantages[t])}
      <circle cx="${x}" cy="${y(deltas[t])}" r="5" fill="#fff" stroke="#222" stroke-width="2"/>
      <text x="${x}" y="${GROUND + 22}" text-anchor="middle">${name}</text>`;
  });
  return `<text x="4" y="14">bar: advantage A; ring: TD error δ</text>${lines}${columns.join("")}
    <text x="${(LEFT + RIGHT) / 2}" y="${GROUND + 42}" text-anchor="middle">token</text>`;
}

function explore(root, names, answer, [beta, lambda, gamma]) {
  root.classList.add("nb-numbers", "nb-apart");
  const safe = names.map(name => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;"));
  const shown = n => fixed(n / 100, 2);
  const settings = [
    { name: "beta", label: "penalty β", min: 0, max: 100, start: beta, shown },
    { name: "lambda", label: "λ", min: 0, max: 100, start: lambda, shown },
    { name: "gamma", label: "γ", min: 0, max: 100, start: gamma, shown },
  ];
  sliders(root, "credit", settings, numbers => {
    const found = credit(answer, ...Object.values(numbers).map(n => n / 100));
    const { rewards, deltas, advantages } = found;
    const rows = safe.map((name, t) => `<tr><th scope="row">${name}</th>${
      [rewards[t], answer.values[t], deltas[t], advantages[t]].map(number =>
        `<td>${fixed(number, 3)}</td>`).join("")}</tr>`);
    const reach = (numbers.gamma * numbers.lambda / 1e4) ** (names.length - 1);
    const words = `<p>Of the score, the first token's advantage gets
      (γλ)<sup>${names.length - 1}</sup> = <b>${fixed(reach)}</b>.</p>
      <table><tr><td></td>${["reward", "V", "δ", "A"].map(head =>
        `<th scope="col">${head}</th>`).join("")}</tr>${rows.join("")}</table>`;
    return { picture: bars(safe, found), words };
  });
}
