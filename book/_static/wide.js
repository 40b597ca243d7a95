// On a phone a formula may be wider than the column of the sentence in which it stands, and would be
// cut off: it gets a line of its own, along which it moves under the finger.
if (matchMedia("(max-width: 600px)").matches) addEventListener("DOMContentLoaded", () => {
  const seen = new ResizeObserver(formulas => formulas.forEach(({ target }) => {
    const column = target.closest("p, li, dd, td, th, div").clientWidth;
    target.parentElement.classList.toggle("nb-wide", target.offsetWidth > column);
  }));
  document.querySelectorAll("span.math > mjx-container").forEach(formula => seen.observe(formula));
});
