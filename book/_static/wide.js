// On a phone a formula may be wider than the column of the sentence in which it stands, and would be
// cut off: it gets a line of its own, along which it moves under the finger.
if (matchMedia("(max-width: 600px)").matches) addEventListener("DOMContentLoaded", () => {
  const seen = new ResizeObserver(formulas => formulas.forEach(({ target }) => {
    const column = target.closest("p, li, dd, td, th, div").clientWidth;
    const wide = target.parentElement.classList.toggle("nb-wide", target.offsetWidth > column);
    if (wide) target.parentElement.tabIndex = 0; // what scrolls is reached by keys, too
    else target.parentElement.removeAttribute("tabindex");
  }));
  document.querySelectorAll("span.math > mjx-container").forEach(formula => seen.observe(formula));
});
