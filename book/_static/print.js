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

// An explorer on paper is a picture: below it stands where it moves.
addEventListener("beforeprint", () => {
  const here = document.querySelector("link[rel=canonical]")?.href ?? location.href.split("#")[0];
  for (const explorer of document.querySelectorAll(".nb-explorer")) {
    const at = document.createElement("p");
    at.className = "nb-moves-at";
    const link = Object.assign(document.createElement("a"), { href: here });
    link.textContent = here.startsWith("file:") ? here.split("/").pop() : here;
    at.append("It moves on the page ", link, ".");
    explorer.after(at);
    addEventListener("afterprint", () => at.remove(), { once: true });
  }
});

// What folds lies open on paper: a tree, and the sections that go deeper.
addEventListener("beforeprint", () => {
  for (const branch of document.querySelectorAll(":is(.nb-tree details, .nb-deeper):not([open])")) {
    branch.open = true;
    addEventListener("afterprint", () => { branch.open = false; }, { once: true });
  }
});
