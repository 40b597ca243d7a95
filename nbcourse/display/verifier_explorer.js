// What verifiers make of a response: chapter 13's four naive ones, and the package's two modes of
// tasks/answers.py, whose rules, names and order these functions follow.

// Python's classes, which JavaScript has otherwise.
const [WORD, BLANK] = ["\\p{L}\\p{N}_", "\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028-\\u2029\\u202f\\u205f\\u3000"];
const [EDGE_BEFORE, EDGE_BEHIND] = [`(?<![${WORD}])`, `(?![${WORD}])`];
const pattern = (source, flags = "") => new RegExp(source, `u${flags}`);

// ---------------------------------------------------------------- tasks/answers.py

const FULL_WIDTH = Object.fromEntries([..."０１２３４５６７８９＋－﹣−．，：％＄￠￡￥"].map(
  (wide, i) => [wide, [..."0123456789+---.,:%$¢£¥"][i]]));
const CURRENCY = "$¢-¥\\u20a0-\\u20c0";
const SPACE = "[ \\t\\u00a0\\u2000-\\u200a\\u202f\\u205f\\u3000]*";
const NUMBER = "(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\\.[0-9]+)?|\\.[0-9]+";
const EXACT = pattern(`^${SPACE}(?:(?<outer>[+\\-])${SPACE})?`
  + `(?:[${CURRENCY}]${SPACE}(?:(?<inner>[+\\-])${SPACE})?)?`
  + `(?<number>${NUMBER})${SPACE}(?:[${CURRENCY}%]${SPACE})?\\.?${SPACE}\\r?$`);
const MARKER = pattern("(?<!#)####(?!#)([^\\n]*)", "g");
const BRACE = pattern(`\\\\boxed[${BLANK}]*\\{|\\\\[{}]|[{}]`, "g");
const PHRASE = pattern(`${EDGE_BEFORE}answer[${BLANK}*_]*(?:is${EDGE_BEHIND}|:)`, "gi");
const FINAL = pattern(`${EDGE_BEFORE}final answer[${BLANK}*_]*(?:is${EDGE_BEHIND}|:)`, "gi");
const NO_ANSWER = pattern("^[^\\p{L}\\p{N}]*(?:n/?a|none|unknown|undefined|no answer|cannot be determined)"
  + EDGE_BEHIND, "i");
const EQUALS = pattern(`^[ \\t${CURRENCY}]*=[ \\t${CURRENCY}]*$`);
const OR = pattern(`${EDGE_BEFORE}or${EDGE_BEHIND}`, "i");
const FRACTIONS = "¼-¾⅐-↉";
const DIGIT = `\\p{Nd}²³¹${FRACTIONS}⁰-⁹₀-₉`;
const GAP = " \\u00a0\\u2009\\u202f";
// What is written in several pieces and is one number, or is more than a number.
const PIECES = [
  ["(?<=[0-9])(?:\\{\\\\?,\\}|,\\\\!|\\\\[,;: ])(?=[0-9]{3}(?![0-9]))", ","],
  [`(?<![${WORD}.,])(?<![0-9][${GAP}])[1-9][0-9]{0,2}(?:[${GAP}][0-9]{3})+`
    + `(?![${WORD}${DIGIT}]|[${GAP}][0-9])`, all => all.replace(pattern(`[${GAP}]`, "g"), ",")],
  ["(?<=[0-9])( ?(?:[cdkm]?m|ft|in|yd|mi))(?:[²³]|\\^\\{?[23]\\}?)" + EDGE_BEHIND, "$1"],
  ["[ \\t]?\\\\(?:[cdt]?frac|sqrt)[ \\t]*\\{?[ \\t]*", "±"],
  ["[ \\t]{0,3}\\}[ \\t]{0,3}\\{[ \\t]{0,3}", "}{"],
  [`(?<=[0-9]) (?:(?:and|&) )?(?=[0-9]+ ?/ ?[0-9]|[${FRACTIONS}])`, "+"],
  ["(?<=[0-9]) and (?:a|one) (?:half|third|quarter)" + EDGE_BEHIND, "½"],
  [`(?<=[0-9%]) ?([\\-+*/:\\^×·÷–]|x(?= )) ?(?=[${CURRENCY}]?[0-9])`, (all, sign) => sign.replace("x", "×")],
].map(([source, together]) => [pattern(source, "g"), together]);
const RUN = pattern(`(?:(?<name>[A-Za-z_\\^])|(?<![${WORD})\\]}.+\\-])[+\\-]?(?:[${CURRENCY}] ?[+\\-]?)?\\.?)?`
  + `[${DIGIT}]+(?:[^${BLANK}=<>${DIGIT}]{1,3}[${DIGIT}]+)*`, "g");
const OPENS_WITH_DIGIT = pattern(`^[^\\p{L}\\p{N}]*[${DIGIT}]`);
const NUMBERED_HEADING = pattern(
  `^[^\\p{L}\\p{N}]*([0-9]{1,2})[.)][${BLANK}]+[\\p{L}\\p{Nl}\\p{No}]`);
const DOUBTFUL_SIGN = new Set([..."‐‑‒–±∓", "--", "-+", "+-", "++", "}{"]);
const UNSEEN = pattern("[\\p{Cf}\\p{Mn}\\p{Me}]");

const extract = (text, { strict }) => {
  const plain = [...text].map(character => FULL_WIDTH[character] ?? character).join("");
  return strict ? strictAnswer(plain) : lenientAnswer(plain);
};

// A number as the shortest text that says it, which decides whether two are equal.
function exact(line) {
  const { outer, inner, number } = line.match(EXACT)?.groups ?? {};
  if (!number || (outer && inner)) return null;
  const [whole, part = ""] = number.replaceAll(",", "").split(".");
  if (whole.length + part.length > 50) return null;
  const shown = `${whole.replace(/^0+/, "") || "0"}.${part}`.replace(/\.?0*$/, "");
  return (outer ?? inner) === "-" && shown !== "0" ? `-${shown}` : shown;
}

const markers = text => [...text.matchAll(MARKER)].map(([, line]) => line);
const strictAnswer = text => agreed(markers(text), exact);

function agreed(lines, read) {
  const found = new Set(lines.map(read));
  return found.size === 1 ? [...found][0] : null;
}

function lenientAnswer(text) {
  const answer = strictAnswer(text);
  if (answer !== null) return answer;
  for (const [piece, together] of PIECES) text = text.replace(piece, together);
  if (markers(text).some(line => NO_ANSWER.test(line))) return null;
  const claims = markerClaims(text);
  if (claims.length) return agreed(claims, onlyNumber);
  const box = lastBox(text);
  if (box !== null && runs(text.slice(...box)).length) {
    const answer = onlyNumber(text.slice(...box));
    const final = [...text.matchAll(FINAL)].filter(({ index }) => index >= box[1]).at(-1);
    if (answer === null || !final) return answer;
    const rest = text.slice(final.index + final[0].length);
    return OPENS_WITH_DIGIT.test(rest) ? firstNumber(rest) : answer;
  }
  const phrase = [...text.matchAll(PHRASE)].at(-1);
  if (phrase) {
    const rest = text.slice(phrase.index + phrase[0].length);
    if (runs(rest).length) return firstNumber(rest);
  }
  return lastNumberOf(text);
}

function markerClaims(text) {
  let next = 1;
  return [...new Set(markers(text))].filter(line => {
    if (!OPENS_WITH_DIGIT.test(line)) {
      return (line.includes("\\boxed") || line.match(PHRASE)) && runs(line).length;
    }
    const heading = line.match(NUMBERED_HEADING);
    if (!heading || Number(heading[1]) !== next) return true;
    next += 1;
    return false;
  });
}

function lastBox(text) {
  const starts = [];
  let box = null;
  for (const { 0: brace, index } of text.matchAll(BRACE)) {
    if (brace === "{") starts.push(null);
    else if (brace === "}") {
      const start = starts.pop() ?? null;
      if (start !== null) box = [start, index];
    } else if (brace[1] === "b") starts.push(index + brace.length);
  }
  return box;
}

const runs = text => [...text.matchAll(RUN)].filter(({ groups }) => !groups.name);

function value({ 0: run, index, input }) {
  const before = [...input.slice(0, index)].slice(-2);
  const last = before.at(-1) ?? "";
  const [after = ""] = input.slice(index + run.length);
  if (DOUBTFUL_SIGN.has(before.join("")) || DOUBTFUL_SIGN.has(last)) return null;
  return UNSEEN.test(last) || UNSEEN.test(after) ? null : exact(run);
}

function onlyNumber(piece) {
  const number = exact(piece);
  if (number !== null) return number;
  const found = runs(attachSign(piece));
  return found.length === 1 ? value(found[0]) : null;
}

function firstNumber(rest) {
  const [first, ...others] = runs(attachSign(rest));
  const equal = [first];
  for (const after of others) {
    if (!EQUALS.test(between(equal.at(-1), after))) {
      if (joinedByOr(equal.at(-1), after)) return null;
      break;
    }
    equal.push(after);
  }
  const plain = new Set(equal.map(value).filter(number => number !== null));
  return plain.size === 1 ? [...plain][0] : null;
}

const between = (first, second) => first.input.slice(first.index + first[0].length, second.index);

function lastNumberOf(text) {
  const [last, previous] = runs(text).reverse();
  return !last || (previous && joinedByOr(previous, last)) ? null : value(last);
}

const attachSign = piece => piece.replace(/^([ \t]*[+-])[ \t]+/, "$1");

function joinedByOr(first, second) {
  const text = between(first, second);
  return [...text].length <= 40 && OR.test(text) && value(first) !== value(second);
}

// ---------------------------------------------------------------- the naive ones

// Python's float, of any script's digits; undefined where it raises an error.
function float(text) {
  const strip = pattern(`^[${BLANK}]+|[${BLANK}]+$`, "g");
  const plain = text.replace(strip, "").replace(/\p{Nd}/gu, digit => {
    let zero = digit.codePointAt(0); // the digits of a script, 0 to 9, have no other beside them
    while (/\p{Nd}/u.test(String.fromCodePoint(zero - 1))) zero -= 1;
    return (digit.codePointAt(0) - zero) % 10;
  });
  if (/^[+-]?(inf(inity)?|nan)$/i.test(plain)) return NaN; // no gold answer is infinite either
  const [digits, number] = ["[0-9](?:_?[0-9])*", plain.replaceAll("_", "")];
  const valid = new RegExp(
    `^[+-]?(?:${digits}\\.?(?:${digits})?|\\.${digits})(?:e[+-]?${digits})?$`, "i");
  return valid.test(plain) ? Number(number) : undefined;
}

// name → what a verifier reads in a text, and its verdict: true, false, or undefined if it crashes
const VERIFIERS = {
  found_anywhere(text, gold) {
    const numbers = text.match(/\p{Nd}+/gu) ?? [];
    return [numbers.join(", "), numbers.includes(gold)];
  },
  last_number(text, gold) {
    const last = text.replaceAll(",", "").match(/-?\p{Nd}+(?:\.\p{Nd}+)?/gu)?.at(-1);
    return [last, last !== undefined && float(last) === Number(gold)];
  },
  after_marker(text, gold) {
    const read = text.split("####").at(-1);
    const number = float(read);
    return [read, number === undefined ? undefined : number === Number(gold)];
  },
  marker_pattern(text, gold) {
    const found = text.match(/#### (-?[0-9.,]+)/)?.[1];
    return [found, found !== undefined && found.replaceAll(",", "") === gold];
  },
  strict(text, gold) {
    const answer = extract(text, { strict: true });
    return [answer, answer === gold];
  },
  lenient(text, gold) {
    const answer = extract(text, { strict: false });
    return [answer, answer === gold];
  },
};

// ---------------------------------------------------------------- what a reader sees

const MOST = 300; // characters of a response: they all stand in the link

function explore(root, examples, gold) {
  root.classList.add("nb-numbers");
  const rows = Object.keys(VERIFIERS).map(name => `<tr><th scope="row">${name}</th><td></td>
    <td></td></tr>`);
  root.innerHTML = `<div class="nb-verifier"><label>example
    <select data-name="example" aria-label="example"></select></label>
    <textarea rows="3" maxlength="${MOST}" aria-label="a response" spellcheck="false"></textarea>
    <output class="nb-readout" aria-live="polite"><table><tr><td>right: ${gold}</td>
    <th scope="col">verdict</th><th scope="col">what it reads</th></tr>
    ${rows.join("")}</table></output>${FOOT}</div>`;
  const [area, select] = ["textarea", "select"].map(name => root.querySelector(name));
  const short = text => ([...text].length > 30 ? `${[...text].slice(0, 29).join("")}…` : text)
    .replaceAll("\n", "⏎");
  select.append(new Option("your own", ""), ...examples.map((text, i) => new Option(short(text), i)));
  const link = linked(root, "verifier", codes => {
    const valid = code => code >= 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
    if (codes.length > MOST || !codes.every(code => Number.isInteger(code) && valid(code))) return false;
    show(String.fromCodePoint(...codes));
    return true;
  });

  function show(text) {
    if (area.value !== text) area.value = text;
    const example = examples.indexOf(text);
    select.value = example < 0 ? "" : example;
    root.querySelectorAll("tr:has(th[scope=row])").forEach((row, i) => {
      const [read, verdict] = Object.values(VERIFIERS)[i](text, gold);
      const [said, reads] = row.querySelectorAll("td");
      said.textContent = verdict === undefined ? "crashes" : verdict ? "pays" : "–";
      said.style.fontWeight = verdict === false ? "normal" : "bold";
      reads.textContent = short(read ?? "nothing"); // a text of the reader's: never as HTML
    });
    link([...text].map(character => character.codePointAt(0)));
  }

  area.addEventListener("input", () => show(area.value));
  select.addEventListener("change", () => {
    if (select.value) show(examples[Number(select.value)]);
    else area.focus();
  });
  const restart = () => show(examples[0]);
  root.querySelector("button").addEventListener("click", restart);
  restart();
}
