// What pages.py asks of a page: each function of `measure` returns plain numbers.
window.measure = (() => {
  const seen = (part) => part.getClientRects().length > 0
    && part.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const all = (selector, root = document) => [...root.querySelectorAll(selector)].filter(seen);
  const outermost = (parts) => parts.filter((part) => !parts.some((one) => one !== part && one.contains(part)));
  const article = () => {
    const known = document.querySelector("article.bd-article, d-article, dt-article");
    return known ?? all("h1")[0]?.closest("article, section, main") ?? document.body;
  };

  // Relative luminance, as WCAG defines it.
  const luminance = (color) => {
    const [r, g, b] = color.match(/[\d.]+/g).map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (part) => {
    for (; part; part = part.parentElement) {
      const color = getComputedStyle(part).backgroundColor;
      if (!/, 0\)$|transparent/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };

  const FORMULA = "mjx-container, .katex, .math.notranslate, d-math";
  const drawn = (formula) =>
    [formula, ...formula.querySelectorAll("*"), ...(formula.shadowRoot?.querySelectorAll("*") ?? [])]
      .some((part) => part.matches("mjx-container, .katex"));
  const equations = () =>
    outermost([...article().querySelectorAll(
      "div.math, mjx-container[display=true], d-math[block], .katex-display")].filter(seen));
  const target = (link) => {
    const [path, name] = (link.getAttribute("href") ?? "").split("#");
    return name && (!path || link.href.split("#")[0] === location.href.split("#")[0])
      ? document.getElementById(decodeURIComponent(name)) : null;
  };
  const leadsToEquation = (link) => {
    const place = target(link);
    return /\d/.test(link.textContent) && place !== null
      && equations().some((one) => one === place || one.contains(place) || one.previousElementSibling === place);
  };
  const described = (picture) => { // or hidden on purpose from those who hear the page
    if (picture.closest("[aria-hidden=true]")) return true;
    const words = picture.getAttribute("alt") ?? picture.getAttribute("aria-label")
      ?? picture.querySelector(":scope > title")?.textContent ?? "";
    const box = picture.closest("[role=img][aria-label], [role=group][aria-label], [aria-labelledby], [aria-describedby]");
    return box !== null || (words.trim() !== "" && !/\.(png|svg|jpe?g|gif)$/.test(words));
  };
  const named = (selector, words) =>
    all(selector).some((one) => words.test(`${one.textContent} ${one.title} ${one.ariaLabel} ${one.id} ${one.className}`));

  return {
    async drawn() { // waits for the typesetting of MathJax, if there is any
      await window.MathJax?.startup?.promise;
      const formulas = outermost([...document.querySelectorAll(FORMULA)]);
      return { formulas: formulas.length, drawn: formulas.filter(drawn).length };
    },
    words: () => article().innerText.trim().split(/\s+/).length,
    wider: () => document.documentElement.scrollWidth - innerWidth,
    luminance: () => luminance(background(article())),
    // Characters on a full line of the long paragraphs: the median.
    text() {
      const long = all("p", article()).filter((one) => one.innerText.length > 300);
      const lines = long.map((one) => {
        const rows = Math.round(one.clientHeight / parseFloat(getComputedStyle(one).lineHeight));
        return one.innerText.length / (rows - 0.5); // the last one is half full
      }).sort((a, b) => a - b);
      const size = long[0] && parseFloat(getComputedStyle(long[0]).fontSize);
      return { size, characters: Math.round(lines[Math.floor(lines.length / 2)] ?? 0) };
    },
    headings() {
      const levels = all("h1, h2, h3, h4, h5, h6").map((one) => Number(one.tagName[1]));
      return { first: levels.filter((level) => level === 1).length,
               skipped: levels.filter((level, i) => level > (levels[i - 1] ?? 0) + 1).length };
    },
    pictures() {
      const large = outermost(all("img, svg, canvas, object", document.body).filter((one) => {
        const { width, height } = one.getBoundingClientRect();
        return width >= 120 && height >= 60 && !one.closest(`${FORMULA}, nav, header, footer, button, a.navbar-brand`);
      }));
      return {
        count: large.length,
        vector: large.filter((one) => one.matches("svg") || /\.svg|^data:image\/svg/.test(one.currentSrc ?? "")).length,
        described: large.filter(described).length,
        numbered: all("p, figcaption, .caption, .figcaption").filter((one) =>
          /^\s*(Figure|Fig\.)\s*\d/.test(one.innerText) && !one.parentElement.closest("figcaption")).length,
      };
    },
    equations() {
      const numbers = outermost(all(".eqno, mjx-mtd[id^='mjx-eqn'], .tag", article()));
      return { count: equations().length, numbered: numbers.length,
               links: all("a[href*='#']", article()).filter(leadsToEquation).length };
    },
    // Marks a link to an equation, or else to a figure, work or note, for pages.py to hover over.
    reference() {
      const links = all("a[href*='#'], d-cite, d-footnote, dt-cite, dt-fn", article()).filter((one) =>
        !one.matches(".headerlink, .anchor, nav *") && !one.closest("h1, h2, h3, nav, d-contents"));
      const one = links.find(leadsToEquation) ?? links.find((link) => !link.matches("a") || target(link));
      one?.setAttribute("data-hovered", "");
      return one !== undefined;
    },
    floating() { // boxes with words that lie above the page, in shadow trees as well
      const trees = [document];
      for (const tree of trees) for (const one of tree.querySelectorAll("*")) if (one.shadowRoot) trees.push(one.shadowRoot);
      return trees.flatMap((tree) => [...tree.querySelectorAll("div, aside, d-hover-box")]).filter((one) =>
        /absolute|fixed/.test(getComputedStyle(one).position) && seen(one)
        && getComputedStyle(one).opacity !== "0" && one.getBoundingClientRect().width > 60
        && !one.closest("mjx-assistive-mml, .katex")).length;
    },
    // Of parts of the text that listen to a pointer, those that a keyboard reaches too: themselves,
    // something around them or something inside.
    reach(listeners) {
      const stop = "a[href], button, input, select, textarea, summary, [tabindex]:not([tabindex='-1'])";
      const here = listeners.filter((part) => article().contains(part) && part !== article() && seen(part));
      return { count: here.length,
               reached: here.filter((part) => part.closest(stop) || part.querySelector(stop)).length };
    },
    targets() { // controls in the text; what belongs to a label is as large as both
      const controls = all("button, input:not([type=hidden]), select, summary, [role=button], [role=slider], [role=tab]", article());
      const large = controls.filter((one) => {
        const boxes = [one, one.closest("label"), one.id && document.querySelector(`label[for='${one.id}']`)]
          .filter(Boolean).map((part) => part.getBoundingClientRect());
        return Math.max(...boxes.map((box) => box.width)) >= 44 && Math.max(...boxes.map((box) => box.height)) >= 44;
      });
      return { count: controls.length, large: large.length };
    },
    // What is wider than its box: it scrolls (and can be focused), or is cut off.
    boxes() {
      const inside = "mjx-container *, .katex *, input, .sr-only, .visually-hidden";
      const wide = all("*", article()).filter((one) => {
        const formula = one.querySelector("mjx-math, .katex-html"); // readers hear its copy, which is hidden
        const width = formula ? formula.getBoundingClientRect().width : one.scrollWidth;
        return width > one.clientWidth + 2 && one.clientWidth > 60 && !one.matches(inside);
      });
      const by = (values) => wide.filter((one) => values.test(getComputedStyle(one).overflowX));
      return { scrolled: by(/auto|scroll/).length,
               focusable: by(/auto|scroll/).filter((one) => one.tabIndex >= 0).length,
               cut: by(/hidden|clip/).filter((one) => // unless what is inside scrolls
                 !by(/auto|scroll/).some((part) => one.contains(part))).length };
    },
    // With the width of a sheet of paper: blocks that reach beyond it or hide a part of themselves.
    paper() {
      const blocks = outermost(all("pre, table, img, svg, canvas, mjx-container[display=true], .katex-display, iframe", article()));
      const lost = blocks.filter((one) => one.getBoundingClientRect().right > innerWidth + 2
        || one.scrollWidth > one.clientWidth + 2 && /pre|table/i.test(one.tagName));
      return { lost: lost.length, furniture: all("nav, [role=navigation], .mdl-layout__drawer, .qe-toolbar").length };
    },
    ways() {
      const to = (words) => [...document.querySelectorAll("a[href], button")].some((one) => words.test(one.href ?? "") || words.test(one.textContent));
      return {
        search: named("input, button, label, a, [role=search]", /search/i),
        skip: [...document.querySelectorAll("a[href^='#']")].slice(0, 5).some((one) => /skip/i.test(one.textContent)),
        theme: named("button, [role=button], a, li", /theme|dark|contrast/i),
        notebook: to(/\.ipynb|colab|binder|sagemaker|deepnote|kaggle/i),
        next: [...document.querySelectorAll("a[href]")].some((one) => /next/i.test(`${one.rel} ${one.title} ${one.className} ${one.innerText}`)),
      };
    },
  };
})();
