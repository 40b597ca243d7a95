// On paper nothing folds: answers to predictions go to the end, so that they are not read first.
addEventListener("beforeprint", () => {
  document.querySelectorAll("article.bd-article").forEach(answersToTheEnd);
});

function answersToTheEnd(article) {
  const asked = [...article.querySelectorAll(".admonition.dropdown")].filter((box) =>
    box.querySelector(".admonition-title").textContent.startsWith("Predict first"));
  if (!asked.length || article.querySelector(".nb-answers")) return;
  const answers = document.createElement("section");
  answers.className = "nb-answers";
  answers.innerHTML = "<h2>Answers to the predictions</h2>";
  asked.forEach((box, number) => {
    const at = document.createElement("p");
    at.className = "nb-answer-at";
    at.textContent = `Answer ${number + 1}, at the end of the chapter.`;
    const answer = document.createElement("div");
    answer.innerHTML = `<p><strong>Answer ${number + 1}</strong></p>`;
    const body = [...box.children].filter((part) => !part.matches(".admonition-title, button"));
    answer.append(...body);
    box.append(at);
    answers.append(answer);
    addEventListener("afterprint", () => {
      box.append(...body);
      at.remove();
      answers.remove();
    }, { once: true });
  });
  article.append(answers);
}

// The address of an article's page: that of the site, if it has one; none for a page on a disk, which
// nobody else has. A bound book says it for each of its articles.
function addressOf(article) {
  const said = article.dataset.address ?? document.querySelector("link[rel=canonical]")?.href;
  return said || (location.protocol === "file:" ? null : location.href.split(/[?#]/)[0]);
}

// An explorer on paper is a picture with what it shows: below it stands where it moves.
addEventListener("beforeprint", () => {
  for (const explorer of document.querySelectorAll(".nb-explorer")) {
    const here = addressOf(explorer.closest("article")), at = document.createElement("p");
    const view = explorer.querySelector(".nb-link");
    at.className = "nb-moves-at";
    if (here) {
      const link = Object.assign(document.createElement("a"), { href: here, textContent: here });
      at.append("It moves on the page ", link, ".");
    } else {
      at.append("It moves on the site of this book, and in its notebook.");
    }
    if (view) view.hidden = true; // the view is what is printed
    explorer.after(at);
    addEventListener("afterprint", () => {
      at.remove();
      if (view) view.hidden = false;
    }, { once: true });
  }
});

// Links to other pages lead to the site, or nowhere: never to a folder of the machine that printed.
addEventListener("beforeprint", () => {
  if (location.protocol !== "file:") return;
  for (const link of document.querySelectorAll("article.bd-article a[href]")) {
    const to = new URL(link.href), said = link.getAttribute("href");
    if (to.protocol !== "file:" || to.pathname === location.pathname) continue;
    const here = addressOf(link.closest("article"));
    if (here) link.href = new URL(said, here);
    else link.removeAttribute("href");
    addEventListener("afterprint", () => link.setAttribute("href", said), { once: true });
  }
});

// A page that is printed before it was read to its end: all of it is laid out, and the faces of its
// formulas have been read when nothing else was to do. To print does not wait for them.
addEventListener("beforeprint", () => document.body.classList.remove("nb-from-the-top"));
addEventListener("load", () => (window.requestIdleCallback ?? setTimeout)(() => {
  for (const face of document.fonts) {
    const [, of] = face.family.match(/^"?MJX(TEX[\w-]*)"?$/) ?? [];
    if (of && document.querySelector(of === "TEX" ? "mjx-c" : `mjx-c.${of}`)) face.load();
  }
}));

// What folds lies open on paper: a tree, and the sections that go deeper.
addEventListener("beforeprint", () => {
  for (const branch of document.querySelectorAll(":is(.nb-tree details, .nb-deeper):not([open])")) {
    branch.open = true;
    addEventListener("afterprint", () => { branch.open = false; }, { once: true });
  }
});
