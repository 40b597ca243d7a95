// Cells of a page in which a reader answers an exercise. Python comes with the first check, from
// the page's own site, and runs in a worker: an endless loop is stopped, and the page stays.
function offer(program, address) {
  let worker = null, running = null, ready = false;

  const fetched = () => new Promise((done, failed) => {
    if (globalThis.nbPython) return done();
    const script = Object.assign(document.createElement("script"), { src: address });
    script.onload = done;
    script.onerror = () => failed(Error("Python could not be fetched: is this page complete?"));
    document.head.append(script);
  });

  function start() {
    const file = URL.createObjectURL(new Blob([nbPython], { type: "text/javascript" }));
    worker = new Worker(file);
    URL.revokeObjectURL(file);
    ready = false;
    worker.onmessage = ({ data }) => {
      if (data.text !== undefined) running?.tell(data.text);
      else if (ready) finish(data.verdict);
      else if (data.verdict === "error") stop("Python did not start.");
      else {
        ready = true;
        ask();
      }
    };
    worker.onerror = () => stop("Python did not start.");
    worker.postMessage({ program });
  }

  function ask() {
    running.output.textContent = "";
    worker.postMessage(running.question());
  }

  async function check(cell) {
    if (running) stop("Stopped.");
    running = cell;
    cell.begin(ready ? "" : "Starting Python …");
    try {
      await fetched();
    } catch (error) {
      if (running === cell) stop(error.message);
      return;
    }
    if (running !== cell) return;
    if (ready) ask();
    else if (!worker) start();
  }

  function finish(verdict) {
    running?.end(verdict);
    running = null;
  }

  function stop(words) {
    worker?.terminate();
    worker = null;
    ready = false;
    running?.tell(`\n${words}`);
    finish("stopped");
  }

  for (const box of document.querySelectorAll(".nb-python")) fill(box, check, stop);
}

function fill(box, check, stop) {
  const { exercise, answer, sheet } = box.dataset;
  const stub = box.querySelector("script").textContent;
  box.querySelector(".nb-without").remove();
  const add = (tag, settings, to = box) => {
    const element = Object.assign(document.createElement(tag), settings);
    to.append(element);
    return element;
  };
  const kept = storage(`nb-python/${sheet}/${exercise}`);
  const field = add("textarea", { spellcheck: false, autocapitalize: "off", autocomplete: "off" });
  field.setAttribute("aria-label", `Your answer to ${exercise}, in Python`);
  const resize = () => { field.rows = field.value.split("\n").length + 1; };
  field.value = kept.read() ?? stub;
  resize();
  const buttons = add("div", { className: "nb-buttons" });
  const start = add("button", { type: "button", className: "nb-check", textContent: "Check" }, buttons);
  const halt = add("button", { type: "button", textContent: "Stop", disabled: true }, buttons);
  const anew = add("button", { type: "button", textContent: "Start over" }, buttons);
  const keys = add("small", { textContent: "Ctrl-Enter checks; Escape, then Tab leaves the field." }, buttons);
  keys.id = `nb-keys-${exercise}`;
  field.setAttribute("aria-describedby", keys.id);
  const output = add("pre", { tabIndex: 0 });
  output.setAttribute("role", "status");
  output.setAttribute("aria-label", "Output");

  const cell = {
    output,
    question: () => ({ exercise, name: answer, code: field.value }),
    tell: (text) => output.append(text),
    begin(words) {
      output.textContent = words;
      delete output.dataset.verdict;
      halt.disabled = false;
    },
    end(verdict) {
      output.dataset.verdict = verdict;
      output.textContent = output.textContent.trim();
      halt.disabled = true;
    },
  };
  start.onclick = () => check(cell);
  halt.onclick = () => {
    stop("Stopped.");
    start.focus();
  };
  const type = (text) => document.execCommand("insertText", false, text); // keeps what can be undone
  anew.onclick = () => {
    field.focus();
    field.select();
    type(stub);
  };
  field.oninput = () => {
    resize();
    kept.write(field.value);
  };
  let leaving = false;
  field.onkeydown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      check(cell);
    } else if (event.key === "Tab" && !event.shiftKey && !leaving) {
      event.preventDefault();
      type("    ");
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      const line = field.value.slice(0, field.selectionStart).split("\n").pop();
      type(`\n${line.match(/^ */)[0]}${line.trimEnd().endsWith(":") ? "    " : ""}`);
    }
    leaving = event.key === "Escape";
  };
}

// What a reader typed, where the browser keeps such things.
function storage(key) {
  const guarded = (access) => {
    try {
      return access(localStorage);
    } catch {
      return null;
    }
  };
  return {
    read: () => guarded((all) => all.getItem(key)),
    write: (text) => guarded((all) => all.setItem(key, text)),
  };
}
