// A reference to an equation, a figure, a table or a section shows it under the mouse, or when it has the
// focus of the keyboard, on other pages of the book too. Escape puts it away.
(() => {
  const AFTER = 150, UNTIL = 250; // milliseconds of resting, and to reach the preview

  addEventListener("DOMContentLoaded", () => {
    const article = document.querySelector("article.bd-article");
    const preview = document.createElement("aside");
    let link = null, dismissed = null, timer = 0;
    const later = (act, time) => { clearTimeout(timer); timer = setTimeout(act, time); };
    const hide = () => { clearTimeout(timer); link = null; preview.remove(); };
    const show = async (asked) => {
      if (link === asked || dismissed === asked) return;
      hide();
      link = asked;
      const parts = await partsAt(asked);
      if (link !== asked || !parts.length) return;
      preview.replaceChildren(...parts);
      article.append(preview);
      place(preview, asked.getBoundingClientRect(), article.getBoundingClientRect());
    };
    preview.className = "nb-preview";
    preview.ariaHidden = "true"; // the link leads to what is shown here again
    preview.addEventListener("pointerenter", () => clearTimeout(timer));
    preview.addEventListener("pointerleave", () => later(hide, UNTIL));
    // What was put away stays away until the mouse or the focus comes back: to a browser the mouse
    // comes back as well when a preview below it goes.
    // The key is taken on its way down: an explorer that has the focus keeps keys to itself.
    addEventListener("keydown", ({ key }) => {
      if (key === "Escape") { dismissed = link; hide(); }
    }, true);
    addEventListener("beforeprint", hide);
    for (const one of article?.querySelectorAll("a.internal[href*='#']") ?? []) {
      one.addEventListener("pointerenter", ({ pointerType }) =>
        pointerType === "mouse" && later(() => show(one), AFTER));
      one.addEventListener("pointerleave", () => { dismissed = null; later(hide, UNTIL); });
      one.addEventListener("focus", () => one.matches(":focus-visible") && show(one));
      one.addEventListener("blur", () => { dismissed = null; hide(); });
    }
  });

  // Copies of what a link leads to; none where another page cannot be read, as from the disk.
  async function partsAt(link) {
    const [page, name] = link.href.split("#");
    const here = page === location.href.split("#")[0];
    const whole = here ? document : await fetch(page)
      .then(async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html"))
      .catch(() => null);
    const target = whole?.getElementById(decodeURIComponent(name));
    const parts = target ? partsOf(target).map((part) => document.importNode(part, true)) : [];
    for (const part of parts.flatMap((one) => [one, ...one.querySelectorAll("*")])) {
      ["id", "tabindex"].forEach((attribute) => part.removeAttribute(attribute));
      for (const address of ["src", "srcset", "href"]) {
        const said = part.getAttribute(address);
        if (said !== null) part.setAttribute(address, new URL(said, page));
      }
    }
    return parts;
  }

  function partsOf(target) {
    if (target.matches(".math")) return [target];
    if (target.matches("dt")) return [target, target.nextElementSibling];
    const shown = target.matches("table") ? target
      : target.matches(".cell") && target.querySelector(".cell_output :is(picture, img, table)");
    const whole = target.closest(".pst-scrollable-table-container") ?? target;
    const caption = target.querySelector(":scope > .nb-caption") ?? whole.nextElementSibling;
    if (shown) return [shown, caption].filter(Boolean);
    const section = target.closest("section");
    return [...(section?.querySelectorAll(":scope > :is(h1, h2, h3, h4), :scope > p") ?? [])].slice(0, 2);
  }

  // Below the link, or above it where there is more room, and within the text.
  function place(preview, link, article) {
    const bar = document.querySelector(".bd-header-article")?.offsetHeight ?? 0;
    const room = Math.max(link.top - bar, innerHeight - link.bottom) - 8;
    preview.style.maxHeight = `${Math.min(0.6 * innerHeight, room)}px`;
    const left = Math.min(link.left, article.right - preview.offsetWidth);
    const above = link.bottom + preview.offsetHeight > innerHeight && link.top > innerHeight / 2;
    const top = above ? link.top - 4 : link.bottom + 4;
    preview.style.translate = `${Math.max(0, left - article.left)}px ${top - article.top}px`;
    preview.style.transform = above ? "translateY(-100%)" : ""; // its end stays where it is as it grows
  }
})();
