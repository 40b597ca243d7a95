// What is higher or wider than a slide is made smaller, so that nothing is cut off.
const fit = ({ currentSlide: slide }) => {
  if (!slide || slide.style.zoom) return;
  for (const wide of slide.querySelectorAll("mjx-container[display=true], .cell_output")) {
    if (wide.scrollWidth > wide.clientWidth) wide.style.zoom = wide.clientWidth / wide.scrollWidth;
  }
  slide.style.zoom = Math.min(1, Reveal.getConfig().height / slide.scrollHeight);
};
Reveal.on("ready", fit);
Reveal.on("slidechanged", fit);
Reveal.initialize({ width: 1280, height: 720, margin: 0.05, hash: true, center: false,
  controls: false, transition: "none", slideNumber: "c/t", plugins: [RevealNotes] });
