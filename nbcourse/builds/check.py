"""Examine a folder: each piece by its laws, and the tests by the wrong trainers that they catch."""

import ast
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence

from nbcourse.builds import (
    actor_critic,
    bench,
    credit,
    exploits,
    gating,
    learning,
    pieces,
    planning,
    reading,
)
from nbcourse.builds.bench import Bench, Law, Runs, blamed
from nbcourse.builds.mistakes import MISTAKES, Way
from nbcourse.builds.pieces import Folder, PieceState
from nbcourse.builds.report import Build, Judged, Report, Tests, Verdict

LAWS: Sequence[Law] = (
    *credit.LAWS, *learning.LAWS, *actor_critic.LAWS, *reading.LAWS, *planning.LAWS,
    *gating.LAWS,
)  # fmt: skip
# Right as well, by other sums: a test that compares texts, or the last bits, accuses them.
ALSO_RIGHT = {
    "estimator": (("return (groups - others).flatten()", "return (groups - others).reshape(-1)"),),
    "reinforce": (
        (
            "[:, -T - 1 : -1].log_softmax(dim=-1)\n"
            '    return distribution.gather(2, rollout["tokens"][..., None]).squeeze(2)',
            '[:, -T - 1 : -1]\n    picked = distribution.gather(2, rollout["tokens"][..., None])\n'
            "    return picked.squeeze(2) - distribution.logsumexp(dim=-1)",
        ),
    ),
    "ppo": (("(kept.var() + 1e-8).sqrt()", "(kept.std() + 1e-8)"),),
    "grpo": (("eps: float = 1e-4", "eps: float = 1e-6"),),
}


def check(
    folder: Folder,
    *,
    runs: Runs = bench.here,
    only: Sequence[str] = pieces.NAMES,
    tests: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Examine a folder.

    A piece stands on those before it. Where one of them is missing, or breaks a law, the book's is
    put in its place, so that a mistake costs once.

    Args:
        folder: what was handed in.
        runs: runs files and answers, in this process or in another one.
        only: the pieces to examine.
        tests: whether to judge the reader's tests and exploits.
        tell: is told what is looked at next.
    """
    builds = []
    right: set[str] = set()
    for name in pieces.NAMES:
        needed = name in only or any(name in _reached(pieces.solution(other)) for other in only)
        if not needed:
            continue
        build = _examined(folder, name, right, runs, tell)
        if build.right or build.state == PieceState.TAKEN:
            right.add(name)
        if name in only:
            builds.append(build)
    found = judged_tests(folder, runs=runs, tell=tell) if tests else None
    tried = exploits.judged(folder, runs=runs) if tests else None
    return Report(folder.name, builds, found, tried)


def _examined(
    folder: Folder, name: str, right: set[str], runs: Runs, tell: Callable[[str], None]
) -> Build:
    laws = [law for law in LAWS if law.piece == name]
    state, remark = folder.state(name)
    if state != PieceState.OWN:
        return Build(name, state, remark, [Judged(law, Verdict.OPEN) for law in laws])
    under = _reached(pieces.solution(name))
    beneath = [other for other in under if other not in right]
    sources = {
        other: folder.sources[other] if other in right else pieces.solution(other)
        for other in under
    }
    with runs(sources | {name: folder.sources[name]}) as asked:
        judged = list(judge(laws, asked, tell))
    return Build(name, state, remark, judged, beneath)


def judge(
    laws: Sequence[Law], asked: Bench, tell: Callable[[str], None] = lambda _: None
) -> Iterable[Judged]:
    """Each law in turn; one that builds on a broken one is not examined."""
    open_or_broken: set[str] = set()
    for law in laws:
        if blocking := [name for name in law.after if name in open_or_broken]:
            open_or_broken.add(law.name)
            yield Judged(law, Verdict.OPEN, waits_for=blocking[0])
            continue
        tell(f"{law.piece}: {law.sentence}")
        try:
            finding = law.look(asked)
        except Exception as error:
            finding = blamed("", _raised(error))
        if finding:
            open_or_broken.add(law.name)
        yield Judged(law, Verdict.BROKEN if finding else Verdict.HOLDS, finding)


def _raised(error: Exception) -> str:
    """What stopped a law, and the reader's line that was running, where it is known here."""
    kind = getattr(error, "state", type(error).__name__)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.removesuffix(".py") in pieces.NAMES]
    place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    told = f"{kind}: {str(error)[:300]}{place}"
    if "No module named" in told:
        told += "; of a folder's files only the pieces and test_….py are read"
    return told


def judged_tests(
    folder: Folder,
    *,
    runs: Runs = bench.here,
    tell: Callable[[str], None] = lambda _: None,
) -> Tests:
    """Run a reader's tests against healthy trainers and against wrong ones."""
    healthy = bench.with_given({name: pieces.solution(name) for name in pieces.NAMES})
    own = {name: folder.sources[name] for name in folder.tests}
    mistakes = list(MISTAKES)
    if not own:
        return Tests([], [], [], mistakes)
    other = healthy | {name: Way(name, edits).text() for name, edits in ALSO_RIGHT.items()}
    with runs({}) as asked:
        tell("your tests, on healthy trainers")
        accused = dict(failures(asked, other | own, list(own)))
        accused |= dict(failures(asked, healthy | own, list(own)))
        if accused:
            return Tests(list(own), list(accused.items()), [], mistakes)
        caught = []
        for name in mistakes:
            mistake = MISTAKES[name]
            touched = [test for test in own if mistake.piece in _reached(own[test])]
            if not touched:
                continue
            tell(f"your tests, on {mistake.piece} with {name}")
            wrong = healthy | {mistake.piece: mistake.text()} | own
            if any(failures(asked, wrong, touched)):
                caught.append(name)
    missed = [name for name in mistakes if name not in caught]
    return Tests(list(own), [], caught, missed)


def failures(
    asked: Bench, sources: Mapping[str, str], names: Sequence[str]
) -> list[tuple[str, str]]:
    """The tests of some modules that fail against these files, and what they say."""
    try:
        outcomes = asked("tested", bench.WARM.single, dict(sources), list(names))
    except Exception as error:  # it ended its process, or did not end
        return [(", ".join(names), f"{type(error).__name__}: {str(error)[:200]}")]
    return [(test, said) for test, said in outcomes if said]


def _reached(source: str) -> list[str]:
    """The pieces that a text imports, directly or not, in the order of `NAMES`."""
    found: set[str] = set()
    waiting = [source]
    while waiting:
        try:
            nodes = list(ast.walk(ast.parse(waiting.pop())))
        except pieces.NO_PYTHON:
            continue  # its import fails, which a healthy trainer hears of first
        names = {
            alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
        }
        names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
        fresh = (names & set(pieces.NAMES)) - found
        found |= fresh
        waiting += [pieces.solution(name) for name in fresh]
    return [name for name in pieces.NAMES if name in found]
