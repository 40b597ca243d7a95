// A finger that moves up or down over a slider scrolls the page, and the slider keeps its value: a
// browser may have moved it when the finger came down, before it could know which way it would go.
(() => {
  const NEARLY = 8; // pixels, before a direction can be told
  let held = null;
  const put = (input, value) => {
    if (input.value === value) return;
    input.value = value;
    input.dispatchEvent(new Event("input", { bubbles: true }));
  };
  addEventListener("touchstart", ({ target, touches: [{ clientX, clientY }] }) => {
    held = target.matches?.(".nb-explorer input[type=range]")
      ? { input: target, value: target.value, x: clientX, y: clientY, upright: null } : null;
  }, { capture: true, passive: true });
  addEventListener("touchmove", ({ touches: [{ clientX, clientY }] }) => {
    if (held?.upright !== null) return;
    const across = Math.abs(clientX - held.x), along = Math.abs(clientY - held.y);
    if (Math.max(across, along) < NEARLY) return;
    held.upright = along > across;
    if (held.upright) put(held.input, held.value);
  }, { capture: true, passive: true });
  // A scroll takes the finger away from the page, often before the page is told of a move.
  addEventListener("touchcancel", () => {
    if (held && held.upright !== false) put(held.input, held.value);
    held = null;
  }, true);
  addEventListener("touchend", () => {
    if (held?.upright) put(held.input, held.value);
    held = null;
  }, true);
})();
