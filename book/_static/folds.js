// A switch below a chapter's opening that unfolds all that goes deeper, and stays as it was set.
addEventListener("DOMContentLoaded", () => {
  const folds = [...document.querySelectorAll("details.nb-deeper")];
  const title = document.querySelector("article.bd-article h1");
  if (!folds.length || !title) return;
  const box = Object.assign(document.createElement("input"), { type: "checkbox" });
  const label = document.createElement("label");
  label.className = "nb-unfold";
  label.append(box, " Show everything that goes deeper");
  const opening = title.parentElement.querySelector(":scope > .nb-opening");
  (opening ?? title).after(label);
  const set = () => folds.forEach((fold) => { fold.open = box.checked; });
  box.checked = localStorage.getItem("nb-unfold") === "yes";
  if (box.checked) set();
  box.addEventListener("change", () => {
    localStorage.setItem("nb-unfold", box.checked ? "yes" : "no");
    set();
  });
  reveal();
});
addEventListener("hashchange", reveal);

// A link into a fold opens it: browsers of before 2024 do not do so by themselves.
function reveal() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  let folded = false;
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) {
    folded ||= !fold.open;
    fold.open = true;
  }
  if (folded) target.scrollIntoView();
}
