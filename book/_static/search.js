// The search: results while typing, in the box of every page and on the page for it, and the arrival
// at the place that matches. What is found, and in which order, is said by ranking.js.
(() => {
  const AT_ONCE = 12; // results in the box over a page
  const root = new URL(document.documentElement.dataset.content_root ?? "./", location.href);
  let reading = null;

  // The index is read once, when a reader begins to search.
  const index = () => reading ??= bytes().then((packed) => new Response(
    new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).json()).then(nbRanking.opened);

  async function bytes() {
    if (location.protocol !== "file:") return (await fetch(new URL("_static/search-index.bin", root))).arrayBuffer();
    await new Promise((done, failed) => document.head.append(Object.assign(document.createElement("script"),
      { src: new URL("_static/search-index.js", root), onload: done, onerror: failed })));
    return Uint8Array.from(atob(nbSearchIndex), (one) => one.charCodeAt(0));
  }

  const element = (name, text, className = "") =>
    Object.assign(document.createElement(name), { textContent: text, className });

  // A result: the section, where it stands, and the line, with what was typed in bold.
  function result({ pages, sections }, { section, line, defined }, query) {
    const [page, anchor, heading] = sections[section], [address, title] = pages[page];
    const item = element("li", ""), link = element("a", ""), to = new URL(address, root);
    to.searchParams.set("find", query);
    to.hash = anchor;
    link.href = to;
    link.append(element("strong", heading));
    if (title !== heading) link.append(element("small", title));
    const shown = element("span", defined && !heading.includes(defined) ? `${defined}: ` : "", "nb-line");
    shown.append(...marked(line, query));
    link.append(shown);
    item.append(link);
    return item;
  }

  // A line with what was typed in bold: the phrase, or its words; a long line from shortly before that.
  function marked(line, query) {
    const text = nbRanking.flat(line), { ways, phrase, each } = nbRanking.asked(query);
    const one = ways.map(({ phrases }) => phrases.map((found) => text.match(found)).find(Boolean)).find(Boolean);
    const places = one ? [[one.index, one[0].length]]
      : each.flatMap((found) => [...text.matchAll(found)].map((at) => [at.index, at[0].length])).sort(([a], [b]) => a - b);
    const first = places.length ? places[0][0] - 1 : 0; // flat puts a space before the text
    let from = first < 90 ? 0 : line.indexOf(" ", first - 60) + 1;
    const parts = from ? ["… "] : [];
    for (const [at, length] of places) {
      if (at - 1 < from) continue;
      parts.push(line.slice(from, at - 1), element("b", line.slice(at - 1, at - 1 + length)));
      from = at - 1 + length;
    }
    return [...parts, line.slice(from)];
  }

  function offer(form, most) {
    const input = form.querySelector("input"), list = element("ol", "", "nb-found");
    const said = element("p", "", "nb-said");
    said.role = "status";
    form.after(said, list);
    let shown = "";
    const show = async () => {
      const query = input.value.trim();
      if (query === shown) return;
      shown = query;
      if (!query) { list.replaceChildren(); said.textContent = ""; return; }
      try {
        const all = await index();
        if (query !== shown) return;
        const found = nbRanking.find(all, input.value.trimStart());
        said.textContent = found.length ? `${found.length === 40 ? "The first 40" : found.length} section${found.length === 1 ? "" : "s"}`
          : "No section has any of these words.";
        list.replaceChildren(...found.slice(0, most).map((one) => result(all, one, query)));
        list.scrollTop = 0;
      } catch {
        shown = "";
        said.textContent = "The index of the search could not be read.";
      }
    };
    input.addEventListener("focus", index, { once: true });
    input.addEventListener("input", show);
    form.addEventListener("submit", async (event) => { // Enter leads to the first result
      event.preventDefault();
      await show();
      list.querySelector("a")?.click();
    });
    const container = form.parentElement;
    container.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !list.children.length) return;
      event.preventDefault();
      const stops = [input, ...list.querySelectorAll("a")];
      stops[Math.min(stops.length - 1, Math.max(0, stops.indexOf(document.activeElement) + step))].focus();
    });
    return { input, show };
  }

  addEventListener("DOMContentLoaded", () => {
    for (const form of document.querySelectorAll(".search-button__search-container form.bd-search")) offer(form, AT_ONCE);
    const own = document.querySelector(".nb-search-page form.bd-search");
    if (own) {
      const { input, show } = offer(own, Infinity);
      input.value = new URL(location.href).searchParams.get("q") ?? "";
      input.focus();
      show();
      input.addEventListener("input", () => history.replaceState(null, "", `?q=${encodeURIComponent(input.value)}`));
    }
    arrive();
  });

  // A link from a result says what was searched: the block that has it comes into sight, unfolded,
  // with a bar beside it. The address then forgets it, so that it goes along to no other page.
  function arrive() {
    const here = new URL(location.href), query = here.searchParams.get("find");
    if (!query) return;
    here.searchParams.delete("find");
    history.replaceState(null, "", here);
    const place = document.getElementById(decodeURIComponent(here.hash.slice(1)));
    const section = place?.closest("section");
    if (!section) return;
    const question = nbRanking.asked(query);
    const blocks = [...section.querySelectorAll("h1, h2, h3, h4, p, li, tr, dt, dd, figcaption")].filter((one) =>
      one.closest("section") === section && !one.querySelector("p, li"));
    const worth = blocks.map((one) => nbRanking.closeness(nbRanking.flat(one.textContent), question));
    const best = Math.max(0, ...worth), block = blocks[worth.indexOf(best)];
    if (!best || !block) return;
    for (let fold = block.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    block.closest(".admonition.toggle-hidden")?.querySelector(".toggle-button")?.click();
    if (!block.matches("h1, h2, h3, h4")) {
      block.scrollIntoView({ block: "center" });
      block.classList.add("nb-arrived");
    }
  }
})();
