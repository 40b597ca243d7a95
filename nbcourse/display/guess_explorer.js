// Recorded runs one by one, by their curves: the reader says what is wrong, and is scored by the
// rule that diagnoses are scored by. A state is the list of guesses, each the number of a choice;
// choice 0 is "healthy", which is null in the data.

const [WIDE, HIGH] = [220, 104];

// One dial over the steps of a run: its name, and its least and its largest value.
function panel(name, values) {
  const known = values.filter(value => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const x = i => 4 + i / Math.max(1, values.length - 1) * (WIDE - 8);
  const y = value => HIGH - 22 - (high > low ? (value - low) / (high - low) : 0.5) * (HIGH - 48);
  const places = values.flatMap((value, i) =>
    value === null ? [] : [`${x(i).toFixed(1)},${y(value).toFixed(1)}`]);
  const shown = value => (value && Math.abs(value) < 1e-3 ? value.toExponential(0)
    : String(Number(value.toPrecision(3)))).replaceAll("-", "−");
  const range = [low, high].map(shown);
  return `<svg viewBox="0 0 ${WIDE} ${HIGH}" role="img"
    aria-label="${name}, from ${range[0]} to ${range[1]}"><text x="4" y="14">${name}</text>
    <polyline points="${places.join(" ")}" fill="none" stroke="#0072B2" stroke-width="2"/>
    <line x1="4" x2="${WIDE - 4}" y1="${HIGH - 18}" y2="${HIGH - 18}" stroke="#777"/>
    <text x="4" y="${HIGH - 4}">${range[0]} to ${range[1]}</text></svg>`;
}

// Wilson's interval of 95 %, as functional/accuracy.py has it.
function interval(right, of, z = 1.96) {
  const share = right / of;
  const radius = z * Math.sqrt(share * (1 - share) / of + z * z / (4 * of * of));
  return [-1, 1].map(side => Math.min(1, Math.max(0,
    (share + z * z / (2 * of) + side * radius) / (1 + z * z / of))));
}

function explore(root, { dials, groups, runs }, start) {
  const choices = [null, ...groups.flatMap(({ causes }) => causes)];
  const say = cause => cause ?? "healthy";
  root.innerHTML = `<div class="nb-guess"><p class="nb-which"></p><div class="nb-dials"></div>
    <div class="nb-ask"><label>What is it? <select data-name="guess" aria-label="your guess">
      <option value="0">healthy</option>${groups.map(({ question, causes }) =>
        `<optgroup label="${question}">${causes.map(cause =>
          `<option value="${choices.indexOf(cause)}">${cause}</option>`).join("")}</optgroup>`
      ).join("")}</select></label><button type="button" class="nb-decide">That is my guess</button>
    </div><output class="nb-readout" aria-live="polite"></output>${FOOT}</div>`;
  const part = name => root.querySelector(`.nb-${name}`);
  let guesses = [];
  const link = linked(root, "guess", numbers => {
    const fits = number => Number.isInteger(number) && number >= 0 && number < choices.length;
    if (numbers.length > runs.length || !numbers.every(fits)) return false;
    show(numbers);
    return true;
  });

  // Of the runs that have been guessed: how often the cause is named, and whether there is any.
  function scored(who, said) {
    const right = runs.slice(0, guesses.length).map(({ truth }, i) => [
      said(i) === truth, (said(i) === null) === (truth === null)]);
    const cells = [0, 1].map(k => {
      const count = sum(right.map(both => Number(both[k])));
      const ends = interval(count, guesses.length).map(end => `${Math.round(100 * end)} %`);
      return `<td><b>${count}</b> (${ends.join(" to ")})</td>`;
    });
    return `<tr><th scope="row">${who}</th>${cells.join("")}</tr>`;
  }

  function words() {
    const many = guesses.length;
    if (!many) return `<p>${runs.length} recorded runs, ${choices.length} choices for each.</p>`;
    const { name, truth, sentence, witness, curves } = runs[many - 1];
    const chance = fixed(many / choices.length, 1);
    return `<p>Run ${name}: <b>${say(truth)}</b>. ${sentence} You said
      ${say(choices[guesses[many - 1]])}; a diagnosis by the curves, ${say(curves)}; with the
      witnesses, ${say(witness)}.</p><table><tr><td>of ${many}</td><th scope="col">named</th>
      <th scope="col">healthy or not</th></tr>
      ${scored("you", i => choices[guesses[i]])}${scored("curves", i => runs[i].curves)}
      ${scored("witnesses", i => runs[i].witness)}
      <tr><th scope="row">chance</th><td>${chance}</td><td>${fixed(many / 2, 1)}</td></tr></table>`;
  }

  function show(numbers) {
    guesses = numbers;
    const open = numbers.length < runs.length;
    const run = runs[open ? numbers.length : runs.length - 1];
    part("which").innerHTML = open
      ? `Run <b>${run.name}</b>, number ${numbers.length + 1} of ${runs.length}: ${run.recipe}`
      : "That was the last one.";
    part("dials").innerHTML = open ? dials.map((name, i) => panel(name, run.dials[i])).join("") : "";
    part("ask").hidden = !open;
    root.querySelector("select").value = "0";
    part("readout").innerHTML = words();
    link(numbers);
  }

  part("decide").addEventListener("click", () =>
    show([...guesses, Number(root.querySelector("select").value)]));
  part("foot").querySelector("button").addEventListener("click", () => show([]));
  show(start);
}
