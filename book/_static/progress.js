// Where a reader is: the section's name above a page that has no list at its side, which sections of a chapter have been
// read, and on the front page a way back to the last one. This browser keeps it; nothing is sent.
(() => {
  const KEPT = "nb-read", AWHILE = 3000; // milliseconds in a section before it can count as read
  const load = () => {
    try { return { pages: {}, last: null, ...JSON.parse(localStorage.getItem(KEPT)) }; } catch { return { pages: {}, last: null }; }
  };
  const root = new URL(document.documentElement.dataset.content_root ?? "./", location.href);
  const page = location.pathname.slice(root.pathname.length).replace(/\.html$/, "") || "intro";
  const words = (heading) => heading.textContent.replace(/#$/, "").trim();

  addEventListener("DOMContentLoaded", () => {
    const title = document.querySelector("article.bd-article h1");
    if (page === "intro") return goOn();
    const sections = [...document.querySelectorAll("article.bd-article > section > section")];
    if (!title || sections.length < 2) return;
    const names = sections.map((one) => one.querySelector(":scope > span[id^='sec-']")?.id ?? one.id);
    const [here, strip] = ["span", "p"].map((name) => document.createElement(name));
    here.className = "nb-here";
    strip.className = "nb-here nb-strip"; // where the bar above the page has gone
    here.ariaHidden = strip.ariaHidden = "true"; // a screen reader has the headings
    document.querySelector(".header-article-items__start")?.append(here);
    const bar = Object.assign(document.createElement("progress"), { className: "nb-progress", max: sections.length });
    document.querySelector(".bd-content").append(strip, bar);

    const show = (done) => {
      bar.value = done.length;
      bar.ariaLabel = bar.title = `${done.length} of ${sections.length} sections read`;
      for (const [i, section] of sections.entries())
        document.querySelector(`.bd-toc a[href="#${CSS.escape(section.id)}"]`)?.classList.toggle("nb-done", done.includes(names[i]));
    };
    const read = (i) => {
      const kept = load(), done = new Set(kept.pages[page]).add(names[i]);
      kept.pages[page] = names.filter((name) => done.has(name));
      localStorage.setItem(KEPT, JSON.stringify(kept));
      show(kept.pages[page]);
    };
    let at = -1, since = 0;
    const enter = (i) => {
      if (i === at) return;
      if (i === at + 1 && at >= 0 && performance.now() - since >= AWHILE) read(at);
      [at, since] = [i, performance.now()];
      strip.textContent = here.textContent = i < 0 ? "" : words(sections[i].querySelector("h2"));
      const entry = i >= 0 && document.querySelector(`.bd-toc a[href="#${CSS.escape(sections[i].id)}"]`);
      const list = entry && entry.closest(".bd-sidebar-secondary");
      if (list) list.scrollTop += entry.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientHeight / 2;
      if (i >= 0) localStorage.setItem(KEPT, JSON.stringify({ ...load(),
        last: { page, anchor: names[i], heading: here.textContent, title: words(title) } }));
    };
    // The section that has the line at a third of the window; before the first, none.
    const line = new IntersectionObserver((seen) => {
      const now = seen.find(({ isIntersecting }) => isIntersecting);
      if (now) enter(sections.indexOf(now.target));
      else if (at === 0 && seen.some(({ target, boundingClientRect }) => target === sections[0] && boundingClientRect.top > 0)) enter(-1);
    }, { rootMargin: "-33% 0px -66% 0px" });
    sections.forEach((one) => line.observe(one));
    const end = new IntersectionObserver(([{ isIntersecting }]) => {
      if (isIntersecting && at >= 0) setTimeout(() => at >= sections.length - 2 && read(sections.length - 1), AWHILE);
    });
    end.observe(document.querySelector(".prev-next-footer, .prev-next-area") ?? sections.at(-1).lastElementChild);
    show(load().pages[page] ?? []);
  });

  function goOn() {
    const start = document.querySelector(".nb-start"), { last } = load();
    if (!start || !last) return;
    const link = Object.assign(document.createElement("a"), { className: "nb-continue" });
    link.href = new URL(`${last.page}.html#${last.anchor}`, root);
    link.textContent = last.heading;
    const line = document.createElement("span");
    line.append("or go on where you were: ", link);
    start.append(" ", line);
  }
})();
