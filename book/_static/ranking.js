// The search's order. `nbRanking.find(index, query)` → the sections that have what was typed, best
// first, one result each: { section, line, defined }. The last word may be unfinished.
//
// First come sections that define what was typed, and headings that are it; then headings that have
// it, then texts that have the words one after another, then those that have them all. Where hardly
// any section has them all, those follow that have the rarest.
const nbRanking = (() => {
  const RESULTS = 40, FEW = 8;
  // Words of questions, which say nothing of what is asked for.
  const SMALL = new Set(("a an and are as at be by can do does for from go goes how i in is it its me my not of on "
    + "or our should so the this that to was we what when where which who why with you your").split(" "));
  const SAME = { alpha: "α", beta: "β", gamma: "γ", delta: "δ", epsilon: "ε", lambda: "λ", pi: "π", rho: "ρ", theta: "θ" };
  for (const [name, letter] of Object.entries(SAME)) SAME[letter] = name;
  // What a definition has less than a term of the glossary, by its rank: command, cause, function.
  const LESS = [0, 0.5, 3, 4.5];
  // What stands beside the book's own line of thought comes after it, other things being equal.
  const BESIDE = [[/^(exercises|reference)\//, 0.2], [/^appendix-[a-cdfg]/, 0.5], [/^appendix-/, 0.8]];
  const NUMBER = /^(?:[\dA-Z.]+ · |[\dA-Z]+\.\d+ )?(?:○ )?/;

  // Lower-case words between single characters: every place in a text stays where it is.
  const flat = (text) => ` ${text.toLowerCase().replace(/(?<!\d)\.|\.(?!\d)|[^\p{L}\p{N}\n.]/gu, " ")} `;
  const wordsOf = (text) => flat(text).split(/\s+/).filter(Boolean);
  const escaped = (word) => word.replaceAll(".", "\\.");
  const stem = (word) => word.length > 4 ? word.replace(/(?:ies|ing|ed|es|(?<!s)s)$/, "") : word;

  // How closely a word is meant: as it is; its beginning, if it is the last one typed; any ending.
  const MEANT = [
    [1, (word) => word],
    [0.9, (word, open) => open && word.length > 1 ? `${word}\\p{L}*` : word],
    [0.7, (word, open) => open && word.length > 1 ? `${stem(word)}\\p{L}*`
      : stem(word).length > 2 ? `${stem(word)}\\p{L}{0,4}` : word],
  ];
  const together = (words, open, form) => words.map((word, i) => {
    const forms = [word, SAME[word]].filter(Boolean).map((one) => form(escaped(one), open && i === words.length - 1));
    return `(?:${forms.join("|")})`;
  });
  const bounded = (source, flags) => new RegExp(`(?<=[ \\n])${source}(?=[ \\n])`, flags);

  function asked(query) {
    const words = wordsOf(query);
    const joined = new Set(query.split(/\s+/).flatMap((part) => wordsOf(part).length > 1 ? wordsOf(part) : []));
    const kept = words.filter((word) => !SMALL.has(word) || joined.has(word));
    const core = kept.length ? kept : words, open = /[\p{L}\p{N}]$/u.test(query);
    const ways = MEANT.map(([worth, form]) => {
      const each = together(core, open, form);
      return { worth, each: each.map((one) => bounded(one, "u")),
        phrases: [together(words, open, form), each].map((all) => bounded(all.join(" +"), "u")) };
    });
    const loose = together(core, open, MEANT[2][1]);
    return { core, ways, named: /[_.(]|\p{Ll}\p{Lu}/u.test(query),
      each: loose.map((one) => bounded(one, "gu")), phrase: bounded(loose.join(" +"), "gu") };
  }

  // The index with a row for each section; the file has columns, which are smaller.
  const opened = (index) => ({ ...index,
    sections: (index.sections[0] ?? []).map((_, at) => index.sections.map((column) => column[at])) });

  function prepared(index) {
    index.headings ??= index.sections.map(([, , heading]) => flat(heading.replace(NUMBER, "")));
    index.texts ??= index.sections.map(([, , , text]) => flat(text));
    index.names ??= index.definitions.map(([name]) => flat(name));
    return index;
  }

  // How well a name or a heading is what was typed: 1 if it is that and nothing else.
  function likeness(name, { ways, core }) {
    const length = wordsOf(name).filter((word) => !SMALL.has(word)).length || 1;
    const share = Math.min(1, core.length / length);
    for (const { worth, each, phrases } of ways) {
      if (phrases.some((one) => one.test(name))) return worth * (0.6 + 0.4 * share);
      if (each.every((one) => one.test(name))) return worth * (0.4 + 0.2 * share);
    }
    return 0;
  }

  function find(given, query) {
    const index = prepared(given), question = asked(query);
    if (!question.core.length) return [];
    const found = texts(index, question).map((score, section) => ({ section, score }));
    index.headings.forEach((heading, at) => {
      const like = likeness(heading, question);
      if (index.sections[at][2].startsWith(`${query.trim()} `)) found[at].score += 20; // by its number
      found[at].score += like * (like === 1 ? 10 : 4) * weight(index, at);
    });
    index.definitions.forEach(([name, at, rank, line], i) => {
      const like = likeness(index.names[i], question);
      const score = found[at].score / 10 + 10 * like - LESS[question.named ? 0 : rank];
      if (like >= 0.5 && score > found[at].score) Object.assign(found[at], { score, line, defined: name });
    });
    const best = found.filter(({ score }) => score > 0).sort((a, b) => b.score - a.score || a.section - b.section);
    return best.slice(0, RESULTS).map(({ section, line, defined }) =>
      ({ section, defined: defined ?? "", line: line || lineOf(index, section, question) }));
  }

  function weight(index, at) {
    const [page, , heading] = index.sections[at];
    const [, less] = BESIDE.find(([name]) => name.test(index.pages[page][0])) ?? [null, 1];
    return less * (heading.includes("○") ? 0.9 : 1) * (/^(Summary|Readings|Exercises)$/.test(heading) ? 0.5 : 1);
  }

  // Texts: up to 3 if the words stand one after another, up to 2 if all are there, 1 if some are.
  function texts(index, { core, each, phrase }) {
    const often = (text, one, word) => (text.match(one) ?? []).reduce((sum, as) => sum + (as === word ? 1 : 0.5), 0);
    const counts = each.map((one, i) => index.texts.map((text, at) =>
      often(text, one, core[i]) + 2 * often(index.headings[at], one, core[i])));
    const rarity = counts.map((row) => Math.log(1 + row.length / (1 + row.filter(Boolean).length)));
    const whole = rarity.reduce((sum, one) => sum + one, 0);
    const complete = index.texts.filter((_, at) => counts.every((row) => row[at])).length;
    return index.texts.map((text, at) => {
      const has = counts.filter((row) => row[at]).length;
      if (!has || (has < each.length && complete >= FEW)) return 0;
      const share = counts.reduce((sum, row, i) => sum + rarity[i] * row[at] / (row[at] + 1 + text.length / 3000), 0) / whole;
      if (has < each.length) return share * weight(index, at);
      const times = each.length > 1 ? (text.match(phrase) ?? []).length : 0;
      return (1 + share + (times && 1 + times / (times + 2))) * weight(index, at);
    });
  }

  // The line of a section that shows why it was found.
  function lineOf(index, at, question) {
    const lines = index.sections[at][3].split("\n");
    const worth = lines.map((line) => closeness(flat(line), question));
    return lines[worth.indexOf(Math.max(...worth))];
  }

  // How much of what was typed a text has: the phrase, or how many of its words, and how closely.
  function closeness(text, { ways }) {
    return Math.max(...ways.map(({ worth, each, phrases }) =>
      worth * (each.filter((one) => one.test(text)).length + (phrases.some((one) => one.test(text)) ? each.length : 0))));
  }

  return { opened, find, flat, asked, closeness };
})();
