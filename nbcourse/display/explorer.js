// What the programs of all explorers share: numbers as words, sliders, and a link to what is shown.

const sum = values => values.reduce((total, value) => total + value, 0);
const dot = (one, two) => sum(one.map((value, i) => value * two[i]));
const norm = vector => Math.sqrt(dot(vector, vector));

function fixed(number, digits = 3, sign = "") {
  const rounded = Number(number.toFixed(digits)); // first: −0.0004 is shown without its sign
  return (rounded > 0 ? sign : "") + rounded.toFixed(digits).replace("-", "−");
}

// The least of 1, 2, 5, 10, … that is no less, in any power of ten.
function roundUp(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return power * [1, 2, 5, 10].find(digit => digit * power >= number * (1 - 1e-9));
}

const control = (label, name, min, max, whose = "") => `<label>${label}
  <input type="range" min="${min}" max="${max}" data-name="${name}" aria-label="${whose}${label}">
  <output></output></label>`;

// A slider stands at a whole number, and says what that means.
function place(slider, value, shown) {
  slider.value = value;
  slider.nextElementSibling.textContent = shown;
  slider.setAttribute("aria-valuetext", shown);
}

const FOOT = `<div class="nb-foot"><button type="button">Start again</button>
  <a class="nb-link">Link to this view</a></div>`;

// A state is a list of whole numbers, none below 0; the link has them behind the explorer's name.
// `restore` is given the numbers of the page's address; without them, or if it refuses, nothing
// happens. The function that comes back is to be called with each state that is drawn.
function linked(root, name, restore) {
  const link = root.querySelector(".nb-link");
  const page = document.querySelector("link[rel=canonical]")?.href ?? location.href.split("#")[0];
  const recall = () => {
    const [whose, ...numbers] = location.hash.slice(1).split("-");
    if (whose !== name || !restore(numbers.map(Number))) return;
    root.scrollIntoView({ block: "nearest" });
  };
  addEventListener("hashchange", recall);
  setTimeout(recall); // behind the first drawing
  return numbers => {
    link.href = `#${[name, ...numbers].join("-")}`;
    link.dataset.address = page + link.hash;
  };
}
