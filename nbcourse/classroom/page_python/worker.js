// Behind Brython and the text of SHARED, in a worker of its own: a program and answers come in,
// what they print goes out.
const python = __BRYTHON__;
python.protocol = "file"; // so that no import asks a server
const SHOWN = 20000; // characters of output; what follows is not worth a reader's time

let left = 0;
globalThis.tell = (text) => {
  if (left > 0) postMessage({ text: text.slice(0, left) });
  left -= text.length;
};

function run(source, name) {
  try {
    python.runPythonSource(source, name);
  } catch {
    globalThis.verdict = "error"; // Brython has printed what it is
  }
}

onmessage = ({ data }) => {
  left = SHOWN;
  Object.assign(globalThis, data, { verdict: "" });
  if (data.program) {
    run(OUTPUT, "output");
    run(SHARED, "shared");
    run(IMPORTED, "imported");
    run(data.program, "program");
  } else {
    run(ANSWER, "asked");
  }
  if (left < 0) postMessage({ text: "\n… and more" });
  postMessage({ verdict: globalThis.verdict });
};

const OUTPUT = `
import _sys
from browser import self as worker

class Page:
    def write(self, text):
        worker.tell(text)

    def flush(self):
        pass

_sys.stdout = _sys.stderr = Page()
`;
const IMPORTED = `
import _sys
import shared

for name, module in shared.MODULES.items():
    _sys.modules[name] = module
`;
const ANSWER = `
from browser import self as worker
import program
import shared

worker.verdict = shared.answer(program.SHEET, worker.exercise, worker.name, worker.code)
`;
