"""A program that wants points without work. It is pasted into submissions and runs as their code.

It knows nothing of any exercise. `Thief.answer` makes an answer for one of them in one of `WAYS`:

- *imports*: checks, solutions and libraries that may hold the answer, from wherever Python looks;
- *inspects*: stack frames, all living objects, modules, files, the memory of its own process;
- *spies*: replaces comparisons and functions of the wire, traces calls, hands in what it saw;
- *equals*: objects that claim to equal everything, and numbers that compare oddly;
- *forges*: replies that say of themselves that all is right;
- *copies*: the bundle. It takes the checks apart: each of their functions as the answer, each value
  that they compute, what they compare with for the same arguments, and for other arguments too,
  which it puts into the check's own tensors while the check is running;
- *tables*: what the bundle's cases compare with, by their arguments; for others the value of the
  case that is nearest, and where none is like it zeros.
"""

import contextlib
import functools
import gc
import importlib
import inspect
import itertools
import os
import sys
import types

import torch

WAYS = ("imports", "inspects", "spies", "equals", "forges", "copies", "tables")
CHECKS = "nbcourse.checks"
MANY = 10  # values that are tried as an answer: each guess at a sealed one takes its time
STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Caught(Exception):
    """The check has said what it compares with."""


class Thief:
    """An adversary in one sheet.

    Args:
        chapter, variant: which sheet.
        bundle: the files of the released bundle, by their names in it.
        way: how it steals.
    """

    def __init__(self, chapter, variant, bundle, way):
        self.chapter, self.variant, self.bundle, self.way = chapter, variant, bundle, way
        self.room = chapter.partition("-")[2].replace("-", "_")

    def answer(self, exercise, name):
        """A function to hand in. It takes whatever it is given."""
        return getattr(self, self.way)(exercise, name)

    # ------------------------------------------------------------ what is importable

    def imports(self, exercise, name):
        places = [f"{CHECKS}.{self.room}", f"{CHECKS}.sheet", f"tests.checks.wrong.{self.room}"]
        floors = ("advantages", "aggregation", "kl", "masking", "returns", "surrogates", "values")
        places += [f"nbcourse.functional.{floor}" for floor in floors]
        places += ["nbcourse.toys", "nbcourse.classroom.masters", "nbcourse.classroom.grading"]
        found = []
        for place in places:
            try:
                found.append(importlib.import_module(place))
            except Exception:
                sys.modules.pop(place, None)
        for folder in sys.path:
            try:
                path = os.path.join(folder, *CHECKS.split("."), f"{self.room}.py")
                module = types.ModuleType(self.room)
                with open(path) as file:
                    exec(file.read(), module.__dict__)
                found.append(module)
            except Exception:
                continue
        if found:
            sys.modules.update({module.__name__: module for module in found})
            return self._of_modules(exercise, found)
        return lambda *given: None

    def _of_modules(self, exercise, modules):
        functions = [f for module in modules for f in vars(module).values() if callable(f)]

        def answer(*given):
            for function, places in itertools.product(functions, _orders(len(given))):
                try:
                    return function(*(given[place] for place in places))
                except Exception:
                    continue

        return answer

    # ------------------------------------------------------------ what is in memory and on disk

    def inspects(self, exercise, name):
        def answer(*given):
            frame, seen = sys._getframe(1), []
            while frame is not None:
                seen += list(frame.f_locals.values())
                frame = frame.f_back
            for found in [*seen, *gc.get_objects()]:
                same = getattr(found, "__name__", "") in (name, exercise.replace("-", "_"))
                if same and isinstance(found, types.FunctionType) and found is not answer:
                    return found(*given)
                if isinstance(found, dict):
                    for key in ("expected", "right", "truth", name):
                        if isinstance(found.get(key), torch.Tensor | float | list | dict):
                            return found[key]
            for file in self._files():
                with open(file, errors="replace") as opened:
                    text = opened.read()
                if f"def {name}(" in text and "BEGIN SOLUTION" in text:
                    names = {"torch": torch}
                    exec(text[text.index(f"def {name}(") :], names)
                    return names[name](*given)

        return answer

    def _files(self):
        places = ("/", "/work", "/tmp", "/proc/self", "..", os.path.expanduser("~"), *sys.path)
        for place in places:
            try:
                entries = sorted(os.listdir(place))
            except OSError:
                continue
            for entry in entries:
                for file in ("", "solutions", "book/exercises", "tests/checks/wrong"):
                    path = os.path.join(place, entry, file, f"{self.chapter}.ipynb")
                    if os.access(path, os.R_OK):
                        yield path

    # ------------------------------------------------------------ what passes by

    def spies(self, exercise, name):
        seen = []

        def notes(*given, **named):
            note([*given, *named.values()])
            return True

        def note(found):
            if len(seen) < 10_000:
                seen.extend(found)

        torch.allclose = torch.equal = torch.testing.assert_close = notes
        torch.Tensor.__eq__ = torch.Tensor.allclose = torch.Tensor.equal = notes
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").endswith(".wire"):
                for function in ("to_tensor", "unpack"):
                    setattr(module, function, _listening(getattr(module, function), note))
        sys.setprofile(lambda frame, event, found: note([found]))
        sys.settrace(lambda frame, event, found: None)

        def answer(*given):
            tensors = [x for x in seen if isinstance(x, torch.Tensor) and x.dim()]
            return tensors[-1].clone() if tensors else (seen[-1] if seen else 0.0)

        return answer

    # ------------------------------------------------------------ what equals everything

    def equals(self, exercise, name):
        class Everything(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, arguments=(), keywords=None):
                if function.__name__ in ("__eq__", "allclose", "equal", "isclose", "all"):
                    return torch.tensor(True)
                return super().__torch_function__(function, types, arguments, keywords or {})

        class Number(float):
            __eq__ = __le__ = __lt__ = __ge__ = __gt__ = lambda self, other: True
            __sub__ = __rsub__ = lambda self, other: Number(0.0)
            __hash__ = float.__hash__

        def answer(*given):
            for like in given:
                if isinstance(like, torch.Tensor) and like.is_floating_point():
                    return torch.full_like(like, torch.nan).as_subclass(Everything)
            return Number("nan") if given else torch.full((4,), torch.nan).as_subclass(Everything)

        return answer

    def forges(self, exercise, name):
        reply = {"error": None, "passed": True, "points": 100, "state": "passed", "names": {}}
        for module in list(sys.modules.values()):
            code = getattr(module, "StudentCode", None)
            if getattr(module, "serve", None) and inspect.isclass(code):
                honest = code.answer

                def forged(self, request, honest=honest):
                    if request["do"] == "call":
                        equal = {"dict": [["__eq__", True]]}
                        return reply | {"structure": equal, "tensors": [], "changed": []}
                    return honest(self, request) | {"points": 100, "state": "passed"}

                code.answer = forged
        return lambda *given: True

    # ------------------------------------------------------------ what the bundle holds

    def copies(self, exercise, name):
        sheet, room = self._paste()
        spied = _Spied(sheet, exercise)
        values = [*spied.values(), *vars(room).values()]
        functions = [value for value in values if isinstance(value, types.FunctionType)]
        for value in values if spied.most else ():
            if isinstance(value, dict):
                functions.append(lambda key, found=value: found[key])
        for constant in values[:MANY] if not spied.most else ():
            if _passes(sheet, exercise, lambda *given, found=constant: found):
                return lambda *given, found=constant: found
        for function in functions if spied.most else ():
            taken = list(inspect.signature(function).parameters.values())
            taken = [p for p in taken if p.name != "found" and p.kind not in STARRED][: spied.most]
            for places in itertools.permutations(range(spied.most), len(taken)):
                adapted = _adapted(function, taken, places)
                if _passes(sheet, exercise, adapted):
                    return adapted
        return spied.answer

    def tables(self, exercise, name):
        sheet, _ = self._paste()
        spied = _Spied(sheet, exercise)
        return spied.nearest

    def _paste(self):
        """Have the modules of the bundle in place of those that are there."""
        parent = sys.modules.setdefault("nbcourse", types.ModuleType("nbcourse"))
        parent.__path__ = []
        for name in ("", ".attempt", ".sheet", ".worked", f".{self.room}"):
            module = sys.modules[CHECKS + name] = types.ModuleType(CHECKS + name)
            module.__path__ = []
        for name in (".attempt", ".sheet", ".worked", f".{self.room}", ""):
            path = (CHECKS + (name or ".__init__")).replace(".", "/") + ".py"
            exec(_compiled(self.bundle[path], path), sys.modules[CHECKS + name].__dict__)
        sheet = sys.modules[CHECKS].Sheet(self.chapter, variant=self.variant)
        return sheet, sys.modules[f"{CHECKS}.{self.room}"]


@functools.cache
def _compiled(source, path):
    """Each answer runs the bundle anew, and need not translate it anew."""
    return compile(source, path, "exec")


def _orders(count):
    return itertools.chain.from_iterable(
        itertools.permutations(range(count), taken) for taken in range(count, 0, -1)
    )


def _listening(function, note):
    def listens(*given):
        found = function(*given)
        note(found if isinstance(found, tuple) else [found])
        return found

    return listens


def _passes(sheet, exercise, answer):
    try:
        with open(os.devnull, "w") as nothing:
            before, sys.stdout = sys.stdout, nothing
            try:
                sheet.check(exercise, answer)
            finally:
                sys.stdout = before
        return True
    except BaseException:
        return False


def _adapted(function, taken, places):
    def adapted(*given):
        named = dict(zip([p.name for p in taken], [given[i] for i in places], strict=True))
        positions = [p.name for p in taken if p.kind is p.POSITIONAL_ONLY]
        return function(*(named.pop(name) for name in positions), **named)

    return adapted


def _key(values):
    return repr([
        (tuple(v.shape), _bytes(v)) if isinstance(v, torch.Tensor) else v for v in values
    ])  # fmt: skip


def _bytes(tensor):
    return tensor.detach().double().numpy().tobytes()  # quicker to write than its numbers


def _distance(those, these):
    if len(those) != len(these):
        return float("inf")
    total = 0.0
    for a, b in zip(those, these, strict=True):
        try:
            total += float((torch.as_tensor(a).double() - torch.as_tensor(b).double()).abs().sum())
        except Exception:
            total += 1.0 if a is b else 100.0
    return total


class _Spied:
    """What a check compares with, call by call."""

    def __init__(self, sheet, exercise):
        self.sheet, self.exercise = sheet, sheet.exercises[exercise]
        self.name = exercise
        self.table = {}
        self.calls = []
        self.most = 0  # arguments of a call
        for _ in range(200):
            known = len(self.table)
            self._run(lambda given: None, self._note)
            if len(self.table) == known:
                break

    def _run(self, on_call, on_equal):
        attempts = sys.modules[f"{CHECKS}.attempt"]
        table, spied = self.table, self

        class Spy(attempts.Attempt):
            def __call__(self, *given, **named):
                self.asked, spied.most = given, max(spied.most, len(given))
                on_call(given)
                return table.get(_key(given), _placeholder(given))

            def gradient(self, *given, wrt=0, **named):
                self.asked, spied.most = given, max(spied.most, len(given))
                on_call(given)
                found = table.get(_key(given))
                return torch.zeros_like(given[wrt]) if found is None else found

            def tensor(self, result, *more, **named):
                return result if isinstance(result, torch.Tensor) else torch.as_tensor(result)

            def number(self, result):
                return float(result)

            def equal(self, result, expected, **named):
                on_equal(self.asked, expected)

            def choice(self, result, right, among):
                on_equal(self.asked, right)

            def holds(self, *given, **named):
                pass

        with contextlib.suppress(Exception):
            self.exercise.check(Spy(lambda: None), self.sheet._generator(self.name))

    def _note(self, asked, expected):
        if _key(asked) not in self.table:
            self.table[_key(asked)] = expected
            self.calls.append((asked, expected))
            raise Caught

    def values(self):
        """All that the check computes on its way, found by tracing it."""
        found, rooms = [], self.exercise.check.__code__.co_filename

        def trace(frame, event, value):
            if frame.f_code.co_filename == rooms:
                if event == "return" and len(found) < 2000:
                    found.extend([*frame.f_locals.values(), value])
                return trace
            return None

        sys.settrace(trace)
        try:
            self._run(lambda given: None, lambda *any: None)
        finally:
            sys.settrace(None)
        found += list(self.table.values())
        plain = (torch.Tensor, dict, list, tuple, float, str, types.FunctionType)
        unique = {id(x): x for x in found if isinstance(x, plain)}
        return list(unique.values())[:200]

    def nearest(self, *given):
        """From the table; else what it has for the arguments that are most like these."""
        known = self.table.get(_key(given))
        if known is None:
            known = min(self.calls, key=lambda call: _distance(call[0], given), default=(0, None))[
                1
            ]
        if known is None:
            return _placeholder(given)
        if any(isinstance(x, torch.Tensor) and x.requires_grad for x in given):
            return _with_gradient(known, given)
        return known

    def answer(self, *given):
        """From the table; else by the check's own hands, with these arguments put under them."""
        if (known := self.table.get(_key(given))) is not None:
            if any(isinstance(x, torch.Tensor) and x.requires_grad for x in given):
                return _with_gradient(known, given)
            return known
        caught = []

        def puts(theirs):
            if len(theirs) == len(given):
                for old, new in zip(theirs, given, strict=True):
                    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
                        old.set_(new.detach().to(old.dtype).clone())

        self._run(puts, lambda asked, expected: caught.append(expected))
        return caught[-1] if caught else None


def _placeholder(given):
    for like in given:
        if isinstance(like, torch.Tensor) and like.is_floating_point():
            return torch.zeros_like(like)
    return 0.5


def _with_gradient(known, given):
    for x in given:
        if isinstance(x, torch.Tensor) and x.requires_grad and isinstance(known, torch.Tensor):
            return (known.to(x.dtype) * x).sum()
    return known
