// The token inspector: a group of recorded answers under two rows of the table of algorithms. All
// numbers were computed by the package when the page was made; here they are chosen and drawn.

const MILLIONTHS = 1e6;
const STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

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

function element(kind, looks, attributes = {}) {
  const made = Object.assign(document.createElement(kind), looks);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  return made;
}

// How a row pushes a token, as the colour of half of the word: blue up, hatched orange down, grey
// where a clip has cut it. By the root of the strength, since few tokens would have a colour else.
function tint({ shares, cut }, answer, token, largest) {
  if (cut[answer][token] === "1") return "linear-gradient(#d4d4d4, #d4d4d4)";
  const push = ofToken(shares, answer, token);
  const depth = 0.72 * Math.sqrt(Math.abs(push) / largest);
  if (push >= 0) return `linear-gradient(rgb(0 114 178 / ${depth}), rgb(0 114 178 / ${depth}))`;
  const [deep, pale] = [depth, depth / 2].map(alpha => `rgb(213 94 0 / ${alpha})`);
  return `repeating-linear-gradient(135deg, ${deep} 0 3px, ${pale} 3px 5px)`;
}

function explore(root, data, start) {
  const { size, rows, pieces } = data;
  const select = (label, name, options) => `<label>${label} <select data-name="${name}"
    aria-label="${label}">${options.map((o, i) => `<option value="${i}">${o}</option>`).join("")}
    </select></label>`;
  root.innerHTML = `<div class="nb-inspector">
    <div class="nb-foot">${select("problem", "problem", data.prompts.map((_, i) => i + 1))}
    ${["compare", "and"].map(label => select(label, "row", rows.map(({ name }) => name))).join("")}
    </div><p class="nb-problem"></p>
    <div class="nb-above"><p class="nb-key"></p>
    <output class="nb-readout" aria-live="polite"></output></div>
    <div class="nb-group"></div>${FOOT}</div>`;
  const [problem, ...selects] = root.querySelectorAll("select");
  const group = root.querySelector(".nb-group");
  const readout = root.querySelector(".nb-readout");
  let state = null; // two rows, an answer, a token, all counted from 0

  function go(chosen, answer, token) {
    const most = pieces[answer].length - 1;
    const before = state;
    state = { chosen, answer, token: Math.min(Math.max(token, 0), most) };
    draw(before);
  }

  // What a row does with a token, or with all of an answer, in a few characters.
  function pushed({ shares, cut, total }, answer, token) {
    if (cut[answer][token] === "1") return "cut";
    return digits(ofToken(shares, answer, token) / MILLIONTHS * total, "+");
  }

  function summary(answer) {
    const each = state.chosen.map(i => {
      const { name, advantages, shares } = rows[i];
      const credit = advantages[answer].length > 1 ? "A by token"
        : `A = ${digits(advantages[answer][0], "+")}`;
      const all = sum(pieces[answer].map((_, t) => ofToken(shares, answer, t))) / MILLIONTHS;
      return `${name}: ${credit}, share ${fixed(100 * all, 1, "+")} %`;
    });
    return `<b>Answer ${answer + 1}, reward ${data.rewards[answer]}</b> · ${each.join(" · ")}`;
  }

  function drawAnswer(answer, largest) {
    const words = pieces[answer].map((piece, token) => {
      const halves = state.chosen.map((i, which) => tint(rows[i], answer, token, largest[which]));
      const said = state.chosen.map(i => `${rows[i].name} ${pushed(rows[i], answer, token)}`);
      const word = element("span", { textContent: piece.replaceAll("\n", "↵"), tabIndex: -1 }, {
        role: "option", "aria-selected": false, "data-answer": answer, "data-token": token,
        "aria-label": `${piece}: ${said.join(", ")}` });
      word.style.backgroundImage = halves.join(", ");
      return word;
    });
    const line = element("div", { className: "nb-tokens" }, {
      role: "listbox", "aria-orientation": "horizontal", "aria-label": `tokens of answer ${answer + 1}` });
    line.append(...words);
    const head = element("p", { innerHTML: summary(answer) });
    return [head, line];
  }

  function drawGroup(which) {
    const mine = pieces.map((_, answer) => answer).slice(which * size, (which + 1) * size);
    const paid = mine.map(answer => data.rewards[answer]).join(", ");
    root.querySelector(".nb-problem").textContent =
      `${data.prompts[which]} Right: ${data.golds[which]}. Rewards: ${paid}.`;
    const names = state.chosen.map(i => rows[i].name);
    root.querySelector(".nb-key").innerHTML = `Upper half of a word: <b>${names[0]}</b>; lower half:
      <b>${names[1]}</b>. <i class="nb-up">pushed up</i> <i class="nb-down">pushed down</i>
      <i class="nb-cut">cut by the clip</i> Shares are of all pushing, on ${pieces.length} answers.`;
    const largest = state.chosen.map(i =>
      Math.max(1, ...mine.flatMap(answer => rows[i].shares[answer].map(Math.abs))));
    group.replaceChildren(...mine.flatMap(answer => drawAnswer(answer, largest)));
  }

  function words(answer, token) {
    const at = table => ofToken(table, answer, token);
    const lines = state.chosen.map(i => {
      const { name, clip, advantages, shares } = rows[i];
      const interval = clip ? clip.map(end => `${Number(end.toFixed(4))}`).join(" to ") : "none";
      return `<tr><th scope="row">${name}</th><td>${interval}</td><td>${digits(at(advantages), "+")}
        </td><td>${pushed(rows[i], answer, token)}</td>
        <td>${fixed(100 * at(shares) / MILLIONTHS, 2, "+")} %</td></tr>`;
    }).join("");
    const said = document.createElement("p");
    said.textContent = `Answer ${answer + 1}, token ${token + 1}, “${
      pieces[answer][token].replaceAll("\n", "↵")}”: probability ${digits(at(data.probs))
      } when it was sampled, ratio ρ = ${digits(at(data.ratios))} now; s = ${
      fixed(data.means[answer], 4)}.`;
    return `${said.outerHTML}<table><thead><tr><th scope="col">row</th>
      <th scope="col">interval</th><th scope="col">A</th><th scope="col">push</th>
      <th scope="col">share</th></tr></thead><tbody>${lines}</tbody></table>`;
  }

  const wordAt = ({ answer, token }) =>
    group.querySelector(`[data-answer="${answer}"][data-token="${token}"]`);

  function mark(word, chosen) {
    word?.setAttribute("aria-selected", chosen);
    if (word) word.tabIndex = chosen ? 0 : -1;
  }

  function draw(before) {
    const { chosen, answer, token } = state;
    const which = Math.floor(answer / size);
    const same = before && Math.floor(before.answer / size) === which
      && chosen.every((row, i) => row === before.chosen[i]);
    problem.value = which;
    chosen.forEach((row, i) => { selects[i].value = row; });
    if (same) mark(wordAt(before), false);
    else drawGroup(which);
    mark(wordAt(state), true);
    readout.innerHTML = words(answer, token);
    link([...chosen, answer + 1, token + 1]);
  }

  const link = linked(root, "tokens", ([one, two, answer, token]) => {
    if (!rows[one] || !rows[two] || !pieces[answer - 1]?.[token - 1]) return false;
    go([one, two], answer - 1, token - 1);
    return true;
  });
  problem.addEventListener("change", () => go(state.chosen, problem.value * size, 0));
  selects.forEach(choice => choice.addEventListener("change", () =>
    go(selects.map(({ value }) => Number(value)), state.answer, state.token)));
  const numbersOf = ({ dataset }) => [Number(dataset.answer), Number(dataset.token)];
  group.addEventListener("click", ({ target }) => {
    if (target.dataset.token) go(state.chosen, ...numbersOf(target));
  });
  // A mouse reads a token in passing, and what was chosen comes back behind it.
  group.addEventListener("pointerover", ({ target, pointerType }) => {
    if (pointerType !== "mouse") return;
    const token = target.dataset.token ? numbersOf(target) : [state.answer, state.token];
    readout.innerHTML = words(...token);
  });
  group.addEventListener("pointerleave", () => {
    readout.innerHTML = words(state.answer, state.token);
  });
  group.addEventListener("keydown", event => {
    const step = STEPS[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const first = Math.floor(state.answer / size) * size;
    const answer = Math.min(Math.max(state.answer + step[0], first), first + size - 1);
    go(state.chosen, answer, state.token + step[1]);
    wordAt(state).focus();
  });
  const restart = () => go(start, 0, 0);
  root.querySelector("button").addEventListener("click", restart);
  restart();
}
