// A sampler and a learner with the same logits in one state and settings of their own: the ratio of
// each token, and what a loss of equal rewards would do.

const [DEEP, HIGH] = [236, 40]; // of the axis

function softmax(logits, temperature) {
  const most = Math.max(...logits);
  const weights = logits.map(logit => Math.exp((logit - most) / temperature));
  return weights.map(weight => weight / sum(weights));
}

// The likeliest tokens up to a share, the one that crosses it included.
function truncated(probs, share) {
  if (share >= 1) return probs;
  const kept = probs.map(() => 0);
  let held = 0;
  for (const [prob, token] of probs.map((prob, i) => [prob, i]).sort(([p], [q]) => q - p)) {
    if (held < share) kept[token] = prob;
    held += prob;
  }
  return kept.map(prob => prob / sum(kept));
}

const raised = digit => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit];
const ofTen = power => (Math.abs(power) < 4 ? fixed(10 ** power, Math.max(0, -power))
  : `10${power < 0 ? "⁻" : ""}${[...String(Math.abs(power))].map(raised).join("")}`);

// Ratios on a logarithmic scale; a dot's area is the probability of being drawn.
function drawn(names, ratios, mu) {
  const powers = ratios.filter(ratio => ratio !== null).map(Math.log10);
  const low = Math.min(-1, Math.floor(Math.min(...powers)));
  const high = Math.max(1, Math.ceil(Math.max(...powers)));
  const y = power => DEEP - (power - low) / (high - low) * (DEEP - HIGH);
  const x = i => LEFT + (i + 0.5) / names.length * (RIGHT - LEFT);
  const parts = [];
  for (let power = low; power <= high; power += Math.ceil((high - low) / 6)) {
    parts.push(`<line x1="${LEFT}" x2="${RIGHT}" y1="${y(power)}" y2="${y(power)}" stroke="#e3e3e3"/>
      <text x="${LEFT - 4}" y="${y(power) + 4}" text-anchor="end">${ofTen(power)}</text>`);
  }
  parts.push(`<line x1="${LEFT}" x2="${RIGHT}" y1="${y(0)}" y2="${y(0)}" stroke="#777"/>`);
  names.forEach((name, i) => {
    const label = document.createElement("i");
    label.textContent = name;
    parts.push(`<text x="${x(i)}" y="${DEEP + 34}" text-anchor="middle">${label.innerHTML}</text>`);
    if (ratios[i] === null) {
      parts.push(`<path d="M${x(i) - 5} ${DEEP + 6} l10 10 m-10 0 l10 -10" stroke="#D55E00"
        stroke-width="2"/>`);
      return;
    }
    const at = y(Math.log10(ratios[i])).toFixed(1);
    parts.push(`<line x1="${x(i)}" x2="${x(i)}" y1="${y(0)}" y2="${at}" stroke="#0072B2"/>
      <circle cx="${x(i)}" cy="${at}" r="${Math.max(2, 11 * Math.sqrt(mu[i])).toFixed(1)}"
      fill="#0072B2"/>`);
  });
  return `<text x="4" y="14">ratio π / μ; a dot's area is μ</text>${parts.join("")}
    <text x="${(LEFT + RIGHT) / 2}" y="${DEEP + 54}" text-anchor="middle">token, likeliest first;
      × is never drawn</text>`;
}

const large = number =>
  (number < 1000 ? fixed(number, 2) : Math.round(number).toLocaleString("en"));

function explore(root, names, logits, [sampler, share, learner]) {
  const tenths = n => fixed(n / 10, 1);
  const settings = [
    { name: "sampler", label: "sampler's τ", min: 3, max: 20, start: sampler, shown: tenths },
    { name: "share", label: "sampler's top-p", min: 1, max: 20, start: share,
      shown: n => fixed(n / 20, 2) },
    { name: "learner", label: "learner's τ", min: 3, max: 20, start: learner, shown: tenths },
  ];
  sliders(root, "mismatch", settings, numbers => {
    const mu = truncated(softmax(logits, numbers.sampler / 10), numbers.share / 20);
    const temperature = numbers.learner / 10;
    const pi = softmax(logits, temperature);
    const ratios = mu.map((prob, i) => (prob ? pi[i] / prob : null));
    const known = ratios.map(ratio => ratio ?? 0);
    const pushes = mu.map((prob, i) => (prob - pi[i]) / temperature);
    const same = pushes.every(push => Math.abs(push) < 1e-12);
    const most = pushes.indexOf(Math.max(...pushes));
    const least = pushes.indexOf(Math.min(...pushes));
    const words = document.createElement("div");
    words.innerHTML = `<p>Ratio: mean <b>${fixed(dot(mu, known))}</b>, largest
      <b>${large(Math.max(...known))}</b>, mean square <b>${large(dot(mu, known.map(r => r * r)))}</b>;
      never drawn: <b>${fixed(sum(pi.filter((_, i) => !mu[i])))}</b></p><p>${same
        ? "Sampler and learner are one policy: the loss climbs its expected reward."
        : `Two policies. If all answers pay 1, nothing should move, but the loss pushes the logit of
          “<i></i>” by <b>${fixed(pushes[most], 3, "+")}</b> and that of “<i></i>” by
          <b>${fixed(pushes[least], 3, "+")}</b>.`}</p>`;
    words.querySelectorAll("i").forEach((place, i) => { place.textContent = names[[most, least][i]]; });
    return { picture: drawn(names, ratios, mu), words: words.innerHTML };
  });
}
