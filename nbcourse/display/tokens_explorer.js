// The token inspector: a recorded batch under two rows of the table of algorithms. All numbers were
// computed by the package when the page was made; here they are chosen and drawn.

const HIGHEST = 13; // pixels of the longest bar at a token
const MILLIONTHS = 1e6;
const [UP, DOWN] = ["#0072B2", "#D55E00"];

// Three significant digits, and a plus sign where signs matter.
function digits(number, sign = "") {
  if (!number) return "0";
  const leading = Math.floor(Math.log10(Math.abs(number)));
  return fixed(number, Math.min(8, Math.max(0, 2 - leading)), sign);
}

// The number of a token; where all tokens of an answer have the same, it stands once.
function ofToken(table, answer, token) {
  return table[answer][token] ?? table[answer][0];
}

function explore(root, data, start) {
  const { size, rows, pieces } = data;
  const options = rows.map(({ name }, i) => `<option value="${i}">${name}</option>`).join("");
  const choice = (label, i) => `<label>${label}
    <select data-row="${i}" aria-label="${label}">${options}</select></label>`;
  root.innerHTML = `<div class="nb-inspector">
    ${control("answer", "answer", 1, pieces.length)}
    ${control("token", "token", 1, 1)}
    <p class="nb-problem"></p>
    ${[0, 1].map(i => `${choice(i ? "and" : "compare", i)}<div class="nb-tokens"></div>`).join("")}
    <output class="nb-readout" aria-live="polite"></output>
    <p>All answers, by the sum of the pushes on their tokens:</p>
    <svg viewBox="0 0 360 180" aria-hidden="true"></svg>
    ${FOOT}</div>`;
  const [answers, tokens] = root.querySelectorAll("input");
  const selects = root.querySelectorAll("select");
  const strips = root.querySelectorAll(".nb-tokens");
  let state = null; // two rows, an answer, a token, all counted from 0

  function go(chosen, answer, token) {
    const most = pieces[answer].length - 1;
    state = { chosen, answer, token: Math.min(Math.max(token, 0), most) };
    draw();
  }

  function drawStrip(strip, row) {
    const largest = Math.max(...row.shares.flat().map(Math.abs), 1);
    strip.replaceChildren(...pieces[state.answer].map((piece, t) => {
      const push = ofToken(row.shares, state.answer, t);
      const span = document.createElement("span");
      span.textContent = piece.replaceAll("\n", "↵");
      span.classList.toggle("nb-chosen", t === state.token);
      span.classList.toggle("nb-cut", row.cut[state.answer][t] === "1");
      if (push) {
        const bar = document.createElement("i");
        bar.className = push > 0 ? "nb-up" : "nb-down";
        bar.style.height = `${Math.max(1, HIGHEST * Math.abs(push) / largest)}px`;
        span.append(bar);
      }
      span.addEventListener("click", () => go(state.chosen, state.answer, t));
      return span;
    }));
  }

  // Which way each answer is pushed, and how much of all pushing that is.
  function drawBatch() {
    const column = 344 / (pieces.length + 0.4 * (pieces.length / size - 1));
    return state.chosen.map((i, which) => {
      const sums = pieces.map((texts, answer) =>
        sum(texts.map((_, t) => ofToken(rows[i].shares, answer, t))));
      const largest = Math.max(...sums.map(Math.abs), 1);
      const zero = 52 + 84 * which;
      const bars = sums.map((total, answer) => {
        const height = Math.abs(total) / largest * 30;
        const x = 8 + (answer + 0.4 * Math.floor(answer / size)) * column;
        const whose = `data-answer="${answer}"`;
        return `<rect x="${x}" y="${zero - 32}" width="${column}" height="64" ${whose}
          fill="${answer === state.answer ? "#cfe0ee" : "#fff"}"/>
          <rect x="${x + 2}" y="${total > 0 ? zero - height : zero}" width="${column - 4}"
          height="${height}" fill="${total > 0 ? UP : DOWN}" ${whose}/>`;
      }).join("");
      return `<text x="2" y="${zero - 36}">${rows[i].name}</text>${bars}
        <line x1="8" y1="${zero}" x2="352" y2="${zero}" stroke="#777"/>`;
    }).join("");
  }

  function words({ chosen, answer, token }) {
    const at = table => ofToken(table, answer, token);
    const lines = chosen.map(i => {
      const { name, clip, advantages, shares, cut, total } = rows[i];
      const share = at(shares) / MILLIONTHS;
      const interval = clip ? clip.map(end => `${Number(end.toFixed(4))}`).join(" to ") : "none";
      return `<tr><th scope="row">${name}</th><td>${interval}</td><td>${digits(at(advantages), "+")}
        </td><td>${cut[answer][token] === "1" ? "cut" : digits(share * total, "+")}</td>
        <td>${fixed(100 * Math.abs(share), 2)} %</td></tr>`;
    }).join("");
    return `<p>Token ${token + 1}: probability ${digits(at(data.probs))} when it was sampled, ratio
      ρ = <b>${digits(at(data.ratios))}</b> now; s = ${fixed(data.means[answer], 4)}.</p>
      <table><thead><tr><th scope="col">row</th><th scope="col">interval</th><th scope="col">A</th>
      <th scope="col">push</th><th scope="col">of all</th></tr></thead><tbody>${lines}</tbody>
      </table>`;
  }

  function draw() {
    const { chosen, answer, token } = state;
    const group = Math.floor(answer / size);
    tokens.max = pieces[answer].length;
    place(answers, answer + 1, answer + 1);
    place(tokens, token + 1, token + 1);
    const paid = data.rewards.slice(group * size, (group + 1) * size);
    root.querySelector(".nb-problem").textContent = `${data.prompts[group]}
      Right: ${data.golds[group]}. Rewards in this group: ${paid.join(", ")}. Answer ${answer + 1}, ${
        pieces[answer].length} tokens, has reward ${data.rewards[answer]}.`;
    chosen.forEach((row, i) => {
      selects[i].value = row;
      drawStrip(strips[i], rows[row]);
    });
    root.querySelector("svg").innerHTML = drawBatch();
    root.querySelector(".nb-readout").innerHTML = words(state);
    link([...chosen, answer + 1, token + 1]);
  }

  const link = linked(root, "tokens", ([one, two, answer, token]) => {
    if (!rows[one] || !rows[two] || !pieces[answer - 1]?.[token - 1]) return false;
    go([one, two], answer - 1, token - 1);
    return true;
  });
  answers.addEventListener("input", () => go(state.chosen, answers.value - 1, state.token));
  tokens.addEventListener("input", () => go(state.chosen, state.answer, tokens.value - 1));
  selects.forEach(select => select.addEventListener("change", () =>
    go([...selects].map(({ value }) => Number(value)), state.answer, state.token)));
  root.querySelector("svg").addEventListener("click", ({ target }) => {
    if (target.dataset.answer) go(state.chosen, Number(target.dataset.answer), state.token);
  });
  const restart = () => go(start, 0, 0);
  root.querySelector("button").addEventListener("click", restart);
  restart();
}
