// An explorer whose drawings the package made, one for each position of its slider. Panels beside each
// other are parts of one drawing, so that on a phone each has the whole width.

function explore(root, name, { label, background, boxes, frames }, start) {
  root.innerHTML = `<div class="nb-frames">${boxes.map(box =>
    `<svg viewBox="${box}" aria-hidden="true"></svg>`).join("")}</div>
    ${control(label, "position", 0, frames.length - 1)}
    <output class="nb-readout" aria-live="polite"><p></p></output>${FOOT}`;
  const slider = root.querySelector("input");
  const link = linked(root, name, ([position, ...more]) => {
    if (!frames[position] || more.length) return false;
    show(position);
    return true;
  });

  function show(position) {
    const { shown, picture, words } = frames[position];
    place(slider, position, shown);
    root.querySelectorAll("svg").forEach(panel => { panel.innerHTML = background + picture; });
    root.querySelector(".nb-readout p").textContent = words;
    link([position]);
  }

  slider.addEventListener("input", () => show(Number(slider.value)));
  root.querySelector("button").addEventListener("click", () => show(start));
  show(start);
}
